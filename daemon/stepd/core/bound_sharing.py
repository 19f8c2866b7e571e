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
import numpy.typing as npt

from stepd.core.compiled import inlined, kernel
from stepd.core.problem import Float, Index

SAFE = 1.0 - 1e-12
"""What roundings of long sums may take."""


class Sharing(NamedTuple):
    """work: [n] weighted seconds of each op where they are least; weights: [d] of the devices, descending, their sum is 1."""

    work: Float
    weights: Float


class Ancestors(NamedTuple):
    """Ops that were looked at, by when they can start, and for each op which of them it waits for. Empty: nobody looks at them."""

    waits: npt.NDArray[np.uint64]  # [n, words] a bit for every op
    op: Index  # [n]
    start: Float  # [n] ascending
    ring: Float  # [d] scratch


def sharing(seconds: Float, weights: Float) -> Sharing:
    """Of `seconds` [n, d], inf where an op cannot run."""
    weighted = np.where(np.isfinite(seconds), weights * np.where(np.isfinite(seconds), seconds, 0.0), np.inf)
    return Sharing(weighted.min(axis=1), np.sort(weights)[::-1].copy())


@kernel
def new_ancestors(n: int, d: int) -> Ancestors:
    """Nobody has been looked at yet."""
    return Ancestors(np.zeros((n, (n + 63) // 64), dtype=np.uint64), np.empty(n, dtype=np.int32), np.empty(n), np.empty(d))


@inlined
def wait_for(ancestors: Ancestors, op: int, awaited: int) -> None:
    """`op` waits for `awaited`, and for whatever that waits for."""
    one = np.uint64(1)
    for word in range(ancestors.waits.shape[1]):
        ancestors.waits[op, word] |= ancestors.waits[awaited, word]
    ancestors.waits[op, awaited >> 6] |= one << np.uint64(awaited & 63)


@inlined
def done_soonest(ancestors: Ancestors, shared: Sharing, op: int, count: int) -> float:
    """When all that `op` waits for can be done: of those `count` ops, from the last to start on, more and more."""
    d = len(shared.weights)
    soonest, work, taken = 0.0, 0.0, 0
    for k in range(count - 1, -1, -1):
        other = ancestors.op[k]
        if (ancestors.waits[op, other >> 6] >> np.uint64(other & 63)) & np.uint64(1):
            work += shared.work[other]
            ancestors.ring[taken % d] = ancestors.start[k]
            taken += 1
            first = ancestors.start[k]
            if taken >= d:
                first = 0.0
                for rank in range(d):
                    first += shared.weights[rank] * ancestors.ring[(taken - 1 - rank) % d]
            soonest = max(soonest, first + work)
    return SAFE * soonest


@inlined
def looked_at(ancestors: Ancestors, op: int, start: float, count: int) -> None:
    """Put `op` among the `count` that were looked at before."""
    at = count
    while at > 0 and ancestors.start[at - 1] > start:
        ancestors.start[at], ancestors.op[at] = ancestors.start[at - 1], ancestors.op[at - 1]
        at -= 1
    ancestors.start[at], ancestors.op[at] = start, op


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
