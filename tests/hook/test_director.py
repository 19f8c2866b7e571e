"""Trials of one session, step by step, with an engine that switches at the next step."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from stepd.hook.clock import SessionClock
from stepd.hook.director import Director
from stepd.hook.model import LiveStrategy, SwitchOutcome, Way
from stepd.hook.phase import Phase
from stepd.hook.sampling import Budget
from stepd.hook.trial import Outcome, TrialVerdict


class Trial:
    """A director, a fake engine, and a program whose steps take as long as `seconds` says for each strategy."""

    def __init__(self, engine: object) -> None:
        self.engine = engine
        self.clocks = SessionClock()
        self.budget = Budget(0.01, 0.0)
        self.posted: list[Callable[[], None]] = []
        self.verdicts: list[TrialVerdict] = []
        self.switches: list[SwitchOutcome] = []
        self.director = Director(engine, self.clocks, self.budget, 0.02, self, self.posted.append)  # type: ignore[arg-type]
        self.seconds = {"": 0.1, "good": 0.06, "bad": 0.3, "better": 0.05}
        self.load = 1.0
        self._noise = random.Random(0)
        self.now = 0.0

    def switch_done(self, engine: object, outcome: SwitchOutcome) -> None:
        self.switches.append(outcome)

    def trial_ended(self, engine: object, verdict: TrialVerdict) -> None:
        self.verdicts.append(verdict)

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.engine.switch()  # type: ignore[attr-defined]
            seconds = self.seconds[self.engine.strategy_id] * self.load * (1 + self._noise.random() / 20)  # type: ignore[attr-defined]
            self.clocks.add(self.engine.record(seconds))  # type: ignore[attr-defined]
            self.now += seconds
            while self.posted:
                self.posted.pop(0)()
            self.director.tick(self.now)

    def ask(self, name: str, **more: object) -> None:
        self.director.activate(LiveStrategy(name, {}, **more), Way.AUTO)  # type: ignore[arg-type]

    def outcomes(self) -> list[tuple[str, Outcome]]:
        return [(verdict.strategy_id, verdict.outcome) for verdict in self.verdicts]


@pytest.fixture
def trial(engine: object) -> Trial:
    return Trial(engine)


def test_a_faster_strategy_is_kept(trial: Trial) -> None:
    trial.steps(20)
    trial.ask("good")
    trial.steps(30)
    verdict = trial.verdicts[0]
    assert trial.outcomes() == [("good", Outcome.KEPT)]
    assert trial.engine.strategy_id == "good"
    assert verdict.before_seconds == pytest.approx(0.1, rel=0.06)
    assert verdict.after_seconds == pytest.approx(0.06, rel=0.06)
    assert verdict.before_steps >= 5
    assert verdict.p_value < 0.01


def test_the_session_is_tidied_up_after_a_trial_and_not_in_it(trial: Trial) -> None:
    trial.steps(20)
    trial.ask("good")
    trial.steps(3)
    assert trial.engine.compactions == []
    trial.steps(27)
    assert trial.engine.compactions == ["good"]
    left = trial.budget.left()
    trial.ask("bad")
    trial.steps(12)
    assert trial.outcomes()[-1] == ("bad", Outcome.ROLLED_BACK)
    assert trial.engine.compactions == ["good", "good"] and trial.budget.left() < left


def test_a_bad_strategy_costs_a_few_steps_and_is_refused_from_then_on(trial: Trial) -> None:
    trial.steps(20)
    trial.ask("bad")
    trial.steps(8)
    assert trial.outcomes() == [("bad", Outcome.ROLLED_BACK)]
    assert trial.engine.strategy_id == ""
    assert trial.switches[-1].rollback
    trial.ask("bad")
    trial.steps(8)
    assert trial.outcomes()[1] == ("bad", Outcome.FAILED)
    assert trial.engine.requests == ["bad", ""]


def test_an_operator_may_try_again_and_is_guarded(trial: Trial) -> None:
    trial.steps(20)
    trial.ask("bad")
    trial.steps(10)
    trial.ask("bad", origin="operator")
    trial.steps(20)
    assert trial.outcomes() == [("bad", Outcome.ROLLED_BACK)] * 2


def test_a_pinned_strategy_is_kept_whatever_it_measures(trial: Trial) -> None:
    trial.ask("bad", origin="operator", pin=True)
    trial.steps(40)
    assert trial.outcomes() == [("bad", Outcome.KEPT)]
    assert trial.engine.strategy_id == "bad"


def test_a_trial_waits_for_the_old_strategys_step_times(trial: Trial) -> None:
    trial.ask("good")
    trial.steps(4)
    assert trial.engine.requests == []
    trial.steps(6)
    assert trial.engine.requests == ["good"]


def test_a_planner_waits_for_the_budget_and_an_operator_does_not(trial: Trial) -> None:
    trial.steps(20)
    trial.budget.spend(100.0)
    trial.ask("good")
    trial.steps(5)
    assert trial.engine.requests == []
    trial.ask("good", origin="operator")
    trial.steps(30)
    assert trial.outcomes() == [("good", Outcome.ABANDONED), ("good", Outcome.KEPT)]


def test_losing_against_a_kept_strategy_returns_to_that_one(trial: Trial) -> None:
    trial.steps(20)
    trial.ask("good")
    trial.steps(30)
    trial.ask("bad")
    trial.steps(30)
    assert trial.engine.strategy_id == "good"
    assert trial.switches[-1].rollback
    trial.ask("better")
    trial.steps(40)
    assert trial.engine.strategy_id == "better"


def test_a_switch_that_fails_changes_nothing(trial: Trial) -> None:
    trial.engine.switch_error = "no kernel for op X on device Y"
    trial.steps(20)
    trial.ask("good")
    trial.steps(5)
    assert trial.outcomes() == [("good", Outcome.FAILED)]
    assert "no kernel for op X" in trial.verdicts[0].reason
    assert trial.director.phase is Phase.IDLE


def test_a_strategy_that_raised_is_remembered(trial: Trial) -> None:
    trial.steps(20)
    trial.ask("good")
    trial.steps(3)
    trial.engine.strategy_id = ""
    trial.director.failed("good", "ResourceExhaustedError")
    trial.steps(5)
    trial.ask("good")
    assert trial.outcomes() == [("good", Outcome.FAILED)] * 2


def test_a_strategy_that_raises_on_trial_gives_way_to_the_one_before(trial: Trial) -> None:
    trial.steps(20)
    trial.ask("good")
    trial.steps(30)
    trial.ask("better")
    trial.steps(2)
    trial.engine.strategy_id = ""
    trial.director.failed("better", "ResourceExhaustedError")
    trial.steps(5)
    assert trial.engine.strategy_id == "good"


def test_noise_of_the_machine_is_told_from_a_bad_strategy(trial: Trial) -> None:
    """Another program takes a third of the machine just when the trial begins: a gain looks like a loss."""
    trial.seconds["good"] = 0.09
    trial.steps(20)
    trial.load = 1.5
    trial.ask("good")
    trial.steps(120)
    assert trial.outcomes() == [("good", Outcome.KEPT)]
    assert trial.engine.requests == ["good", "", "good"]


def test_noise_that_hides_a_loss_does_not_get_a_bad_strategy_kept(trial: Trial) -> None:
    """The machine is slow while the old strategy is measured again: the second round finds out."""
    trial.seconds["poor"] = 0.12
    trial.steps(20)
    trial.ask("poor")
    while trial.director.phase is not Phase.COMPARING:
        trial.steps(1)
    trial.load = 1.5
    trial.steps(100)
    assert trial.outcomes() == [("poor", Outcome.ROLLED_BACK)]
    assert trial.engine.requests == ["poor", "", "poor", ""]
    assert trial.engine.strategy_id == ""


def test_the_operator_can_end_a_trial(trial: Trial) -> None:
    trial.steps(20)
    trial.ask("good")
    trial.steps(4)
    trial.director.roll_back("rolled back by the operator")
    trial.steps(4)
    assert trial.outcomes() == [("good", Outcome.ABANDONED)]
    assert trial.engine.strategy_id == ""


def test_a_session_that_closes_in_a_trial_says_so(trial: Trial) -> None:
    trial.steps(20)
    trial.ask("good")
    trial.steps(4)
    trial.director.close()
    assert trial.outcomes() == [("good", Outcome.ABANDONED)]
    assert trial.verdicts[0].after_steps > 0


def test_going_back_is_tried_until_it_succeeds(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    trial.steps(20)
    trial.ask("bad")
    trial.steps(1)
    refusals = iter([True, True])
    honest = trial.engine.request_rollback

    def refuse_twice(reason: str, done: Callable[[SwitchOutcome], None]) -> None:
        if next(refusals, False):
            done(SwitchOutcome("bad", Way.IN_SESSION, False, "no quiet moment", rollback=True))
        else:
            honest(reason, done)

    monkeypatch.setattr(trial.engine, "request_rollback", refuse_twice)
    monkeypatch.setattr("stepd.hook.director._now", lambda: trial.now)
    trial.steps(60)
    assert trial.engine.strategy_id == ""
    assert ("bad", Outcome.ROLLED_BACK) in trial.outcomes()
