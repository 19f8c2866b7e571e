"""The control loop: feeds events to core.activation and executes the effects it returns.

One place where decisions meet the world; it decides nothing itself. Knows no transport.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import structlog

from stepd.core import activation
from stepd.core.activation_values import (
    Activate,
    Attached,
    Effect,
    Event,
    Plan,
    Planned,
    PlanningFailed,
    Profile,
    Proposal,
    RollBack,
    Settings,
    StopPlanning,
    Tick,
)
from stepd.core.errors import PlannerError
from stepd.daemon.clock import SteadyClock
from stepd.daemon.convert import session_state
from stepd.daemon.convert.strategy import from_candidate
from stepd.daemon.errors import GraphMissingError, StoreError
from stepd.daemon.jobs import Job, Registry, Session
from stepd.daemon.memory import Returns
from stepd.daemon.metrics import Metrics
from stepd.daemon.on_trial import strategy_on_trial
from stepd.daemon.planner import PlannerPool, PlanResult
from stepd.daemon.requests import plan_request
from stepd.daemon.store import Store
from stepd.v1 import runtime_pb2, strategy_pb2

log = structlog.get_logger()
T = TypeVar("T")
TICK_SECONDS = 1.0
TICKS_BETWEEN_RETURNS = 10  # of memory


@dataclass
class Controller:
    """Everything that happens to sessions. All methods run on the event loop."""

    registry: Registry
    store: Store
    planner: PlannerPool
    settings: Settings
    metrics: Metrics
    algorithm: str = "portfolio"
    order: str = "none"
    may_plan: bool = True
    silence_seconds: float = 60.0
    clock: Callable[[], float] = field(default_factory=SteadyClock)
    memory: Returns = field(default_factory=Returns)
    _plans: dict[tuple[str, str], asyncio.Task[None]] = field(default_factory=dict)

    async def apply(self, job: Job, session: Session, event: Event) -> None:
        """One event: next state, kept on disk when it changed before anybody sees it, then the effects."""
        async with session.turn:
            before = session.state
            after, effects = activation.step(before, event, self.clock(), self.settings)
            if after.phase is not before.phase or after.note != before.note:
                log.info("session", job=job.id, session=session.id, phase=after.phase.value, note=after.note)
                self.metrics.entered(after.phase)
            if after != before and not isinstance(event, Tick):
                await self.keep(self.store.put_session, job.id, session.id, session_state.to_json(session, after))
            await self._note_trial(job, session, strategy_on_trial(before), strategy_on_trial(after))
            session.state = after
            for effect in effects:
                await self._execute(job, session, effect)

    async def _note_trial(self, job: Job, session: Session, before: str, after: str) -> None:
        """What is on trial is on disk before it is sent (see `on_trial`)."""
        if after == before:
            return
        if after:
            where = session.report.fingerprint, session.devices_key
            await self.keep(self.store.begin_trial, job.id, session.id, after, *where)
        else:
            await self.keep(self.store.end_trial, job.id, session.id)

    async def save(self, job: Job, session: Session) -> None:
        """Write the session's state."""
        await self.keep(self.store.put_session, job.id, session.id, session_state.to_json(session, session.state))

    async def keep(self, write: Callable[..., T], *values: Any) -> T | None:
        """Write something down. A full or broken disk costs the record, not the job: it is logged, and None is the answer."""
        try:
            return await asyncio.to_thread(write, *values)
        except StoreError as error:
            log.error("not saved", what=write.__name__.removeprefix("put_"), error=str(error))
            return None

    async def _execute(self, job: Job, session: Session, effect: Effect) -> None:
        match effect:
            case Profile(steps):
                request = runtime_pb2.ProfileRequest(session_id=session.id, steps=steps)
                self._send(job, runtime_pb2.DaemonMessage(profile=request))
            case Plan(seconds):
                self._start_plan(job, session, seconds)
            case StopPlanning():
                self._stop_plan(job, session)
            case Activate(proposal, pin):
                await self._activate(job, session, proposal, pin)
            case RollBack(reason):
                self._send(
                    job,
                    runtime_pb2.DaemonMessage(rollback=runtime_pb2.Rollback(session_id=session.id, reason=reason)),
                )

    def _send(self, job: Job, message: runtime_pb2.DaemonMessage) -> None:
        if job.send:
            job.send(message)

    async def _activate(self, job: Job, session: Session, proposal: Proposal, pin: bool) -> None:
        strategy = session.strategies[proposal.id]
        message = runtime_pb2.Activate(
            session_id=session.id,
            strategy=strategy,
            way=session.ways.pop(proposal.id, strategy_pb2.WAY_AUTO),
            origin=proposal.origin,
            pin=pin,
        )
        self._send(job, runtime_pb2.DaemonMessage(activate=message))

    async def keep_strategy(self, session: Session, strategy: strategy_pb2.Strategy) -> None:
        """Remember a strategy before anybody hears of it."""
        session.strategies[strategy.id] = strategy
        await asyncio.to_thread(self.store.put_strategy, strategy.id, strategy.graph_fingerprint, strategy.SerializeToString())

    def _start_plan(self, job: Job, session: Session, seconds: float) -> None:
        self._stop_plan(job, session)
        self._plans[job.id, session.id] = asyncio.create_task(self._plan(job, session, seconds))

    def _stop_plan(self, job: Job, session: Session) -> None:
        task = self._plans.pop((job.id, session.id), None)
        if task:
            task.cancel()

    async def _plan(self, job: Job, session: Session, seconds: float) -> None:
        """Run a planner process to its end and report what it found."""
        started = self.clock()
        try:
            request = await asyncio.to_thread(plan_request, session, self.store, seconds, self.algorithm, self.order)
            session.at_plan = session.models.mark()
            result = await self.planner.plan(request)
            event: Event = await self._planned(session, result)
        except GraphMissingError as error:
            self._send(job, runtime_pb2.DaemonMessage(graph_wanted=runtime_pb2.GraphWanted(session_id=session.id)))
            event = PlanningFailed(f"{error}; the hook was asked for it")
        except (PlannerError, StoreError, ValueError) as error:
            event = PlanningFailed(str(error))
        except OSError as error:
            event = PlanningFailed(f"the planner process could not be started: {error}")
        except Exception as error:  # a defect: told in full in the log, and the session goes on
            log.exception("planning broke", job=job.id, session=session.id)
            event = PlanningFailed(f"internal error, see the daemon's log: {error!r}")
        self.metrics.planned(self.clock() - started)
        self._plans.pop((job.id, session.id), None)
        self.memory.used()
        await self.apply(job, session, event)

    async def _planned(self, session: Session, result: PlanResult) -> Planned:
        session.problem_ops = list(result.problem["ops"])
        proposals = []
        for candidate in result.candidates[-4:]:
            strategy = from_candidate(result.problem, candidate, session.report.fingerprint, self.order)
            await self.keep_strategy(session, strategy)
            proposals.append(
                Proposal(
                    strategy.id,
                    float(candidate["seconds"]),
                    str(candidate["algorithm"]),
                    near_lost=bool(candidate["near_lost"]),
                )
            )
        return Planned(tuple(proposals), float(result.problem["model_error"]), float(result.problem["gain_error"]))

    async def run(self, alive: Callable[[], None]) -> None:
        """Tick for ever; `alive` feeds the watchdog after each full turn."""
        for turn in itertools.count():
            await self.turn()
            alive()
            if turn % TICKS_BETWEEN_RETURNS == 0:
                self.memory.give_back()
            await asyncio.sleep(TICK_SECONDS)

    async def turn(self) -> None:
        """One tick of every session, and the end of jobs that fell silent."""
        for job in self.registry:
            if job.attached and self.clock() - job.seen_unix > self.silence_seconds:
                log.warning("job is silent: dropped", job=job.id, seconds=self.silence_seconds)
                send, job.send = job.send, None
                if send:
                    send(None)
                await self.detached(job)
            for session in job.sessions.values():
                if session.open and job.attached and self.may_plan:
                    await self.apply(job, session, Tick())
        self.metrics.jobs(sum(job.attached for job in self.registry))

    async def detached(self, job: Job) -> None:
        """The job's stream ended."""
        for session in job.sessions.values():
            await self.apply(job, session, Attached(attached=False))

    async def close(self) -> None:
        """Stop all plans and wait for their processes to be gone."""
        tasks = list(self._plans.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
