"""What the devices can share: no set of ops is done sooner than its work, shared as well as could be, takes.

For any weights of the devices that sum to 1, a device is busy with its part of a set S between the start of the first and the end
of the last op of S there. Added up with the weights, the step lasts at least the weighted work of S, each op where that is least,
plus the weighted starts before and rests behind. First ops of different devices are different ops, so that at best the device of
the largest weight begins with the op that can begin first, and so on; a device that runs none of S waits longer still. It knows no
links and no longest path.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stepd.core.compiled import inlined, kernel
from stepd.core.problem import Float, Index

SAFE = 1.0 - 1e-12
"""What roundings of long sums may take."""


class Sharing(NamedTuple):
    """work: [n] weighted seconds of each op where they are least; weights: [d] of the devices, descending, their sum is 1."""

    work: Float
    weights: Float


class Line(NamedTuple):
    """Ops that were looked at, by when they can start, and of which of them all are to be done."""

    op: Index  # [n]
    start: Float  # [n] ascending; of those that were looked at last among themselves
    late_op: Index  # [n] scratch
    late_start: Float  # [n] scratch
    marked: Index  # [n] for whom an op was last marked; 0: for nobody
    ring: Float  # [d] scratch


def sharing(seconds: Float, weights: Float) -> Sharing:
    """Of `seconds` [n, d], inf where an op cannot run."""
    weighted = np.where(np.isfinite(seconds), weights * np.where(np.isfinite(seconds), seconds, 0.0), np.inf)
    return Sharing(weighted.min(axis=1), np.sort(weights)[::-1].copy())


@kernel
def new_line(n: int, d: int) -> Line:
    """Nobody has been looked at yet."""
    op, late_op, marked = np.zeros((3, n), dtype=np.int32)
    start, late_start = np.zeros((2, n))
    return Line(op, start, late_op, late_start, marked, np.empty(d))


@inlined
def done_soonest(line: Line, shared: Sharing, mark: int, marked: int, count: int) -> float:
    """When all ops that bear `mark`, `marked` in number, can be done: of those `count` ops, from the last to start on, more and
    more."""
    d = len(shared.weights)
    soonest, work, taken = 0.0, 0.0, 0
    for k in range(count - 1, -1, -1):
        if line.marked[line.op[k]] == mark:
            work += shared.work[line.op[k]]
            line.ring[taken % d] = line.start[k]
            taken += 1
            first = line.start[k]
            if taken >= d:
                first = 0.0
                for rank in range(d):
                    first += shared.weights[rank] * line.ring[(taken - 1 - rank) % d]
            soonest = max(soonest, first + work)
            if taken == marked:
                break
    return SAFE * soonest


@inlined
def looked_at(line: Line, op: int, start: float, merged: int, count: int) -> None:
    """Put `op` among the `count` that were looked at before, behind the `merged` first ones."""
    at = count
    while at > merged and line.start[at - 1] > start:
        line.start[at], line.op[at] = line.start[at - 1], line.op[at - 1]
        at -= 1
    line.start[at], line.op[at] = start, op


@inlined
def merge(line: Line, merged: int, count: int) -> None:
    """Put all `count` in their order: the first `merged` are, and so are the others among themselves."""
    late = count - merged
    for k in range(late):
        line.late_op[k], line.late_start[k] = line.op[merged + k], line.start[merged + k]
    for k in range(count - 1, -1, -1):  # from the back, where there is room
        if late == 0:
            return
        if merged > 0 and line.start[merged - 1] > line.late_start[late - 1]:
            merged -= 1
            line.op[k], line.start[k] = line.op[merged], line.start[merged]
        else:
            late -= 1
            line.op[k], line.start[k] = line.late_op[late], line.late_start[late]


@kernel
def windows(head: Float, tail: Float, by_tail: Index, levels: Float, shared: Sharing) -> float:
    """Seconds that the step lasts at least: ops whose head is at least a level, and of these the ones with the longest tails.

    head, tail: [n] seconds before each op's start and after its end; by_tail: ops by descending tail.
    """
    d = len(shared.weights)
    bound = 0.0
    first, last = np.empty(d), np.empty(d)
    for level in levels:
        work, count = 0.0, 0
        for op in by_tail:
            if head[op] < level:
                continue
            if count < d or head[op] < first[d - 1]:  # the shortest heads, ascending
                at = min(count, d - 1)
                while at > 0 and first[at - 1] > head[op]:
                    first[at] = first[at - 1]
                    at -= 1
                first[at] = head[op]
            last[count % d] = tail[op]
            count += 1
            work += shared.work[op]
            around = first[0] + tail[op]
            if count >= 2 * d:  # so many that a device without any of them has one to wait for
                around = 0.0
                for rank in range(d):
                    around += shared.weights[rank] * (first[rank] + last[(count - 1 - rank) % d])
            bound = max(bound, around + work)
    return SAFE * bound
