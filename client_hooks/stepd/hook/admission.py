"""Which strategies a session tries, and when: the rules before a switch. Pure: what is asked and measured in, a word out.

It must not judge what a trial measured (the guard does), nor switch, nor tell anybody (the director does).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from stepd.hook import guard
from stepd.hook.clock import KindClock
from stepd.hook.model import LiveStrategy
from stepd.hook.sampling import Budget
from stepd.hook.trial import Outcome, Trial

PATIENCE_SECONDS = 60.0  # how long a planner's strategy may wait for the budget


class Turn(enum.Enum):
    """May a trial begin?"""

    NOW = "now"
    LATER = "later"
    NEVER = "never"  # it has waited for the budget for too long


def is_by_operator(strategy: LiveStrategy) -> bool:
    """What an operator asks for is tried whatever it did before and whatever it costs."""
    return strategy.origin == "operator"


def refusal(
    strategy: LiveStrategy, incumbent: LiveStrategy | None, lost: Mapping[str, str], paused: bool
) -> tuple[Outcome, str] | None:
    """How to answer at once, in place of a trial; None: it is to be tried.

    `incumbent`: what is kept while no trial runs, else None. `lost`: why strategies went, by id.
    """
    if not is_by_operator(strategy):
        if strategy.id in lost:
            return Outcome.FAILED, f"it lost before: {lost[strategy.id]}"
        if paused:
            return Outcome.ABANDONED, "the job is paused"
    if incumbent is not None and incumbent.id == strategy.id:
        return Outcome.KEPT, "it is in force already"
    return None


def turn(trial: Trial, main: KindClock | None, in_force: str, budget: Budget, now: float) -> Turn:
    """May `trial` begin now? `main`: the session's main step kind; `in_force`: the id of the strategy before."""
    if trial.strategy.pin:
        return Turn.NOW  # it is kept whatever it measures
    if main is None or len(main.recent) < guard.BASELINE_STEPS or main.strategy_id != in_force:
        return Turn.LATER  # the old strategy's step times are not known yet
    if is_by_operator(trial.strategy) or budget.left() > 0.0:
        return Turn.NOW
    return Turn.NEVER if now - trial.asked_at > PATIENCE_SECONDS else Turn.LATER
