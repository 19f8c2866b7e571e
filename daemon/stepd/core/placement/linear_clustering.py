"""Linear clustering with guided load balancing: whole paths share a device (Kim and Browne, 1988)."""

from __future__ import annotations

from stepd.core.placement.clustering_kernels import start_times
from stepd.core.placement.clusters import balance_guided, clusters_of_groups
from stepd.core.placement.longest_paths import linear_clusters
from stepd.core.placement.orders import order_for
from stepd.core.placement.ranks import op_seconds, transfer_seconds
from stepd.core.placement.registry import PlanOptions
from stepd.core.placement.result import finish
from stepd.core.prepared import prepare
from stepd.core.problem import Problem
from stepd.core.strategy import Strategy

MOST_PATHS = 2000
"""Each path costs a pass over the ops that are left; the paths after these are short."""


def place(problem: Problem, options: PlanOptions) -> Strategy:
    """Parameters: order ("rank", "placed-rank", "ready")."""
    prepared = prepare(problem)
    seconds, transfer = op_seconds(prepared, "mean"), transfer_seconds(prepared, "mean")
    cluster = linear_clusters(prepared.tables, seconds, transfer, MOST_PATHS)
    start = start_times(prepared.tables, seconds, transfer, cluster)
    of_group = clusters_of_groups(prepared, cluster)
    placement = balance_guided(prepared, of_group, start, options.memory_factor)
    priority = order_for(problem, placement, options.parameter("order", "rank"))
    return finish(problem, "linear-clustering", options, placement, priority, clusters=int(of_group.max(initial=-1)) + 1)
