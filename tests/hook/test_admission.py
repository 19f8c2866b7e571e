"""What may be tried, and when."""

from __future__ import annotations

from typing import Any

import pytest

from stepd.hook import guard
from stepd.hook.admission import PATIENCE_SECONDS, Turn, refusal, turn
from stepd.hook.clock import KindClock, SessionClock
from stepd.hook.model import LiveStrategy, Way
from stepd.hook.sampling import Budget
from stepd.hook.trial import Outcome, Trial

PLANNED = LiveStrategy("s1", {})
ORDERED = LiveStrategy("s1", {}, origin="operator")
PINNED = LiveStrategy("s1", {}, origin="operator", pin=True)


@pytest.fixture
def main(engine: Any) -> KindClock | None:
    """Of a session whose step times on the program's own placement are known."""
    made = SessionClock()
    for _ in range(guard.BASELINE_STEPS + 3):
        made.add(engine.record(0.1))
    return made.main_kind()


def spent() -> Budget:
    budget = Budget(0.01, 0.0)
    budget.spend(budget.capacity)
    return budget


def test_what_lost_is_tried_again_for_an_operator_only() -> None:
    assert refusal(PLANNED, None, {"s1": "it was slower"}, False) == (Outcome.FAILED, "it lost before: it was slower")
    assert refusal(ORDERED, None, {"s1": "it was slower"}, False) is None


def test_a_paused_job_is_tried_by_an_operator_only() -> None:
    assert refusal(PLANNED, None, {}, True) == (Outcome.ABANDONED, "the job is paused")
    assert refusal(ORDERED, None, {}, True) is None


def test_what_is_in_force_is_kept_without_a_trial() -> None:
    assert refusal(PINNED, PLANNED, {}, False) == (Outcome.KEPT, "it is in force already")
    assert refusal(LiveStrategy("s2", {}), PLANNED, {}, False) is None


def test_a_trial_waits_until_the_old_step_times_are_known(main: KindClock | None) -> None:
    trial, budget = Trial(PLANNED, Way.AUTO, 0.0), Budget(0.01, 0.0)
    assert turn(trial, None, "", budget, 1.0) is Turn.LATER
    assert turn(trial, main, "another", budget, 1.0) is Turn.LATER
    assert turn(trial, main, "", budget, 1.0) is Turn.NOW


def test_a_pinned_strategy_waits_for_nothing() -> None:
    assert turn(Trial(PINNED, Way.AUTO, 0.0), None, "", spent(), 1.0) is Turn.NOW


def test_a_planners_strategy_waits_for_the_budget_but_not_for_ever(main: KindClock | None) -> None:
    planned, ordered = Trial(PLANNED, Way.AUTO, 10.0), Trial(ORDERED, Way.AUTO, 10.0)
    assert turn(planned, main, "", spent(), 10.0 + PATIENCE_SECONDS) is Turn.LATER
    assert turn(planned, main, "", spent(), 11.0 + PATIENCE_SECONDS) is Turn.NEVER
    assert turn(ordered, main, "", spent(), 11.0 + PATIENCE_SECONDS) is Turn.NOW
