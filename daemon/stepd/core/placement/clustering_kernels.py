"""Clustering for an unbounded number of devices: dominant sequence clustering, and when ops of any clustering start.

DSC: Yang and Gerasoulis, "DSC: scheduling parallel tasks on an unbounded number of processors", 1994; with linear clustering
(`longest_paths`) what Pesto's section 6 names as the usual heuristics. `clusters.balance_guided` maps clusters to devices. Knows no
devices and no memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stepd.core.compiled import inner, kernel
from stepd.core.heaps import pop_timed, push_timed
from stepd.core.prepared import Tables
from stepd.core.problem import Float, Index


class Clustering(NamedTuple):
    """cluster: int32 [n]. start: float64 [n], seconds: when each op would start with a device per cluster and free links."""

    cluster: Index
    start: Float


class Heap(NamedTuple):
    times: Float
    items: Index
    size: Index  # [1]


class State(NamedTuple):
    """n ops. A cluster has the number of no op; there are at most n."""

    cluster: Index  # [n] -1: not clustered yet
    start: Float  # [n]
    level: Float  # [n] tlevel, as far as predecessors are clustered
    dominant: Index  # [n] the predecessor that sets it
    missing: Index  # [n] inputs whose producer is not clustered
    cluster_end: Float  # [n] when the last op of each cluster ends
    free: Heap  # by decreasing tlevel + blevel
    partial: Heap  # ops with some predecessors clustered; entries that have become stale are skipped


@kernel
def start_times(tables: Tables, seconds: Float, transfer: Float, cluster: Index) -> Float:
    """When each op starts with a device per cluster and free links, ops of a cluster one after the other. float64 [n]."""
    n = len(seconds)
    start = np.zeros(n)
    free = np.zeros(n)
    for op in tables.topological:
        ready = free[cluster[op]]
        for k in range(tables.input_pointer[op], tables.input_pointer[op + 1]):
            o = tables.input[k]
            producer = tables.output_op[o]
            arrival = start[producer] + seconds[producer]
            if cluster[producer] != cluster[op]:
                arrival += transfer[o]
            ready = max(ready, arrival)
        start[op] = ready
        free[cluster[op]] = ready + seconds[op]
    return start


@kernel
def dominant_sequence(tables: Tables, seconds: Float, transfer: Float, bottom: Float) -> Clustering:
    """DSC: free ops by tlevel + blevel, each joined to the cluster of a predecessor where that lets it start earlier.

    bottom: float64 [n], blevel of every op before clustering. An op is free when all its predecessors are clustered. Where a
    partially free op has the highest priority of all, the cluster that its dominant predecessor ends is left alone, so that its own
    edge can be zeroed later (the paper's DSRW).
    """
    state = _new_state(tables)
    _cluster_all(tables, state, seconds, transfer, bottom)
    return Clustering(state.cluster, state.start)


@inner
def _cluster_all(tables: Tables, state: State, seconds: Float, transfer: Float, bottom: Float) -> None:
    for op in range(len(seconds)):
        if state.missing[op] == 0:
            _push(state.free, -bottom[op], op)
    count = 0
    while state.free.size[0] > 0:
        priority = state.free.times[0]
        op = _pop(state.free)
        barred = _reserved_cluster(state, bottom, priority)
        joined, start = _best_cluster(tables, state, seconds, transfer, op, barred)
        if joined < 0:
            joined, start = count, state.level[op]
            count += 1
        state.cluster[op] = joined
        state.start[op] = start
        state.cluster_end[joined] = start + seconds[op]
        _tell_readers(tables, state, seconds, transfer, bottom, op)


@kernel
def _new_state(tables: Tables) -> State:
    n, m = len(tables.temp), len(tables.input)
    missing = np.empty(n, dtype=np.int32)
    for op in range(n):
        missing[op] = tables.input_pointer[op + 1] - tables.input_pointer[op]
    return State(
        np.full(n, -1, dtype=np.int32),
        np.zeros(n),
        np.zeros(n),
        np.full(n, -1, dtype=np.int32),
        missing,
        np.zeros(n),
        Heap(np.empty(n), np.empty(n, dtype=np.int32), np.zeros(1, dtype=np.int32)),
        Heap(np.empty(m), np.empty(m, dtype=np.int32), np.zeros(1, dtype=np.int32)),
    )


@inner
def _push(heap: Heap, time: float, item: int) -> None:
    push_timed(heap.times, heap.items, heap.size[0], time, item)
    heap.size[0] += 1


@inner
def _pop(heap: Heap) -> int:
    item = pop_timed(heap.times, heap.items, heap.size[0])
    heap.size[0] -= 1
    return item


@inner
def _reserved_cluster(state: State, bottom: Float, priority: float) -> int:
    """The cluster of the dominant predecessor of the first partially free op, if that op comes before `priority`; otherwise -1."""
    while state.partial.size[0] > 0:
        op = state.partial.items[0]
        if state.missing[op] > 0 and state.partial.times[0] == -(state.level[op] + bottom[op]):
            return state.cluster[state.dominant[op]] if state.partial.times[0] < priority else -1
        _pop(state.partial)
    return -1


@inner
def _best_cluster(tables: Tables, state: State, seconds: Float, transfer: Float, op: int, barred: int) -> tuple[int, float]:
    """The predecessors' cluster in which `op` starts first, unless it would start later than alone (then -1), and that start."""
    latest, latest_cluster, second = (
        0.0,
        -1,
        0.0,
    )  # arrivals from the cluster that is last, and from all others
    for k in range(tables.input_pointer[op], tables.input_pointer[op + 1]):
        producer = tables.output_op[tables.input[k]]
        arrival = state.start[producer] + seconds[producer] + transfer[tables.input[k]]
        if state.cluster[producer] == latest_cluster:
            latest = max(latest, arrival)
        elif arrival > latest or latest_cluster < 0:
            second = latest
            latest, latest_cluster = arrival, state.cluster[producer]
        else:
            second = max(second, arrival)
    best, best_start = -1, latest
    for k in range(tables.input_pointer[op], tables.input_pointer[op + 1]):
        c = state.cluster[tables.output_op[tables.input[k]]]
        others = second if c == latest_cluster else latest
        start = max(state.cluster_end[c], others)
        if c != barred and (start < best_start or (start == best_start and best < 0)):
            best, best_start = c, start
    return best, best_start


@inner
def _tell_readers(tables: Tables, state: State, seconds: Float, transfer: Float, bottom: Float, op: int) -> None:
    """`op` is clustered: its readers' tlevels grow, and those that wait for nothing else are free."""
    end = state.start[op] + seconds[op]
    for o in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
        for r in range(tables.reader_pointer[o], tables.reader_pointer[o + 1]):
            reader = tables.reader[r]
            state.missing[reader] -= 1
            if state.dominant[reader] < 0 or end + transfer[o] > state.level[reader]:
                state.level[reader] = end + transfer[o]
                state.dominant[reader] = op
            priority = -(state.level[reader] + bottom[reader])
            if state.missing[reader] == 0:
                _push(state.free, priority, reader)
            else:
                _push(state.partial, priority, reader)
