"""Jobs, sessions and trials as the operator service shows them, and as the store keeps them."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict

from stepd.core.activation_values import State
from stepd.daemon.jobs import Job, Session
from stepd.v1 import operator_pb2, runtime_pb2, strategy_pb2

GAINFUL = ("KEPT",)


def job_info(job: Job) -> dict[str, Any]:
    """What of a job outlives the daemon, JSON values."""
    return {
        "hello": MessageToDict(job.hello, preserving_proto_field_name=True),
        "seen_unix": job.seen_unix,
        "paused_until": job.paused_until,
    }


def job_from_info(job_id: str, info: Mapping[str, Any]) -> Job:
    """What `job_info` gave."""
    hello = ParseDict(info["hello"], runtime_pb2.Hello(), ignore_unknown_fields=True)
    return Job(job_id, hello, float(info["seen_unix"]), paused_until=info.get("paused_until"))


def trial_key(verdict: runtime_pb2.Verdict) -> str:
    """Equal verdicts are one trial: hooks send the newest ones again after a reconnect."""
    return hashlib.sha256(verdict.SerializeToString(deterministic=True)).hexdigest()[:24]


def trial_info(session: Session, verdict: runtime_pb2.Verdict, unix: float) -> dict[str, Any]:
    """One trial, JSON values."""
    proposal = session.state.proposal
    mine = proposal is not None and proposal.id == verdict.strategy_id
    strategy = session.strategies.get(verdict.strategy_id)
    planner = json.loads(strategy.planner) if strategy is not None and strategy.planner else {}
    switch = session.last_switch
    return {
        "strategy_id": verdict.strategy_id,
        "session_id": session.id,
        "unix_nanos": int(unix * 1e9),
        "origin": proposal.origin if proposal is not None and mine else "",
        "algorithm": planner.get("algorithm", ""),
        "way": int(switch.way) if switch and switch.strategy_id == verdict.strategy_id else 0,
        "predicted_seconds": strategy.predicted_step_seconds if strategy is not None else 0.0,
        "measured_seconds": verdict.after_seconds,
        "before_seconds": verdict.before_seconds,
        "outcome": _OUTCOMES.get(verdict.outcome, "ABANDONED"),
        "reason": verdict.reason,
        "p_value": verdict.p_value,
    }


_OUTCOMES = {
    runtime_pb2.Verdict.KEPT: "KEPT",
    runtime_pb2.Verdict.ROLLED_BACK: "ROLLED_BACK",
    runtime_pb2.Verdict.FAILED: "FAILED",
    runtime_pb2.Verdict.ABANDONED: "ABANDONED",
}


def trial_messages(trials: Sequence[Mapping[str, Any]]) -> list[operator_pb2.Trial]:
    """Trials with the best one marked: the kept one with the least measured time."""
    kept = [trial for trial in trials if trial["outcome"] in GAINFUL and trial["measured_seconds"] > 0]
    best = min(kept, key=lambda trial: trial["measured_seconds"], default=None)
    return [_trial(trial, best=trial is best) for trial in trials]


def _trial(trial: Mapping[str, Any], *, best: bool) -> operator_pb2.Trial:
    fields = {**trial, "outcome": runtime_pb2.Verdict.Outcome.Value(trial["outcome"])}
    return operator_pb2.Trial(**fields, best=best)


def job_message(job: Job, trials: Sequence[Mapping[str, Any]]) -> operator_pb2.Job:
    """A job as `stepctl status` shows it."""
    return operator_pb2.Job(
        id=job.id,
        name=job.hello.job_name,
        pid=job.hello.pid,
        hostname=job.hello.hostname,
        attached=job.attached,
        last_seen_unix_nanos=int(job.seen_unix * 1e9),
        tensorflow_version=job.hello.tensorflow_version,
        compatibility=job.hello.compatibility,
        session=[_session(session, trials) for session in job.sessions.values()],
        paused=job.paused_until is not None or job.hello.paused,
        argv=job.hello.argv,
        started_unix_nanos=job.hello.started_unix_nanos,
    )


def _session(session: Session, trials: Sequence[Mapping[str, Any]]) -> operator_pb2.Session:
    state: State = session.state
    mine = [trial for trial in trials if trial["session_id"] == session.id]
    strategy = session.strategies.get(state.in_force)
    return operator_pb2.Session(
        id=session.id,
        state=state.phase.value if session.open else "CLOSED",
        step_kind=session.kind,
        steps=session.total_steps,
        seconds_before=state.before_seconds,
        seconds_now=state.now_seconds or state.settled_seconds,
        strategy_id=state.in_force,
        predicted_seconds=strategy.predicted_step_seconds if strategy is not None else 0.0,
        last_trial=_trial(mine[-1], best=False) if mine else None,
        device=session.opened.device,
        ops=state.ops,
        note=state.note,
    )


def session_detail(session: Session) -> operator_pb2.SessionDetail:
    """A session as `stepctl show` shows it."""
    state = session.state
    return operator_pb2.SessionDetail(
        session_id=session.id,
        strategy=session.strategies.get(state.in_force),
        device=_devices(session, session.strategies.get(state.in_force)),
        pinned=session.report.pinned,
        last_switch=session.last_switch,
        user_devices=session.opened.user_devices,
        notes=[*session.report.notes, *session.opened.restart_obstacles, *session.notes],
        kind=session.report.kind,
        model_error=state.model_error,
    )


def _devices(session: Session, strategy: strategy_pb2.Strategy | None) -> list[operator_pb2.DeviceUse]:
    """Ops by device as last seen; busy fraction and peak as the planner predicted them for what is in
    force.
    """
    ops = Counter(session.placement_in_force().values())
    planner = json.loads(strategy.planner) if strategy is not None and strategy.planner else {}
    names = list(strategy.devices) if strategy is not None else []
    busy = dict(zip(names, planner.get("busy_fraction", ()), strict=False))
    peak = dict(zip(names, strategy.predicted_peak_bytes if strategy is not None else (), strict=False))
    return [
        operator_pb2.DeviceUse(
            name=device.name,
            ops=ops.get(device.name, 0),
            busy_fraction=busy.get(device.name, 0.0),
            peak_bytes=peak.get(device.name, 0),
            memory_bytes=device.memory_bytes,
        )
        for device in session.devices
    ]
