"""A problem made small enough to search: Pesto's merging down to a number of clusters, unless the problem is small already."""

from __future__ import annotations

import numpy as np

from stepd.core.coarsen import Coarse, coarsen
from stepd.core.placement.deferral import deferrable
from stepd.core.placement.pesto_merging import SLOWER, Sharing, join, merge
from stepd.core.placement.ranks import op_seconds
from stepd.core.prepared import Prepared, prepare
from stepd.core.problem import Index, Problem

NEGLIGIBLE = 0.1
"""An op that costs at most this share of sending what it makes is not worth a device of its own."""


MOST = 4
"""Solvers get up to this many times the clusters that they ask for."""

MEMORY_SHARE = 0.25
"""Of a device's memory that the variables of one cluster may need, so that clusters can still be packed."""


def merged(problem: Problem, clusters: int) -> Coarse:
    """The problem merged down to about `clusters` ops."""
    return coarsen(problem, merge_ops(problem, clusters))


def merge_ops(problem: Problem, clusters: int, most: int | None = None) -> Index:
    """Cluster of each op, int32 [n]: Pesto's section 3.3 with the bytes of the outputs between two ops as communication weight.

    There may be more than `clusters` where fewer would run ops on devices that suit them badly; but no more than `most`, as far as
    kernels and memory allow.
    """
    prepared = prepare(problem)
    tables = prepared.tables
    readers = np.diff(tables.reader_pointer)
    output = np.repeat(np.arange(readers.size), readers)
    edges = (tables.output_op[output].astype(np.int64), tables.reader.astype(np.int64), tables.output_bytes[output])
    cluster = merge(*edges, sharing(prepared), clusters)
    if most is not None and cluster.max(initial=-1) >= most:
        cluster = merge(*edges, sharing(prepared), most, force=True)
    return cluster


def coplaced(problem: Problem) -> Index:
    """Cluster of each op, int32 [n]: variables, their reads and constants with the one op that reads them (Baechi's co-placement).

    An edge out of an op without other readers is the only path between its ends (Corollary 3.3), so no cycle is closed.
    """
    prepared = prepare(problem)
    tables = prepared.tables
    limits = sharing(prepared)
    state = (limits.parent, limits.seconds, limits.resident, limits.capacity, limits.ideal, SLOWER, np.inf)
    deferred = deferrable(tables, op_seconds(prepared, "max"), NEGLIGIBLE)
    target = np.arange(problem.n_ops)
    for op in tables.topological[::-1].tolist():  # readers first
        first, last = tables.output_pointer[op], tables.output_pointer[op + 1]
        readers = set(tables.reader[tables.reader_pointer[first] : tables.reader_pointer[last]].tolist())
        if deferred[op] and len(readers) == 1:
            reader = readers.pop()
            if join(*state, limits.component[op], limits.component[reader]):
                target[op] = target[reader]
    return np.unique(target, return_inverse=True)[1].astype(np.int32)


def sharing(prepared: Prepared) -> Sharing:
    """What may share a device: a colocation group does, within its kernels and MEMORY_SHARE of the memory."""
    tables = prepared.tables
    return Sharing(
        component=tables.group.astype(np.int64),
        parent=np.arange(prepared.n_groups, dtype=np.int64),
        seconds=prepared.group_seconds.copy(),
        resident=prepared.group_resident.copy(),
        capacity=(tables.memory * MEMORY_SHARE).astype(np.int64),
        ideal=prepared.group_seconds.min(axis=1),
    )
