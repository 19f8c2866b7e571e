"""Who is attached: jobs, their sessions and what is known of each. Plain records; the control loop changes
them, handlers read them.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from stepd.core.activation_values import State
from stepd.core.cost.models import CostModels, Mark
from stepd.core.session_links import SessionDevice
from stepd.core.step_times import StepTimes
from stepd.daemon.errors import BadRequestError, NoSuchJobError
from stepd.v1 import runtime_pb2, strategy_pb2

Send = Callable[[runtime_pb2.DaemonMessage | None], None]
"""Queues a message for a hook; None ends its stream."""


@dataclass
class Session:
    """One session of a job. `placements`: device by op, as profiles of each strategy showed it ("" the
    program's own).
    """

    id: str
    opened: runtime_pb2.SessionOpened = field(default_factory=runtime_pb2.SessionOpened)
    devices: tuple[SessionDevice, ...] = ()
    report: runtime_pb2.GraphReport = field(default_factory=runtime_pb2.GraphReport)
    op_names: frozenset[str] = frozenset()
    models: CostModels = field(default_factory=CostModels)
    models_saved: float = 0.0
    at_plan: Mark | None = None
    at_profile: Mark | None = None
    state: State = field(default_factory=State)
    times: StepTimes = field(default_factory=StepTimes)
    kind: str = ""
    placements: dict[str, dict[str, str]] = field(default_factory=dict)
    strategies: dict[str, strategy_pb2.Strategy] = field(default_factory=dict)
    problem_ops: list[str] = field(default_factory=list)
    last_switch: runtime_pb2.SwitchReport | None = None
    total_steps: int = 0
    ways: dict[str, strategy_pb2.Way.ValueType] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    open: bool = True
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # one event and its effects at a time

    @property
    def devices_key(self) -> str:
        """Same devices, same key: costs are learned for a graph on a set of devices."""
        text = "\n".join(sorted(f"{device.name} {device.type} {device.usable}" for device in self.devices))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def remember_lost(self, strategies: frozenset[str], rounds: int) -> None:
        """What lost on this graph and these devices in earlier runs, of which the last `rounds` did not survive their trials."""
        self.state = replace(self.state, lost=self.state.lost | strategies, losses=max(self.state.losses, rounds))

    def step_kind(self) -> runtime_pb2.StepKind | None:
        """The reported kind that takes most of the time."""
        return next((kind for kind in self.report.kind if kind.id == self.kind), None)

    def placement_in_force(self) -> dict[str, str]:
        """Device by op as last seen, under what is in force."""
        own = self.placements.get("", {})
        strategy = self.strategies.get(self.state.in_force)
        asked = {op: strategy.devices[k] for op, k in zip(strategy.op, strategy.device, strict=True)} if strategy else {}
        return {**own, **asked, **self.placements.get(self.state.in_force, {})}


@dataclass
class Job:
    """One training process."""

    id: str
    hello: runtime_pb2.Hello
    seen_unix: float
    sessions: dict[str, Session] = field(default_factory=dict)
    send: Send | None = None
    paused_until: float | None = None
    dropped_profiles: int = 0

    @property
    def attached(self) -> bool:
        """Whether its stream is open."""
        return self.send is not None

    def live_session(self, session_id: str) -> Session:
        """The session asked for, or the job's only live one. Raises BadRequestError."""
        live = [session for session in self.sessions.values() if session.open]
        if session_id:
            chosen = [session for session in live if session.id == session_id]
            if not chosen:
                raise BadRequestError(f"job {self.id[:8]} has no live session {session_id!r}; it has {_ids(live)}")
            return chosen[0]
        if len(live) > 1:
            busy = [session for session in live if session.kind]
            if len(busy) == 1:
                return busy[0]
            raise BadRequestError(f"job {self.id[:8]} has {len(live)} live sessions: name one of {_ids(live)}")
        if not live:
            raise BadRequestError(f"job {self.id[:8]} has no live session")
        return live[0]


def _ids(sessions: list[Session]) -> str:
    return ", ".join(session.id for session in sessions) or "none"


class Registry:
    """Jobs by id."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}

    def __iter__(self) -> Iterator[Job]:
        return iter(list(self._jobs.values()))

    def add(self, job: Job) -> None:
        """Add or replace."""
        self._jobs[job.id] = job

    def get(self, job_id: str) -> Job | None:
        """By exact id."""
        return self._jobs.get(job_id)

    def find(self, name: str) -> Job:
        """By id, a unique prefix of it, or a name: of several jobs the live one is meant, of ended ones the last. Raises
        NoSuchJobError.
        """
        exact = self._jobs.get(name)
        if exact:
            return exact
        found = [job for job in self if name and (job.id.startswith(name) or job.hello.job_name == name)]
        live = [job for job in found if job.attached]
        chosen = live if len(found) > 1 and live else found
        if not live and all(job.hello.job_name == name for job in found):
            chosen = sorted(found, key=lambda job: job.seen_unix)[-1:]
        if len(chosen) > 1:
            raise NoSuchJobError(f"{name!r} is {len(chosen)} jobs: {', '.join(job.id[:12] for job in chosen)}; give more of the id")
        if not chosen:
            raise NoSuchJobError(f"no job {name!r}; `stepctl status --all` lists the known ones")
        return chosen[0]
