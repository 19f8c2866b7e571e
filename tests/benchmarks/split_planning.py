"""A plan for a live session without a daemon: what its traced steps show, and the planner's best strategy for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from stepd.kernels import cache

cache.use()

from stepd.core.assembly import Situation, SplitOffer  # noqa: E402
from stepd.core.calibration import Measured  # noqa: E402
from stepd.core.cost.models import CostModels  # noqa: E402
from stepd.core.cost.observation import InParts, of_part, of_whole_ops  # noqa: E402
from stepd.core.planning import Candidate, begin, run  # noqa: E402
from stepd.core.session_links import SessionDevice  # noqa: E402
from stepd.daemon.convert.graph import parse_nodes  # noqa: E402
from stepd.hook.model import LiveStrategy, Order, Split  # noqa: E402
from stepd.traces.profile import parse_profile  # noqa: E402


def learn(models: CostModels, engine: Any, records: list[Any]) -> dict[str, str]:
    """What traced steps show goes into `models`, ops in parts as whole ones; returns where each op ran."""
    live = engine.switcher().live
    in_force = live.plan.strategy if live is not None else None
    axes = {split.op: split.axis for split in in_force.splits} if in_force is not None else {}
    parts: dict[str, InParts] = {}
    for name, chosen in (live.plan.splits if live is not None else {}).items():
        share: dict[str, float] = {}
        for k, device in enumerate(chosen.devices):
            share[device] = share.get(device, 0.0) + (chosen.bounds[k + 1] - chosen.bounds[k]) / chosen.bounds[-1]
        parts[name] = InParts(axes.get(name, "batch"), share)
    names = {node.name for node in parse_nodes(engine.describe().graph_def)}
    devices = {device.name for device in engine.devices()}
    where: dict[str, str] = {}
    for record in records:
        step = parse_profile(record.metadata, names, devices, batch=record.batch, seconds=record.seconds)
        step = of_whole_ops(step, parts)
        models.observe(step)
        where |= {op: seen.device for seen in step.devices for op in seen.ops if of_part(op) is None}
    return where


def plan(engine: Any, models: CostModels, today: dict[str, str], outputs: tuple[str, ...], seconds: float) -> Candidate | None:
    """The best strategy with splits for steps that run `outputs` and take `seconds` now; None: none is better than today."""
    told: list[Candidate] = []
    known = [Measured("", today, {}, seconds, in_force=True)]
    whole = engine.describe().keeps_order
    planning = begin(_situation(engine, models, today, outputs), known, ordered=True, whole_order=whole)
    run(planning, lambda *_: None, told.append)
    engine.planned = planning.assembled.problem
    return told[-1] if told and told[-1].algorithm == "replicate" else None


def _situation(engine: Any, models: CostModels, today: dict[str, str], outputs: tuple[str, ...]) -> Situation:
    report = engine.describe()
    return Situation(
        name="live",
        nodes=parse_nodes(report.graph_def, report.lifted, report.shared),
        outputs=outputs,
        devices=tuple(SessionDevice(d.name, d.type, d.memory_bytes, d.usable) for d in engine.devices()),
        models=models,
        today=today,
        pinned=report.pinned,
        together=report.colocated,
        device_kinds=report.device_kinds,
        splits=tuple(
            SplitOffer(o.op, o.axis, o.max_parts, tuple(o.cut_bytes), tuple(o.joined_bytes), o.adds) for o in report.splits
        ),
    )


def live(engine: Any, found: Candidate, order: Order) -> LiveStrategy:
    """A candidate as the hook takes it."""
    problem = engine.planned
    names, devices = problem.op_names, [device.name for device in problem.devices]
    moves = np.flatnonzero(np.isfinite(problem.seconds).sum(axis=1) > 1).tolist()
    placement = {names[i]: devices[found.placement[i]] for i in moves}
    splits = tuple(
        Split(names[s.op], s.axis, s.parts, tuple(devices[k] for k in s.devices), tuple(s.weights), tuple(s.into))
        for s in found.splits
    )
    if order is Order.NONE or not found.enforced:
        return LiveStrategy("planned", placement, splits=splits)
    priority = {names[i]: int(found.priority[i]) for i in moves}
    seconds = {names[i]: float(problem.seconds[i, found.placement[i]]) for i in moves}
    return LiveStrategy("planned-ordered", placement, priority, seconds, splits, order)


def describe(problem: Any, found: Candidate) -> str:
    """What a candidate does, in a line an op type: how many are in parts, and where whole ones with work are."""
    split = {s.op for s in found.splits}
    heavy = [i for i, kind in enumerate(problem.op_types) if kind.startswith(("MatMul", "Conv", "BatchMatMul", "Einsum"))]
    whole = [f"{problem.op_names[i]} on {found.placement[i]}" for i in heavy if i not in split]
    weights = sorted({s.weights for s in found.splits})
    return f"{len(heavy) - len(whole)} products in parts of {weights or 'equal'}; whole: {', '.join(whole) or 'none'}"
