"""What the search calls a point: where every op runs and by which rule ops are ordered; what a point costs.

The order is always the same function of a point: upward ranks with the communication of the placement (HEFT's, under a fixed
placement), or a given order, plus a bias per op that moves change too. It knows no moves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stepd.core.arrays import copy_to, sort_by
from stepd.core.compiled import inlined, kernel
from stepd.core.penalty import Penalty, penalised
from stepd.core.prepared import Tables
from stepd.core.problem import Float, Index
from stepd.core.simulation_kernel import run_step
from stepd.core.simulation_state import State, new_state

MANY_SHIFTS = 8
"""Places that ops may be moved by on average while an order is mended; beyond that it is made anew."""


class Point(NamedTuple):
    """One strategy as the search sees it. cost: seconds, plus a penalty where memory does not suffice."""

    placement: Index  # [n]
    priority: Index  # [n]
    bias: Float  # [n] seconds by which an op is moved forward in the order
    base: Float  # [n] the given order as seconds (largest first); empty: upward ranks of the placement
    cost: float
    seconds: float
    overflow: float  # share of the devices' memory that is missing


@inlined
def upward_ranks(tables: Tables, placement: Index, weight: float, rank: Float, last: int) -> None:
    """Longest way to the end of the step, transfers weighted; fills rank [n] seconds from place `last` of the topological order on
    to the front. What comes after it must be right already."""
    for at in range(last, -1, -1):
        op = tables.topological[at]
        home = placement[op]
        longest = 0.0
        for output in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
            for k in range(tables.reader_pointer[output], tables.reader_pointer[output + 1]):
                reader = tables.reader[k]
                way = rank[reader]
                there = placement[reader]
                if there != home and weight > 0.0:
                    way += weight * (tables.latency[home, there] + tables.output_bytes[output] / tables.bandwidth[home, there])
                longest = max(longest, way)
        rank[op] = longest + tables.seconds[op, home]


@kernel
def shortest_tails(tables: Tables) -> Float:
    """Seconds [n] from an op's start to the end of the step on the best devices and without transfers: what no step beats."""
    n, d = tables.seconds.shape
    tail = np.zeros(n)
    for at in range(n - 1, -1, -1):
        op = tables.topological[at]
        best = np.inf
        for device in range(d):
            best = min(best, tables.seconds[op, device])
        longest = 0.0
        for output in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
            for k in range(tables.reader_pointer[output], tables.reader_pointer[output + 1]):
                longest = max(longest, tail[tables.reader[k]])
        tail[op] = best + longest
    return tail


@kernel
def order_by(tables: Tables, keys: Float) -> Index:
    """Priorities [n]: the largest key first, among equals producers first."""
    n = len(keys)
    sorted_keys = np.empty(n)
    for at in range(n):
        sorted_keys[at] = -keys[tables.topological[at]]
    by_key, priority = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)
    for at in range(n):
        by_key[at] = at
    sort_by(sorted_keys, by_key, priority)
    for at in range(n):
        priority[tables.topological[by_key[at]]] = at
    return priority


@inlined
def overflow_of(tables: Tables, state: State) -> float:
    """How much of the devices' memory is missing, as a share of each, summed."""
    missing = 0.0
    for device in range(len(tables.memory)):
        if state.peak[device] > tables.memory[device]:
            missing += (state.peak[device] - tables.memory[device]) / max(1.0, float(tables.memory[device]))
    return missing


@kernel
def evaluate(
    tables: Tables,
    placement: Index,
    bias: Float,
    base: Float,
    weight: float,
    tail: Float,
    penalty: Penalty,
    track: bool,
    limit: float,
) -> Point:
    """The point of a placement and an order rule; its cost is inf when the step takes longer than `limit`."""
    state = new_state(tables)
    keys = np.empty(len(placement))
    priority = order_of(tables, placement, bias, base, weight, keys)
    seconds = run_step(tables, state, placement, priority, tail, limit, track)
    overflow = overflow_of(tables, state)
    return Point(placement, priority, bias, base, penalised(seconds, overflow, penalty), seconds, overflow)


@kernel
def order_of(tables: Tables, placement: Index, bias: Float, base: Float, weight: float, keys: Float) -> Index:
    """Priorities [n] of a point; `keys` [n] is scratch."""
    if len(base) > 0:
        copy_to(keys, base)
    else:
        upward_ranks(tables, placement, weight, keys, len(keys) - 1)
    for op in range(len(keys)):
        keys[op] += bias[op]
    return order_by(tables, keys)


class Ranking(NamedTuple):
    """Ops in their order, the first of them first, and the keys by which they are."""

    op: Index  # [n]
    key: Float  # [n] by op


@kernel
def ranking_of(priority: Index, keys: Float) -> Ranking:
    """The order `priority`, which is that of `keys`."""
    op = np.empty(len(priority), dtype=np.int32)
    for k in range(len(priority)):
        op[priority[k]] = k
    return Ranking(op, keys.copy())


@kernel
def rank_again(tables: Tables, position: Index, before: Ranking, after: Ranking, moved: Index, priority: Index) -> None:
    """The order of the keys in `after`, filled in there and in `priority`: as `order_by`, from an order where most is right.

    position: [n] places in the topological order. Ops whose key is another one are sorted among themselves, where they seldom
    change places, and merged with the rest. moved: [n] scratch.
    """
    n = len(priority)
    key = after.key
    changed, kept, shifts = 0, 0, 0
    for k in range(n):
        op = before.op[k]
        if key[op] == before.key[op]:
            after.op[kept] = op
            kept += 1
            continue
        at = changed
        while at > 0 and _sooner(key, position, op, moved[at - 1]):
            moved[at] = moved[at - 1]
            at -= 1
        moved[at] = op
        shifts += changed - at
        changed += 1
        if shifts > MANY_SHIFTS * n:
            copy_to(priority, order_by(tables, key))
            for other in range(n):
                after.op[priority[other]] = other
            return
    for k in range(n - 1, -1, -1):  # from the back, where there is room
        if changed > 0 and (kept == 0 or _sooner(key, position, after.op[kept - 1], moved[changed - 1])):
            changed -= 1
            after.op[k] = moved[changed]
        else:
            kept -= 1
            after.op[k] = after.op[kept]
        priority[after.op[k]] = k


@inlined
def _sooner(key: Float, position: Index, one: int, other: int) -> bool:
    return bool(key[one] > key[other] or (key[one] == key[other] and position[one] < position[other]))
