"""What memory forces on a path: ops that no one device holds run on several, and the path waits for what is sent between them.

Of any path, the ops between two changes of device are a run, and what stays in memory for them is on one device. So a step takes no
less than the cheapest way to cut a path into runs that fit: their seconds, and at each cut the transfer of what the path hands on
there. That a device comes twice, and fills up, is not looked at, nor what is beside the path. The paths looked at are the longest
ones where bytes that stay count as seconds: a little, or more than all seconds.
"""

from __future__ import annotations

import numpy as np

from stepd.core.bound_kinds import MOST_KINDS, cheapest_links, kinds_of
from stepd.core.compiled import kernel
from stepd.core.placement.ranks import critical_path, upward_ranks
from stepd.core.prepared import Prepared
from stepd.core.problem import Float, Index

SAFE = 1.0 - 1e-11
"""What roundings of differences of long sums may take."""
TOO_MUCH = 1e300
PRICES = (0.0, 1.0, 100.0)
"""What all bytes that stay count, in seconds of all ops, where paths are looked for."""


def cut_bound(prepared: Prepared, seconds: Float) -> float:
    """Seconds; 0 where every device holds all. seconds: [n, d], inf where an op or its group cannot run."""
    tables = prepared.tables
    if prepared.group_resident.sum() <= tables.memory.min(initial=0):
        return 0.0
    kind, some = kinds_of(seconds, tables.memory)
    if len(some) > MOST_KINDS:
        return 0.0
    latency, per_byte = cheapest_links(tables, kind, len(some))
    on = np.ascontiguousarray(seconds[:, some])
    shortest = on.min(axis=1)
    stays = prepared.group_resident[tables.group] / np.bincount(tables.group)[tables.group]
    price = float(shortest.sum()) / float(stays.sum())
    nothing, best = np.zeros(len(tables.output_bytes)), 0.0
    for times in PRICES:
        path = critical_path(tables, upward_ranks(tables, shortest + times * price * stays, nothing))
        memory = tables.memory[some].astype(np.float64)
        found = cheapest_runs(on[path], _held(prepared, path), _handed_on(prepared, path), memory, latency, per_byte)
        best = max(best, found)
    return best * SAFE


def _held(prepared: Prepared, path: Index) -> Float:
    """Bytes that stay where each op of the path is: those of its group, counted with the first of its ops. float64 [m]."""
    group = prepared.tables.group[path]
    held = np.zeros(len(path))
    first = np.unique(group, return_index=True)[1]
    held[first] = prepared.group_resident[group[first]]
    return held


def _handed_on(prepared: Prepared, path: Index) -> Float:
    """Bytes of the largest output that each op of the path gets from the one before it. float64 [m]; the first gets none, and an op
    of the same group, which is on the same device, more than could ever be sent."""
    tables = prepared.tables
    got = np.zeros(len(path))
    for k in range(1, len(path)):
        if tables.group[path[k]] == tables.group[path[k - 1]]:
            got[k] = TOO_MUCH
            continue
        inputs = tables.input[tables.input_pointer[path[k]] : tables.input_pointer[path[k] + 1]]
        got[k] = tables.output_bytes[inputs[tables.output_op[inputs] == path[k - 1]]].max()
    return got


@kernel
def cheapest_runs(seconds: Float, held: Float, got: Float, memory: Float, latency: Float, per_byte: Float) -> float:
    """The shortest time for a path of m ops on k kinds of devices, any number of each; inf when some op fits nowhere.

    seconds: [m, k]; held, got: [m] bytes that stay with each op and that it gets from the one before; memory: [k]; latency,
    per_byte: [k, k] between two devices of these kinds.
    """
    m, kinds = seconds.shape
    done = np.zeros(kinds)  # the ops so far, the last of them on a device of this kind
    total, spent = np.zeros(m + 1), np.zeros((kinds, m + 1))  # bytes and seconds of all ops before each
    # Runs that may go on, by kind: where they began and what it took to begin, less `spent` there; dearer and older ones are out.
    begin, cost = np.zeros((kinds, m), dtype=np.int32), np.zeros((kinds, m))
    first, last = np.zeros(kinds, dtype=np.int32), np.zeros(kinds, dtype=np.int32)
    following = np.zeros(kinds)
    for j in range(m):
        total[j + 1] = total[j] + held[j]
        for b in range(kinds):
            enter = 0.0 if j == 0 else np.inf
            if j > 0:
                for a in range(kinds):
                    enter = min(enter, done[a] + latency[a, b] + got[j] * per_byte[a, b])
            enter -= spent[b, j]
            while last[b] > first[b] and cost[b, last[b] - 1] >= enter:
                last[b] -= 1
            begin[b, last[b]], cost[b, last[b]] = j, enter
            last[b] += 1
            spent[b, j + 1] = spent[b, j]
            if seconds[j, b] < np.inf:
                spent[b, j + 1] += seconds[j, b]
            else:  # no run goes past it
                first[b] = last[b]
            while first[b] < last[b] and total[j + 1] - total[begin[b, first[b]]] > memory[b]:
                first[b] += 1
            following[b] = cost[b, first[b]] + spent[b, j + 1] if first[b] < last[b] else np.inf
        for b in range(kinds):
            done[b] = following[b]
    best = np.inf if m > 0 else 0.0
    for b in range(kinds):
        best = min(best, done[b])
    return best
