"""Data parallelism: tower k of a replicated graph on device k, what they share as parameter servers would hold it (FastT section
5.2's start).

Towers are found by structure, else by names. A graph that has none is not replicated here (that is a rewriting of the graph), but
runs on one device, and `planner["towers"]` is 0.
"""

from __future__ import annotations

import numpy as np

from stepd.core.compiled import kernel
from stepd.core.errors import PlannerError
from stepd.core.placement.fallback import nearest_allowed
from stepd.core.placement.name_scopes import tower_of_ops
from stepd.core.placement.orders import order_for
from stepd.core.placement.registry import PlanOptions
from stepd.core.placement.replicas import replicas_of
from stepd.core.placement.result import finish
from stepd.core.placement.shared_weights import Parts, bytes_of, parts_of, seconds_of
from stepd.core.placement.sharing_out import Shares, least_first
from stepd.core.prepared import SLOW, Prepared, Tables, device_speeds, prepare
from stepd.core.problem import Index, Int, Problem
from stepd.core.strategy import Strategy

RESTS = ("both", "bytes", "seconds", "turns", "near", "first")
EQUAL = 0.9
"""Devices count as equal where the slowest has so much of the speed of the fastest: what is measured differs a little."""


def place(problem: Problem, options: PlanOptions) -> Strategy:
    """Towers on devices in order, round robin. Parameters: `rest`, as in `towers_apart`, `order` of execution."""
    prepared = prepare(problem)
    towers = towers_of(problem)
    placement = towers_apart(prepared, towers, options.parameter("rest", "near"))
    priority = order_for(problem, placement, options.parameter("order", "rank"))
    return finish(problem, "data-parallel", options, placement, priority, towers=int(towers.max(initial=-1)) + 1)


def towers_of(problem: Problem) -> Int:
    """Tower of every op, int64 [n], -1 for ops that belong to none; all -1 when there are not two."""
    towers = replicas_of(problem)
    return towers if (towers >= 0).any() else tower_of_ops(problem)


def towers_apart(prepared: Prepared, towers: Int, rest: str) -> Index:
    """Placement int32 [n] of towers, int64 [n], -1 for what is shared: on devices in order, round robin; on unequal ones each where
    it is done first.

    rest: where shared ops are: "near" (they follow the bytes), "first" (device 0: the parameter server of tf.estimator's and slim's
    towers), or, with the weights that towers share as parameter servers hold them, "turns" (in turn), "bytes", "seconds" or "both"
    (the largest first to the device with least).
    """
    if rest not in RESTS:
        raise PlannerError(f"data-parallel: no rest {rest!r}; there are: {', '.join(RESTS)}")
    wanted = np.full(len(towers), -1, dtype=np.int32)
    inside = np.flatnonzero(towers >= 0).astype(np.int32)
    if len(inside):
        devices = _devices_for(prepared, inside)
        wanted[inside] = _tower_devices(prepared, towers[inside], inside, devices)[towers[inside]]
        if rest not in ("near", "first"):
            parts = parts_of(prepared, towers)
            shared = np.flatnonzero(parts.part >= 0)
            wanted[shared] = _part_devices(rest, prepared, parts, wanted, devices)[parts.part[shared]]
        if rest != "first":
            spread(prepared.tables, wanted, len(prepared.tables.memory))
    wanted[wanted < 0] = 0
    return nearest_allowed(prepared, wanted)


def _devices_for(prepared: Prepared, inside: Index) -> Index:
    """The devices, int32, that run most of the ops `inside` the towers, and are not far slower than the fastest of these."""
    best = prepared.tables.seconds[inside].min(axis=1)
    able = 2.0 * (np.isfinite(prepared.tables.seconds[inside]).T @ best) >= best.sum()
    speeds = np.where(able, device_speeds(prepared), 0.0)
    return np.flatnonzero(speeds >= SLOW * speeds.max()).astype(np.int32)


def _tower_devices(prepared: Prepared, tower: Int, inside: Index, devices: Index) -> Index:
    """The device of each tower. tower: that of each op `inside`."""
    count = int(tower.max()) + 1
    speeds = device_speeds(prepared)[devices]
    if speeds.min() >= EQUAL * speeds.max():
        return devices[np.arange(count) % len(devices)]
    can = prepared.tables.seconds[np.ix_(inside, devices)]
    can = np.where(np.isfinite(can), can, prepared.tables.seconds[inside].min(axis=1, keepdims=True))
    cost = np.stack([np.bincount(tower, weights=column, minlength=count) for column in can.T], axis=1).astype(np.float64)
    return devices[least_first(Shares(cost, np.zeros(len(devices))))]


def _part_devices(rest: str, prepared: Prepared, parts: Parts, wanted: Index, devices: Index) -> Index:
    if rest == "turns":
        return devices[np.arange(parts.count) % len(devices)]
    size, seconds = bytes_of(prepared, parts, devices), seconds_of(prepared, parts, wanted, devices)
    kinds = {"bytes": [size], "seconds": [seconds], "both": [size, seconds]}[rest]
    return devices[least_first(*kinds)]


@kernel
def spread(tables: Tables, wanted: Index, devices: int) -> None:
    """Give every op without a wish the device that most bytes of its inputs and placed readers are on, in topological order."""
    votes = np.zeros(devices)
    for op in tables.topological:
        if wanted[op] >= 0:
            continue
        votes[:] = 0.0
        for i in range(tables.input_pointer[op], tables.input_pointer[op + 1]):
            o = tables.input[i]
            if wanted[tables.output_op[o]] >= 0:
                votes[wanted[tables.output_op[o]]] += tables.output_bytes[o] + 1.0
        for o in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
            for r in range(tables.reader_pointer[o], tables.reader_pointer[o + 1]):
                device = wanted[tables.reader[r]]
                if device >= 0:
                    votes[device] += tables.output_bytes[o] + 1.0
        if votes.max() > 0.0:
            wanted[op] = np.argmax(votes)
