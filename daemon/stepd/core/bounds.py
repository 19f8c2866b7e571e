"""Lower bounds of the step time: what no strategy can beat, and how far from it a found one is.

Each bound holds for every placement and order. `best_bound` returns the largest and says which it is:
work (no way to share the ops' seconds over the devices is faster: the dual of the fractional assignment), group (a colocation
group is on one device), path (longest way, each op with what its inputs must cost: either their producers share its device,
where they run one after the other, or a transfer lies between), windows (ops with long heads and tails share the devices).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepd.core.compiled import kernel
from stepd.core.prepared import Prepared, Tables, prepare
from stepd.core.problem import Float, Int, Problem


@dataclass(frozen=True)
class Bound:
    """seconds that no strategy beats, and the argument for them."""

    seconds: float
    kind: str

    def gap(self, step_seconds: float) -> float:
        """By what share `step_seconds` may exceed the optimum at most: step / bound - 1."""
        return step_seconds / self.seconds - 1.0 if self.seconds > 0 else 0.0


def lower_bound(problem: Problem) -> float:
    """Seconds that no strategy beats."""
    return best_bound(problem).seconds


def best_bound(problem: Problem) -> Bound:
    """The largest of all bounds, with its kind."""
    prepared = prepare(problem)
    tables = prepared.tables
    best = np.ascontiguousarray(_allowed_seconds(prepared).min(axis=1))
    cheapest_latency, cheapest_rate = _cheapest_transfer(tables)
    head = heads(tables, best, cheapest_latency, cheapest_rate)
    tail = tails(tables, best, cheapest_latency, cheapest_rate)
    bounds = [
        *_sharing_bounds(prepared),
        Bound(float((head + best + tail).max(initial=0.0)), "path"),
        Bound(_windows(head, best, tail, tables.seconds.shape[1]), "windows"),
    ]
    return max(bounds, key=lambda bound: bound.seconds)


def quick_bound(problem: Problem) -> Bound:
    """The larger of those that need no kernel: work and group."""
    return max(_sharing_bounds(prepare(problem)), key=lambda bound: bound.seconds)


def _sharing_bounds(prepared: Prepared) -> list[Bound]:
    longest = float(prepared.group_seconds.min(axis=1).max(initial=0.0))
    return [Bound(work_bound(prepared), "work"), Bound(longest, "group")]


def _allowed_seconds(prepared: Prepared) -> Float:
    """Seconds [n, d], inf also where another op of the same group cannot run."""
    barred = ~np.isfinite(prepared.group_seconds[prepared.tables.group])
    return np.where(barred, np.inf, prepared.tables.seconds)


def work_bound(prepared: Prepared, rounds: int = 200) -> float:
    """Fractional sharing of all groups over the devices, from below: for any weights y of the devices that sum to 1, the step
    lasts at least the sum over groups of min_j y_j p_gj. Multiplicative updates of y look for the best weights."""
    seconds = prepared.group_seconds
    patterns, inverse = np.unique(seconds / np.maximum(seconds.min(axis=1, keepdims=True), 1e-300), axis=0, return_inverse=True)
    amount = np.bincount(inverse.reshape(-1), weights=seconds.min(axis=1), minlength=len(patterns))
    d = seconds.shape[1]
    y = np.full(d, 1.0 / d)
    best = 0.0
    for k in range(rounds):
        weighted = np.where(np.isfinite(patterns), y[None, :] * np.where(np.isfinite(patterns), patterns, 0.0), np.inf)
        cheapest = weighted.min(axis=1)
        best = max(best, float((amount * cheapest).sum()))
        ties = weighted <= cheapest[:, None] * (1 + 1e-9)
        load = ((amount / ties.sum(axis=1))[:, None] * ties * np.where(np.isfinite(patterns), patterns, 0.0)).sum(axis=0)
        if load.sum() <= 0:
            break
        y = y * np.exp((load / load.max() - 1.0) / (1.0 + 0.1 * k))
        y /= y.sum()
    return best


def _cheapest_transfer(tables: Tables) -> tuple[float, float]:
    """Least latency and least seconds per byte between two devices; infinite when there is no link at all."""
    d = tables.seconds.shape[1]
    apart = ~np.eye(d, dtype=bool) & np.isfinite(tables.latency)
    if not apart.any():
        return float("inf"), 0.0
    return float(tables.latency[apart].min()), float((1.0 / tables.bandwidth[apart]).min())


@kernel
def heads(tables: Tables, best: Float, latency: float, rate: float) -> Float:
    """Seconds [n] before which an op cannot start.

    The producers of an op's inputs are on its device, and run there one after the other, or their outputs arrive by a transfer.
    Whatever the set that shares the device, one of the two says when the op can start (Papadimitriou and Yannakakis' argument,
    on direct producers).
    """
    n = len(best)
    head = np.zeros(n)
    for at in range(n):
        op = tables.topological[at]
        first, last = tables.input_pointer[op], tables.input_pointer[op + 1]
        producers = tables.output_op[tables.input[first:last]]
        sizes = tables.output_bytes[tables.input[first:last]]
        head[op] = _earliest(producers, sizes, head, best, latency, rate)
    return head


@kernel
def tails(tables: Tables, best: Float, latency: float, rate: float) -> Float:
    """Seconds [n] that the step goes on at least after an op's end: the same argument, backwards.

    An output that several ops read is sent once to a device, but to each device that is not the op's own.
    """
    n = len(best)
    tail = np.zeros(n)
    for at in range(n - 1, -1, -1):
        op = tables.topological[at]
        count = 0
        for output in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
            count += tables.reader_pointer[output + 1] - tables.reader_pointer[output]
        readers = np.empty(count, dtype=np.int32)
        sizes = np.empty(count, dtype=np.int64)
        count = 0
        for output in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
            for k in range(tables.reader_pointer[output], tables.reader_pointer[output + 1]):
                readers[count] = tables.reader[k]
                sizes[count] = tables.output_bytes[output]
                count += 1
        tail[op] = _earliest(readers, sizes, tail, best, latency, rate)
    return tail


@kernel
def _earliest(
    neighbours: np.ndarray,
    sizes: np.ndarray,
    ready: Float,
    best: Float,
    latency: float,
    rate: float,
) -> float:
    """The least time at which all `neighbours` can be done and here: the farthest ones on this device, the others sent."""
    count = len(neighbours)
    if count == 0:
        return 0.0
    arrives = np.empty(count)
    for k in range(count):
        done = ready[neighbours[k]] + best[neighbours[k]]
        arrives[k] = -(done + latency + rate * sizes[k])
    order = np.argsort(arrives, kind="mergesort")
    # Those that arrive last share the device. A neighbour may be listed twice (two outputs): it runs once.
    soonest = -arrives[order[0]]
    released = np.empty(count)
    taken = np.empty(count, dtype=np.int64)
    local = 0
    for k in range(count):
        op = neighbours[order[k]]
        known = False
        for m in range(local):
            known = known or taken[m] == op
        if not known:
            taken[local] = op
            local += 1
        if local > 64:
            break  # a bound over fewer local producers would not hold: stop at what the sent ones say
        machine = _one_machine(taken, local, ready, best, released)
        sent = -arrives[order[k + 1]] if k + 1 < count else 0.0
        soonest = min(soonest, max(machine, sent))
        if machine >= soonest:
            break
    if local > 64:
        soonest = min(soonest, machine)
    return float(soonest)


@kernel
def _one_machine(ops: Int, count: int, ready: Float, best: Float, released: Float) -> float:
    """When one machine has run `ops`, none before it is ready: in order of readiness, without idling."""
    for k in range(count):
        released[k] = ready[ops[k]]
    order = np.argsort(released[:count], kind="mergesort")
    now: float = 0.0
    for k in range(count):
        op = ops[order[k]]
        now = max(now, ready[op]) + best[op]
    return now


def _windows(head: Float, best: Float, tail: Float, d: int, steps: int = 24) -> float:
    """Ops whose head is at least h and whose tail at least q: d devices share them in between."""
    bound = 0.0
    for h in np.unique(np.quantile(head, np.linspace(0, 0.98, steps))):
        inside = head >= h
        order = np.argsort(-tail[inside], kind="stable")
        work = np.cumsum(best[inside][order])
        bound = max(bound, float((h + work / d + tail[inside][order]).max()))
    return bound
