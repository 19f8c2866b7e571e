"""Favourite children: the linear program of the small-communication-times algorithm, solved with HiGHS.

Hanen and Munier, "An approximation algorithm for scheduling dependent tasks on m processors with small communication delays", 1995;
Baechi (Jeon et al., SoCC 2020, section 3.2.2) applies it to ops. Knows no devices.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array, vstack

from stepd.core.errors import PlannerError
from stepd.core.prepared import Tables
from stepd.core.problem import Float, Index

# The relaxation has many optima, for x of edges off the critical path is free. Of those we want the one that saves most transfers.
_SAVED_TRANSFERS_WEIGHT = 1e-3


def favourite_children(tables: Tables, seconds: Float, transfer: Float, threshold: float, limit: float) -> Index:
    """The child of each op that should follow it on its device, -1 for none. int32 [n].

    seconds: float64 [n]; transfer: float64 [u]. x_ij in [0, 1] is 0 when j is the favourite child of i; an edge is one when its x
    is below `threshold`, and at 1/2 or less the constraints leave every op at most one child and one parent. `limit`: seconds.
    """
    src, dst, cost = op_edges(tables, transfer)
    if not src.size:
        return np.full(len(seconds), -1, dtype=np.int32)
    x = _relaxed(src, dst, cost, seconds, limit)
    child = np.full(len(seconds), -1, dtype=np.int32)
    taken = np.zeros(len(seconds), dtype=np.bool_)
    for e in np.argsort(x, kind="stable"):
        if x[e] >= threshold:
            break
        if child[src[e]] < 0 and not taken[dst[e]]:
            child[src[e]] = dst[e]
            taken[dst[e]] = True
    return child


def op_edges(tables: Tables, transfer: Float) -> tuple[Index, Index, Float]:
    """Distinct (producer, reader) pairs of ops and the largest transfer between them: int32 [m], int32 [m], float64 [m]."""
    readers = np.diff(tables.reader_pointer)
    output = np.repeat(np.arange(readers.size), readers)
    n = len(tables.temp)
    key, where = np.unique(tables.output_op[output].astype(np.int64) * n + tables.reader, return_inverse=True)
    cost = np.zeros(key.size)
    np.maximum.at(cost, where, transfer[output])
    return (key // n).astype(np.int32), (key % n).astype(np.int32), cost


def _relaxed(src: Index, dst: Index, cost: Float, seconds: Float, limit: float) -> Float:
    """x of every edge. Variables: t (n starts), x (m edges), w (the makespan); all in units of the mean op."""
    n, m = len(seconds), len(src)
    unit = max(float(seconds.mean()), float(cost.mean()), 1e-300)
    p, c = seconds / unit, cost / unit
    edge, one = np.arange(m), np.ones(m)
    rows = [
        # t_i + p_i + c_ij x_ij <= t_j
        coo_array((np.concatenate((one, c, -one)), (np.tile(edge, 3), np.concatenate((src, n + edge, dst)))), (m, n + m + 1)),
        # t_i + p_i <= w
        coo_array(
            (np.repeat([1.0, -1.0], n), (np.tile(np.arange(n), 2), np.concatenate((np.arange(n), np.full(n, n + m))))),
            (n, n + m + 1),
        ),
        # at most one favourite child of i: sum_j x_ij >= children - 1; at most one favourite parent of j
        coo_array((-one, (src, n + edge)), (n, n + m + 1)),
        coo_array((-one, (dst, n + edge)), (n, n + m + 1)),
    ]
    bounds = [-p[src], -p, 1.0 - np.bincount(src, minlength=n), 1.0 - np.bincount(dst, minlength=n)]
    objective = np.zeros(n + m + 1)
    objective[-1] = 1.0
    objective[n : n + m] = _SAVED_TRANSFERS_WEIGHT * c / max(c.sum(), 1e-300) * max(p.sum(), 1.0)
    upper = np.full(n + m + 1, np.inf)
    upper[n : n + m] = 1.0
    result = linprog(
        objective,
        A_ub=vstack(rows).tocsr(),
        b_ub=np.concatenate(bounds),
        bounds=np.stack((np.zeros(n + m + 1), upper), axis=1),
        method="highs",
        options={"time_limit": limit},
    )
    if result.x is None:
        raise PlannerError(f"m-sct: HiGHS found no favourite children ({result.message}): allow more seconds, or fewer clusters")
    return np.asarray(result.x[n : n + m])
