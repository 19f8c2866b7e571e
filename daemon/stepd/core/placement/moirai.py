"""Moirai (Zhang et al., "Moirai: towards optimal placement for distributed inference on heterogeneous devices", 2023).

GCOF keeps together what the runtime fuses (section III-B); the MILP of section III-D, with heterogeneous devices, asymmetric
and multi-hop channels, non-overlap and congestion, is cpsat.schedule_model. What GCOF leaves, 70 % of the ops, is more than a
solver proves anything about in seconds (the paper's Gurobi takes up to 38 minutes), so a larger fused graph is merged further as
Pesto does.
"""

from __future__ import annotations

from stepd.core.coarsen import coarsen
from stepd.core.errors import PlannerError
from stepd.core.placement.coarse_groups import MOST, merge_ops, sharing
from stepd.core.placement.coarse_solving import solve_coarse
from stepd.core.placement.fusion_rules import RULE_SETS
from stepd.core.placement.gcof import fuse
from stepd.core.placement.pesto_merging import SLOWER, join
from stepd.core.placement.registry import PlanOptions
from stepd.core.prepared import prepare
from stepd.core.problem import Index, Problem
from stepd.core.strategy import Strategy

CLUSTERS = 100


def place(problem: Problem, options: PlanOptions) -> Strategy:
    """Parameters: rules ("tensorflow", "moirai-table-1" or "all"), clusters (size of the graph to solve). `max_work` counts
    CP-SAT's deterministic seconds."""
    fused = fused_ops(problem, options.parameter("rules", "all"))
    clusters = options.parameter("clusters", CLUSTERS)
    cluster = merge_ops(coarsen(problem, fused).problem, clusters, most=MOST * clusters)[fused]
    return solve_coarse(problem, "moirai", coarsen(problem, cluster), options, fused_ops=int(fused.max(initial=-1)) + 1)


def fused_ops(problem: Problem, rules: str) -> Index:
    """GCOF's clusters of `problem`, int32 [n]. Raises PlannerError for an unknown rule set."""
    if rules not in RULE_SETS:
        raise PlannerError(f"moirai has no rule set {rules!r}; there are: {', '.join(RULE_SETS)}")
    prepared = prepare(problem)
    limits = sharing(prepared)
    state = (limits.parent, limits.seconds, limits.resident, limits.capacity, limits.ideal)

    def may_share(one: int, other: int) -> bool:
        return bool(join(*state, SLOWER, float("inf"), limits.component[one], limits.component[other]))

    return fuse(prepared.tables, problem.op_types, RULE_SETS[rules], may_share)
