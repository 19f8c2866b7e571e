"""How soon an op can start on each device, whatever the strategy: longest paths that know devices, transfers and waiting in line.

The producers of an op's inputs are on its device, and run there one after the other, or their outputs come from the device where
they are by a transfer. Whatever the set that shares the device, one of the two says when the op can start (Papadimitriou and
Yannakakis' argument on direct producers, for devices and links that differ). The same, backwards, is how long the step goes on
after an op. Nor can an op start before all that it waits for, however far back, is done: `bound_sharing`, of some ops on large
graphs, since the others come after those. It knows no strategy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stepd.core.bound_sharing import Sharing, done_soonest, looked_at, merge, new_line
from stepd.core.compiled import inlined, kernel
from stepd.core.prepared import Tables
from stepd.core.problem import Float, Index, Int

MOST = 64
"""Producers on one device that are looked at: with more of them it only gets later."""
FAR_BACK = 4_000_000
"""Ops that are looked at in all, where all that an op waits for is: beyond 2000 ops not of each, which takes the square."""


class Neighbours(NamedTuple):
    """What an op waits for, in one direction of time. e ends of edges."""

    order: Index  # [n] ops, those waited for first
    pointer: Index  # [n + 1]
    op: Index  # [e]
    nbytes: Int  # [e]
    seconds: Float  # [n, d] inf where it cannot run
    latency: Float  # [d, d] from the device of what is waited for; on the diagonal from another one like it, inf where none is
    per_byte: Float  # [d, d]
    group: Index  # [n] ops of one group are on one device


class _Queue(NamedTuple):
    """Producers on one device, by when they can start."""

    op: Index
    ready: Float
    seconds: Float


def forwards(tables: Tables, seconds: Float, latency: Float, per_byte: Float) -> Neighbours:
    """Producers: `earliest_starts` of this is when ops can start."""
    outputs = tables.input
    return Neighbours(
        tables.topological,
        tables.input_pointer,
        tables.output_op[outputs],
        tables.output_bytes[outputs],
        seconds,
        latency,
        per_byte,
        tables.group,
    )


def backwards(tables: Tables, seconds: Float, latency: Float, per_byte: Float) -> Neighbours:
    """Readers: `earliest_starts` of this is how long the step goes on after ops. An output goes to every device that reads it."""
    readers = np.diff(tables.reader_pointer)
    return Neighbours(
        np.ascontiguousarray(tables.topological[::-1]),
        tables.reader_pointer[tables.output_pointer],
        tables.reader,
        np.repeat(tables.output_bytes, readers),
        seconds,
        np.ascontiguousarray(latency.T),
        np.ascontiguousarray(per_byte.T),
        tables.group,
    )


def joins(ways: Neighbours) -> npt.NDArray[np.bool_]:
    """Which ops [n] are looked at with all that they wait for: of stretches of the order those that wait for most directly."""
    n = len(ways.order)
    every = max(1, -(-n * n // FAR_BACK))
    inputs = np.full(-(-n // every) * every, -1)
    inputs[:n] = np.diff(ways.pointer)[ways.order]
    first = np.arange(0, len(inputs), every)
    chosen = np.zeros(n, dtype=np.bool_)
    chosen[ways.order[first + inputs.reshape(-1, every).argmax(axis=1)]] = True
    return chosen


@kernel
def earliest_starts(ways: Neighbours, shared: Sharing, chosen: npt.NDArray[np.bool_]) -> Float:
    """Seconds [n, d] before which an op cannot start on a device; inf where it cannot run. chosen: as `joins`."""
    n, d = ways.seconds.shape
    line, chain = new_line(n, len(shared.weights)), np.empty(n, dtype=np.int32)
    merged, joining = 0, chosen.any()
    start = np.zeros((n, d))
    widest = 1
    for op in range(n):
        widest = max(widest, ways.pointer[op + 1] - ways.pointer[op])
    sent = np.empty((d, widest))
    local = np.zeros(widest, dtype=np.bool_)
    queue = _Queue(np.empty(MOST, dtype=np.int32), np.empty(MOST), np.empty(MOST))
    for at in range(n):
        op = ways.order[at]
        first, last = ways.pointer[op], ways.pointer[op + 1]
        for j in range(d):
            if ways.seconds[op, j] == np.inf:
                start[op, j] = np.inf
                continue
            for e in range(first, last):
                who = ways.op[e]
                soonest = np.inf
                if ways.group[who] != ways.group[op]:
                    for k in range(d):
                        sending = ways.latency[k, j] + ways.per_byte[k, j] * ways.nbytes[e]
                        soonest = min(soonest, start[who, k] + ways.seconds[who, k] + sending)
                sent[j, e - first] = soonest
            start[op, j] = _soonest(ways, start, sent[j], local, queue, first, last - first, j)
        if chosen[op] and last > first:
            merge(line, merged, at)
            merged = at
            awaited = _mark_awaited(ways, op, at + 1, line.marked, chain)
            soonest = done_soonest(line, shared, at + 1, awaited, at)
            for j in range(d):
                start[op, j] = max(start[op, j], soonest)
        if joining:
            looked_at(line, op, start[op].min(), merged, at)
    return start


@inlined
def _mark_awaited(ways: Neighbours, op: int, mark: int, marked: Index, chain: Index) -> int:
    """Mark all that `op` waits for, however far back; returns how many ops. `chain` [n] is scratch."""
    count, done = 0, -1
    who = op
    while True:
        for e in range(ways.pointer[who], ways.pointer[who + 1]):
            if marked[ways.op[e]] != mark:
                marked[ways.op[e]] = mark
                chain[count] = ways.op[e]
                count += 1
        done += 1
        if done == count:
            return count
        who = chain[done]


@inlined
def _soonest(
    ways: Neighbours, start: Float, sent: Float, local: npt.NDArray[np.bool_], queue: _Queue, first: int, count: int, device: int
) -> float:
    """When all that is waited for can be on `device`: those that would arrive last run there, the others are sent."""
    local[:count] = False
    taken = 0
    machine: float = 0.0  # when the device has run those in the queue
    best: float = np.inf
    while True:
        latest = -1
        for k in range(count):
            if not local[k] and (latest < 0 or sent[k] > sent[latest]):
                latest = k
        if latest < 0:
            return min(best, machine)
        best = min(best, max(machine, sent[latest]))
        if machine >= best:
            return best
        local[latest] = True
        who = ways.op[first + latest]
        known = False
        for k in range(taken):
            known = known or queue.op[k] == who  # two of its outputs: it runs once
        if known:
            continue
        if taken == MOST:
            return min(best, machine)
        if start[who, device] + ways.seconds[who, device] == np.inf:
            return best
        at = taken
        while at > 0 and queue.ready[at - 1] > start[who, device]:
            queue.op[at], queue.ready[at], queue.seconds[at] = queue.op[at - 1], queue.ready[at - 1], queue.seconds[at - 1]
            at -= 1
        queue.op[at], queue.ready[at], queue.seconds[at] = who, start[who, device], ways.seconds[who, device]
        taken += 1
        machine = 0.0
        for k in range(taken):
            machine = max(machine, queue.ready[k]) + queue.seconds[k]
