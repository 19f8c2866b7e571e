"""Strategies with splits: what they cost, and how one is read off a schedule of the split problem.

A Strategy speaks of the original ops only. What it leaves open is fixed here, once: the parts of an op take the op's turn in the
execution order, cuts first, then parts, then sums of terms, then the join; an input is cut where it is made; the join runs on the
op's device.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stepd.core.enforced import at_once_first, cheap
from stepd.core.placement.ranks import placed_tails
from stepd.core.placement.split_problem import SplitCosts, SplitProblem, Splittable, split_problem, splittable
from stepd.core.placement.split_tables import CUT, PART, SUM, WHOLE
from stepd.core.problem import Index, Problem
from stepd.core.simulation_kernel import Trace, simulate_alone
from stepd.core.strategy import Split, Strategy


def simulate_split(problem: Problem, strategy: Strategy, costs: SplitCosts = SplitCosts()) -> Trace:  # noqa: B008 - frozen
    """Simulate a strategy with its splits carried out; the trace is that of the split problem. Raises StrategyError."""
    base = splittable(problem)
    split = split_problem(base, strategy.splits, costs)
    return simulate_parts(base, split, strategy)


def simulate_parts(base: Splittable, split: SplitProblem, strategy: Strategy, limit: float = np.inf) -> Trace:
    """As `simulate_split`, of a split problem that is there already; makespan inf when it must exceed `limit` seconds."""
    placement = part_placement(base, split, strategy.placement, strategy.splits)
    priority = part_priority(split, strategy.priority)
    tables = split.prepared.tables
    if limit == np.inf:
        return simulate_alone(tables, placement, priority, np.zeros(len(placement)))
    tail = placed_tails(tables, placement) * (1.0 - 1e-9)  # roundings of a sum must not decide
    return simulate_alone(tables, placement, priority, tail, limit)


def part_placement(base: Splittable, split: SplitProblem, placement: Index, splits: tuple[Split, ...]) -> Index:
    """Device of every op of the split problem, int32 [n']."""
    tables = split.prepared.tables
    full = np.empty(len(split.origin), dtype=np.int32)
    full[: split.n_original] = placement
    for parts, chosen in zip(split.parts, splits, strict=True):
        full[list(parts)] = chosen.devices or placement[chosen.op]
    for op in np.flatnonzero((split.kind == CUT) | (split.kind == SUM)):  # where the first of what they read is made
        source = tables.input[tables.input_pointer[op]]
        full[op] = full[tables.output_op[source]]
    return full


def part_priority(split: SplitProblem, priority: Index) -> Index:
    """Priorities of the ops of the split problem, int32 [n'], from those of the whole ops, a permutation of 0..n-1."""
    n = split.n_original
    turn = priority[split.origin[n:]]  # few ops are new: they are sorted, the others moved up
    size = 1 + np.bincount(turn, minlength=n)
    end = np.cumsum(size)
    order = np.lexsort((split.kind[n:], turn))  # stable: parts in their own order
    turn = turn[order]
    full = np.empty(len(split.origin), dtype=np.int32)
    full[:n] = end[priority] - 1
    full[n + order] = end[turn] - size[turn] + np.arange(len(turn)) - np.searchsorted(turn, turn)
    return full


def kept_priority(split: SplitProblem, priority: Index) -> Index:
    """As `part_priority`, as a runtime keeps it: cuts, joins, sums of terms and what costs little run as soon as they can."""
    tables = split.prepared.tables
    at_once = cheap(tables.seconds) | (split.kind == CUT) | (split.kind == SUM)
    at_once[[chosen.op for chosen in split.splits]] = True  # joins
    return at_once_first(part_priority(split, priority), at_once)


def read_off(split: SplitProblem, placement: Index, position: Index) -> tuple[Index, Index, tuple[Split, ...]]:
    """Placement and priority of the original ops, and the splits with their devices.

    placement, position: int32 [n'], of the split problem; position, a permutation, is the place in its execution order. A split op
    takes the turn of its first part.
    """
    n = split.n_original
    turn = np.full(n, len(position), dtype=np.int64)
    own = split.kind == PART
    np.minimum.at(turn, split.origin[own], position[own])
    whole = np.flatnonzero(split.kind == WHOLE)
    turn[whole] = np.where(turn[whole] < len(position), turn[whole], position[whole])
    taken = np.zeros(len(position), dtype=bool)
    taken[turn] = True
    priority = (np.cumsum(taken) - 1)[turn].astype(np.int32)
    splits = tuple(
        replace(chosen, devices=tuple(int(placement[part]) for part in parts))
        for chosen, parts in zip(split.splits, split.parts, strict=True)
    )
    return placement[:n].astype(np.int32), priority, splits
