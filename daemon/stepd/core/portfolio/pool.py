"""What the portfolio has found so far: the best point of each origin, so that the search does not lose sight of other ideas."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from stepd.core.bounds import longest_step
from stepd.core.penalty import Penalty
from stepd.core.placement.registry import RunAll
from stepd.core.portfolio.points import Point, evaluate, shortest_tails
from stepd.core.prepared import Prepared, prepare
from stepd.core.problem import Float, Index, Problem

WEIGHTS = (1.0, 0.0, 2.5)
"""How much transfers count in the upward ranks that are tried for each placement."""
CLOSE, FAR = 1.15, 1.5
"""How much longer than the best step a candidate's may be for all these to be tried, and to be simulated to its end."""
UNFIT = 6
"""Points without enough memory that are kept although others have enough."""
FIRST = 1e4
"""By how many times the length of a step ops are moved forward that run before all others."""
TEMPTING = 0.98
"""How long their steps may be, as a share of the best step that fits, to be worth making fit."""


@dataclass(frozen=True, eq=False)
class Entry:
    """A point, the weight of transfers in its order rule, and its origin for the operator."""

    point: Point
    weight: float
    origin: str


@dataclass(frozen=True, eq=False)
class Candidate:
    """A placement int32 [n] to try, with an order of its own (int32 [n]) where it has one."""

    origin: str
    placement: Index
    priority: Index | None = None


@dataclass(eq=False)
class Pool:
    """The points of one search on one problem. `size` of them are kept, no two of one origin or with the same placement.

    order, unordered: as in PlanOptions, the order that ops run in whatever a candidate says, and those that run before all others.
    sparing: what is not nearly the best in the first order that it is tried in is tried in no other.
    """

    problem: Problem
    run_all: RunAll = map
    order: Index | None = None
    unordered: npt.NDArray[np.bool_] | None = None
    sparing: bool = False
    size: int = 24
    entries: list[Entry] = field(default_factory=list)
    unfit: list[Entry] = field(default_factory=list)  # the shortest steps for which memory does not suffice, one of an origin

    def __post_init__(self) -> None:
        self.prepared: Prepared = prepare(self.problem)
        tables = self.prepared.tables
        self.tail: Float = shortest_tails(tables)
        self.empty: Float = np.zeros(0)
        longest = longest_step(self.prepared) + 1e-9  # whatever fits is better than what does not
        self.penalty = Penalty(longest, 10.0 * longest)
        serial = np.where(np.isfinite(tables.seconds), tables.seconds, 0.0).max(axis=1).sum()
        self.key_step = (float(serial) + 1e-9) / self.problem.n_ops
        first = np.zeros(self.problem.n_ops) if self.unordered is None else self.unordered.astype(np.float64)
        self.bias: Float = first * FIRST * (float(serial) + 1e-9)
        self.track = memory_can_bind(self.prepared)
        self._seen: set[bytes] = set()
        self._ranked: set[bytes] = set()  # placements that were tried in all orders

    @property
    def best(self) -> Entry:
        return self.entries[0]

    @property
    def cost(self) -> float:
        """That of the best point: seconds when memory suffices; inf when there is none."""
        return self.entries[0].point.cost if self.entries else np.inf

    def from_groups(self, origin: str, group_device: Index) -> Candidate:
        """The candidate that places groups int32 [g]."""
        return Candidate(origin, group_device[self.prepared.tables.group].astype(np.int32))

    def try_all(self, candidates: Iterable[Candidate]) -> None:
        """Add candidates, each in its best order. What is far from the best so far is not simulated to its end."""
        fresh = []
        for candidate in candidates:
            key = candidate.placement.tobytes() + (b"" if candidate.priority is None else candidate.priority.tobytes())
            if key not in self._seen:
                self._seen.add(key)
                fresh.append(candidate)
        limit = FAR * self.cost
        first = list(self.run_all(lambda candidate: self.in_first_order(candidate, limit), fresh))
        for entry in first:
            self.add(entry)
        if self.order is not None:
            return
        best = self.cost
        tried = zip(fresh, first, strict=True)
        more = [
            (candidate, entry)
            for candidate, entry in tried
            if (not self.sparing or entry.point.cost <= CLOSE * best) and candidate.placement.tobytes() not in self._ranked
        ]
        for entry in self.run_all(lambda item: self._by_rules(item[0], item[1], best), more):
            self.add(entry)
            if entry.point.cost <= CLOSE * best:
                self._ranked.add(entry.point.placement.tobytes())

    def in_first_order(self, candidate: Candidate, limit: float = np.inf) -> Entry:
        """The candidate in the order that is given, else in its own, else by the upward ranks of its placement; simulated to its
        end, unless it takes longer than `limit` seconds."""
        if self.order is not None:
            return self._own_order(Candidate(candidate.origin, candidate.placement, self.order), limit)
        if candidate.priority is not None:
            return self._own_order(candidate, limit)
        return self._entry(candidate, self.empty, WEIGHTS[0], limit)

    def _by_rules(self, candidate: Candidate, first: Entry, best: float) -> Entry:
        """The best of the candidate's `first` entry and of those by upward ranks that are left."""
        ranked = [] if candidate.priority is None else [self._entry(candidate, self.empty, WEIGHTS[0], FAR * best)]
        tried = [first, *ranked]
        if min(entry.point.cost for entry in tried) <= CLOSE * best:
            tried += [self._entry(candidate, self.empty, weight, FAR * best) for weight in WEIGHTS[1:]]
        return min(tried, key=lambda entry: entry.point.cost)

    def _own_order(self, candidate: Candidate, limit: float) -> Entry:
        """Priorities as keys in seconds, so that the search can shift them."""
        assert candidate.priority is not None
        base = (len(self.tail) - candidate.priority.astype(np.float64)) * self.key_step
        return self._entry(candidate, base, 0.0, limit)

    def _entry(self, candidate: Candidate, base: Float, weight: float, limit: float) -> Entry:
        point = evaluate(
            self.prepared.tables,
            candidate.placement,
            self.bias,
            base,
            weight,
            self.tail,
            self.penalty,
            self.track,
            limit if limit < self.penalty.once else np.inf,  # points without enough memory are compared in full
        )
        return Entry(point, weight, candidate.origin)

    def add(self, entry: Entry) -> None:
        """Keep `entry` when it is the best of its origin and among the best of all."""
        if not np.isfinite(entry.point.seconds):
            return
        if entry.point.overflow > 0.0:
            others = [other for other in self.unfit if other.origin != entry.origin or other.point.seconds < entry.point.seconds]
            if all(other.origin != entry.origin for other in others):
                self.unfit = sorted([*others, entry], key=lambda other: other.point.seconds)[:UNFIT]

        def alike(other: Entry) -> bool:
            return other.origin == entry.origin or np.array_equal(other.point.placement, entry.point.placement)

        if any(other.point.cost < entry.point.cost and alike(other) for other in self.entries):
            return
        self.entries = [*(other for other in self.entries if not alike(other)), entry]
        self.entries.sort(key=lambda item: item.point.cost)
        del self.entries[self.size :]

    def tempting(self) -> list[Entry]:
        """Points that would be better than the best if memory sufficed for them."""
        best = self.best.point
        return [entry for entry in self.unfit if best.overflow > 0.0 or entry.point.seconds < TEMPTING * best.seconds]

    def near_best(self, within: float, most: int) -> list[Entry]:
        """The best points of different origins, at most `most`, that cost at most `within` times the best."""
        return [entry for entry in self.entries[:most] if entry.point.cost <= within * self.cost]


def memory_can_bind(prepared: Prepared) -> bool:
    """Whether some placement could exceed some device's memory at all."""
    tables = prepared.tables
    most = int(tables.resident.sum()) + int(tables.output_bytes.sum()) + int(tables.temp.max(initial=0))
    return most > int(tables.memory.min())
