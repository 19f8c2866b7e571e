"""Multilevel k-way partitioning with METIS (Karypis and Kumar, 1998): the least traffic between devices with equal work.

The graph is that of the colocation groups. METIS knows no order, no directions and no kernels; groups that cannot run where
their part goes are put on their fastest device.
"""

from __future__ import annotations

import numpy as np
import pymetis

from stepd.core.errors import PlannerError
from stepd.core.placement.clusters import GroupGraph, group_graph
from stepd.core.placement.orders import order_for
from stepd.core.placement.registry import PlanOptions
from stepd.core.placement.result import finish
from stepd.core.prepared import Prepared, prepare
from stepd.core.problem import Float, Index, Int, Problem
from stepd.core.strategy import Strategy

# METIS takes weights as 32-bit integers and adds them up.
_TOTAL_WEIGHT = 1 << 28


def place(problem: Problem, options: PlanOptions) -> Strategy:
    """Parameters: balance ("seconds", "memory" or "both"), order ("rank", "placed-rank", "ready")."""
    prepared = prepare(problem)
    parts = _partition(prepared, group_graph(prepared), options)
    devices = np.arange(problem.n_devices, dtype=np.int32)
    group_device = _where_it_runs(prepared, devices[parts])
    placement = group_device[prepared.tables.group].astype(np.int32)
    priority = order_for(problem, placement, options.parameter("order", "rank"))
    return finish(problem, "metis", options, placement, priority)


def _partition(prepared: Prepared, graph: GroupGraph, options: PlanOptions) -> Index:
    """Part (= device) of each group, int32 [g]; each device's share of the weight is its share of the total speed."""
    n_devices = prepared.group_seconds.shape[1]
    if prepared.n_groups <= n_devices:  # nothing to cut, and METIS says so on the program's output
        return np.arange(prepared.n_groups, dtype=np.int32)
    if n_devices == 1:
        return np.zeros(prepared.n_groups, dtype=np.int32)
    settings = pymetis.Options()
    settings.seed = options.seed & 0x7FFFFFFF
    _, part = pymetis.part_graph(
        n_devices,
        adjacency=pymetis.CSRAdjacency(graph.first.tolist(), graph.neighbour.tolist()),
        vweights=_scaled(_weights(prepared, options)).tolist(),
        eweights=np.maximum(_scaled(graph.sent.astype(np.float64)), 1).tolist(),
        tpwgts=_speed_shares(prepared).tolist(),
        options=settings,
    )
    return np.array(part, dtype=np.int32)


def _weights(prepared: Prepared, options: PlanOptions) -> Float:
    """What is balanced, float64 [g]: mean seconds, resident bytes, or the sum of both shares."""
    can = np.isfinite(prepared.group_seconds)
    seconds = np.where(can, prepared.group_seconds, 0.0).sum(axis=1) / np.maximum(can.sum(axis=1), 1)
    memory = prepared.group_resident.astype(np.float64)
    balance = options.parameter("balance", "seconds")
    if balance == "seconds":
        return np.asarray(seconds)
    if balance == "memory":
        return memory
    if balance == "both":
        return np.asarray(seconds / max(seconds.sum(), 1e-300) + memory / max(memory.sum(), 1.0))
    raise PlannerError(f"metis cannot balance {balance!r}: seconds, memory or both")


def _scaled(weights: Float) -> Int:
    total = weights.sum()
    return np.rint(weights * (_TOTAL_WEIGHT / total if total > 0 else 0.0)).astype(np.int64)


def _speed_shares(prepared: Prepared) -> Float:
    """Each device's share of the speed on the groups that run everywhere, float64 [d], summing to 1; equal without such groups."""
    everywhere = prepared.group_seconds[np.isfinite(prepared.group_seconds).all(axis=1)]
    total = everywhere.sum(axis=0)
    speed = 1.0 / total if len(everywhere) and (total > 0).all() else np.ones(prepared.group_seconds.shape[1])
    return np.asarray(speed / speed.sum())


def _where_it_runs(prepared: Prepared, wanted: Index) -> Index:
    """`wanted` where the group can run there, else its fastest device. int32 [g]."""
    runs = np.isfinite(prepared.group_seconds[np.arange(prepared.n_groups), wanted])
    return np.where(runs, wanted, prepared.group_seconds.argmin(axis=1)).astype(np.int32)
