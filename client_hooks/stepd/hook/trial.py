"""One trial of a strategy: what was asked, the step times of the old strategy and of the new one, and how it ended.

It decides nothing (the director and the guard do) and knows no engine and no sockets.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from stepd.hook.clock import KindClock, SessionClock
from stepd.hook.guard import CHECKPOINTS, Judgement, Samples
from stepd.hook.model import LiveStrategy, Way
from stepd.hook.stats import median

BASELINE_WINDOW = 40  # latest steps of the old strategy that a trial is compared with


class Outcome(enum.Enum):
    """How a trial ended; the wire's Verdict.Outcome by name."""

    KEPT = "kept"
    ROLLED_BACK = "rolled back"
    FAILED = "failed"
    ABANDONED = "abandoned"


@dataclass(frozen=True)
class TrialVerdict:
    """The end of one trial. Seconds are medians of plain steps of kind `kind`; 0.0: not measured."""

    strategy_id: str
    kind: str
    outcome: Outcome
    reason: str
    before_seconds: float = 0.0
    after_seconds: float = 0.0
    p_value: float = 1.0
    before_steps: int = 0
    after_steps: int = 0


@dataclass
class Trial:
    """A strategy that waits for its turn, or runs to be judged. `before` and `after`: seconds of steps by step kind."""

    strategy: LiveStrategy
    way: Way
    asked_at: float
    main: str = ""
    before: dict[str, tuple[float, ...]] = field(default_factory=dict)
    after: dict[str, tuple[float, ...]] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    measured_at: float = 0.0  # when `before` was taken
    next_look: int = 0
    judgement: Judgement | None = None
    compare: bool = False
    rounds: int = 1

    def begin(self, main: KindClock | None, clocks: SessionClock, old: str | None, now: float) -> None:
        """The switch is asked for. A trial that is judged is judged by steps of kind `main`.

        `old`: the id of the strategy that it is compared with; None when another is in force than was kept.
        """
        self.main = main.kind.id if main is not None and not self.strategy.pin else ""
        if old is not None:
            self.before = recent_steps(clocks, old)
        self.shares = clocks.shares()
        self.measured_at = now
        self.next_look = CHECKPOINTS[0]

    def begin_again(self) -> None:
        """The strategy is in force for another round, against steps that were measured just before."""
        self.rounds, self.compare, self.judgement, self.after = self.rounds + 1, False, None, {}
        self.next_look = CHECKPOINTS[0]

    def compare_with(self, clocks: SessionClock, old: str, now: float) -> None:
        """Take fresh steps of the old strategy in place of those from before the switch."""
        self.before = recent_steps(clocks, old)
        self.measured_at = now

    def collect(self, clocks: SessionClock) -> None:
        """Take the steps that ran on the strategy so far."""
        for name, clock in list(clocks.kinds.items()):
            if clock.strategy_id == self.strategy.id:
                self.after[name] = tuple(clock.recent)

    def samples(self) -> dict[str, Samples]:
        """What the guard compares, by step kind."""
        names = set(self.before) & set(self.after) | {self.main}
        return {name: Samples(self.before.get(name, ()), self.after.get(name, ()), self.shares.get(name, 0.0)) for name in names}

    def loss(self) -> float:
        """Seconds that the trial's steps took beyond what they would have taken on the old strategy."""
        return sum(sum(samples.after) * (1.0 - 1.0 / samples.ratio) for samples in self.samples().values() if samples.ratio > 1.0)

    def verdict(self, outcome: Outcome, reason: str) -> TrialVerdict:
        """The trial's end, with what was measured of its main step kind."""
        samples = self.samples().get(self.main, Samples((), ()))
        return TrialVerdict(
            strategy_id=self.strategy.id,
            kind=self.main,
            outcome=outcome,
            reason=reason,
            before_seconds=_median(samples.before),
            after_seconds=_median(samples.after),
            p_value=self.judgement.p_value if self.judgement else 1.0,
            before_steps=len(samples.before),
            after_steps=len(samples.after),
        )


def recent_steps(clocks: SessionClock, strategy_id: str) -> dict[str, tuple[float, ...]]:
    """Seconds of the latest steps on a strategy, by step kind."""
    return {
        name: tuple(clock.recent)[-BASELINE_WINDOW:]
        for name, clock in list(clocks.kinds.items())
        if clock.strategy_id == strategy_id
    }


def _median(values: tuple[float, ...]) -> float:
    return median(values) if values else 0.0
