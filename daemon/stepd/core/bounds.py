"""Lower bounds of the step time: what no strategy that fits can beat, and how far from it a found one is.

Each bound holds for every placement and order. `best_bound` returns the largest and says which it is:
work (no way to share the ops' seconds over the devices is faster: the dual of the fractional assignment), memory (nor is any that
keeps to the devices' memory with what stays there for the whole step), group (a colocation group is on one device, after what its
ops wait for and before what waits for them), path (longest way, see `bound_paths`), windows (ops with long heads and tails share
the devices, see `bound_sharing`), cuts (a path that no device holds, see `bound_cuts`), anchors (what would come too late from
elsewhere shares a device with the heaviest group, see `bound_anchors`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from stepd.core.bound_anchors import anchored_bound
from stepd.core.bound_cuts import cut_bound
from stepd.core.bound_paths import backwards, earliest_starts, forwards, joins
from stepd.core.bound_sharing import sharing, windows
from stepd.core.prepared import Prepared, prepare
from stepd.core.problem import Float, Problem

GROUPS_WITH_MEMORY = 500
"""Groups whose bytes count in the memory bound, the largest ones: the linear program grows with them."""
LEVELS = 24
"""Heads from which on ops are taken together."""
PLENTY = 1e9
"""Effort for `bound_anchors` where nobody waits."""


@dataclass(frozen=True)
class Bound:
    """seconds that no strategy that fits beats, and the argument for them."""

    seconds: float
    kind: str

    def gap(self, step_seconds: float) -> float:
        """By what share `step_seconds` may exceed the optimum at most: step / bound - 1."""
        return step_seconds / self.seconds - 1.0 if self.seconds > 0 else 0.0


def lower_bound(problem: Problem) -> float:
    """Seconds that no strategy that fits beats."""
    return best_bound(problem).seconds


def best_bound(problem: Problem, effort: float = PLENTY) -> Bound:
    """The largest of all bounds, with its kind. effort: what `bound_anchors` may take, some 4 ns each."""
    prepared = prepare(problem)
    tables = prepared.tables
    seconds = _allowed_seconds(prepared)
    alike = _devices_are_alike(seconds, tables.latency, tables.bandwidth)
    latency, per_byte = tables.latency.copy(), 1.0 / tables.bandwidth
    np.fill_diagonal(latency, np.inf)
    d = seconds.shape[1]
    if alike and d > 1:  # one for all
        d, latency, per_byte = 1, latency[:1, -1:].copy(), per_byte[:1, -1:].copy()
    some = np.ascontiguousarray(seconds[:, :d])
    work, weights = _best_sharing(prepared)
    shared = sharing(seconds, weights)
    ways = forwards(tables, some, latency, per_byte), backwards(tables, some, latency, per_byte)
    head, tail = (earliest_starts(way, shared, joins(way)) for way in ways)
    before, after = head.min(axis=1), tail.min(axis=1)
    levels = np.unique(np.quantile(before, np.linspace(0, 0.98, LEVELS))) if len(before) else before
    by_tail = np.argsort(-after, kind="stable").astype(np.int32)
    through = (head + some + tail).min(axis=1)
    bounds = [
        Bound(work, "work"),
        Bound(memory_bound(prepared), "memory"),
        Bound(float(through.max(initial=0.0)), "path"),
        Bound(windows(before, after, by_tail, levels, shared), "windows"),
        Bound(_groups(prepared, head, tail), "group"),
        Bound(cut_bound(prepared, seconds), "cuts"),
    ]
    best = max((bound for bound in bounds if bound.seconds < np.inf), key=lambda bound: bound.seconds)
    anchored = anchored_bound(prepared, seconds, best.seconds, longest_step(prepared), effort)
    return Bound(anchored, "anchors") if anchored > best.seconds else best


def quick_bound(problem: Problem) -> Bound:
    """The larger of those that need no kernel: work and group."""
    prepared = prepare(problem)
    longest = float(prepared.group_seconds.min(axis=1).max(initial=0.0))
    return max(Bound(_best_sharing(prepared)[0], "work"), Bound(longest, "group"), key=lambda bound: bound.seconds)


def longest_step(prepared: Prepared) -> float:
    """Seconds that no strategy exceeds: every op where it takes longest, every output sent wherever its readers may be, one after
    the other (a device or a link is busy at any moment of a step)."""
    tables = prepared.tables
    seconds = _allowed_seconds(prepared)
    ops = np.where(np.isfinite(seconds), seconds, 0.0).max(axis=1).sum()
    linked = np.isfinite(tables.latency) & ~np.eye(len(tables.memory), dtype=bool)
    if not linked.any():
        return float(ops)
    per_transfer = (tables.latency + 2.0 * tables.handling[0])[linked].max()
    per_byte = (1.0 / tables.bandwidth + 2.0 * tables.handling[1])[linked].max()
    copies = np.minimum(np.diff(tables.reader_pointer), len(tables.memory) - 1)
    return float(ops + (copies * (per_transfer + per_byte * tables.output_bytes)).sum())


def _allowed_seconds(prepared: Prepared) -> Float:
    """Seconds [n, d], inf also where another op of the same group cannot run."""
    barred = ~np.isfinite(prepared.group_seconds[prepared.tables.group])
    return np.where(barred, np.inf, prepared.tables.seconds)


def _best_sharing(prepared: Prepared, rounds: int = 200) -> tuple[float, Float]:
    """Fractional sharing of all groups over the devices, from below: for any weights y of the devices that sum to 1, the step
    lasts at least the sum over groups of min_j y_j p_gj. Multiplicative updates of y look for the best: (seconds, y)."""
    seconds = prepared.group_seconds
    patterns, amount = _patterns(seconds)
    d = seconds.shape[1]
    y = np.full(d, 1.0 / d)
    best, chosen = 0.0, y
    for k in range(rounds):
        weighted = np.where(np.isfinite(patterns), y[None, :] * np.where(np.isfinite(patterns), patterns, 0.0), np.inf)
        cheapest = weighted.min(axis=1)
        found = float((amount * cheapest).sum())
        if found > best:
            best, chosen = found, y
        ties = weighted <= cheapest[:, None] * (1 + 1e-9)
        load = ((amount / ties.sum(axis=1))[:, None] * ties * np.where(np.isfinite(patterns), patterns, 0.0)).sum(axis=0)
        if load.sum() <= 0:
            break
        y = y * np.exp((load / load.max() - 1.0) / (1.0 + 0.1 * k))
        y /= y.sum()
    return best, chosen


def _devices_are_alike(seconds: Float, latency: Float, bandwidth: Float) -> bool:
    apart = ~np.eye(len(latency), dtype=bool)
    links = (latency[apart] == latency[0, -1]).all() and (bandwidth[apart] == bandwidth[0, -1]).all()
    return bool(links and (seconds == seconds[:, :1]).all())


def memory_bound(prepared: Prepared) -> float:
    """As `_best_sharing`, sharing the bytes that stay, too: for any weights y of the devices that sum to 1 and prices z of their
    bytes, the step lasts at least sum_g min_j (y_j p_gj + z_j r_g) - sum_j z_j M_j. A linear program finds the best of them; what
    is returned is computed from them. 0 where the memory of every device holds all, or where nothing fits."""
    memory = prepared.tables.memory.astype(np.float64)
    resident = prepared.group_resident.astype(np.float64)
    if resident.sum() <= memory.min(initial=np.inf):
        return 0.0
    heavy = np.argsort(-resident, kind="stable")[: min(GROUPS_WITH_MEMORY, int((resident > 0).sum()))]
    light = np.ones(len(resident), dtype=bool)
    light[heavy] = False
    patterns, amount = _patterns(prepared.group_seconds[light])
    shared = np.where(np.isfinite(patterns), patterns, 0.0) * amount[:, None]  # an amount of 0 times inf is nan
    seconds = np.concatenate([prepared.group_seconds[heavy], np.where(np.isfinite(patterns), shared, np.inf)])
    nbytes = np.concatenate([resident[heavy], np.zeros(len(patterns))])
    weight, price = _dual_prices(seconds, nbytes, memory)
    if not weight.sum() > 0:
        return 0.0
    weight, price = weight / weight.sum(), price / weight.sum()
    cost = np.where(np.isfinite(seconds), weight * np.where(np.isfinite(seconds), seconds, 0.0) + np.outer(nbytes, price), np.inf)
    return max(0.0, float(cost.min(axis=1).sum() - price @ memory))


def _dual_prices(seconds: Float, nbytes: Float, memory: Float) -> tuple[Float, Float]:
    """Weights [d] and prices [d] (seconds a byte): minimise T in which all loads and all bytes fit, shares of groups allowed."""
    m, d = seconds.shape
    time = max(float(np.where(np.isfinite(seconds), seconds, 0.0).max(initial=0.0)), 1e-300)
    size = max(float(memory.max()), 1.0)
    can = np.isfinite(seconds)
    x = np.arange(m * d).reshape(m, d)
    row = np.broadcast_to(np.arange(d), (m, d))
    values = np.concatenate(
        [np.where(can, seconds, 0.0).ravel() / time, np.full(d, -1.0), np.repeat(nbytes[:, None] / size, d, axis=1).ravel()]
    )
    rows = np.concatenate([row.ravel(), np.arange(d), d + row.ravel()])
    columns = np.concatenate([x.ravel(), np.full(d, m * d), x.ravel()])
    whole = coo_array((np.ones(m * d), (np.repeat(np.arange(m), d), x.ravel())), (m, m * d + 1))
    objective = np.zeros(m * d + 1)
    objective[-1] = 1.0
    upper = np.append(can.ravel().astype(np.float64), np.inf)
    answer = linprog(
        objective,
        A_ub=coo_array((values, (rows, columns)), (2 * d, m * d + 1)).tocsr(),
        b_ub=np.concatenate([np.zeros(d), memory / size]),
        A_eq=whole.tocsr(),
        b_eq=np.ones(m),
        bounds=np.stack([np.zeros(m * d + 1), upper], axis=1),
        method="highs",
    )
    if answer.x is None:
        return np.zeros(d), np.zeros(d)
    dual = np.maximum(-np.asarray(answer.ineqlin.marginals), 0.0)
    return dual[:d], dual[d:] * time / size


def _groups(prepared: Prepared, head: Float, tail: Float) -> float:
    """A group's ops run one after the other on one device: after the soonest start of any, before the shortest rest after any."""
    tables = prepared.tables
    if not len(tables.group_op):
        return 0.0
    first = np.minimum.reduceat(head[tables.group_op], tables.group_pointer[:-1], axis=0)
    rest = np.minimum.reduceat(tail[tables.group_op], tables.group_pointer[:-1], axis=0)
    return float((first + prepared.group_seconds[:, : head.shape[1]] + rest).min(axis=1).max())


def _patterns(seconds: Float) -> tuple[Float, Float]:
    """Groups that relate devices alike, as one: seconds [p, d] relative to the fastest, and how many of those there are [p]."""
    alike: dict[bytes, int] = {}  # devices that take as long for everything are one column to sort by
    column = [alike.setdefault(seconds[:, device].tobytes(), device) for device in range(seconds.shape[1])]
    of = np.searchsorted(list(alike.values()), column)
    some = seconds[:, list(alike.values())]
    patterns, inverse = np.unique(some / np.maximum(some.min(axis=1, keepdims=True), 1e-150), axis=0, return_inverse=True)
    amount: Float = np.bincount(inverse.reshape(-1), some.min(axis=1), len(patterns)).astype(np.float64)
    return patterns[:, of], amount
