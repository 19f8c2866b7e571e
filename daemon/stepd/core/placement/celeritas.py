"""Celeritas (sections 4 and 5): fuse ops along CPD-TOPO, place the clusters by Adjusting Placement, map back.

`link_aware=False` is Equation 7 as published; link-aware, transfers are reserved on links. A colocation group goes where the
cluster of its first op goes (section 6.1).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stepd.core.coarsen import Coarse, coarsen, expand
from stepd.core.placement.celeritas_fusion import MEMORY_SHARE, RANGE, communication_ratio, fuse
from stepd.core.placement.celeritas_order import cpd_topo
from stepd.core.placement.celeritas_place import adjusting_placement
from stepd.core.placement.fallback import nearest_allowed
from stepd.core.placement.fastt_dpos import GAPS, by_start
from stepd.core.placement.orders import order_for
from stepd.core.placement.partial_schedule import Rules, limits_of
from stepd.core.placement.ranks import transfer_seconds
from stepd.core.placement.registry import PlanOptions
from stepd.core.placement.result import finish
from stepd.core.prepared import prepare
from stepd.core.problem import Index, Problem
from stepd.core.strategy import Strategy


def place(problem: Problem, options: PlanOptions) -> Strategy:
    """Celeritas. Parameters: `reach` (R), `memory_share` (M), `order`: "rank", "ready", "placed-rank" or "clusters", the
    order of the coarse schedule."""
    coarse = fused(problem, options)
    prepared = prepare(coarse.problem)
    order = cpd_topo(prepared)
    rules = Rules(contention=options.link_aware, insertion=True, gaps=GAPS)
    state = adjusting_placement(
        prepared.tables, limits_of(prepared, options.memory_factor), rules, order, transfer_seconds(prepared, "mean")
    )
    placement, priority = mapped_back(coarse, state.placement, by_start(state.start, order), options)
    return finish(
        problem,
        "celeritas",
        options,
        placement,
        priority,
        clusters=coarse.problem.n_ops,
        ccr=communication_ratio(prepare(problem)),
        fused_ccr=communication_ratio(prepared),
        memory_overflows=int(state.overflow[0]),
    )


def fused(problem: Problem, options: PlanOptions) -> Coarse:
    """The coarse graph of Optimal Operation Fusion. Clusters are not colocated: groups are settled when mapping back."""
    reach, share = options.parameter("reach", RANGE), options.parameter("memory_share", MEMORY_SHARE)
    _, cluster = fuse(prepare(problem), reach, share)
    coarse = coarsen(problem, cluster)
    free = replace(coarse.problem, colocation=np.full(coarse.problem.n_ops, -1, dtype=np.int32))
    return replace(coarse, problem=free)


def mapped_back(coarse: Coarse, placement: Index, priority: Index, options: PlanOptions) -> tuple[Index, Index]:
    """Placement and priority of the ops from those of the clusters."""
    problem = coarse.fine
    wanted, fine_priority = expand(coarse, placement, priority)
    fine = groups_follow_first(problem, wanted, fine_priority)
    order = options.parameter("order", "clusters")
    return fine, fine_priority if order == "clusters" else order_for(problem, fine, order)


def groups_follow_first(problem: Problem, wanted: Index, priority: Index) -> Index:
    """Every colocation group where its first op (by priority) wants to be, or where it can run. int32 [n]."""
    prepared = prepare(problem)
    group = prepared.tables.group
    order = np.argsort(priority)
    first = order[np.unique(group[order], return_index=True)[1]]
    leaders = np.full(problem.n_ops, -1, dtype=np.int32)
    leaders[first] = wanted[first]
    return nearest_allowed(prepared, leaders)
