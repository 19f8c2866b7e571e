"""Priorities in the order in which ops become ready, and in the order in which they start under others.

Both are topological orders: what enforces them can chain the ops of a device.
"""

from __future__ import annotations

import numpy as np

from stepd.core.prepared import prepare
from stepd.core.problem import Index, Problem
from stepd.core.simulator import Simulation, simulate_placement


def natural_priority(problem: Problem) -> Index:
    """The order in which ops become ready, int32 [n]: what a runtime without order enforcement comes near."""
    priority = np.empty(problem.n_ops, dtype=np.int32)
    priority[prepare(problem).tables.topological] = np.arange(problem.n_ops, dtype=np.int32)
    return priority


def in_start_order(problem: Problem, placement: Index, priority: Index) -> tuple[Index, Index, Simulation]:
    """The same strategy with priorities renumbered in the order in which ops start, unless that makes the step longer.

    It changes the step only where ops on different devices end at one instant and their transfers share a link (of a route over
    several links): the producer's priority says which is served first, and the one that started first need not be it.
    """
    simulation = simulate_placement(problem, placement, priority)
    order = np.lexsort((priority, simulation.finish, simulation.start))
    renumbered = np.empty_like(priority)
    renumbered[order] = np.arange(len(order), dtype=np.int32)
    again = simulate_placement(problem, placement, renumbered)
    if again.step_seconds <= simulation.step_seconds and again.feasible == simulation.feasible:
        return placement, renumbered, again
    return placement, priority, simulation
