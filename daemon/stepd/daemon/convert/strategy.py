"""Strategies: wire messages, core's columns and the two JSON forms that operators hand in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from stepd.core.cost.observation import InParts
from stepd.daemon.errors import BadRequestError
from stepd.v1 import runtime_pb2, strategy_pb2

ORDERS = {
    "auto": strategy_pb2.ORDER_AUTO,
    "native": strategy_pb2.ORDER_NATIVE,
    "control": strategy_pb2.ORDER_CONTROL,
    "none": strategy_pb2.ORDER_NONE,
}


def from_candidate(problem: Mapping[str, Any], candidate: Mapping[str, Any], fingerprint: str, order: str) -> strategy_pb2.Strategy:
    """A planner's candidate as it is sent. Ops that can run on one device only stay out of it: they do not
    move.
    """
    moves = [i for i, pinned in enumerate(problem["pinned"].tolist()) if not pinned]
    seconds = problem["seconds"]
    enforced = order != "none" and candidate["enforced"]
    names, placement, priority = (
        problem["ops"],
        candidate["placement"].tolist(),
        candidate["priority"].tolist(),
    )
    strategy = strategy_pb2.Strategy(
        graph_fingerprint=fingerprint,
        devices=problem["devices"],
        op=[names[i] for i in moves],
        device=[placement[i] for i in moves],
        priority=[priority[i] for i in moves] if enforced else [],
        seconds=[seconds[i, placement[i]] for i in moves] if enforced else [],
        order=ORDERS[order],
        predicted_step_seconds=candidate["seconds"],
        predicted_peak_bytes=candidate["peak_bytes"],
        lower_bound_seconds=candidate["lower_bound_seconds"],
        planner=json.dumps({"algorithm": candidate["algorithm"], "busy_fraction": candidate["busy_fraction"]}),
    )
    devices = problem["devices"]
    for op, axis, parts, places, weights, into in candidate.get("splits", ()):
        strategy.splits.add(op=names[op], axis=axis, parts=parts, device=[devices[k] for k in places], weight=weights, into=into)
    return _with_id(strategy)


def from_json(
    text: bytes,
    problem_ops: Sequence[str],
    graph_ops: Collection[str],
    devices: Sequence[str],
    fingerprint: str,
) -> strategy_pb2.Strategy:
    """A strategy that an operator hands in: PROBLEM_FORMAT's, for the job's exported problem
    (`problem_ops`), or {"placement": {"op": "device"}} for any ops of the graph. Raises BadRequestError
    that names the op or device.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"the strategy is not valid JSON: {error}") from error
    if not isinstance(document, dict) or "placement" not in document:
        raise BadRequestError('a strategy is a JSON object with a "placement": see docs/operator.md, "stepctl activate"')
    wanted = document.get("graph_fingerprint", fingerprint)
    if wanted != fingerprint:
        raise BadRequestError(f"the strategy is for another graph ({str(wanted)[:12]}); this job's is {fingerprint[:12]}")
    if isinstance(document["placement"], dict):
        strategy = _from_names(document, graph_ops, devices)
    else:
        strategy = _from_columns(document, problem_ops, devices)
    strategy.graph_fingerprint = fingerprint
    strategy.planner = json.dumps({"algorithm": "operator", "given": document.get("planner", {})})
    return _with_id(strategy)


def _from_names(document: Mapping[str, Any], graph_ops: Collection[str], devices: Sequence[str]) -> strategy_pb2.Strategy:
    unknown = set(document) - {
        "version",
        "placement",
        "priority",
        "splits",
        "replicate",
        "devices",
        "graph_fingerprint",
        "planner",
        "order",
    }
    if unknown:
        raise BadRequestError(f"unknown keys in the strategy: {', '.join(sorted(unknown))}")
    names = {name: k for k, name in enumerate(devices)}
    strategy = strategy_pb2.Strategy(devices=devices, order=_order(document), replicate=bool(document.get("replicate", False)))
    priority = document.get("priority") or {}
    for op, device in document["placement"].items():
        if op not in graph_ops:
            raise BadRequestError(f"the strategy is for another graph: this job's graph has no op {op!r}")
        if device not in names:
            raise BadRequestError(f"op {op!r}: the session has no device {device!r}; it has {', '.join(devices)}")
        strategy.op.append(op)
        strategy.device.append(names[device])
        if priority:
            if not isinstance(priority.get(op), int):
                raise BadRequestError(f"op {op!r} has a device but no whole-number priority")
            strategy.priority.append(priority[op])
    _add_splits(strategy, document, list(graph_ops), names)
    return strategy


def _from_columns(document: Mapping[str, Any], problem_ops: Sequence[str], devices: Sequence[str]) -> strategy_pb2.Strategy:
    placement, priority = document["placement"], document.get("priority") or []
    if not problem_ops:
        raise BadRequestError('no problem was planned for this job yet; hand in {"placement": {"op": "device"}} instead')
    for what, column in (("placement", placement), ("priority", priority)):
        if column and len(column) != len(problem_ops):
            raise BadRequestError(
                f"the strategy is for another graph: its {what} has {len(column)} entries, the job {len(problem_ops)} ops"
            )
    for op, device in zip(problem_ops, placement, strict=True):
        if not isinstance(device, int) or not 0 <= device < len(devices):
            raise BadRequestError(f"op {op!r} is placed on device {device!r}; the session has devices 0..{len(devices) - 1}")
    strategy = strategy_pb2.Strategy(devices=devices, op=problem_ops, device=placement, priority=priority, order=_order(document))
    strategy.predicted_step_seconds = float(document.get("predicted_step_seconds") or 0.0)
    _add_splits(strategy, document, problem_ops, {name: k for k, name in enumerate(devices)})
    return strategy


def _order(document: Mapping[str, Any]) -> strategy_pb2.Order.ValueType:
    given = document.get("order", "auto" if document.get("priority") else "none")
    if given not in ORDERS:
        raise BadRequestError(f"unknown order {given!r}; known are {', '.join(ORDERS)}")
    return ORDERS[given]


def _add_splits(
    strategy: strategy_pb2.Strategy,
    document: Mapping[str, Any],
    ops: Sequence[str],
    devices: Mapping[str, int],
) -> None:
    by_index = list(devices)
    for k, split in enumerate(document.get("splits") or ()):
        try:
            op = split["op"] if isinstance(split["op"], str) else ops[split["op"]]
            parts = [name if isinstance(name, str) else by_index[name] for name in split.get("devices", ())]
            more = {"weight": split.get("weights", ()), "into": split.get("into", ())}
            strategy.splits.add(op=op, axis=split["axis"], parts=split["parts"], device=parts, **more)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise BadRequestError(
                f"split {k} of the strategy: {error!r}; it takes an op, an axis, parts, and devices, weights and into as lists"
            ) from error


def _with_id(strategy: strategy_pb2.Strategy) -> strategy_pb2.Strategy:
    """The id is a hash of what the strategy does, not of who made it or what it promised."""
    splits = [[s.op, s.axis, s.parts, list(s.device), list(s.weight), *([list(s.into)] if s.into else [])] for s in strategy.splits]
    does = [
        list(strategy.devices),
        list(strategy.op),
        list(strategy.device),
        list(strategy.priority),
        splits,
        strategy.order,
        *([True] if strategy.replicate else []),
    ]
    strategy.id = hashlib.sha256(json.dumps(does).encode()).hexdigest()[:16]
    return strategy


def placement_of(strategy: strategy_pb2.Strategy) -> dict[str, str]:
    """Device by op."""
    return {op: strategy.devices[k] for op, k in zip(strategy.op, strategy.device, strict=True)}


def in_parts(strategy: strategy_pb2.Strategy, offers: Sequence[runtime_pb2.SplitChoice]) -> dict[str, InParts]:
    """Every op that a strategy splits, and how."""
    found: dict[str, InParts] = {}
    splits: list[tuple[str, str, int, list[str], list[float]]] = []
    if strategy.replicate:
        everywhere = list(strategy.devices)
        splits += [(offer.op, offer.axis, len(everywhere), everywhere, []) for offer in offers if offer.axis == "batch"]
    splits += [(s.op, s.axis, s.parts, list(s.device), list(s.weight)) for s in strategy.splits]  # these win, as in the hook
    for op, axis, parts, devices, weights in splits:
        total = sum(weights) or parts
        own: dict[str, float] = {}
        for k in range(parts):
            device = devices[k] if devices else ""
            own[device] = own.get(device, 0.0) + (weights[k] if weights else 1.0) / total
        found[op] = InParts(axis, own)
    return found


def priority_of(strategy: strategy_pb2.Strategy) -> dict[str, int]:
    """Priority by op; empty when the strategy orders nothing."""
    return dict(zip(strategy.op, strategy.priority, strict=True)) if strategy.priority else {}
