"""Pesto's batch merging (section 3.3): a DAG is coarsened by contracting many edges at once, without ever closing a cycle.

Knows vertices, edges, heights and weights, and what may share a device; knows nothing of costs over time or of solvers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepd.core.compiled import kernel
from stepd.core.problem import Float, Index, Int

# A round that removes less than this share of the vertices has stalled: what is left are stars, or vertices without edges.
STALLED = 0.05

# What runs well on different kinds of devices stays apart (the paper's ops have a designated type): together, on the best device
# for both, two components may take this much longer than each on its own best.
SLOWER = 1.1

# No component grows beyond this share of one device's part of the work, so that the clusters can still be balanced.
LONGEST = 0.25


@dataclass(frozen=True, eq=False)
class Sharing:
    """What may share a device. component: int64 [n], ops that must. Per component g: seconds: float64 [g, d], inf where it cannot
    run; resident: int64 [g], bytes. capacity: int64 [d], bytes. ideal: float64 [g], seconds with every member on its best device.
    Merging joins components (`parent`, a union-find over g), so a Sharing serves one merge."""

    component: Int
    parent: Int
    seconds: Float
    resident: Int
    capacity: Int
    ideal: Float


@kernel
def adjacency(n: int, at: Int, other: Int) -> tuple[Int, Int]:
    """Rows of a sparse graph: the neighbours of v are neighbours[first[v]:first[v + 1]]. int64 [n + 1], int64 [m]."""
    first = np.zeros(n + 1, dtype=np.int64)
    for e in range(at.size):
        first[at[e] + 1] += 1
    for v in range(n):
        first[v + 1] += first[v]
    fill = first[:-1].copy()
    neighbours = np.empty(at.size, dtype=np.int64)
    for e in range(at.size):
        neighbours[fill[at[e]]] = other[e]
        fill[at[e]] += 1
    return first, neighbours


@kernel
def heights(n: int, src: Int, dst: Int) -> Int:
    """Definition 3.4: the number of vertices on the longest path from a root to each vertex; roots have 1. int64 [n].

    A vertex that lies on a cycle or behind one has height 0.
    """
    first, successors = adjacency(n, src, dst)
    missing = np.zeros(n, dtype=np.int64)
    for e in range(dst.size):
        missing[dst[e]] += 1
    height = np.zeros(n, dtype=np.int64)
    reached = np.ones(n, dtype=np.int64)
    queue = np.empty(n, dtype=np.int64)
    tail = 0
    for v in range(n):
        if missing[v] == 0:
            queue[tail] = v
            tail += 1
    head = 0
    while head < tail:
        u = queue[head]
        head += 1
        height[u] = reached[u]
        for k in range(first[u], first[u + 1]):
            v = successors[k]
            reached[v] = max(reached[v], height[u] + 1)
            missing[v] -= 1
            if missing[v] == 0:
                queue[tail] = v
                tail += 1
    return height


@kernel
def _find(parent: Int, v: int) -> int:
    while parent[v] != v:
        parent[v] = parent[parent[v]]
        v = parent[v]
    return v


@kernel
def join(
    parent: Int, seconds: Float, resident: Int, capacity: Int, ideal: Float, slower: float, longest: float, g: int, h: int
) -> bool:
    """Put components g and h on one device, if a device has the memory and runs both: within `longest` seconds, and not much
    slower than they would run apart."""
    a = _find(parent, g)
    b = _find(parent, h)
    if a == b:
        return True
    total = resident[a] + resident[b]
    together = np.inf
    for d in range(capacity.size):
        if total <= capacity[d]:
            together = min(together, seconds[a, d] + seconds[b, d])
    if together == np.inf or together > min(slower * (ideal[a] + ideal[b]), longest):
        return False
    parent[b] = a
    resident[a] = total
    ideal[a] += ideal[b]
    for d in range(capacity.size):
        seconds[a, d] += seconds[b, d]
    return True


@kernel
def _lone_edge(u: int, v: int, height: Int, first: Int, successors: Int, indegree: int) -> bool:
    """Theorem 3.5 (ii): no path from u to v besides the edge, seen from degrees and heights alone."""
    if first[u + 1] - first[u] == 1 or indegree == 1 or height[v] == height[u] + 1:
        return True
    lone = True
    for k in range(first[u], first[u + 1]):
        lone = lone and (successors[k] == v or height[successors[k]] > height[v])
    return lone


@kernel
def match_batch(
    n: int, src: Int, dst: Int, order: Int, limit: int,
    component: Int, parent: Int, seconds: Float, resident: Int, capacity: Int, ideal: Float, slower: float, longest: float,
) -> Int:  # fmt: skip
    """Theorem 3.5: take edges in `order`, while the set stays a batch that may be contracted at once. int64 [n]: partner or -1.

    Edges are distinct pairs. Condition (iii) is read as h(v_j) != h(u_i) + d_j or (u_i, v_j) not in E: as printed, with u and v
    exchanged, it always holds, and the two edges of Figure 6 would be merged into a cycle.
    """
    height = heights(n, src, dst)
    first_out, successors = adjacency(n, src, dst)
    first_in, predecessors = adjacency(n, dst, src)
    partner = np.full(n, -1, dtype=np.int64)
    is_head = np.zeros(n, dtype=np.bool_)
    chosen = 0
    for k in range(order.size):
        if chosen == limit:
            break
        u = src[order[k]]
        v = dst[order[k]]
        if partner[u] >= 0 or partner[v] >= 0:
            continue
        if not _lone_edge(u, v, height, first_out, successors, first_in[v + 1] - first_in[v]):
            continue
        clash = False  # (iii), for the new pair as i and as j
        for s in range(first_out[u], first_out[u + 1]):
            w = successors[s]
            clash |= partner[w] >= 0 and not is_head[w] and height[partner[w]] == height[u]
        for s in range(first_in[v], first_in[v + 1]):
            w = predecessors[s]
            clash |= is_head[w] and height[w] == height[u]
        if clash or not join(parent, seconds, resident, capacity, ideal, slower, longest, component[u], component[v]):
            continue
        partner[u], partner[v] = v, u
        is_head[u] = True
        chosen += 1
    return partner


@kernel
def match_levels(
    height: Int,
    order: Int,
    limit: int,
    component: Int,
    parent: Int,
    seconds: Float,
    resident: Int,
    capacity: Int,
    ideal: Float,
    slower: float,
    longest: float,
) -> Int:
    """Pair vertices that follow each other in `order` and have one height. int64 [n]: partner or -1.

    Every edge climbs, so vertices of one height may be merged in any number without a cycle.
    """
    partner = np.full(height.size, -1, dtype=np.int64)
    chosen = 0
    for k in range(order.size - 1):
        u, v = order[k], order[k + 1]
        if chosen == limit:
            break
        if partner[u] >= 0 or height[u] != height[v]:
            continue
        if join(parent, seconds, resident, capacity, ideal, slower, longest, component[u], component[v]):
            partner[u], partner[v] = v, u
            chosen += 1
    return partner


def _distinct(n: int, src: Int, dst: Int, weight: Int) -> tuple[Int, Int, Int]:
    """Parallel edges become one with the sum of their weights; loops vanish."""
    between = src != dst
    key, where = np.unique(src[between] * n + dst[between], return_inverse=True)
    total = np.bincount(where, weights=weight[between], minlength=key.size).astype(np.int64)
    return key // n, key % n, total


def _by_height_and_neighbour(height: Int, src: Int, dst: Int, weight: Int) -> Int:
    """An order that brings vertices of one height together, and among them those with the same heaviest neighbour. int64 [n]."""
    nearest = np.arange(height.size, dtype=np.int64)
    lightest_first = np.argsort(weight, kind="stable")
    nearest[src[lightest_first]] = dst[lightest_first]
    nearest[dst[lightest_first]] = src[lightest_first]
    return np.lexsort((nearest, height)).astype(np.int64)


def merge(src: Int, dst: Int, weight: Int, sharing: Sharing, target: int, force: bool = False) -> Index:
    """Cluster of each vertex after merging down to `target` clusters, or until nothing more may share a device. int32 [n].

    src, dst, weight: int64 [m]; edges with the largest weight (bytes) are merged first. Where Theorem 3.5 leaves a round without
    progress (stars, separate components), vertices of one height are paired; then LONGEST gives way, and with `force`, to reach
    any size as in Corollary 3.6, SLOWER too.
    """
    n = sharing.component.size
    cluster = np.arange(n, dtype=np.int64)
    component = sharing.component
    state = (sharing.parent, sharing.seconds, sharing.resident, sharing.capacity, sharing.ideal)
    longest = LONGEST * float(sharing.seconds.min(axis=1).sum()) / sharing.capacity.size
    stages = [(SLOWER, np.inf), (SLOWER, longest)]
    if force:
        stages.insert(0, (np.inf, np.inf))
    src, dst, weight = _distinct(n, src.astype(np.int64), dst.astype(np.int64), weight.astype(np.int64))
    stalled = False
    while n > target:
        if stalled:
            height = heights(n, src, dst)
            order = _by_height_and_neighbour(height, src, dst, weight)
            partner = match_levels(height, order, n - target, component, *state, *stages[-1])
        else:
            order = np.argsort(-weight, kind="stable").astype(np.int64)
            partner = match_batch(n, src, dst, order, n - target, component, *state, *stages[-1])
        matched = np.count_nonzero(partner >= 0) // 2
        if matched == 0 and stalled:
            stages.pop()
            if not stages:
                break
        stalled = not stalled and matched < STALLED * n
        own = np.arange(n, dtype=np.int64)
        first, label = np.unique(np.where(partner >= 0, np.minimum(own, partner), own), return_inverse=True)
        cluster, component, n = label[cluster], component[first], first.size
        src, dst, weight = _distinct(n, label[src], label[dst], weight)
    return cluster.astype(np.int32)
