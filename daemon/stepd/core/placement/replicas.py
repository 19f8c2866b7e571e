"""Replicas of one model in a graph (towers), found by structure alone, for graphs whose names do not tell.

Two ops are twins when all that they are computed of is alike and uses the same weights; ops that come k at a time, and are
connected without the weights, are k replicas. What is measured does not count: replicas take not quite the same time, and examples
of different length, or gradients of the rows that they use, not the same bytes. It knows no names and no devices.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from stepd.core.compiled import kernel
from stepd.core.prepared import Tables, prepare
from stepd.core.problem import Index, Int, Mask, Problem

Hash = npt.NDArray[np.uint64]

MOST = 64
"""Replicas that are looked for."""
ENOUGH = 0.5
"""Share of a step's seconds that the replicas must take."""
ALIKE = 0.8
"""How little the shortest replica takes of the longest, at least."""
_KEY = "_replicas"


def replicas_of(problem: Problem) -> Int:
    """Replica of every op, int64 [n], -1 for ops that belong to none; all -1 when there are not two."""
    kept = problem.__dict__.get(_KEY)
    if kept is None:
        kept = _replicas_of(problem)
        object.__setattr__(problem, _KEY, kept)
    return np.array(kept)


def _replicas_of(problem: Problem) -> Int:
    prepared = prepare(problem)
    tables = prepared.tables
    seconds = tables.seconds.min(axis=1)
    kinds = {kind: k for k, kind in enumerate(sorted(set(problem.op_types)))}
    kind = np.array([kinds[item] for item in problem.op_types], dtype=np.uint64)
    twins = np.zeros(problem.n_ops, dtype=np.uint64)
    weighty = prepared.group_resident > 0
    _ancestry(tables, kind, weighty, twins)
    number = np.unique(twins, return_inverse=True)[1].reshape(-1)
    sizes = np.where(weighty[tables.group], 1, np.bincount(number)[number])
    found, covered = np.full(problem.n_ops, -1, dtype=np.int64), ENOUGH * float(seconds.sum())
    for k in sorted({int(size) for size in np.unique(sizes) if 2 <= size <= MOST}):
        if seconds[sizes % k == 0].sum() <= covered:
            continue
        component = components(tables, sizes % k == 0)
        weight = np.bincount(component[component >= 0], weights=seconds[component >= 0])
        large = np.flatnonzero(weight >= ALIKE * weight.max(initial=0.0))
        if len(large) == k and weight[large].sum() > covered:
            covered = float(weight[large].sum())
            replica = np.full(len(weight) + 1, -1, dtype=np.int64)  # the last one for what is in no component
            replica[large] = np.arange(k)
            found = replica[component]
    return found


@kernel
def _ancestry(tables: Tables, kind: Hash, weighty: Mask, twins: Hash) -> None:
    """Fill `twins` [n]: equal for ops of one kind whose inputs are of twins; groups with weights are told apart."""
    for at in range(len(twins)):
        op = tables.topological[at]
        if weighty[tables.group[op]]:
            twins[op] = _mixed(np.uint64(tables.group[op]) + np.uint64(1 << 40))
            continue
        total = np.uint64(0)
        for k in range(tables.input_pointer[op], tables.input_pointer[op + 1]):
            total += _mixed(twins[tables.output_op[tables.input[k]]])
        twins[op] = _mixed(total ^ _mixed(kind[op] + np.uint64(1)))


@kernel
def _mixed(x: Any) -> Any:
    """SplitMix64's finaliser of a uint64."""
    z = np.uint64(x) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.uint64(z ^ (z >> np.uint64(31)))


def components(tables: Tables, inside: Mask) -> Index:
    """Connected components among the ops `inside`, int32 [n]; -1 for the others."""
    n = len(inside)
    output = np.repeat(np.arange(len(tables.output_op)), np.diff(tables.reader_pointer))
    src, dst = tables.output_op[output], tables.reader
    edges = inside[src] & inside[dst]
    graph = coo_array((np.ones(int(edges.sum()), dtype=np.int8), (src[edges], dst[edges])), shape=(n, n))
    component = connected_components(graph, directed=False)[1].astype(np.int32)
    component[~inside] = -1
    _, dense = np.unique(component, return_inverse=True)
    return (dense.reshape(-1) - int((~inside).any())).astype(np.int32)
