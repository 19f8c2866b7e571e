"""Clusters of ops as the ops of a smaller problem, and the way back (Pesto 3.3, Moirai III-B, Celeritas' fusion).

Who decides the clusters is somebody else's business; they must leave the graph without a cycle. The coarse problem is an
ordinary Problem, so every planner and the simulator take it. What it leaves out is the overlap inside clusters: a cluster starts
when all its inputs are there and sends all its outputs when its last op has ended.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from stepd.core.compiled import kernel
from stepd.core.errors import PlannerError
from stepd.core.prepared import Tables, prepare
from stepd.core.problem import Float, Index, Int, Problem


@dataclass(frozen=True, eq=False)
class Coarse:
    """problem: the coarse one, c ops. cluster: int32 [n], coarse op of each op of `fine`."""

    problem: Problem
    fine: Problem
    cluster: Index


def coarsen(problem: Problem, cluster: Index) -> Coarse:
    """The problem whose ops are the clusters 0..c-1 (int32 [n], every number used).

    Seconds and resident bytes of a cluster are sums; temp bytes are the peak of running its ops one after the other; clusters that
    hold ops of one colocation group are colocated. Outputs of a cluster that go to the same clusters are sent as one.

    Raises PlannerError that names an op, when no device can run a whole cluster; ProblemError when the clusters close a cycle.
    """
    cluster = np.ascontiguousarray(cluster, dtype=np.int32)
    count = int(cluster.max(initial=-1)) + 1
    prepared = prepare(problem)
    tables = prepared.tables
    seconds = np.zeros((count, problem.n_devices))
    np.add.at(seconds, cluster, tables.seconds)
    stuck = np.flatnonzero(~np.isfinite(seconds).any(axis=1))
    if stuck.size:
        name = problem.op_names[int(np.flatnonzero(cluster == stuck[0])[0])]
        raise PlannerError(f"no device can run every op of the cluster of op {name!r}: merge only ops that share a device")
    resident = np.zeros(count, dtype=np.int64)
    np.add.at(resident, cluster, tables.resident)
    first = np.unique(cluster[tables.topological], return_index=True)[1]
    leaders = tables.topological[first]
    src, dst, output, sizes = _edges(tables, cluster)
    coarse = Problem(
        name=f"{problem.name} ({count} clusters)",
        devices=problem.devices,
        links=problem.links,
        op_names=tuple(problem.op_names[i] for i in leaders),
        op_types=tuple(problem.op_types[i] for i in leaders),
        seconds=seconds,
        resident_bytes=resident,
        temp_bytes=_peak_inside(tables, cluster, count),
        colocation=_colocation(problem.colocation, cluster, count),
        edge_src=src,
        edge_dst=dst,
        edge_output=output,
        edge_bytes=sizes,
        user_devices=None if problem.user_devices is None else _wishes(tables, cluster, problem.user_devices, count),
    )
    prepare(coarse)
    return Coarse(coarse, problem, cluster)


def expand(coarse: Coarse, placement: Index, priority: Index) -> tuple[Index, Index]:
    """Placement and priority of the fine ops: every op where its cluster is; clusters in their order, in a cluster producers first.

    placement, priority: int32 [c], of the coarse problem; the answer int32 [n] each.
    """
    n = coarse.fine.n_ops
    position = np.empty(n, dtype=np.int64)
    position[prepare(coarse.fine).tables.topological] = np.arange(n)
    order = np.lexsort((position, priority[coarse.cluster]))
    fine_priority = np.empty(n, dtype=np.int32)
    fine_priority[order] = np.arange(n, dtype=np.int32)
    return placement[coarse.cluster].astype(np.int32), fine_priority


def _edges(tables: Tables, cluster: Index) -> tuple[Index, Index, Index, Int]:
    """Edge columns between clusters: source, destination, output number, bytes."""
    count = int(cluster.max(initial=-1)) + 1
    readers = np.diff(tables.reader_pointer)
    output = np.repeat(np.arange(readers.size), readers)
    target = cluster[tables.reader].astype(np.int64)
    away = cluster[tables.output_op[output]] != target
    pairs = np.unique(output[away] * max(count, 1) + target[away])
    output, target = pairs // max(count, 1), pairs % max(count, 1)
    first = np.flatnonzero(np.diff(output, prepend=-1))  # of each output that leaves its cluster
    leaving = output[first]
    source = cluster[tables.output_op[leaving]].astype(np.int64)
    kind = _alike(source, first, target)
    sizes = np.zeros(int(kind.max(initial=-1)) + 1, dtype=np.int64)
    np.add.at(sizes, kind, tables.output_bytes[leaving])
    begin = np.unique(kind, return_index=True)[1]  # kinds are numbered as they come: increasing
    width = np.diff(first, append=len(target))[begin]
    of_kind = np.repeat(np.arange(len(begin)), width)
    src = source[begin][of_kind]
    dst = target[np.repeat(first[begin] - np.cumsum(width) + width, width) + np.arange(len(of_kind))]
    data = sizes[of_kind] > 0
    number = np.where(data, of_kind, -1)
    order = np.lexsort((dst, number, src))
    src, dst, number, data = src[order], dst[order], number[order], data[order]
    # What has no bytes is a control edge: one for a pair, and none where something is sent anyway.
    pair = src * count + dst
    kept = data | ~np.isin(pair, pair[data])
    kept[1:] &= data[1:] | data[:-1] | (pair[1:] != pair[:-1])
    src, dst, number = src[kept], dst[kept], number[kept]
    nbytes = np.where(number >= 0, np.append(sizes, 0)[number], 0)
    return src.astype(np.int32), dst.astype(np.int32), _from_zero(src, number), nbytes


def _alike(source: Int, first: Int, target: Int) -> Int:
    """Numbers, by first appearance, of the kinds of outputs: those of one source cluster that go to the same clusters are one kind.

    source: int64 [k]; target: clusters of all outputs one after the other, sorted within each, those of output i from first[i] on.
    """
    width = np.diff(first, append=len(target))
    salt = 0x9E3779B97F4A7C15
    while True:  # sets are compared by a checksum first, and then whether that was right
        mixed = (target.astype(np.uint64) + np.uint64(1)) * np.uint64(salt)
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(salt)
        mixed ^= mixed >> np.uint64(32)
        sums = np.add.reduceat(mixed, first) if len(first) else mixed
        order = np.lexsort((sums, width, source))
        new = np.ones(len(order), dtype=bool)
        new[1:] = (np.diff(source[order]) != 0) | (np.diff(width[order]) != 0) | (sums[order][1:] != sums[order][:-1])
        leader = np.empty(len(order), dtype=np.int64)
        leader[order] = order[np.flatnonzero(new)][np.cumsum(new) - 1]
        shift = np.repeat(first[leader] - first, width)
        if np.array_equal(target[np.arange(len(target)) + shift], target):
            break
        salt = (salt + 0x632BE59BD9B4E01A) % 2**64  # odd again
    leads = np.zeros(len(order), dtype=bool)
    leads[leader] = True
    return (np.cumsum(leads) - 1)[leader]


def _from_zero(src: Int, number: Int) -> Index:
    """`number`, increasing within each source and -1 for control edges, as 0, 1, ... within the source. int32."""
    step = (np.diff(number, prepend=-2) != 0) & (number >= 0)
    total = np.cumsum(step)
    starts = np.diff(src, prepend=-1) != 0
    before = (total - step)[starts]
    return np.where(number >= 0, total - 1 - before[np.cumsum(starts) - 1], -1).astype(np.int32)


def _colocation(colocation: Index, cluster: Index, count: int) -> Index:
    """Groups of clusters that share a colocation group, directly or over other clusters; -1 for a cluster on its own."""
    grouped = np.flatnonzero(colocation >= 0)
    size = count + int(colocation.max(initial=-1)) + 1
    ties = coo_array((np.ones(grouped.size), (cluster[grouped], count + colocation[grouped])), shape=(size, size))
    label = connected_components(ties, directed=False)[1][:count]
    shared = np.bincount(label, minlength=size)[label] > 1
    group = np.full(count, -1, dtype=np.int32)
    group[shared] = np.unique(label[shared], return_inverse=True)[1]
    return group


def _wishes(tables: Tables, cluster: Index, user_devices: Index, count: int) -> Index:
    """The device that the user's code names for the most seconds of each cluster, -1 for none."""
    n_devices = tables.seconds.shape[1]
    weight: Float = np.where(np.isfinite(tables.seconds), tables.seconds, np.nan)
    mean = np.nan_to_num(np.nanmean(weight, axis=1)) if len(weight) else np.zeros(0)
    votes = np.zeros((count, n_devices))
    named = user_devices >= 0
    np.add.at(votes, (cluster[named], user_devices[named]), mean[named] + 1e-12)
    return np.where(votes.any(axis=1), votes.argmax(axis=1), -1).astype(np.int32)


@kernel
def _peak_inside(tables: Tables, cluster: Index, count: int) -> Int:
    """Bytes above what is resident, at the worst moment of each cluster, its ops run in topological order. int64 [c]."""
    live = np.zeros(count, dtype=np.int64)
    peak = np.zeros(count, dtype=np.int64)
    waiting = np.zeros(tables.output_op.size, dtype=np.int64)  # readers inside; one more when the output leaves the cluster
    for out in range(tables.output_op.size):
        leaves = 0
        for k in range(tables.reader_pointer[out], tables.reader_pointer[out + 1]):
            if cluster[tables.reader[k]] == cluster[tables.output_op[out]]:
                waiting[out] += 1
            else:
                leaves = 1
        waiting[out] += leaves
    for op in tables.topological:
        c = cluster[op]
        peak[c] = max(peak[c], live[c] + tables.temp[op])
        for out in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
            if waiting[out] > 0:
                live[c] += tables.output_bytes[out]
        for k in range(tables.input_pointer[op], tables.input_pointer[op + 1]):
            out = tables.input[k]
            if cluster[tables.output_op[out]] == c:
                waiting[out] -= 1
                if waiting[out] == 0:
                    live[c] -= tables.output_bytes[out]
    return peak
