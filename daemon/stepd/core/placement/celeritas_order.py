"""Celeritas' topological orders: DFS-TOPO (section 4.2.2) and CPD-TOPO, the same along critical paths (section 5.1.3)."""

from __future__ import annotations

import numpy as np

from stepd.core.compiled import kernel
from stepd.core.placement.ranks import op_seconds, top_levels, transfer_seconds, upward_ranks
from stepd.core.prepared import Prepared, Tables
from stepd.core.problem import Float, Index


def dfs_topo(prepared: Prepared) -> Index:
    """DFS-TOPO: after an op come those of its readers that became ready; op indices int32 [n]. Ties: smaller index first."""
    return depth_first_order(prepared.tables, -np.arange(len(prepared.tables.topological), dtype=np.float64))


def cpd_topo(prepared: Prepared) -> Index:
    """CPD-TOPO: DFS-TOPO that takes the longest path first; op indices int32 [n] in order."""
    return depth_first_order(prepared.tables, critical_lengths(prepared))


def critical_lengths(prepared: Prepared) -> Float:
    """Cpath (section 5.1.3): tlevel + blevel, the seconds of the longest path through each op, with mean costs. float64 [n]."""
    seconds, transfer = op_seconds(prepared, "mean"), transfer_seconds(prepared, "mean")
    top = top_levels(prepared.tables, seconds, transfer)
    return np.asarray(top + upward_ranks(prepared.tables, seconds, transfer))


def depth_first_order(tables: Tables, key: Float) -> Index:
    """Algorithm 1, CPD_TOPO, lines 8-20: the queue whose head grows is a stack; larger keys come out first. int32 [n]."""
    return _depth_first(tables, key, np.argsort(key, kind="stable").astype(np.int32))


@kernel
def _depth_first(tables: Tables, key: Float, by_key: Index) -> Index:
    n = len(key)
    missing = np.empty(n, dtype=np.int32)
    stack = np.empty(n, dtype=np.int32)
    order = np.empty(n, dtype=np.int32)
    for op in range(n):
        missing[op] = tables.input_pointer[op + 1] - tables.input_pointer[op]
    size, done = 0, 0
    for op in by_key:
        if missing[op] == 0:
            stack[size] = op
            size += 1
    while size > 0:
        size -= 1
        op = stack[size]
        order[done] = op
        done += 1
        base = size
        for o in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
            for r in range(tables.reader_pointer[o], tables.reader_pointer[o + 1]):
                reader = tables.reader[r]
                missing[reader] -= 1
                if missing[reader] == 0:
                    at = size
                    while at > base and key[stack[at - 1]] > key[reader]:
                        stack[at] = stack[at - 1]
                        at -= 1
                    stack[at] = reader
                    size += 1
    return order
