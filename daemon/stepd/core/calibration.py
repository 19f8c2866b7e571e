"""How far the execution model can be trusted on a live session: strategies that ran, simulated and compared with what was measured.

Predictions are corrected by what is in force: the simulator's answer for it against its measured step time. What was measured of
other strategies gives the model's own error, so that a miss that the models have since learned from no longer stands in the way.
Pure; it searches for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stepd.core.assembly import Assembled
from stepd.core.enforced import as_enforced
from stepd.core.errors import StepdError
from stepd.core.placement.replicate import simulate, split_costs
from stepd.core.placement.split_problem import split_problem, splittable
from stepd.core.portfolio.start_order import natural_priority
from stepd.core.problem import Index, Problem
from stepd.core.simulator import simulate_placement
from stepd.core.strategy import Split, Strategy

LINK_FACTORS = (1.0, 0.5, 0.7, 1.4, 2.0, 2.8, 4.0)
HANDLING_FACTORS = (1.0, 0.0, 0.5, 0.7, 1.4, 2.0)
GAIN = 0.1
"""Gains that are looked for once a good strategy is in force are of this size, relative."""

CALIBRATED_ON = 4
"""Strategies that the link factor is chosen by, the newest."""

SplitByName = tuple[str, str, int, tuple[str, ...], tuple[float, ...], tuple[int, ...]]
"""(op, axis, parts, devices, weights, into), as a strategy names them."""


@dataclass(frozen=True)
class Measured:
    """A strategy that ran. `placement`: device by op (of ops that it leaves out, see `columns`); `in_force`: now."""

    id: str
    placement: Mapping[str, str]
    priority: Mapping[str, int]
    seconds: float
    lost: bool = False
    in_force: bool = False
    splits: tuple[SplitByName, ...] = ()


@dataclass(frozen=True)
class Calibration:
    """factor: measured over simulated, of what is in force. error: relative, of the model on the other measured strategies.

    gain_error: the same at the size of GAIN: a miss on a strategy whose step time lies further off counts in proportion.
    link_factor: how much slower transfers act than they were measured alone; handling_factor: how much more time of the devices
    at their ends they take than assumed. Both chosen so that strategies that ran are predicted best.
    """

    factor: float
    error: float
    gain_error: float
    link_factor: float
    handling_factor: float
    today_simulated_seconds: float


def calibrate(assembled: Assembled, measured: Sequence[Measured]) -> tuple[Assembled, Calibration]:
    """Simulate what ran, compare with what was measured, and slow the links down (or up) so that both agree best.

    Without a measurement: factor 1, error 0. The links are left alone while what is in force is the only one that uses them: a
    miss could be explained by many things then, such as a machine that got slower since. A strategy that fits neither graph nor
    devices any more is passed over.
    """
    ran = [known for known in measured if known.seconds > 0]
    others = [known for known in ran if not known.in_force][-CALIBRATED_ON:]
    used = [*others, *(known for known in ran if known.in_force)]
    best = _trial(assembled, used, 1.0, 1.0)
    if not any(_crosses(best[1], known) for known in others):
        return best[1], best[2]
    if any(link.handling_seconds > 0 for link in assembled.problem.links):
        trials = (_trial(assembled, used, 1.0, factor) for factor in HANDLING_FACTORS[1:])
        best = min((best, *trials), key=lambda trial: trial[0])
    handling = best[2].handling_factor
    best = min((best, *(_trial(assembled, used, factor, handling) for factor in LINK_FACTORS[1:])), key=lambda trial: trial[0])
    return best[1], best[2]


def _trial(
    assembled: Assembled, measured: Sequence[Measured], link_factor: float, handling_factor: float
) -> tuple[float, Assembled, Calibration]:
    """(how badly it explains what was measured, the scaled problem, its calibration)."""
    scaled = _with_links(assembled, link_factor, handling_factor)
    calibration = _compare(scaled, measured, link_factor, handling_factor)
    # A little preference for the links as they are.
    loss = calibration.error + 0.02 * abs(math.log(link_factor)) + 0.02 * abs(math.log2(max(handling_factor, 0.25)))
    return loss, scaled, calibration


def _compare(assembled: Assembled, measured: Sequence[Measured], link_factor: float, handling_factor: float) -> Calibration:
    problem = assembled.problem
    order = natural_priority(problem)
    simulated: list[tuple[Measured, float]] = []
    for known in measured:
        placement, priority = columns(problem, assembled.today, order, known)
        try:
            simulated.append((known, _step_seconds(problem, placement, priority, known)))
        except StepdError:
            continue
    now = next(((k.seconds, seconds) for k, seconds in simulated if k.in_force and seconds > 0), None)
    factor = now[0] / now[1] if now else 1.0
    others = [(known.seconds, seconds * factor / known.seconds - 1.0) for known, seconds in simulated if not known.in_force]
    misses = [abs(miss) for _, miss in others]
    doubts = [abs(miss) * GAIN / max(abs(math.log(seconds / now[0])), GAIN) for seconds, miss in others] if now else misses
    error, gain_error = (float(np.mean(values)) if values else 0.0 for values in (misses, doubts))
    return Calibration(factor, error, gain_error, link_factor, handling_factor, now[1] if now else 0.0)


def _crosses(assembled: Assembled, known: Measured) -> bool:
    """Does this strategy send anything from device to device?"""
    placement = _placed(assembled.problem, assembled.today, known)
    return bool(known.splits) or bool((placement[assembled.problem.edge_src] != placement[assembled.problem.edge_dst]).any())


def _step_seconds(problem: Problem, placement: Index, priority: Index, known: Measured) -> float:
    """What the simulator says of a strategy that ran. Raises StepdError when it does not fit the problem."""
    if not known.splits:
        return simulate_placement(problem, placement, priority).step_seconds
    index = {name: k for k, name in enumerate(problem.op_names)}
    device = {item.name: k for k, item in enumerate(problem.devices)}
    splits = tuple(
        Split(index[op], axis, parts, tuple(device[name] for name in devices), weights, into)
        for op, axis, parts, devices, weights, into in known.splits
        if op in index and all(name in device for name in devices)
    )
    base = splittable(problem, live=True)
    strategy = Strategy(problem.name, placement, priority, float("inf"), splits)
    return simulate(base, split_problem(base, splits, split_costs(problem)), strategy)[0]


def _with_links(assembled: Assembled, factor: float, handling_factor: float) -> Assembled:
    if factor == handling_factor == 1.0:
        return assembled
    links = tuple(
        replace(
            link,
            bytes_per_second=link.bytes_per_second / factor,
            latency_seconds=link.latency_seconds * factor,
            handling_seconds=link.handling_seconds * handling_factor,
            handling_seconds_per_byte=link.handling_seconds_per_byte * handling_factor,
        )
        for link in assembled.problem.links
    )
    return replace(assembled, problem=replace(assembled.problem, links=links))


def columns(problem: Problem, today: Index, order: Index, known: Measured) -> tuple[Index, Index]:
    """Placement and priority of a strategy by names, as columns of this problem. Ops that it leaves out go with their groups or
    neighbours: today's device would tear fused ops apart, and links would be blamed for transfers that never were.
    """
    placement = _placed(problem, today, known)
    if not known.priority:
        return placement, order
    keys = [known.priority.get(name, 1 << 30) for name in problem.op_names]
    return placement, as_enforced(problem, _ranks(np.lexsort((order, np.array(keys)))))


def _placed(problem: Problem, today: Index, known: Measured) -> Index:
    device = {item.name: k for k, item in enumerate(problem.devices)}
    named = np.array([device.get(known.placement.get(name, ""), -1) for name in problem.op_names], dtype=np.int32)
    return _filled(problem, named, today)


def _filled(problem: Problem, placement: Index, today: Index) -> Index:
    """A placement that leaves ops out (-1), completed: an op goes where its group is (a trace shows fused ops under one name
    only), else where its reader or producer is, else it stays where it is today.
    """
    result = placement.copy()
    for group in np.unique(problem.colocation[(result < 0) & (problem.colocation >= 0)]):
        members = np.flatnonzero(problem.colocation == group)
        seen = result[members][result[members] >= 0]
        if len(seen):
            result[members[result[members] < 0]] = np.bincount(seen).argmax()
    for source, target in ((problem.edge_dst, problem.edge_src), (problem.edge_src, problem.edge_dst)):
        fill = (result[target] < 0) & (result[source] >= 0)
        result[target[fill]] = result[source[fill]]
    allowed = np.isfinite(problem.seconds[np.arange(problem.n_ops), result])
    return np.where((result >= 0) & allowed, result, today).astype(np.int32)


def _ranks(ops: Index | np.ndarray[tuple[int], np.dtype[np.intp]]) -> Index:
    ranks = np.empty(len(ops), dtype=np.int32)
    ranks[ops] = np.arange(len(ops), dtype=np.int32)
    return ranks
