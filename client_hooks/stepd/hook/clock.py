"""The step clock: how long the steps of each kind take on each strategy. It tells kinds apart by fetches, feeds and targets.

`KindClock.add` runs on the program's thread after every step: it appends to deques, which need no lock, and allocates nothing
beyond them. Everything else is for the observer's own thread. It knows no statistics and no daemon.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

from stepd.hook.ports import RunRecord, StepKind

RECENT_STEPS = 128
UNREPORTED_STEPS = 4096
WARM_UP_STEPS = 2  # after the first run on a strategy, which builds executors: allocators and caches fill


class KindClock:
    """Times of one step kind in one session.

    `recent`: seconds of the latest plain, warmed-up, faultless steps on `strategy_id`; emptied when the strategy changes.
    `unreported`: those that the daemon has not been told, as (strategy, seconds).
    `traces_wanted`: how many more steps of this kind should be traced.
    `busy_seconds`, `driven`: time on the thread that drives the session, and whether it ever ran there.
    """

    __slots__ = (
        "_warm_up",
        "busy_seconds",
        "driven",
        "kind",
        "recent",
        "runs",
        "strategy_id",
        "traces_wanted",
        "unreported",
    )

    def __init__(self, kind: StepKind) -> None:
        self.kind = kind
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
        self.runs += 1
        seconds = record.seconds
        if driving:
            self.driven = True
            self.busy_seconds += seconds
        if record.strategy_id != self.strategy_id:
            self.strategy_id = record.strategy_id
            self.recent = deque(maxlen=RECENT_STEPS)
            self._warm_up = WARM_UP_STEPS
        if record.traced or record.switched or record.first_on_strategy or record.error:
            return False
        if self._warm_up:
            self._warm_up -= 1
            return False
        self.recent.append(seconds)
        self.unreported.append((record.strategy_id, seconds))
        return True

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

    __slots__ = ("_driver", "_last_end", "gap_seconds", "gaps", "kinds")

    def __init__(self) -> None:
        self.kinds: dict[str, KindClock] = {}
        self.gap_seconds = 0.0
        self.gaps = 0
        self._last_end = 0.0
        self._driver = 0

    def driving(self) -> bool:
        """Is the calling thread the one that drives the session?"""
        return threading.get_ident() == self._driver

    def add(self, record: RunRecord) -> tuple[KindClock, bool]:
        """Note a finished run; the clock of its kind, and whether it counts as a plain step."""
        clock = self.kinds.get(record.kind.id)
        if clock is None:
            clock = self.kinds.setdefault(record.kind.id, KindClock(record.kind))
        ident = threading.get_ident()
        if ident != self._driver and (not self._driver or ident == threading.main_thread().ident):
            self._driver, self._last_end = ident, 0.0
        driving = ident == self._driver
        if driving:
            if self._last_end > 0.0:
                self.gap_seconds += max(0.0, record.start - self._last_end)
                self.gaps += 1
            self._last_end = record.start + record.seconds
        return clock, clock.add(record, driving)

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
        return self.gap_seconds / self.gaps if self.gaps else 0.0


def _drain(queue: deque[tuple[str, float]]) -> Iterator[tuple[str, float]]:
    while True:
        try:
            yield queue.popleft()
        except IndexError:
            return
