"""What traffic forces: near the heaviest group, or too late for the step.

Suppose that a step takes no longer than T. The heaviest group, the anchor, is on some device. What would be done too late
elsewhere, or leave too little time for what waits for it, since outputs would have to be sent there or back, is on that device as
well; then what it reads and what reads it may be, and so on, until nothing changes. If there is an op for which no device is left,
or the ops that are on the anchor's device take longer than T there, or exceed its memory, and so whatever the kind of the device,
then no step is as short as T. (A destructive lower bound, as of Klein and Scholl for project scheduling, 1999; here for devices and
links.) The longest T that is refuted in some effort is the bound.

Devices of a kind are one column, with the cheapest link between two of them; the anchor's own is the first column. It knows no
strategy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepd.core.bound_kinds import MOST_KINDS, cheapest_links, kinds_of
from stepd.core.bound_paths import FAR_BACK, Neighbours, backwards, earliest_starts, forwards, joins
from stepd.core.bound_sharing import Sharing, windows
from stepd.core.prepared import Prepared
from stepd.core.problem import Float, Int

ROUNDING = 1.0 + 1e-9
LEVELS = 12
"""Heads from which on the ops of the anchor's device are taken together."""
FIRST = 0.005
"""By what share of itself a bound is first tried to be raised; twice as much each time that this succeeds."""
CLOSE = 2e-3
"""Share of the bound to which it is determined."""


@dataclass
class Effort:
    """Steps of kernels that are left; a step is some nanoseconds."""

    left: float

    def spend(self, steps: float) -> bool:
        """Whether there was enough."""
        self.left -= steps
        return self.left >= 0.0


@dataclass(frozen=True, eq=False)
class _Columns:
    """The anchor's device and the kinds of the others, k in all."""

    seconds: Float  # [n, k] inf where an op cannot be
    latency: Float  # [k, k] on the diagonal between two devices of the kind, inf where there are none
    per_byte: Float  # [k, k]
    memory: Int  # [k] bytes of one of its devices


def anchored_bound(prepared: Prepared, seconds: Float, least: float, most: float, effort: float) -> float:
    """Seconds, at least `least`, which is known to be a bound; that, where nothing fits at all.

    seconds: [n, d], inf where an op or its group cannot run; most: seconds that no strategy exceeds; effort: as of `Effort`.
    """
    memory = prepared.tables.memory
    kind, some = kinds_of(seconds, memory)
    if not 0.0 < least < most or len(memory) < 2 or len(some) > MOST_KINDS or not len(prepared.group_seconds):
        return least
    anchor = int(prepared.group_seconds.min(axis=1).argmax())
    left = Effort(effort)
    open_cases = [
        _Case(prepared, _columns(prepared, seconds, kind, some, own, anchor), left)
        for own in range(len(some))
        if np.isfinite(prepared.group_seconds[anchor, some[own]])
    ]

    def refuted(step: float) -> bool:
        for at, case in enumerate(open_cases):
            if not case.refutes(step):
                open_cases.insert(0, open_cases.pop(at))  # most likely it stands next time, too
                return False
        return True

    found = longest_refuted(refuted, least, most)
    return found if found < most else least


def longest_refuted(refuted: Callable[[float], bool], least: float, most: float) -> float:
    """The longest step up to `most` that is refuted, nearly; `least` where that is hardly more. A step is refuted if a longer one
    is."""
    known, share = least, FIRST
    while known < most:
        step = min(known * (1.0 + share), most)
        if not refuted(step):
            break
        known, share = step, 2.0 * share
    else:
        return most
    if known == least:
        return least
    while step - known > CLOSE * known:
        middle = (known + step) / 2.0
        if refuted(middle):
            known = middle
        else:
            step = middle
    return known


def _columns(prepared: Prepared, seconds: Float, kind: Int, some: Int, own: int, anchor: int) -> _Columns:
    """The anchor on a device of kind `own`."""
    tables = prepared.tables
    amount = np.bincount(kind)
    others = np.flatnonzero(amount - (np.arange(len(some)) == own) > 0)
    rows = np.concatenate([[own], others])
    latency, per_byte = (between[np.ix_(rows, rows)] for between in cheapest_links(tables, kind, len(some)))
    latency[0, 0] = np.inf
    if own in others and amount[own] == 2:
        at = 1 + int(np.flatnonzero(others == own)[0])
        latency[at, at] = np.inf
    on = seconds[:, some[rows]]
    on[tables.group == anchor, 1:] = np.inf
    return _Columns(np.ascontiguousarray(on), latency, per_byte, tables.memory[some[rows]])


class _Case:
    """The anchor on a device of one kind: what may be where in a step of some length."""

    def __init__(self, prepared: Prepared, columns: _Columns, effort: Effort) -> None:
        self._prepared = prepared
        self._columns = columns
        self._effort = effort
        self._allowed = columns.seconds  # of the shortest step that was not refuted; a shorter one allows no more
        tables = prepared.tables
        ways = self._ways(columns.seconds)
        self._joins = joins(ways[0]), joins(ways[1])
        n, k = columns.seconds.shape
        self._steps = 2.0 * (len(tables.input) * k * (k + 1) + min(n * n, FAR_BACK))

    def refutes(self, step: float) -> bool:
        """Whether no step is so short; False, too, where there was no effort left to tell."""
        seconds, before = self._allowed, -1
        while np.isfinite(seconds).sum() != before:
            if not self._effort.spend(self._steps):
                return False
            before = int(np.isfinite(seconds).sum())
            narrowed = self._narrowed(seconds, step * ROUNDING)
            if narrowed is None:
                return True
            seconds = narrowed
        self._allowed = seconds
        return False

    def _narrowed(self, seconds: Float, step: float) -> Float | None:
        """Seconds [n, k] of where ops may be yet; None when one may be nowhere, or too much is on the anchor's device."""
        tables = self._prepared.tables
        tied = np.isinf(seconds[:, 1:].min(axis=1, initial=np.inf))
        shared = Sharing(np.where(tied, seconds[:, 0], 0.0), np.ones(1))  # of the anchor's device alone
        head, tail = (earliest_starts(way, shared, far) for way, far in zip(self._ways(seconds), self._joins, strict=True))
        if self._overloaded(tied, head[:, 0], tail[:, 0], shared, step):
            return None
        barred = self._by_group(np.minimum, head) + self._by_group(np.add, seconds) + self._by_group(np.minimum, tail) > step
        barred |= self._by_group(np.maximum, head + seconds + tail) > step
        barred |= self._too_large(tied)
        if barred.all(axis=1).any():
            return None
        return np.where(barred[tables.group], np.inf, seconds)

    def _overloaded(self, tied: npt.NDArray[np.bool_], head: Float, tail: Float, shared: Sharing, step: float) -> bool:
        """Whether the ops that are on the anchor's device take longer than the step there."""
        if not np.isfinite(head[tied] + tail[tied]).all():
            return True  # what it waits for cannot be sent there
        by_tail = np.argsort(-tail, kind="stable")
        some = by_tail[tied[by_tail]].astype(np.int32)
        levels = np.unique(np.quantile(head[tied], np.linspace(0.0, 0.98, LEVELS)))
        return windows(head, tail, some, levels, shared) > step

    def _too_large(self, tied: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Groups [g, k] that would not fit: on the anchor's device beside those that are there, on others alone."""
        resident = self._prepared.group_resident
        there = tied[self._prepared.tables.group_op[self._prepared.tables.group_pointer[:-1]]]
        beside = np.zeros((len(resident), len(self._columns.memory)), dtype=np.int64)
        beside[:, 0] = resident[there].sum() - np.where(there, resident, 0)
        too_large: npt.NDArray[np.bool_] = (beside + resident[:, None] > self._columns.memory) & (resident[:, None] > 0)
        return too_large

    def _by_group(self, joined: np.ufunc, values: Float) -> Float:
        """`values` [n, k] of the ops of each group, taken together: [g, k]."""
        tables = self._prepared.tables
        together: Float = joined.reduceat(values[tables.group_op], tables.group_pointer[:-1], axis=0)
        return together

    def _ways(self, seconds: Float) -> tuple[Neighbours, Neighbours]:
        columns = self._columns
        some = self._prepared.tables, np.ascontiguousarray(seconds), columns.latency, columns.per_byte
        return forwards(*some), backwards(*some)
