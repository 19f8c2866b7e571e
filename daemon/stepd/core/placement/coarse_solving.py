"""What Pesto and Moirai do with their coarse graphs: solve them with CP-SAT from the best heuristic start, and expand the answer.

The order inside and between clusters is the solver's; where its clusters hold many ops (section 3.3 of Pesto falls back to the
runtime's own order there), the upward ranks of the expanded placement are tried beside it.
"""

from __future__ import annotations

import math
from dataclasses import replace

from stepd.core.coarsen import Coarse, expand
from stepd.core.placement.cpsat.solver import solve
from stepd.core.placement.exact import best_start, cost, facts, limits_of
from stepd.core.placement.orders import order_for
from stepd.core.placement.registry import PlanOptions
from stepd.core.placement.result import finish
from stepd.core.problem import Index, Problem
from stepd.core.strategy import Strategy


def solve_coarse(problem: Problem, algorithm: str, coarse: Coarse, options: PlanOptions, **extra: int) -> Strategy:
    """The best expanded answer that was met: the start's, or one of the schedules that CP-SAT found. The facts speak of the coarse
    problem: its status, bound and gap."""
    keeper = _Keeper(problem, algorithm, coarse, options)
    limits = limits_of(options)
    start = best_start(coarse.problem, replace(options, parameters={}))
    keeper.offer(*start)
    solution = solve(coarse.problem, *start, limits, found=keeper.offer)
    keeper.offer(solution.placement, solution.priority)
    placement, priority = keeper.best
    return finish(problem, algorithm, options, placement, priority, clusters=coarse.problem.n_ops, **extra, **facts(solution))


class _Keeper:
    """Keeps the best of the expanded answers offered, and reports it."""

    def __init__(self, problem: Problem, algorithm: str, coarse: Coarse, options: PlanOptions) -> None:
        self._problem, self._algorithm, self._coarse, self._options = problem, algorithm, coarse, options
        self._best: tuple[Index, Index] | None = None
        self._cost: tuple[float, float] = (math.inf, math.inf)

    @property
    def best(self) -> tuple[Index, Index]:
        """Placement and priority of ops, int32 [n]."""
        assert self._best is not None, "the start is offered first"
        return self._best

    def offer(self, coarse_placement: Index, coarse_priority: Index) -> None:
        """A strategy of the coarse problem."""
        placement, priority = expand(self._coarse, coarse_placement, coarse_priority)
        for order in (priority, order_for(self._problem, placement, "placed-rank")):
            found = cost(self._problem, placement, order)
            if found < self._cost:
                self._best, self._cost = (placement, order), found
                if self._options.report is not None:
                    self._options.report(finish(self._problem, self._algorithm, self._options, placement, order))
