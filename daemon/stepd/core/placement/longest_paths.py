"""Linear clustering: the longest path of what is left, transfers included, becomes a cluster, again and again.

Kim and Browne, "A general approach to mapping of parallel computations upon multiprocessor architectures", 1988. Ops only leave, so
that what is known of an op's longest way to the end never is too short: a way is looked at again only where the longest path of all
may begin or lead through it, instead of a pass over all that is left for every path. Knows no devices and no memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stepd.core.compiled import inner, kernel
from stepd.core.heaps import pop_timed, push_timed
from stepd.core.prepared import Tables
from stepd.core.problem import Float, Index


class Ways(NamedTuple):
    """What is known of each op's longest way through ops without a cluster. n ops."""

    seconds: Float  # [n] of the op itself
    transfer: Float  # [u] of each output
    cluster: Index  # [n] -1: none yet
    longest: Float  # [n] seconds from its start, at most
    following: Index  # [n] the next op of that way; -1: none
    checked: Index  # [n] clusters that there were when `longest` was exact
    stack: Index  # [n] scratch


@kernel
def linear_clusters(tables: Tables, seconds: Float, transfer: Float, most: int) -> Index:
    """LC, int32 [n]. Of equally long paths, the one whose first op comes first in topological order; of equally long ways on, the
    reader that is listed first. After `most` paths every op left is a cluster of its own."""
    n = len(seconds)
    none = np.full(n, -1, dtype=np.int32)
    ways = Ways(seconds, transfer, none, np.full(n, np.inf), none.copy(), none.copy(), np.empty(n, dtype=np.int32))
    times, items, size = np.empty(n), np.empty(n, dtype=np.int32), 0
    for k in range(n - 1, -1, -1):
        op = tables.topological[k]
        _settle(tables, ways, op, 0)
        push_timed(times, items, size, -ways.longest[op], k)
        size += 1
    count = 0
    while size > 0 and count < most:
        known = -times[0]
        k = pop_timed(times, items, size)
        size -= 1
        op = tables.topological[k]
        if ways.cluster[op] >= 0:
            continue
        _settle(tables, ways, op, count)
        if ways.longest[op] < known:  # perhaps no longer the longest
            push_timed(times, items, size, -ways.longest[op], k)
            size += 1
            continue
        while op >= 0:
            ways.cluster[op] = count
            op = ways.following[op]
        count += 1
    for op in tables.topological:
        if ways.cluster[op] < 0:
            ways.cluster[op] = count
            count += 1
    return ways.cluster


@inner
def _settle(tables: Tables, ways: Ways, op: int, count: int) -> None:
    """Make what is known of `op` exact, now that there are `count` clusters: along the way that seems to be the longest, until that
    is exact and still the longest."""
    ways.stack[0] = op
    size = 1
    while size > 0:
        op = ways.stack[size - 1]
        best, following = 0.0, -1
        if ways.checked[op] != count:
            for o in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
                for r in range(tables.reader_pointer[o], tables.reader_pointer[o + 1]):
                    reader = tables.reader[r]
                    way = ways.transfer[o] + ways.longest[reader]
                    if ways.cluster[reader] < 0 and (following < 0 or way > best):
                        best, following = way, reader
            if following >= 0 and ways.checked[following] != count:
                ways.stack[size] = following
                size += 1
                continue
            ways.longest[op] = best + ways.seconds[op]
            ways.following[op] = following
            ways.checked[op] = count
        size -= 1
