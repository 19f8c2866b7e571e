"""Longest paths through a problem: upward and downward ranks, the critical path, and the mean or largest costs that they use.

The papers differ in the costs only: FastT (section 5.1) takes the largest time over devices and device pairs, HEFT the mean,
Celeritas (section 5.1.3) calls the ranks blevel and tlevel. Knows no schedule.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from stepd.core.compiled import kernel
from stepd.core.prepared import Prepared, Tables
from stepd.core.problem import Float, Index, Int

Costs = Literal["max", "mean", "min"]


def op_seconds(prepared: Prepared, costs: Costs) -> Float:
    """float64 [n]: w_i, over the devices that op i can run on."""
    return op_seconds_of(prepared.tables.seconds, costs)


def op_seconds_of(seconds: Float, costs: Costs) -> Float:
    """As `op_seconds`, of rows: float64 [k] from [k, d]. A row's value does not depend on the other rows."""
    if costs == "min":
        return np.asarray(seconds.min(axis=1, initial=np.inf))
    can = np.isfinite(seconds)
    finite = np.where(can, seconds, 0.0)
    if costs == "max":
        return np.asarray(finite.max(axis=1, initial=0.0))
    return np.asarray(finite.sum(axis=1) / np.maximum(can.sum(axis=1), 1))


def transfer_seconds(prepared: Prepared, costs: Costs) -> Float:
    """float64 [u]: c of every output, over the ordered pairs of connected devices (0 when there are none, or for costs "min")."""
    tables = prepared.tables
    size = tables.output_bytes.astype(np.float64)
    pairs = np.isfinite(tables.latency) & ~np.eye(len(tables.memory), dtype=bool)
    if costs == "min" or not pairs.any():
        return np.zeros(len(size))
    latency, slope = tables.latency[pairs], 1.0 / tables.bandwidth[pairs]
    if costs == "mean":
        return np.asarray(latency.mean() + size * slope.mean())
    lines = np.unique(np.stack([latency, slope], axis=1), axis=0)
    longest = np.zeros(len(size))
    for fixed, per_byte in lines:  # few: links come in kinds
        np.maximum(longest, fixed + size * per_byte, out=longest)
    return longest


@kernel
def upward_ranks(tables: Tables, seconds: Float, transfer: Float) -> Float:
    """rank_u (FastT section 5.1; Celeritas Equation 3): seconds of the longest path from each op's start to the end. [n]."""
    n = len(seconds)
    rank = np.zeros(n)
    for k in range(n - 1, -1, -1):
        op = tables.topological[k]
        longest = 0.0
        for o in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
            for r in range(tables.reader_pointer[o], tables.reader_pointer[o + 1]):
                longest = max(longest, transfer[o] + rank[tables.reader[r]])
        rank[op] = seconds[op] + longest
    return rank


@kernel
def placed_tails(tables: Tables, placement: Index) -> Float:
    """Seconds [n] from an op's start to the end of the step when every op runs at `placement` int32 [n], were all links idle."""
    n = len(placement)
    tail = np.zeros(n)
    for k in range(n - 1, -1, -1):
        op = tables.topological[k]
        home = placement[op]
        longest = 0.0
        for o in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
            for r in range(tables.reader_pointer[o], tables.reader_pointer[o + 1]):
                reader = tables.reader[r]
                there = placement[reader]
                way = tail[reader]
                if there != home:
                    way += tables.latency[home, there] + tables.output_bytes[o] / tables.bandwidth[home, there]
                longest = max(longest, way)
        tail[op] = tables.seconds[op, home] + longest
    return tail


@kernel
def top_levels(tables: Tables, seconds: Float, transfer: Float) -> Float:
    """tlevel (Celeritas Equation 2): seconds of the longest path from any source to the start of each op. float64 [n]."""
    n = len(seconds)
    level = np.zeros(n)
    for k in range(n):
        op = tables.topological[k]
        longest = 0.0
        for i in range(tables.input_pointer[op], tables.input_pointer[op + 1]):
            o = tables.input[i]
            producer = tables.output_op[o]
            longest = max(longest, level[producer] + seconds[producer] + transfer[o])
        level[op] = longest
    return level


@kernel
def critical_path(tables: Tables, rank: Float) -> Index:
    """From the op of the largest rank, always the successor of the largest rank (FastT section 5.1). int32, in order."""
    n = len(rank)
    path = np.empty(n, dtype=np.int32)
    count = 0
    op = -1
    for i in range(n):
        if op < 0 or rank[i] > rank[op]:
            op = i
    while op >= 0:
        path[count] = op
        count += 1
        following = -1
        for o in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
            for r in range(tables.reader_pointer[o], tables.reader_pointer[o + 1]):
                reader = tables.reader[r]
                if following < 0 or rank[reader] > rank[following]:
                    following = reader
        op = following
    return np.copy(path[:count])


def by_rank(prepared: Prepared, rank: Float) -> Index:
    """Ops by decreasing rank, producers first among equals. int32 [n]; topological whenever ranks never grow along an edge."""
    topological = prepared.tables.topological
    return np.asarray(topological[ascending(-rank[topological])])


def ascending(keys: Float) -> Int:
    """The indices of `keys` in ascending order, equal keys by index: a stable sort, sooner while few are equal."""
    order = np.argsort(keys)
    found = keys[order]
    same = found[1:] == found[:-1]
    if same.any():
        run = np.concatenate([[0], np.cumsum(~same)])  # equal keys have equal numbers
        tied = np.flatnonzero(np.concatenate([[False], same]) | np.concatenate([same, [False]]))
        order[tied] = np.sort(run[tied] * len(keys) + order[tied]) % len(keys)
    return np.asarray(order)
