"""Colocation groups as the units that clustering and search move: their graph, and the mapping of clusters of them to devices.

Guided load balancing (Radulescu and van Gemund, "GLB: a low-cost scheduling algorithm for distributed-memory architectures", 1998)
is the mapping here. Knows no clustering algorithm.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stepd.core.compiled import kernel
from stepd.core.prepared import Prepared
from stepd.core.problem import Float, Index, Int


class GroupGraph(NamedTuple):
    """Traffic between groups, undirected: groups neighbour[first[g]:first[g + 1]] exchange `sent` bytes with g."""

    first: Int  # [g + 1]
    neighbour: Int
    sent: Int


def group_graph(prepared: Prepared) -> GroupGraph:
    """Bytes between every two groups; an output counts once for each group that reads it."""
    tables = prepared.tables
    readers = np.diff(tables.reader_pointer)
    output = np.repeat(np.arange(readers.size), readers)
    source = tables.group[tables.output_op[output]].astype(np.int64)
    target = tables.group[tables.reader].astype(np.int64)
    n = prepared.n_groups
    away = source != target
    _, once = np.unique(output[away] * n + target[away], return_index=True)
    source, target, sent = source[away][once], target[away][once], tables.output_bytes[output[away][once]]
    key, where = np.unique(np.concatenate((source * n + target, target * n + source)), return_inverse=True)
    total = np.bincount(where, weights=np.concatenate((sent, sent)), minlength=key.size).astype(np.int64)
    first = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(key // max(n, 1), minlength=n), out=first[1:])
    return GroupGraph(first, key % max(n, 1), total)


def clusters_of_groups(prepared: Prepared, op_cluster: Index) -> Index:
    """Clusters of ops as clusters of groups: a group goes with its longest-running op (ties: the first). int32 [g], dense."""
    tables = prepared.tables
    longest = np.where(np.isfinite(tables.seconds), tables.seconds, 0.0).max(axis=1)
    heaviest_last = np.lexsort((-np.arange(longest.size), longest))
    of_group = np.zeros(prepared.n_groups, dtype=np.int64)
    of_group[tables.group[heaviest_last]] = op_cluster[heaviest_last]
    return np.unique(of_group, return_inverse=True)[1].astype(np.int32)


def balance_guided(prepared: Prepared, cluster: Index, op_start: Float, memory_factor: float = 1.0) -> Index:
    """GLB: clusters in the order in which their first op starts, each to the device with the least work so far. int32 [n]: device.

    cluster: int32 [g]; op_start: float64 [n], when the clustering would start each op with a device per cluster. Where devices
    differ, the least work is the least including the cluster. Groups that cannot run on their cluster's device go to theirs with
    the least work; a cluster that fits in no device's memory goes where most is left.
    """
    tables = prepared.tables
    count = int(cluster.max(initial=-1)) + 1
    first_start = np.full(count, np.inf)
    np.minimum.at(first_start, cluster[tables.group], op_start)
    order = np.argsort(first_start, kind="stable").astype(np.int64)
    members = np.argsort(cluster, kind="stable").astype(np.int64)
    pointer = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(cluster, minlength=count), out=pointer[1:])
    device = _balance(
        order,
        pointer,
        members,
        prepared.group_seconds,
        prepared.group_resident,
        np.asarray(tables.memory * memory_factor, dtype=np.float64),
    )
    return device[tables.group].astype(np.int32)


@kernel
def _balance(order: Int, pointer: Int, members: Int, group_seconds: Float, group_resident: Int, capacity: Float) -> Int:
    n_devices = capacity.size
    load = np.zeros(n_devices)
    left = capacity.copy()
    device_of = np.full(group_resident.size, -1, dtype=np.int64)
    work, needed, runnable = np.zeros(n_devices), np.zeros(n_devices), np.zeros(n_devices)
    for c in order:
        work[:], needed[:], runnable[:] = 0.0, 0.0, 0.0
        for k in range(pointer[c], pointer[c + 1]):
            g = members[k]
            for d in range(n_devices):
                if group_seconds[g, d] < np.inf:
                    work[d] += group_seconds[g, d]
                    needed[d] += group_resident[g]
                    runnable[d] += 1
        best, roomiest = -1, -1
        for d in range(n_devices):
            if runnable[d] < runnable.max():
                continue
            if needed[d] <= left[d] and (best < 0 or load[d] + work[d] < load[best] + work[best]):
                best = d
            if roomiest < 0 or left[d] > left[roomiest]:
                roomiest = d
        if best < 0:
            best = roomiest
        for k in range(pointer[c], pointer[c + 1]):
            g = members[k]
            d = best
            if group_seconds[g, d] == np.inf:
                d = least_loaded(load, group_seconds[g])
            device_of[g] = d
            load[d] += group_seconds[g, d]
            left[d] -= group_resident[g]
    return device_of


@kernel
def least_loaded(load: Float, seconds: Float) -> int:
    """The device on which work of `seconds` [d] (inf: cannot run) would end first after `load` [d]."""
    best = 0
    for d in range(load.size):
        if load[d] + seconds[d] < load[best] + seconds[best]:
            best = d
    return best
