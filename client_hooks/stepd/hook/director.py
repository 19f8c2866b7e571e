"""Directs the trials of one session: switches to what is asked for, has the guard judge it, keeps it or goes back.

Runs on the observer's own thread only; the engine's answers arrive there as posted calls. It decides without the daemon and only
tells it. It leaves to admission.py what may be tried and when, to the guard what a trial has shown, and to phase.py what its phases
are. It knows no sockets and no graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from stepd.hook import admission, clocks, guard
from stepd.hook.admission import Turn
from stepd.hook.clock import KindClock, SessionClock
from stepd.hook.guard import Decision
from stepd.hook.log import logger
from stepd.hook.model import LiveStrategy, SwitchOutcome, Way
from stepd.hook.phase import Phase
from stepd.hook.ports import EnginePort
from stepd.hook.sampling import Budget
from stepd.hook.trial import Outcome, Trial, TrialVerdict

COMPARISON_STEPS = 10  # fresh steps of the old strategy in A/B/A/B
ROUNDS = 2
RETRY_SECONDS = 5.0


class Listener(Protocol):
    """Who hears about switches and verdicts. Called on the observer's thread."""

    def switch_done(self, engine: EnginePort, outcome: SwitchOutcome) -> None: ...

    def trial_ended(self, engine: EnginePort, verdict: TrialVerdict) -> None: ...


class Director:
    """See the module. `post` runs a function on the observer's thread soon."""

    def __init__(
        self,
        engine: EnginePort,
        clocks: SessionClock,
        budget: Budget,
        min_gain: float,
        listener: Listener,
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        self._engine = engine
        self._clocks = clocks
        self._budget = budget
        self._min_gain = min_gain
        self._listener = listener
        self._post = post
        self._waiting: Trial | None = None
        self._trial: Trial | None = None
        self._retry_at = 0.0
        self.phase = Phase.IDLE
        self.incumbent: LiveStrategy | None = None  # None: the program's own placement
        self.lost: dict[str, str] = {}
        self.paused = False
        self.closed = False

    # -- what is asked for --------------------------------------------------------------------------------------------

    def activate(self, strategy: LiveStrategy, way: Way) -> None:
        """Try a strategy, as soon as the old one's step times are known and the budget allows."""
        refused = admission.refusal(strategy, self.incumbent if self._trial is None else None, self.lost, self.paused)
        if refused is not None:
            outcome, reason = refused
            self._refuse(strategy, outcome, reason)
            if outcome is Outcome.KEPT:
                self.incumbent = strategy  # it may be pinned now
            return
        if self._waiting is not None:
            self._refuse(self._waiting.strategy, Outcome.ABANDONED, "another strategy was asked for")
        self._waiting = Trial(strategy, way, _now())
        self.tick(_now())

    def roll_back(self, reason: str) -> None:
        """The operator (or the planner) wants the program's own placement back."""
        if self._waiting is not None:
            self._refuse(self._waiting.strategy, Outcome.ABANDONED, reason)
            self._waiting = None
        trial, self._trial = self._trial, None
        if trial is not None:
            self._end(trial, Outcome.ABANDONED, reason)
        for gone in (trial.strategy if trial else None, self.incumbent):
            if gone is not None:
                self.lost[gone.id] = reason
        self.incumbent = None
        self._return(reason)

    def failed(self, strategy_id: str, error: str) -> None:
        """A run on a strategy raised; the engine is back on the program's own placement."""
        self.lost[strategy_id] = error
        trial, self._trial = self._trial, None
        if trial is not None and trial.strategy.id == strategy_id:
            self._end(trial, Outcome.FAILED, error)
            self.phase = Phase.IDLE
            if self.incumbent is not None:
                self._return(f"{strategy_id} raised an error")
            return
        self._trial = trial
        if self.incumbent is not None and self.incumbent.id == strategy_id:
            self.incumbent = None
            self._listener.trial_ended(self._engine, TrialVerdict(strategy_id, "", Outcome.FAILED, error))

    def close(self) -> None:
        """The session is closed: a trial cannot end any more."""
        self.closed = True
        if self._waiting is not None:
            self._refuse(self._waiting.strategy, Outcome.ABANDONED, "the session was closed")
        if self._trial is not None:
            self._cut_short(self._trial, "the session was closed")
        self._waiting = self._trial = None
        self.phase = Phase.IDLE

    def state(self) -> str:
        """One word for the heartbeat."""
        return self.phase.word(self.incumbent is not None)

    # -- the course of a trial ----------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Look at what has been measured since; about once a second and whenever a trial has new steps."""
        if self.closed:
            return
        if self._waiting is not None and self._trial is not None and self.phase in (Phase.VERIFYING, Phase.COMPARING):
            trial, self._trial = self._trial, None
            self._cut_short(trial, "another strategy was asked for")
            if self.phase is Phase.VERIFYING:
                self._return("another strategy was asked for")
            else:
                self.phase = Phase.IDLE
        if self.phase is Phase.IDLE and self._waiting is not None:
            self._begin(self._waiting, now)
        elif self.phase is Phase.RETURNING and self._retry_at and now >= self._retry_at:
            self._return("going back failed before")
        elif self.phase is Phase.VERIFYING and self._trial is not None:
            self._verify(self._trial, now)
        elif self.phase is Phase.COMPARING and self._trial is not None:
            self._compare(self._trial)

    def _begin(self, trial: Trial, now: float) -> None:
        main = self._clocks.main_kind()
        turn = admission.turn(trial, main, self._engine.strategy_id, self._budget, now)
        if turn is Turn.NEVER:
            self._waiting = None
            self._refuse(trial.strategy, Outcome.ABANDONED, "the budget for profiling and trials is used up for now")
        if turn is not Turn.NOW:
            return
        expected = self._engine.strategy_id == (self.incumbent.id if self.incumbent else "")
        trial.begin(main, self._clocks, self._engine.strategy_id if expected else None, now)
        self._waiting, self._trial, self.phase = None, trial, Phase.SWITCHING
        logger.info("switching to %s", trial.strategy.id)
        self._engine.request_switch(trial.strategy, trial.way, self._answer(self._tried))

    def _tried(self, outcome: SwitchOutcome) -> None:
        trial = self._trial
        self._listener.switch_done(self._engine, outcome)
        if trial is None or self.phase is not Phase.SWITCHING:
            return
        if not admission.is_by_operator(trial.strategy):
            self._budget.spend(outcome.wait_seconds)
        if not outcome.ok:
            self.lost[trial.strategy.id] = outcome.error
            self._trial, self.phase = None, Phase.IDLE
            self._end(trial, Outcome.FAILED, outcome.error or "the switch did not succeed")
        elif trial.strategy.pin:
            self._keep(trial, "pinned: kept whatever it measures")
        else:
            self.phase = Phase.VERIFYING

    def _verify(self, trial: Trial, now: float) -> None:
        trial.collect(self._clocks)
        steps = len(trial.after.get(trial.main, ()))
        if steps < trial.next_look:
            return
        loss = trial.loss()
        last = steps >= guard.CHECKPOINTS[-1] or (steps >= guard.CHECKPOINTS[1] and loss > self._budget.capacity)
        judgement = guard.judge(trial.samples(), trial.main, self._min_gain, last)
        if judgement.decision is Decision.CONTINUE:
            trial.next_look = next((look for look in guard.CHECKPOINTS if look > steps), steps + 1)
            return
        trial.judgement = judgement
        if not admission.is_by_operator(trial.strategy):
            self._budget.spend(loss)
        before = trial.before.get(trial.main, ())
        if trial.rounds < ROUNDS and guard.doubtful(judgement, before, now - trial.measured_at):
            trial.compare = True
            self._return(f"fresh steps of the old strategy are needed to judge ({judgement.reason})")
        elif judgement.decision is Decision.KEEP:
            self._keep(trial, judgement.reason)
        else:
            self.lost[trial.strategy.id] = judgement.reason
            self._return(judgement.reason)

    def _return(self, reason: str) -> None:
        """Back to the strategy before: the incumbent, or the program's own placement."""
        self.phase, self._retry_at = Phase.RETURNING, 0.0
        logger.info("going back to %s: %s", self.incumbent.id if self.incumbent else "the program's own placement", reason)
        if self.incumbent is None:
            self._engine.request_rollback(reason, self._answer(self._returned))
        else:
            self._engine.request_switch(self.incumbent, Way.AUTO, self._answer(self._returned))

    def _returned(self, outcome: SwitchOutcome) -> None:
        self._listener.switch_done(self._engine, replace(outcome, rollback=True))
        if self.phase is not Phase.RETURNING:
            return
        trial = self._trial
        if not outcome.ok:
            logger.error("going back failed: %s", outcome.error)
            self._retry_at = _now() + RETRY_SECONDS
            return
        if trial is not None and trial.compare:
            self.phase = Phase.COMPARING
            return
        self._trial, self.phase = None, Phase.IDLE
        if trial is not None and trial.judgement is not None:
            self._end(trial, Outcome.ROLLED_BACK, trial.judgement.reason)
            self._tidy()

    def _tidy(self) -> None:
        """A trial is over: nobody goes back to the strategies before any more, and what they left may go."""
        if self._waiting is None and self._budget.left() > 0.0:
            self._engine.request_compaction(self._answer(lambda outcome: self._budget.spend(outcome.wait_seconds)))

    def _compare(self, trial: Trial) -> None:
        """The trial's steps against fresh ones of the old strategy: when those are slower, the machine itself was noisy, and the
        trial gets a second round against them. Each round compares steps that are neighbours in time (A/B/A/B)."""
        clock = self._clocks.kinds[trial.main]
        if clock.strategy_id != self._engine.strategy_id or len(clock.recent) < COMPARISON_STEPS:
            return
        trial.compare_with(self._clocks, self._engine.strategy_id, _now())
        samples = trial.samples()
        if guard.deserves_another_round(samples, trial.main, self._min_gain):
            self.phase = Phase.FORWARD
            self.lost.pop(trial.strategy.id, None)
            self._engine.request_switch(trial.strategy, trial.way, self._answer(self._forwarded))
            return
        judgement = guard.judge(samples, trial.main, self._min_gain, last_look=True)
        reason = f"{judgement.reason}, against fresh steps of the old strategy"
        trial.judgement = replace(judgement, reason=reason)
        self._trial, self.phase = None, Phase.IDLE
        self.lost[trial.strategy.id] = reason
        self._end(trial, Outcome.ROLLED_BACK, reason)

    def _forwarded(self, outcome: SwitchOutcome) -> None:
        self._listener.switch_done(self._engine, outcome)
        trial = self._trial
        if trial is None or trial.judgement is None or self.phase is not Phase.FORWARD:
            return
        if outcome.ok:
            trial.begin_again()
            self.phase = Phase.VERIFYING
            return
        self._trial, self.phase = None, Phase.IDLE
        self._end(trial, Outcome.FAILED, outcome.error)

    def _keep(self, trial: Trial, reason: str) -> None:
        self.incumbent, self._trial, self.phase = trial.strategy, None, Phase.IDLE
        self._end(trial, Outcome.KEPT, reason)
        self._tidy()

    def _cut_short(self, trial: Trial, reason: str) -> None:
        if trial.judgement is not None and trial.judgement.decision is Decision.ROLL_BACK:
            self._end(trial, Outcome.ROLLED_BACK, trial.judgement.reason)
        else:
            trial.collect(self._clocks)
            self._end(trial, Outcome.ABANDONED, reason)

    def _end(self, trial: Trial, outcome: Outcome, reason: str) -> None:
        verdict = trial.verdict(outcome, reason)
        logger.info("%s: %s (%s)", verdict.strategy_id, outcome.value, reason)
        self._listener.trial_ended(self._engine, verdict)

    def _refuse(self, strategy: LiveStrategy, outcome: Outcome, reason: str) -> None:
        self._listener.trial_ended(self._engine, TrialVerdict(strategy.id, "", outcome, reason))

    def _answer(self, then: Callable[[SwitchOutcome], None]) -> Callable[[SwitchOutcome], None]:
        return lambda outcome: self._post(lambda: then(outcome))

    def follows(self, clock: KindClock) -> bool:
        """Is a trial judged by steps of this kind? (Any thread.)"""
        return self._trial is not None and clock.kind.id == self._trial.main

    def watches(self, clock: KindClock) -> bool:
        """Is a step of this kind worth waking the observer for? (The program's thread; a guess is enough.)"""
        trial, steps = self._trial, len(clock.recent)
        if trial is None or clock.kind.id != trial.main:
            return False
        return steps >= trial.next_look if self.phase is Phase.VERIFYING else steps >= COMPARISON_STEPS


def _now() -> float:
    return clocks.monotonic()
