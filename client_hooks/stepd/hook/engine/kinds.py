"""Step kinds: one object for everything that is known about one combination of feeds, fetches and targets of a session."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from stepd.hook.engine import capi
from stepd.hook.engine.ahead import Built
from stepd.hook.engine.draws import History
from stepd.hook.engine.graphview import split_input
from stepd.hook.ports import Notes, StepKind


class Route(NamedTuple):
    """Where a kind's tensors and ops are in the mirror, and how to call for its run when that was built ahead.

    `feeds`: the user's TF_Output -> the mirror's.
    """

    feeds: dict[Any, Any]
    fetches: list[Any]
    targets: list[Any]
    built: Built | None = None


# How long runs are held back for one attempt: this, and a few times what such a step takes.
_PATIENCE_SECONDS = 0.25
_PATIENCE_STEPS = 4.0


class Kind:
    """One combination of handles as the user passes them, and its route for the strategy in force.

    `route` None means: the user's own handles. `epoch` is the engine's epoch for which `route` was made.
    """

    __slots__ = (
        "_guessed", "ended_well", "epoch", "feeds", "fetches", "first_seconds", "in_parts", "least", "may_be_asked", "notes",
        "ran_on", "route", "runs", "seconds", "size", "step", "sums_shown", "targets", "waited",
    )  # fmt: skip

    def __init__(self, step: StepKind, key: tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]], size: int = 0) -> None:
        self.step = step
        self.size = size  # of the program's graph when it was first asked for, in ops; 0: not known
        self.fetches, self.targets, self.feeds = key
        self.route: Route | None = None
        self.epoch = -1
        self.ran_on: str | None = None
        self.runs = 0
        self.ended_well = False  # has a run of it, not in parts?
        self.notes: Notes | None = None  # where its plain runs may be noted
        # Is it fed bit by bit, or otherwise than its feeds say? Then no op may wait for anything but its inputs.
        self.in_parts = False
        self.may_be_asked = False  # has there been a run of it that could be asked for something on the hook's account?
        self.sums_shown = False  # is there nothing more to ask of how its plain runs add up?
        self.waited = False  # did the run that began last wait for a switch?
        self.seconds = 0.0  # of the last run
        self.first_seconds = 0.0  # of the first one, which built the executors
        self.least = math.inf  # of all runs
        self._guessed = False  # is the least a guess, because a switch held all runs so far back?

    def ops(self) -> set[str]:
        """Names of the ops that it feeds, fetches or runs."""
        return {split_input(name)[0] for name in (*self.step.feeds, *self.step.fetches, *self.step.targets)}

    def ran(self, seconds: float, held: float) -> None:
        """A run took `seconds`; switches held runs back for `held` seconds meanwhile, or had begun to before it came: how much of
        either the run felt is not known, so that it says nothing of how short a run can be. Of a first one no more is taken than is
        certain: it may have waited in a queue for all that time.
        """
        self.runs += 1
        self.seconds = seconds
        if self.runs == 1:
            self.first_seconds = seconds
            self.least, self._guessed = max(0.0, seconds - held), held > 0.0
        elif held <= 0.0:
            self.least, self._guessed = seconds if self._guessed else min(self.least, seconds), False


def step_kind(feeds: list[str], fetches: list[str], targets: list[str]) -> StepKind:
    """A StepKind of sorted, distinct names; the id hashes all three lists."""
    parts = tuple(tuple(sorted(set(names))) for names in (feeds, fetches, targets))
    digest = hashlib.blake2s("\0\0".join("\0".join(names) for names in parts).encode(), digest_size=8)
    return StepKind(digest.hexdigest(), *parts)


def patience(in_flight: Collection[Kind], most: float) -> float:
    """For how many seconds to hold runs back, so that those `in_flight` may end; at most `most`.

    A run that waits for others, in a queue, may take as long as they are held back: only its shortest says what the step takes.
    """
    return min(most, _PATIENCE_SECONDS + _PATIENCE_STEPS * max((kind.least for kind in in_flight if kind.runs), default=0.0))


class Kinds:
    """All kinds of one session, by the handles that a run passes."""

    def __init__(self, size: Callable[[], int] = int) -> None:
        """`size`: of so many ops is the program's graph, as the session has it now."""
        self._size = size
        self.by_handles: dict[tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]], Kind] = {}
        self._steps: dict[StepKind, StepKind] = {}
        # Kinds whose runs are not counted one by one, or failed half-way.
        self.uncertain: set[StepKind] = set()

    def get(self, key: tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]) -> Kind:
        return self.by_handles.get(key) or self.make(key)

    def make(self, key: tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]) -> Kind:
        """The kind of (fetches, targets, feeds), which are TF_Outputs, TF_Operations and TF_Outputs."""
        fetches, targets, feeds = key
        step = step_kind(
            [capi.output_name(t) for t in feeds],
            [capi.output_name(t) for t in fetches],
            [capi.op_name(op) for op in targets],
        )
        kind = Kind(self._steps.setdefault(step, step), key, self._size())
        return self.by_handles.setdefault(key, kind)

    def history(self) -> History:
        """What has run; exact while no run is in flight."""
        runs: Counter[StepKind] = Counter()
        for kind in self.all():
            runs[kind.step] += kind.runs
        return History(runs, frozenset(self.uncertain))

    def forget(self) -> None:
        """The program's session is gone: hold nothing of its graph any more."""
        for kind in self.all():
            kind.fetches = kind.targets = kind.feeds = ()
            kind.route = None
        self.by_handles.clear()

    def all(self) -> list[Kind]:
        return list(self.by_handles.values())

    def steps(self) -> list[StepKind]:
        return list(self._steps)
