"""The step clock: how long the steps of each kind take on each strategy. It tells kinds apart by fetches, feeds and targets.

Plain steps are noted by the engine (`ports.Notes`) and counted here when somebody looks; of all others the clock hears at once, on
the program's thread. It knows no statistics and no daemon.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import TypeVar

from stepd.hook.ports import Notes, RunRecord, StepKind

T = TypeVar("T")

RECENT_STEPS = 128
UNREPORTED_STEPS = 4096
WARM_UP_STEPS = 2  # after the first run on a strategy, which builds executors: allocators and caches fill


class KindClock:
    """Times of one step kind in one session.

    `recent`: seconds of the latest plain, warmed-up, faultless steps on `strategy_id`; emptied when the strategy changes.
    `unreported`: those that the daemon has not been told, as (strategy, seconds).
    `traces_wanted`: how many more steps of this kind should be traced.
    `busy_seconds`, `driven`: time on the thread that drives the session, and whether it ever ran there.
    `notes`: where plain steps may be noted, once the clock is warm.
    """

    __slots__ = (
        "_warm_up",
        "busy_seconds",
        "driven",
        "kind",
        "notes",
        "recent",
        "runs",
        "strategy_id",
        "traces_wanted",
        "unreported",
    )

    def __init__(self, kind: StepKind, notes: Notes) -> None:
        self.kind = kind
        self.notes = notes
        self.strategy_id = ""
        self.runs = 0
        self.busy_seconds = 0.0
        self.driven = False
        self.recent: deque[float] = deque(maxlen=RECENT_STEPS)
        self.unreported: deque[tuple[str, float]] = deque(maxlen=UNREPORTED_STEPS)
        self.traces_wanted = 0
        self._warm_up = WARM_UP_STEPS

    def add(self, record: RunRecord, driving: bool = True) -> bool:
        """Note a finished run; True when it counts as a plain step of its strategy (and was appended to `recent`)."""
        self._count(record.seconds, driving)
        if record.strategy_id != self.strategy_id:
            self.strategy_id = record.strategy_id
            self.recent = deque(maxlen=RECENT_STEPS)
            self._warm_up = WARM_UP_STEPS
        if record.traced or record.switched or record.first_on_strategy or record.error:
            return False
        if self._warm_up:
            self._warm_up -= 1
            return False
        self._append(record.seconds)
        return True

    def noted(self, seconds: float, driving: bool) -> None:
        """Count a plain step that was noted, on the strategy of the one before it."""
        self._count(seconds, driving)
        self._append(seconds)

    def _count(self, seconds: float, driving: bool) -> None:
        self.runs += 1
        if driving:
            self.driven = True
            self.busy_seconds += seconds

    def _append(self, seconds: float) -> None:
        self.recent.append(seconds)
        self.unreported.append((self.strategy_id, seconds))

    @property
    def warm(self) -> bool:
        """Is the strategy that the latest run was on past its warm-up?"""
        return self.runs > 0 and not self._warm_up

    def take_unreported(self) -> dict[str, list[float]]:
        """Seconds by strategy since the last call. The program's thread may append meanwhile: nothing is lost."""
        taken: dict[str, list[float]] = {}
        for strategy, seconds in _drain(self.unreported):
            taken.setdefault(strategy, []).append(seconds)
        return taken


class SessionClock:
    """All kinds of one session, and the time that passes between its runs.

    A session is driven by one thread: the main thread if it runs steps, else the first that does. Time on others (queue runners,
    which are blocked most of the time) says nothing about what a step costs.
    """

    __slots__ = ("_driver", "_ended", "_gap_seconds", "_gaps", "_kinds", "_last_end", "_lock")

    def __init__(self) -> None:
        self._kinds: dict[str, KindClock] = {}
        self._ended: deque[tuple[StepKind, float, float, int]] = deque()
        # Several threads may end runs, and count those that were noted. A signal handler of the program may run a step meanwhile.
        self._lock = threading.RLock()
        self._gap_seconds = 0.0
        self._gaps = 0
        self._last_end = 0.0
        self._driver = 0

    @property
    def kinds(self) -> dict[str, KindClock]:
        """All kinds by id, with all that was noted so far."""
        if self._ended:
            with self._lock:
                for kind, start, seconds, thread in _drain(self._ended):
                    self._kinds[kind.id].noted(seconds, self._drives(start, seconds, thread))
        return self._kinds

    def driving(self) -> bool:
        """Is the calling thread the one that drives the session?"""
        return threading.get_ident() == self._driver

    def add(self, record: RunRecord) -> tuple[KindClock, bool]:
        """Note a finished run; the clock of its kind, and whether it counts as a plain step."""
        with self._lock:
            clock = self.kinds.get(record.kind.id)
            if clock is None:
                clock = self._kinds.setdefault(record.kind.id, KindClock(record.kind, Notes(self._ended)))
            return clock, clock.add(record, self._drives(record.start, record.seconds, threading.get_ident()))

    def _drives(self, start: float, seconds: float, thread: int) -> bool:
        """Whether a run was on the driving thread; the gap before it."""
        if thread != self._driver and (not self._driver or thread == threading.main_thread().ident):
            self._driver, self._last_end = thread, 0.0
        if thread != self._driver:
            return False
        if self._last_end > 0.0:
            self._gap_seconds += max(0.0, start - self._last_end)
            self._gaps += 1
        self._last_end = start + seconds
        return True

    def forget_half(self) -> None:
        """Halve what is known about time spent, so that a phase of the program that is over fades from `main_kind` and `shares`.

        A run that ends at this very moment on another thread may go uncounted, which changes nothing.
        """
        for clock in list(self.kinds.values()):
            clock.busy_seconds *= 0.5

    def main_kind(self) -> KindClock | None:
        """The kind that takes most of the time, of those that ran more than once; None before that."""
        repeated = [clock for clock in list(self.kinds.values()) if clock.runs > 1 and clock.driven]
        return max(repeated, key=lambda clock: clock.busy_seconds, default=None)

    def shares(self) -> dict[str, float]:
        """Share of the session's run time by kind id; sums to 1 after the first run."""
        clocks = list(self.kinds.values())
        total = sum(clock.busy_seconds for clock in clocks)
        return {clock.kind.id: clock.busy_seconds / total for clock in clocks} if total > 0.0 else {}

    def mean_gap(self) -> float:
        """Mean seconds between the end of a run and the start of the next."""
        return self._gap_seconds / self._gaps if self.kinds and self._gaps else 0.0


def _drain(queue: deque[T]) -> Iterator[T]:
    while True:
        try:
            yield queue.popleft()
        except IndexError:
            return
