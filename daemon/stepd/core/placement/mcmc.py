"""FlexFlow's search (Jia, Zaharia, Aiken, "Beyond data and model parallelism for deep neural networks", SysML 2019, section 6).

A Markov chain over placements: one op (here: one colocation group of the problem merged down to layers' size) moves to a random
device, and the move is kept with probability min(1, exp(beta * (cost before - cost after))). The cost is the simulator's step
time; unlike FlexFlow's it counts memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stepd.core.coarsen import Coarse, expand
from stepd.core.compiled import lean
from stepd.core.placement.anytime import Allowance
from stepd.core.placement.coarse_groups import merged
from stepd.core.placement.registry import PlanOptions
from stepd.core.placement.result import finish
from stepd.core.placement.rng import Rng, below, new_rng, uniform
from stepd.core.placement.search_space import Space, best_single, free_groups, group_placement, score, search_space
from stepd.core.problem import Float, Index, Problem
from stepd.core.strategy import Strategy

DEFAULT_PROPOSALS = 20_000
_CHUNK = 200


class Chain(NamedTuple):
    """device: int32 [g], now; best: int32 [g]; costs: float64 [2], of now and of the best."""

    device: Index
    best: Index
    costs: Float


def place(problem: Problem, options: PlanOptions) -> Strategy:
    """Parameters: clusters (most ops of the merged problem), beta (per start cost)."""
    coarse = merged(problem, options.parameter("clusters", 400))
    space = search_space(coarse.problem)
    start = best_single(coarse.problem, space)
    cost = score(space, group_placement(space, start), np.inf)
    chain = Chain(start, start.copy(), np.array([cost, cost]))
    movable, rng = free_groups(space), new_rng(options.seed)
    beta = options.parameter("beta", 100.0) / max(cost, 1e-12)
    allowance, proposals = Allowance(options, DEFAULT_PROPOSALS), 0
    while len(movable) and (steps := allowance.take(_CHUNK)):
        before = chain.costs[1]
        walk(space, movable, chain, group_placement(space, chain.device), rng, beta, steps)
        proposals += steps
        if options.report is not None and chain.costs[1] < before:
            options.report(_answer(problem, options, coarse, space, chain, proposals))
    return _answer(problem, options, coarse, space, chain, proposals)


def _answer(problem: Problem, options: PlanOptions, coarse: Coarse, space: Space, chain: Chain, proposals: int) -> Strategy:
    placement, priority = expand(coarse, group_placement(space, chain.best), space.priority)
    return finish(problem, "mcmc", options, placement, priority, proposals=proposals, clusters=coarse.problem.n_ops)


@lean
def walk(space: Space, movable: Index, chain: Chain, placement: Index, rng: Rng, beta: float, steps: int) -> None:
    """`steps` proposals. The simulation of a proposal ends as soon as it is known to be rejected."""
    n_devices = space.allowed.shape[1]
    tables = space.tables
    for _ in range(steps):
        group = movable[below(rng, len(movable))]
        old, new = chain.device[group], below(rng, n_devices)
        limit = chain.costs[0] - np.log(1.0 - uniform(rng)) / beta
        if new == old or not space.allowed[group, new]:
            continue
        for k in range(tables.group_pointer[group], tables.group_pointer[group + 1]):
            placement[tables.group_op[k]] = new
        cost = score(space, placement, limit)
        if cost <= limit:
            chain.device[group] = new
            chain.costs[0] = cost
            if cost < chain.costs[1]:
                chain.costs[1] = cost
                for g in range(len(chain.best)):
                    chain.best[g] = chain.device[g]
        else:
            for k in range(tables.group_pointer[group], tables.group_pointer[group + 1]):
                placement[tables.group_op[k]] = old
