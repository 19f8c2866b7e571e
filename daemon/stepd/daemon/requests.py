"""What a planner process is asked: a session's graph, costs, devices and history as one encodable value."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

from stepd.core.errors import PlannerError
from stepd.daemon.convert.strategy import placement_of, priority_of
from stepd.daemon.errors import GraphMissingError
from stepd.daemon.jobs import Session
from stepd.daemon.store import Store
from stepd.v1 import strategy_pb2

KNOWN_STRATEGIES = 8
"""Measured strategies that a plan is calibrated on, the newest."""


def plan_request(session: Session, store: Store, seconds: float, algorithm: str, order: str) -> dict[str, Any]:
    """The request for `planner_process`. order: the daemon's setting of that name. Raises PlannerError when the graph or the step
    kind is not known.
    """
    report = session.report
    graph = store.graph(report.fingerprint)
    kind = session.step_kind()
    if graph is None:
        raise GraphMissingError(f"graph {report.fingerprint[:12]} is not in the store")
    if kind is None:
        raise PlannerError(f"step kind {session.kind[:12] or '(none)'} was not described by the hook")
    return {
        "name": f"{report.fingerprint[:12]}-{kind.id[:12]}",
        "graph_def": graph,
        "outputs": sorted({name.partition(":")[0] for name in (*kind.fetch, *kind.target)}),
        "devices": [astuple(device) for device in session.devices],
        "models": session.models.to_state(),
        "today": session.placement_in_force(),
        "pinned": {item.op: item.reason for item in report.pinned},
        "lifted": {item.op: item.control for item in report.lifted},
        "shared": {item.op: item.by for item in report.shared},
        "together": [list(group.op) for group in report.colocated],
        "splits": [(s.op, s.axis, s.max_parts, list(s.cut_bytes), list(s.joined_bytes), s.adds) for s in report.split],
        "device_kinds": _device_kinds(report.device_kinds),
        "keeps_types": report.keeps_types,
        "measured": _measured(session, store),
        "seconds": seconds,
        "seed": session.state.losses + session.state.rounds,  # another round looks elsewhere
        "algorithm": algorithm,
        "ordered": order != "none",
        "whole_order": report.keeps_order and order in ("auto", "native"),
        "export": False,
    }


def _device_kinds(lines: Any) -> dict[str, list[str]]:
    """Op type to device types, from "OpType=CPU" or "OpType=CPU,GPU"."""
    pairs = (line.partition("=") for line in lines)
    return {op: kinds.split(",") for op, _, kinds in pairs}


def _measured(session: Session, store: Store) -> list[dict[str, Any]]:
    """What ran: the program's own placement, what is in force, and what was tried on this graph and these
    devices.
    """
    state = session.state
    rows: dict[str, dict[str, Any]] = {}
    for trial in store.trials_of_graph(session.report.fingerprint, session.devices_key):
        strategy = _strategy(session, store, trial["strategy_id"])
        if strategy is not None and trial["measured_seconds"] > 0:
            rows.pop(strategy.id, None)
            rows[strategy.id] = _row(strategy, trial["measured_seconds"], trial["outcome"] in ("ROLLED_BACK", "FAILED"))
    known = dict(list(rows.items())[-KNOWN_STRATEGIES:])
    current = _strategy(session, store, state.in_force) if state.in_force else None
    if current is not None:
        known[current.id] = _row(current, state.now_seconds, False)
    own = {
        "id": "",
        "placement": session.placements.get("", {}),
        "priority": {},
        "seconds": state.before_seconds,
        "lost": False,
    }
    known[""] = own
    for strategy_id, row in known.items():
        row["in_force"] = strategy_id == state.in_force
        if row["in_force"]:
            row["seconds"], row["lost"] = state.now_seconds, False
            row["placement"] = row["placement"] | session.placements.get(strategy_id, {})
    return [row for row in known.values() if row["seconds"] > 0]


def _strategy(session: Session, store: Store, strategy_id: str) -> strategy_pb2.Strategy | None:
    if strategy_id not in session.strategies:
        blob = store.strategy(strategy_id)
        if blob is None:
            return None
        session.strategies[strategy_id] = strategy_pb2.Strategy.FromString(blob)
    return session.strategies[strategy_id]


def _row(strategy: strategy_pb2.Strategy, seconds: float, lost: bool) -> dict[str, Any]:
    return {
        "id": strategy.id,
        "placement": placement_of(strategy),
        "priority": priority_of(strategy),
        "seconds": seconds,
        "lost": lost,
        "splits": [(s.op, s.axis, s.parts, list(s.device), list(s.weight), list(s.into)) for s in strategy.splits],
    }
