"""Celeritas' Optimal Operation Fusion (section 5.1.3, Algorithm 1): Kernighan's optimal breakpoints in CPD-TOPO order.

A sequence of ops is cut into runs so that the communication between runs is the least possible; runs in a topological order
never close a cycle (Lemma 2). R bounds how far back a run may begin, M its memory. One thing is added: a run only holds ops that
some device can run all of.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stepd.core.compiled import inlined, lean
from stepd.core.placement.celeritas_order import cpd_topo
from stepd.core.placement.ranks import op_seconds, transfer_seconds
from stepd.core.prepared import Prepared, Tables
from stepd.core.problem import Float, Index, Int, Mask

RANGE = 200  # the paper's R
MEMORY_SHARE = 0.25  # the paper's M, of the smallest device


def fuse(prepared: Prepared, reach: int = RANGE, memory_share: float = MEMORY_SHARE) -> tuple[Index, Index]:
    """The order and the cluster of every op: int32 [n], int32 [n]; cluster numbers grow along the order."""
    tables = prepared.tables
    order = cpd_topo(prepared)
    breaks = optimal_breakpoints(
        tables,
        order,
        transfer_seconds(prepared, "mean"),
        memory_need(prepared),
        device_masks(np.isfinite(prepared.group_seconds))[tables.group],
        reach,
        float(tables.memory.min()) * memory_share,
    )
    cluster = np.empty(len(order), dtype=np.int32)
    cluster[order] = np.repeat(np.arange(len(breaks) - 1, dtype=np.int32), np.diff(breaks))
    return order, cluster


def memory_need(prepared: Prepared) -> Float:
    """Bytes of each op as Celeritas counts them: what stays and what it makes. float64 [n]."""
    tables = prepared.tables
    made = np.bincount(tables.output_op, weights=tables.output_bytes, minlength=len(tables.resident))
    return np.asarray(tables.resident + made)


def device_masks(allowed: Mask) -> Int:
    """Bits of the devices that each row of `allowed` (bool [g, d]) may use; alike devices share a bit, at most 62. int64 [g]."""
    kinds = list({column.tobytes(): column for column in allowed.T}.values())[:62]
    masks = np.zeros(len(allowed), dtype=np.int64)
    for bit, column in enumerate(kinds):
        masks |= column.astype(np.int64) << bit
    return masks


def communication_ratio(prepared: Prepared) -> float:
    """CCR (Equation 1): seconds of all edges over seconds of all ops, mean costs; inf when no op takes time."""
    tables = prepared.tables
    # Not a dot product: those of many elements are given to threads that go on turning for longer than all of this takes.
    edges = float((transfer_seconds(prepared, "mean") * np.diff(tables.reader_pointer)).sum())
    work = float(op_seconds(prepared, "mean").sum())
    return edges / work if work else np.inf


def optimal_breakpoints(
    tables: Tables, order: Index, transfer: Float, memory: Float, masks: Int, reach: int, memory_limit: float
) -> Int:
    """OPTIMAL_BP (Equation 6): positions 0 = b_0 < b_1 < ... = n; run k is order[b_k : b_k+1].

    transfer: float64 [u]; memory: float64 [n]; masks: int64 [n], bits of the devices that may run each op. A single op may exceed
    the memory limit.
    """
    n = len(order)
    work = _Work(
        position=np.empty(n, dtype=np.int64),
        best=np.zeros(n + 1),
        previous=np.zeros(n + 1, dtype=np.int64),
        cost=np.zeros(n + 1),
        into=np.zeros(n + 1),
    )
    work.position[order] = np.arange(n)
    _grow(tables, work, order, transfer, memory, masks, reach, memory_limit)
    breaks = [n]
    while breaks[-1] > 0:  # P(P(...P(n)))
        breaks.append(int(work.previous[breaks[-1]]))
    return np.array(breaks[::-1], dtype=np.int64)


class _Work(NamedTuple):
    """Of the runs [i, j) for the current j."""

    position: Int  # [n] place of each op in the order
    best: Float  # [n + 1] S(v_j)
    previous: Int  # [n + 1] P(v_j)
    cost: Float  # [n + 1] cost(v_i, v_j) by i
    into: Float  # [n + 1] by position: c to the op at j - 1


@lean
def _grow(
    tables: Tables, work: _Work, order: Index, transfer: Float, memory: Float, masks: Int, reach: int, memory_limit: float
) -> None:
    for j in range(1, len(order) + 1):
        _extend_costs(tables, work, order[j - 1], transfer, j, reach)
        _best_break(work, order, memory, masks, j, reach, memory_limit)


@inlined
def _extend_costs(tables: Tables, work: _Work, op: int, transfer: Float, j: int, reach: int) -> None:
    """Equation 5: every run grows by `op`, the one at position j - 1."""
    leaving = 0.0
    for o in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
        leaving += transfer[o] * (tables.reader_pointer[o + 1] - tables.reader_pointer[o])
    for i in range(tables.input_pointer[op], tables.input_pointer[op + 1]):
        o = tables.input[i]
        work.into[work.position[tables.output_op[o]]] += transfer[o]
    kept = 0.0
    for i in range(j - 1, max(-1, j - 1 - reach), -1):
        kept += work.into[i]
        work.cost[i] += leaving - kept
    for i in range(tables.input_pointer[op], tables.input_pointer[op + 1]):
        work.into[work.position[tables.output_op[tables.input[i]]]] = 0.0


@inlined
def _best_break(work: _Work, order: Index, memory: Float, masks: Int, j: int, reach: int, memory_limit: float) -> None:
    """Equation 6: where the run that ends before position j had best begin."""
    work.best[j] = work.best[j - 1] + work.cost[j - 1]
    work.previous[j] = j - 1
    held = memory[order[j - 1]]
    shared = masks[order[j - 1]]
    for i in range(j - 2, max(-1, j - 1 - reach), -1):
        held += memory[order[i]]
        shared &= masks[order[i]]
        if shared == 0 or held > memory_limit:
            return
        if work.best[i] + work.cost[i] < work.best[j]:
            work.best[j] = work.best[i] + work.cost[i]
            work.previous[j] = i
