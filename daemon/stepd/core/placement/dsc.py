"""Dominant sequence clustering with guided load balancing (Yang and Gerasoulis, 1994; Radulescu and van Gemund, 1998)."""

from __future__ import annotations

from stepd.core.placement.clustering_kernels import dominant_sequence
from stepd.core.placement.clusters import balance_guided, clusters_of_groups
from stepd.core.placement.orders import order_for
from stepd.core.placement.ranks import op_seconds, transfer_seconds, upward_ranks
from stepd.core.placement.registry import PlanOptions
from stepd.core.placement.result import finish
from stepd.core.prepared import prepare
from stepd.core.problem import Problem
from stepd.core.strategy import Strategy


def place(problem: Problem, options: PlanOptions) -> Strategy:
    """Parameters: order ("rank", "placed-rank", "ready")."""
    prepared = prepare(problem)
    seconds, transfer = op_seconds(prepared, "mean"), transfer_seconds(prepared, "mean")
    bottom = upward_ranks(prepared.tables, seconds, transfer)
    clustering = dominant_sequence(prepared.tables, seconds, transfer, bottom)
    of_group = clusters_of_groups(prepared, clustering.cluster)
    placement = balance_guided(prepared, of_group, clustering.start, options.memory_factor)
    priority = order_for(problem, placement, options.parameter("order", "rank"))
    return finish(problem, "dsc", options, placement, priority, clusters=int(of_group.max(initial=-1)) + 1)
