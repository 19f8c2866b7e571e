"""GETF (Su et al. 2020, the baseline of Moirai): ETF for machines of different speed.

Machines of equal speed form a group; a linear program assigns every op a speed (the group assignment rule of Chudak and Shmoys
that GETF takes over); ETF then places it within the group that it was rounded to. With one speed GETF is ETF.
The program is solved for the clusters of Celeritas' fusion when there are more than `lp_ops` ops.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from stepd.core.placement.celeritas import fused
from stepd.core.placement.etf import etf
from stepd.core.placement.registry import PlanOptions
from stepd.core.prepared import prepare
from stepd.core.problem import Float, Index, Int, Mask, Problem
from stepd.core.strategy import Strategy

LP_OPS = 1500
# Two devices are of one speed when their total times differ by less than this share.
SAME_SPEED = 0.02


def place(problem: Problem, options: PlanOptions) -> Strategy:
    """GETF. Parameters: `lp_ops`, `defer` as in ETF. Memory is kept as in m-ETF."""
    permitted = np.ones((problem.n_ops, problem.n_devices), dtype=np.bool_)
    speed = speed_groups(prepare(problem).tables.seconds)
    if speed.max(initial=0) > 0:
        permitted = _assigned(problem, options, speed)
    return etf(problem, options, "getf", memory_factor=options.memory_factor, permitted=permitted)


def speed_groups(seconds: Float) -> Int:
    """Group of each device, int64 [d]: devices whose times for the ops that run everywhere add up to about the same, and that run
    the same ops."""
    can = np.isfinite(seconds)
    common = can.all(axis=1)
    total = seconds[common].sum(axis=0)
    group = np.empty(seconds.shape[1], dtype=np.int64)
    leaders: list[int] = []
    for device in range(len(group)):
        for number, leader in enumerate(leaders):
            close = abs(total[device] - total[leader]) <= SAME_SPEED * max(total[leader], 1e-12)
            if close and np.array_equal(can[:, device], can[:, leader]):
                group[device] = number
                break
        else:
            group[device] = len(leaders)
            leaders.append(device)
    return group


def _assigned(problem: Problem, options: PlanOptions, speed: Int) -> Mask:
    """bool [n, d]: the devices of the speed that the program chose for each op, as far as the op can run there."""
    cluster: Index = np.arange(problem.n_ops, dtype=np.int32)
    small = problem
    if problem.n_ops > options.parameter("lp_ops", LP_OPS):
        coarse = fused(problem, options)
        cluster, small = coarse.cluster, coarse.problem
    chosen = group_assignment(small, speed)[cluster]
    permitted = speed[None, :] == chosen[:, None]
    can = np.isfinite(prepare(problem).tables.seconds)
    nowhere = ~(permitted & can).any(axis=1)
    permitted[nowhere] = True
    return np.asarray(permitted, dtype=np.bool_)


def group_assignment(problem: Problem, speed: Int) -> Int:
    """Speed of each op, int64 [n], from the linear program: minimise T, in which every chain of ops and every load fit.

    Variables: x[i, k], the share of op i done at speed k, the end C[i] of each op, and T. Rounded to the largest share.
    """
    tables = prepare(problem).tables
    n, kinds = len(tables.temp), int(speed.max()) + 1
    seconds = np.stack([tables.seconds[:, speed == k].min(axis=1) for k in range(kinds)], axis=1)
    can = np.isfinite(seconds)
    cost = np.where(can, seconds, 0.0)
    scale = max(float(cost.max()), 1e-12)
    cost = cost / scale
    size = n * kinds + n + 1
    x = np.arange(n * kinds).reshape(n, kinds)
    end, last = n * kinds + np.arange(n), size - 1
    output = np.repeat(np.arange(len(tables.output_op)), np.diff(tables.reader_pointer))
    src, dst = tables.output_op[output].astype(np.int64), tables.reader.astype(np.int64)
    rows, columns, values = _precedence(x, end, cost, src, dst)
    first = len(src) + n
    for k in range(kinds):  # load of group k <= its devices * T
        rows += [np.full(n + 1, first + k)]
        columns += [np.append(x[:, k], last)]
        values += [np.append(cost[:, k], -float((speed == k).sum()))]
    rows += [np.repeat(first + kinds + np.arange(n), 2)]  # C[i] <= T
    columns += [np.stack([end, np.full(n, last)], axis=1).ravel()]
    values += [np.tile([1.0, -1.0], n)]
    places = np.concatenate(rows), np.concatenate(columns)
    matrix = coo_array((np.concatenate(values), places), (first + kinds + n, size))
    whole = coo_array((np.ones(n * kinds), (np.repeat(np.arange(n), kinds), x.ravel())), (n, size))
    upper = np.full(size, np.inf)
    upper[: n * kinds] = can.ravel().astype(np.float64)
    objective = np.zeros(size)
    objective[last] = 1.0
    answer = linprog(
        objective,
        A_ub=matrix.tocsr(),
        b_ub=np.zeros(matrix.shape[0]),
        A_eq=whole.tocsr(),
        b_eq=np.ones(n),
        bounds=np.stack([np.zeros(size), upper], axis=1),
        method="highs",
    )
    if answer.x is None:  # an op that no group runs as a whole: leave the choice to ETF's minimum
        return np.asarray(seconds.argmin(axis=1))
    return np.asarray(np.where(can, answer.x[x], -1.0).argmax(axis=1))


def _precedence(x: Int, end: Int, cost: Float, src: Int, dst: Int) -> tuple[list[Int], list[Int], list[Float]]:
    """Rows C[src] + p[dst] <= C[dst] of every edge, then p[i] <= C[i] of every op."""
    kinds = x.shape[1]
    before, after = np.concatenate([src, np.full(len(end), -1)]), np.concatenate([dst, np.arange(len(end))])
    row = np.arange(len(after))
    real = before >= 0
    rows = [np.repeat(row, kinds), row, row[real]]
    columns = [x[after].ravel(), end[after], end[before[real]]]
    values = [cost[after].ravel(), np.full(len(row), -1.0), np.ones(int(real.sum()))]
    return rows, columns, values
