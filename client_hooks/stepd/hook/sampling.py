"""Which steps are traced, and what profiling and trials may cost.

The budget is a token bucket of seconds lost: full at the start with a tenth of an hour's allowance, refilled by nine tenths of
the allowed share of wall time. Over any hour at most the allowance (1 % by default: 36 s, 3.6 s of it at once) is lost, so that
learning happens within the first seconds of a short job as well. A trace costs what its step took beyond the median plain step
of its kind; a trial costs what its steps took beyond the old strategy's median, and what the switch made a step wait. Whoever
overdraws the bucket (one step can) pays it back: nothing is traced and nothing tried until it holds seconds again.
"""

from __future__ import annotations

from stepd.hook.clock import KindClock, SessionClock
from stepd.hook.ports import RunRecord
from stepd.hook.stats import median

HOUR = 3600.0
BURST_SHARE = 0.1
FIRST_TRACES = 8  # of every kind, before the daemon asks for anything
SECONDS_BETWEEN_TRACES = 60.0  # of one kind, once the first are done
SHARE_THAT_MATTERS = 0.02
TRACE_ERRORS_TOLERATED = 2


class Budget:
    """The token bucket. `share`: of wall time; times are seconds of a monotonic clock, given by the caller."""

    def __init__(self, share: float, now: float) -> None:
        self.capacity = share * HOUR * BURST_SHARE
        self._rate = share * (1.0 - BURST_SHARE)
        self._tokens = self.capacity
        self._at = now
        self.spent = 0.0

    def spend(self, seconds: float) -> None:
        """Take seconds that were lost; may overdraw. Negative seconds (noise) count as nothing."""
        if seconds > 0.0:
            self._tokens -= seconds
            self.spent += seconds

    def refill(self, now: float) -> None:
        """Let wall time earn tokens."""
        self._tokens = min(self.capacity, self._tokens + (now - self._at) * self._rate)
        self._at = now

    def left(self) -> float:
        """Seconds that may be lost now; negative while in debt."""
        return self._tokens


class Sampler:
    """Hands out traces of one session. `wants` runs before every step on the program's thread."""

    def __init__(self, budget: Budget, mode: str) -> None:
        self._budget = budget
        self.always = mode == "always"
        self._off = mode == "off"
        self._errors = 0
        self._next: dict[str, float] = {}
        self.listening = False  # somebody receives the traces
        self.paused = False

    def wants(self, clock: KindClock | None) -> bool:
        """Should the next run of this kind be traced?"""
        if self.always:
            return True
        return (
            clock is not None
            and clock.traces_wanted > 0
            and self.listening
            and not self.paused
            and self._budget.left() > 0.0
            and clock.warm  # the first runs on a strategy build executors and fill caches
        )

    def traced(self, clock: KindClock, record: RunRecord) -> None:
        """Note what a traced run cost, and stop tracing where traced runs raise. One that a switch fell on shows nothing of use."""
        if record.switched or record.first_on_strategy:
            return
        clock.traces_wanted = max(0, clock.traces_wanted - 1)
        if record.error:
            self._errors += 1
            self._off = self._off or self._errors >= TRACE_ERRORS_TOLERATED
            return
        if clock.recent:
            self._budget.spend(record.seconds - median(clock.recent))

    def plan(self, clocks: SessionClock, now: float) -> None:
        """Decide which kinds want traces (the observer's thread, about once a second)."""
        if self._off or self.always:
            for clock in list(clocks.kinds.values()):
                clock.traces_wanted = 0
            return
        shares = clocks.shares()
        for clock in list(clocks.kinds.values()):
            due = self._next.get(clock.kind.id)
            if due is None:
                self.request(clock, FIRST_TRACES)
                self._next[clock.kind.id] = now + SECONDS_BETWEEN_TRACES
            elif now >= due and shares.get(clock.kind.id, 0.0) >= SHARE_THAT_MATTERS:
                self.request(clock, 1)
                self._next[clock.kind.id] = now + SECONDS_BETWEEN_TRACES

    def request_all(self, clocks: SessionClock, steps: int) -> None:
        """The daemon wants `steps` traces of every kind that matters."""
        shares = clocks.shares()
        for clock in list(clocks.kinds.values()):
            if shares.get(clock.kind.id, 0.0) >= SHARE_THAT_MATTERS:
                self.request(clock, steps)

    def request(self, clock: KindClock, steps: int) -> None:
        """Trace at least the next `steps` runs of a kind, as the budget allows."""
        if not self._off:
            clock.traces_wanted = max(clock.traces_wanted, steps)
