"""Post's cross-entropy minimisation (Gao, Chen, Li, "Post: device placement with cross-entropy minimization and proximal policy
optimization", NeurIPS 2018, section 4).

A softmax distribution over devices for each op group, independent of the others; placements are drawn, simulated, and the
distribution moves towards the best tenth. Post's gradient steps between (PPO) serve where one evaluation costs a training step;
here one costs microseconds, so the budget goes into draws.
"""

from __future__ import annotations

import numpy as np

from stepd.core.coarsen import Coarse, expand
from stepd.core.compiled import lean
from stepd.core.placement.anytime import Allowance
from stepd.core.placement.coarse_groups import merged
from stepd.core.placement.registry import PlanOptions
from stepd.core.placement.result import finish
from stepd.core.placement.rng import Rng, new_rng, uniform
from stepd.core.placement.search_space import (
    Space,
    best_single,
    choices,
    free_groups,
    group_placement,
    score,
    search_space,
)
from stepd.core.problem import Float, Index, Problem
from stepd.core.strategy import Strategy

DEFAULT_DRAWS = 20_000
ELITE = 0.1


def place(problem: Problem, options: PlanOptions) -> Strategy:
    """Parameters: clusters (most op groups), draws (per update), rate (share of the new distribution in each update)."""
    coarse = merged(problem, options.parameter("clusters", 150))
    space = search_space(coarse.problem)
    best = best_single(coarse.problem, space)
    best_cost = score(space, group_placement(space, best), np.inf)
    draws, rate = options.parameter("draws", 100), options.parameter("rate", 0.3)
    chance, rng = choices(space), new_rng(options.seed)
    allowance, drawn = Allowance(options, DEFAULT_DRAWS), 0
    while len(free_groups(space)) and (count := allowance.take(draws)):
        devices, costs = draw(space, chance, rng, count)
        drawn += count
        order = np.argsort(costs, kind="stable")
        if costs[order[0]] < best_cost:
            best, best_cost = devices[order[0]].copy(), costs[order[0]]
            if options.report is not None:
                options.report(_answer(problem, options, coarse, space, best, drawn))
        elite = devices[order[: max(1, round(ELITE * count))]]
        share = (elite[:, :, None] == np.arange(problem.n_devices)).mean(axis=0)
        chance = (1.0 - rate) * chance + rate * share
        if chance.max(axis=1).min(initial=1.0) > 0.999:  # one placement is left: begin anew
            chance = choices(space)
    return _answer(problem, options, coarse, space, best, drawn)


def _answer(problem: Problem, options: PlanOptions, coarse: Coarse, space: Space, best: Index, drawn: int) -> Strategy:
    placement, priority = expand(coarse, group_placement(space, best), space.priority)
    return finish(problem, "cross-entropy", options, placement, priority, draws=drawn, clusters=coarse.problem.n_ops)


def draw(space: Space, chance: Float, rng: Rng, count: int) -> tuple[Index, Float]:
    """Draw and score `count` placements. int32 [count, g], float64 [count] seconds."""
    devices = np.empty((count, chance.shape[0]), dtype=np.int32)
    costs = np.empty(count)
    _draw(space, chance, rng, devices, costs, np.empty(len(space.priority), dtype=np.int32))
    return devices, costs


@lean
def _draw(space: Space, chance: Float, rng: Rng, devices: Index, costs: Float, placement: Index) -> None:
    n_groups, n_devices = chance.shape
    for k in range(len(costs)):
        for g in range(n_groups):
            left = uniform(rng)
            chosen = -1
            for d in range(n_devices):
                if space.allowed[g, d] and (chosen < 0 or left > 0.0):
                    chosen = d
                left -= chance[g, d]
            devices[k, g] = chosen
        for op in range(len(placement)):
            placement[op] = devices[k, space.tables.group[op]]
        costs[k] = score(space, placement, np.inf)
