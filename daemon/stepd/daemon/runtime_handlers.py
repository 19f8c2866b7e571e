"""What hooks say, handled without knowing the transport: one Connection a stream, one method a message.

A message that cannot be used is logged and dropped: the training process must not suffer from it, nor must
the other jobs.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import structlog

from stepd.core.activation_moves import awaits_verdict
from stepd.core.activation_values import (
    Attached,
    GraphReported,
    HookSaid,
    Judged,
    Measured,
    Outcome,
    Paused,
    Profiled,
    Switched,
)
from stepd.core.cost.models import NOTHING_KNOWN, CostModels
from stepd.core.cost.observation import of_part, of_whole_ops
from stepd.daemon import codec, on_trial
from stepd.daemon.convert import session_state
from stepd.daemon.convert.devices import session_devices
from stepd.daemon.convert.graph import op_names
from stepd.daemon.convert.job import job_info, trial_info, trial_key
from stepd.daemon.convert.strategy import in_parts
from stepd.daemon.errors import BadRequestError
from stepd.daemon.jobs import Job, Send, Session
from stepd.daemon.loop import Controller
from stepd.traces.profile import parse_profile
from stepd.v1 import runtime_pb2, strategy_pb2

log = structlog.get_logger()
PROTOCOL = 1
STABLE = 0.05
CHANGED = 0.1
SAVE_MODELS_SECONDS = 10.0


class Connection:
    """One attached hook."""

    def __init__(self, controller: Controller, job: Job) -> None:
        self._controller = controller
        self._job = job
        self._told: set[str] = set()  # sessions that this stream has opened

    @classmethod
    async def open(cls, controller: Controller, hello: runtime_pb2.Hello, send: Send) -> Connection:
        """Register the job, or take up one that is known from before. Raises BadRequestError."""
        if not hello.job_id:
            raise BadRequestError("Hello without a job_id")
        if hello.protocol != PROTOCOL:
            raise BadRequestError(f"the hook speaks protocol {hello.protocol}, this daemon {PROTOCOL}: update the older one")
        job = controller.registry.get(hello.job_id)
        if job is None:
            job = Job(hello.job_id, hello, controller.clock())
            controller.registry.add(job)
        job.hello, job.seen_unix, job.send = hello, controller.clock(), send
        await controller.keep(controller.store.put_job, job.id, job_info(job))
        log.info("job attached", job=job.id, name=hello.job_name, pid=hello.pid, active=hello.compatibility.active)
        return cls(controller, job)

    async def closed(self, send: Send) -> None:
        """The stream ended; unless the job has come back on another one already."""
        if self._job.send is send:
            self._job.send = None
            self._job.seen_unix = self._controller.clock()
            for session in self._job.sessions.values():
                await self._save_models(session, force=True)
            await self._controller.detached(self._job)
            await self._controller.keep(self._controller.store.put_job, self._job.id, job_info(self._job))
            log.info("job detached", job=self._job.id)

    async def receive(self, message: runtime_pb2.HookMessage) -> None:
        """Handle one message."""
        self._job.seen_unix = self._controller.clock()
        which = message.WhichOneof("message")
        if which == "heartbeat":
            await self._heartbeat(message.heartbeat)
        elif which == "session_opened":
            await self._session_opened(message.session_opened)
        elif which and which != "hello":
            body = getattr(message, which)
            session = self._job.sessions.get(body.session_id)
            if session is None:
                log.warning(
                    "message about an unknown session",
                    job=self._job.id,
                    session=body.session_id,
                    message=which,
                )
                return
            await getattr(self, f"_{which}")(session, body)

    async def _heartbeat(self, beat: runtime_pb2.Heartbeat) -> None:
        self._job.dropped_profiles = beat.dropped_profiles
        for session in self._job.sessions.values():
            if session.open:
                await self._controller.apply(self._job, session, HookSaid(beat.state))

    async def _session_opened(self, opened: runtime_pb2.SessionOpened) -> None:
        session = self._job.sessions.get(opened.session_id)
        if session is None:
            session = Session(opened.session_id)
            kept = (await asyncio.to_thread(self._controller.store.sessions, self._job.id)).get(session.id)
            if kept:
                session.state = session_state.state_from_json(kept, self._controller.clock())
                session.kind, session.total_steps = kept["kind"], kept["total_steps"]
            self._job.sessions[session.id] = session
        await self._load_strategy(session)
        session.opened, session.devices, session.open = opened, session_devices(opened), True
        if session.id in self._told:
            return  # news of a session that this stream has opened before
        self._told.add(session.id)
        await self._controller.apply(self._job, session, Attached())
        if self._job.paused_until is not None:
            left = self._job.paused_until - self._controller.clock()
            await self._controller.apply(self._job, session, Paused(0.0 if left == float("inf") else max(left, 0.001)))

    async def _load_strategy(self, session: Session) -> None:
        """What is in force, and what is on its way, from before the daemon's restart."""
        state = session.state
        for strategy_id in {state.in_force, state.proposal.id if state.proposal else ""} - {"", *session.strategies}:
            blob = await asyncio.to_thread(self._controller.store.strategy, strategy_id)
            if blob:
                session.strategies[strategy_id] = strategy_pb2.Strategy.FromString(blob)

    async def _graph(self, session: Session, report: runtime_pb2.GraphReport) -> None:
        store = self._controller.store
        graph: bytes | None = report.graph_def
        if not graph:
            graph = await asyncio.to_thread(store.graph, report.fingerprint)
        if not graph:
            wanted = runtime_pb2.GraphWanted(session_id=session.id)
            if self._job.send:
                self._job.send(runtime_pb2.DaemonMessage(graph_wanted=wanted))
            return
        try:
            names = await asyncio.to_thread(op_names, graph)
        except ValueError as error:
            log.warning("graph refused", job=self._job.id, session=session.id, error=str(error))
            return
        if report.graph_def:
            await self._controller.keep(store.put_graph, report.fingerprint, report.graph_def)
        self._controller.memory.used()
        known = session.report.fingerprint == report.fingerprint and session.models.steps > 0
        session.report = report
        session.report.ClearField("graph_def")
        session.op_names = names
        if not known:
            await self._load_knowledge(session)
        usable = [device.type for device in session.devices if device.usable]
        choice = max(Counter(usable).values(), default=0) if report.keeps_types else len(usable)
        await self._controller.apply(self._job, session, GraphReported(report.fingerprint, len(names), choice))

    async def _load_knowledge(self, session: Session) -> None:
        """Costs and lost strategies from earlier runs of this graph on these devices."""
        store, key = self._controller.store, (session.report.fingerprint, session.devices_key)
        blob = await asyncio.to_thread(store.models, *key)
        session.models = CostModels()
        if blob:
            try:
                session.models = CostModels.from_state(codec.loads(blob))
            except (ValueError, KeyError) as error:
                log.warning("stored cost models are not usable: learning anew", session=session.id, error=str(error))
        session.at_plan = None
        session.at_profile = session.models.mark() if session.models.steps else None
        await self._controller.keep(on_trial.settle, store, self._controller.registry, *key, self._controller.clock())
        lost, ended = await asyncio.to_thread(on_trial.known, store, *key)
        async with session.turn:
            session.remember_lost(lost, ended)

    async def _profile(self, session: Session, profile: runtime_pb2.StepProfile) -> None:
        if not session.op_names:
            return  # the graph is still on its way: nothing in a trace could be told apart
        if session.kind and profile.kind != session.kind:
            return  # another step kind: its costs are not those of the steps that matter
        devices = {device.name for device in session.devices}
        try:
            step = await asyncio.to_thread(
                parse_profile,
                profile.run_metadata,
                session.op_names,
                devices,
                batch=profile.batch,
                seconds=profile.seconds,
            )
        except ValueError as error:
            log.warning("profile refused", job=self._job.id, session=session.id, error=str(error))
            self._controller.metrics.profiled(ok=False)
            return
        self._controller.metrics.profiled(ok=True)
        self._controller.memory.used()
        strategy = session.strategies.get(profile.strategy_id)
        step = of_whole_ops(step, in_parts(strategy, session.report.split) if strategy is not None else {})
        session.models.observe(step)
        where = {op: seen.device for seen in step.devices for op in seen.ops if of_part(op) is None}
        session.placements[profile.strategy_id] = where
        session.notes = list(dict.fromkeys([*step.notes, *session.notes]))[:20]
        now = session.models.mark()
        since_last = session.at_profile.change_to(session.models) if session.at_profile else NOTHING_KNOWN
        since_plan = session.at_plan.change_to(session.models) if session.at_plan else NOTHING_KNOWN
        session.at_profile = now
        await self._save_models(session)
        event = Profiled(since_last.stable(STABLE), since_plan.worth_planning(CHANGED))
        await self._controller.apply(self._job, session, event)

    async def _save_models(self, session: Session, *, force: bool = False) -> None:
        now = self._controller.clock()
        if not session.models.steps or (
            not force and now - session.models_saved < SAVE_MODELS_SECONDS and session.models.steps > 3
        ):
            return
        session.models_saved = now
        blob = await asyncio.to_thread(codec.dumps, session.models.to_state(), compress=True)
        await self._controller.keep(self._controller.store.put_models, session.report.fingerprint, session.devices_key, blob)

    async def _step_times(self, session: Session, times: runtime_pb2.StepTimes) -> None:
        seconds = [value for value in times.seconds if 0.0 < value < float("inf")]  # false for what is no number
        session.times.observe(times.kind, times.strategy_id, seconds)
        session.total_steps = max(session.total_steps, times.total_steps)
        session.kind = session.times.main_kind
        typical = session.times.typical(session.kind, times.strategy_id)
        if times.kind == session.kind and typical > 0 and not _overtaken(times, session.last_switch):
            self._controller.metrics.stepped(session.id, typical)
            await self._controller.apply(self._job, session, Measured(times.strategy_id, typical))

    async def _switch(self, session: Session, report: runtime_pb2.SwitchReport) -> None:
        if session.last_switch == report:
            return  # sent again after a reconnect
        session.last_switch = report
        log.info(
            "switch",
            job=self._job.id,
            session=session.id,
            strategy=report.strategy_id,
            ok=report.ok,
            error=report.error,
            honoured=report.honoured,
            not_honoured=len(report.not_honoured),
            way=strategy_pb2.Way.Name(report.way),
        )
        await self._controller.apply(self._job, session, Switched(report.strategy_id, report.ok, report.error, report.rollback))

    async def _verdict(self, session: Session, verdict: runtime_pb2.Verdict) -> None:
        trial = trial_info(session, verdict, self._controller.clock())
        new = await self._controller.keep(
            self._controller.store.put_trial,
            self._job.id,
            trial_key(verdict),
            session.report.fingerprint,
            session.devices_key,
            trial,
        )
        if new is False and not awaits_verdict(session.state, verdict.strategy_id):
            return  # said again after a reconnect
        self._controller.metrics.judged(trial["outcome"])
        log.info(
            "verdict",
            job=self._job.id,
            session=session.id,
            **{k: trial[k] for k in ("strategy_id", "outcome", "reason")},
        )
        judged = Judged(
            verdict.strategy_id,
            Outcome(trial["outcome"]),
            verdict.reason,
            verdict.before_seconds,
            verdict.after_seconds,
        )
        await self._controller.apply(self._job, session, judged)

    async def _session_closed(self, session: Session, _: runtime_pb2.SessionClosed) -> None:
        await self._save_models(session, force=True)
        await self._controller.apply(self._job, session, Attached(attached=False))
        session.open = False
        await self._controller.keep(self._controller.store.end_trial, self._job.id, session.id)
        self._controller.metrics.forget(session.id)
        await self._controller.save(self._job, session)


def _overtaken(times: runtime_pb2.StepTimes, last: runtime_pb2.SwitchReport | None) -> bool:
    """Were these steps made before the last switch? They tell what steps cost, not what is in force."""
    return last is not None and last.ok and times.strategy_id != last.strategy_id
