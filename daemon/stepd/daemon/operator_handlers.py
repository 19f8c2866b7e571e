"""What operators ask, handled without knowing the transport. Raises the errors of `errors`; rpc.py maps
them.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any

from stepd.core.activation_values import (
    OperatorActivated,
    OperatorRolledBack,
    Paused,
    Phase,
    Proposal,
    Resumed,
)
from stepd.core.errors import PlannerError
from stepd.daemon import installed
from stepd.daemon.convert.job import job_info, job_message, session_detail, trial_messages
from stepd.daemon.convert.strategy import from_json
from stepd.daemon.errors import BadRequestError, GraphMissingError, NotNowError
from stepd.daemon.jobs import Job
from stepd.daemon.loop import Controller
from stepd.daemon.requests import plan_request
from stepd.v1 import operator_pb2, runtime_pb2

PROTOCOL = 1


@dataclass
class OperatorHandlers:
    """The operator service."""

    controller: Controller
    instance_id: str
    settings: dict[str, str]
    started_unix: float = field(default_factory=time.time)

    def version(self) -> operator_pb2.GetVersionResponse:
        """What runs here, with its effective configuration."""
        return operator_pb2.GetVersionResponse(
            version=installed.version(),
            instance_id=self.instance_id,
            started_unix_nanos=int(self.started_unix * 1e9),
            protocol=PROTOCOL,
            settings=self.settings,
        )

    async def jobs(self, ended: bool) -> operator_pb2.ListJobsResponse:
        """Attached jobs, or all that are known."""
        shown = [job for job in self.controller.registry if ended or job.attached]
        return operator_pb2.ListJobsResponse(job=[job_message(job, await self._trials(job)) for job in shown])

    async def job(self, name: str) -> operator_pb2.GetJobResponse:
        """One job in full."""
        job = self.controller.registry.find(name)
        sessions = [session for session in job.sessions.values() if session.open] or list(job.sessions.values())
        return operator_pb2.GetJobResponse(
            job=job_message(job, await self._trials(job)),
            detail=[session_detail(session) for session in sessions],
        )

    async def history(self, name: str) -> operator_pb2.GetHistoryResponse:
        """Every trial of a job."""
        job = self.controller.registry.find(name)
        return operator_pb2.GetHistoryResponse(trial=trial_messages(await self._trials(job)))

    async def _trials(self, job: Job) -> list[dict[str, Any]]:
        return await asyncio.to_thread(self.controller.store.trials, job.id)

    async def activate(self, request: operator_pb2.ActivateRequest) -> operator_pb2.ActivateResponse:
        """Check a strategy against the live session, keep it, and send it to the hook."""
        job = self._attached(request.job)
        session = job.live_session(request.session_id)
        if not session.op_names:
            raise NotNowError(f"the graph of session {session.id} is not known yet: try again after its first step")
        strategy = from_json(
            request.strategy_json,
            session.problem_ops,
            session.op_names,
            [device.name for device in session.devices],
            session.report.fingerprint,
        )
        await self.controller.keep_strategy(session, strategy)
        session.ways[strategy.id] = request.way
        algorithm = json.loads(strategy.planner)["algorithm"]
        proposal = Proposal(strategy.id, strategy.predicted_step_seconds, algorithm, origin="operator")
        await self.controller.apply(job, session, OperatorActivated(proposal, request.pin))
        return operator_pb2.ActivateResponse(strategy_id=strategy.id, session_id=session.id)

    async def export_problem(self, request: operator_pb2.ExportProblemRequest) -> operator_pb2.ExportProblemResponse:
        """The planning problem of a session as it stands."""
        controller = self.controller
        job = controller.registry.find(request.job)
        session = job.live_session(request.session_id)
        try:
            asked = await asyncio.to_thread(plan_request, session, controller.store, 1.0, controller.algorithm, "none")
            return operator_pb2.ExportProblemResponse(problem_json=await controller.planner.export(asked))
        except GraphMissingError as error:
            if job.send:
                job.send(runtime_pb2.DaemonMessage(graph_wanted=runtime_pb2.GraphWanted(session_id=session.id)))
            raise NotNowError(f"job {request.job}: {error}; the hook was asked for it: try again") from error
        except PlannerError as error:
            raise NotNowError(f"job {request.job}: {error}") from error

    async def roll_back(self, request: operator_pb2.RollbackRequest) -> None:
        """Back to the program's own placement."""
        job = self._attached(request.job)
        session = job.live_session(request.session_id)
        if not session.state.in_force and session.state.phase not in (
            Phase.PROPOSED,
            Phase.SWITCHING,
            Phase.VERIFYING,
        ):
            raise NotNowError(f"job {job.id[:8]} runs on the program's own placement: there is nothing to roll back")
        await self.controller.apply(job, session, OperatorRolledBack())

    async def pause(self, name: str, seconds: float) -> None:
        """No profiles, plans or switches for a while (0: until resumed)."""
        if seconds < 0 or seconds != seconds:
            raise BadRequestError(f"a pause of {seconds} s is not possible")
        job = self.controller.registry.find(name)
        job.paused_until = self.controller.clock() + seconds if seconds else float("inf")
        await self._tell(job, Paused(seconds), runtime_pb2.DaemonMessage(pause=runtime_pb2.Pause(seconds=seconds)))

    async def resume(self, name: str) -> None:
        """End a pause."""
        job = self.controller.registry.find(name)
        job.paused_until = None
        await self._tell(job, Resumed(), runtime_pb2.DaemonMessage(resume=runtime_pb2.Resume()))

    async def _tell(self, job: Job, event: Paused | Resumed, message: runtime_pb2.DaemonMessage) -> None:
        await self.controller.keep(self.controller.store.put_job, job.id, job_info(job))
        for session in job.sessions.values():
            if session.open:
                await self.controller.apply(job, session, event)
        if job.send:
            job.send(message)

    def _attached(self, name: str) -> Job:
        job = self.controller.registry.find(name)
        if not job.attached:
            raise NotNowError(
                f"job {job.id[:8]} ({job.hello.job_name}) is not attached: its process ended or has not come back yet"
            )
        return job
