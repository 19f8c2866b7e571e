"""Pesto (Hafeez, Sun, Gandhi, Liu, Middleware 2021): merge to a coarse graph, place and schedule it jointly and exactly, expand.

Section 3.3's merging is pesto_merging; section 3.2.2's integer program is cpsat.schedule_model, for any number and kind of devices.
Memory is counted over time, as section 3.2.2 suggests for a stronger constraint.
"""

from __future__ import annotations

from stepd.core.coarsen import Coarse, coarsen
from stepd.core.placement.coarse_groups import MOST, merge_ops
from stepd.core.placement.coarse_solving import solve_coarse
from stepd.core.placement.registry import PlanOptions
from stepd.core.problem import Problem
from stepd.core.strategy import Strategy

CLUSTERS = 100
"""The paper solves 200 vertices on 2 devices in minutes to an hour; within seconds CP-SAT improves on heuristics up to about
100."""


def place(problem: Problem, options: PlanOptions) -> Strategy:
    """Parameters: clusters (size of the coarse graph). `max_work` counts CP-SAT's deterministic seconds."""
    return solve_coarse(problem, "pesto", _coarse(problem, options), options)


def _coarse(problem: Problem, options: PlanOptions) -> Coarse:
    clusters = options.parameter("clusters", CLUSTERS)
    return coarsen(problem, merge_ops(problem, clusters, most=MOST * clusters))
