"""What the simulator-driven searches (FlexFlow's MCMC, Post's cross-entropy method) share: what they move and how it is scored.

They move the colocation groups of a coarse problem, FlexFlow's layers and Post's op groups; knows no search.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stepd.core.bounds import longest_step
from stepd.core.compiled import lean
from stepd.core.penalty import Penalty, penalised
from stepd.core.placement.ranks import by_rank, op_seconds, transfer_seconds, upward_ranks
from stepd.core.prepared import Tables, prepare
from stepd.core.problem import Float, Index, Mask, Problem
from stepd.core.reach import connected
from stepd.core.simulation_kernel import run_step
from stepd.core.simulation_state import State, new_state


class Space(NamedTuple):
    """g groups, n ops, d devices of one problem. `penalty` is for what does not fit; overflow is a share of all memory."""

    tables: Tables
    state: State  # of the simulations
    tail: Float  # [n] seconds that the step lasts at least from an op's start on
    allowed: Mask  # [g, d]
    priority: Index  # [n] by decreasing upward rank
    penalty: Penalty


def search_space(problem: Problem) -> Space:
    """The groups of `problem` on the devices that they can run on, in the order of upward ranks."""
    prepared = prepare(problem)
    seconds = op_seconds(prepared, "mean")
    order = by_rank(prepared, upward_ranks(prepared.tables, seconds, transfer_seconds(prepared, "mean")))
    priority = np.empty(problem.n_ops, dtype=np.int32)
    priority[order] = np.arange(problem.n_ops, dtype=np.int32)
    longest = longest_step(prepared) + 1e-9  # no gain in time is worth an overflow
    tail = upward_ranks(prepared.tables, op_seconds(prepared, "min"), transfer_seconds(prepared, "min"))
    return Space(
        prepared.tables,
        new_state(prepared.tables),
        tail,
        np.isfinite(prepared.group_seconds),
        priority,
        Penalty(longest, 10.0 * longest),
    )


def group_placement(space: Space, group_device: Index) -> Index:
    """int32 [n] from int32 [g]."""
    return group_device[space.tables.group]


@lean
def score(space: Space, placement: Index, limit: float) -> float:
    """Simulated step seconds, plus the penalty of what does not fit; inf once the step must pass `limit`."""
    seconds = run_step(space.tables, space.state, placement, space.priority, space.tail, limit, True)
    over = 0
    for d in range(len(space.tables.memory)):
        over += max(0, space.state.peak[d] - space.tables.memory[d])
    return penalised(seconds, over / max(1.0, float(space.tables.memory.sum())), space.penalty)


def best_single(problem: Problem, space: Space) -> Index:
    """Groups of `problem` on the device that scores best when all that can run there do, the rest on their first. int32 [g]."""
    prepared = prepare(problem)
    first = space.allowed.argmax(axis=1)
    best: Index = first.astype(np.int32)
    best_score = np.inf
    for device in range(space.allowed.shape[1]):
        choice = connected(prepared, np.where(space.allowed[:, device], device, first).astype(np.int32))
        found = score(space, group_placement(space, choice), best_score)
        if device == 0 or found < best_score:
            best, best_score = choice, found
    return best


def free_groups(space: Space) -> Index:
    """The groups that have a choice. int32."""
    return np.flatnonzero(space.allowed.sum(axis=1) > 1).astype(np.int32)


def choices(space: Space) -> Float:
    """Uniform probabilities over the allowed devices. float64 [g, d]."""
    return np.asarray(space.allowed / np.maximum(space.allowed.sum(axis=1, keepdims=True), 1), dtype=np.float64)
