"""The units that the local search moves: labellings, and clusters of all sizes grown along the heaviest edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stepd.core.compiled import kernel
from stepd.core.portfolio.candidates import group_labels
from stepd.core.portfolio.labels import Labelling
from stepd.core.portfolio.moves import Units
from stepd.core.prepared import Prepared
from stepd.core.problem import Float, Index

CROSSED = 4
"""Labellings whose parts are cut into stretches, too: a layer's first time steps, its backward pass."""
STRETCHES = (8, 32)
MANY_PARTS = 256
FOLDED = (128, 48, 16)
"""Clusters of ops that are alike, with their likes."""


def make_units(prepared: Prepared, labellings: list[Labelling], more: Sequence[Labelling] = ()) -> Units:
    """Levels: single groups, heavy-edge clusters of several sizes, stretches of the topological order, each labelling, and
    stretches of the parts of the labellings with the most parts."""
    edges = heavy_edges(prepared)
    levels = [np.arange(prepared.n_groups, dtype=np.int32)]
    size = prepared.n_groups
    for target in (1024, 384, 128, 48, 16):
        if target < size * 0.8:
            levels.append(heavy_clusters(prepared, edges, target))
    position = np.empty(len(prepared.tables.topological), dtype=np.int32)
    position[prepared.tables.topological] = np.arange(len(position), dtype=np.int32)
    for stretches in (32, 128):
        if stretches < size // 2:
            levels.append(_stretch(prepared, position, stretches))
    parts = [group_labels(prepared, labelling.label) for labelling in labellings]
    levels += parts
    few = sorted((label for label in parts if label.max() < MANY_PARTS), key=lambda label: -int(label.max()))
    for stretches in STRETCHES:
        cut = _stretch(prepared, position, stretches)
        levels += [label * np.int32(stretches) + cut for label in few[:CROSSED] if stretches < size // 4]
    levels += [group_labels(prepared, labelling.label) for labelling in more]
    for labelling in more:
        if labelling.folded:
            levels += _folded(prepared, edges, labelling)
    return pack_units(prepared.n_groups, levels, position)


def _folded(prepared: Prepared, edges: HeavyEdges, labelling: Labelling) -> list[Index]:
    """Clusters of several sizes of the parts of a labelling."""
    parts = np.unique(group_labels(prepared, labelling.label), return_inverse=True)[1].reshape(-1).astype(np.int32)
    return [heavy_clusters(prepared, edges, target, parts) for target in FOLDED if target < 0.8 * parts.max()]


def _stretch(prepared: Prepared, position: Index, count: int) -> Index:
    """Each group's stretch of the topological order, `count` of the same number of ops. int32 [g]."""
    return group_labels(prepared, (position.astype(np.int64) * count // len(position)).astype(np.int32))


def pack_units(n_groups: int, levels: list[Index], position: Index) -> Units:
    """Units from one label per group and level."""
    level_pointer, unit_sizes, members, unit_of = [0], [], [], []
    base = 0
    for label in levels:
        dense = np.unique(label, return_inverse=True)[1].reshape(-1)
        members.append(np.argsort(dense, kind="stable"))
        unit_sizes.append(np.bincount(dense))
        unit_of.append(dense + base)
        base += int(dense.max()) + 1
        level_pointer.append(base)
    return Units(
        level_pointer=np.array(level_pointer, dtype=np.int32),
        unit_pointer=np.concatenate(([0], np.cumsum(np.concatenate(unit_sizes)))).astype(np.int32),
        unit_group=np.concatenate(members).astype(np.int32),
        group_unit=np.stack(unit_of, axis=1).reshape(-1).astype(np.int32),
        position=position,
    )


class HeavyEdges(NamedTuple):
    """Groups at both ends of the edges between groups, those first that cost most to cut."""

    src: Index
    dst: Index


def heavy_edges(prepared: Prepared) -> HeavyEdges:
    """For `heavy_clusters`: once for all sizes, since sorting takes most of their time."""
    tables = prepared.tables
    output = np.repeat(np.arange(len(tables.output_op)), np.diff(tables.reader_pointer))
    src, dst = tables.group[tables.output_op[output]], tables.group[tables.reader]
    apart = src != dst
    finite = np.isfinite(tables.latency) & (tables.latency > 0)
    latency = float(tables.latency[finite].mean()) if finite.any() else 0.0
    wide = np.isfinite(tables.bandwidth)
    weight = (
        latency + tables.output_bytes[output[apart]] / max(float(tables.bandwidth[wide].mean()), 1e-30)
        if wide.any()
        else np.ones(int(apart.sum()))
    )
    order = np.argsort(-weight, kind="stable")
    return HeavyEdges(src[apart][order].astype(np.int32), dst[apart][order].astype(np.int32))


def heavy_clusters(prepared: Prepared, edges: HeavyEdges, target: int, atoms: Index | None = None) -> Index:
    """About `target` clusters of groups: the edges that cost most to cut are contracted first, clusters stay of bounded size.

    atoms: int32 [g], numbered from 0: groups that stay together from the start. int32 [g], cluster of each group.
    """
    src, dst, cost = edges.src, edges.dst, prepared.group_seconds.min(axis=1)
    if atoms is not None:
        src, dst, cost = atoms[src], atoms[dst], np.bincount(atoms, weights=cost).astype(np.float64)
    most = 2.0 * float(cost.sum()) / target + 1e-30
    largest = max(2, 4 * len(cost) // target)
    cluster: Index = _contract(src, dst, np.ascontiguousarray(cost), most, largest, target)
    return cluster if atoms is None else cluster[atoms]


@kernel
def _contract(src: Index, dst: Index, cost: Float, most: float, largest: int, target: int) -> Index:
    """Union-find over edges in the order given, up to `most` seconds and `largest` members per cluster."""
    n = len(cost)
    parent = np.empty(n, dtype=np.int32)
    size = np.ones(n, dtype=np.int32)
    total = cost.copy()
    for k in range(n):
        parent[k] = k
    left = n
    for k in range(len(src)):
        if left <= target:
            break
        a, b = src[k], dst[k]
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = parent[a]
        while parent[b] != b:
            parent[b] = parent[parent[b]]
            b = parent[b]
        if a != b and size[a] + size[b] <= largest and (total[a] + total[b] <= most or total[a] == 0 or total[b] == 0):
            parent[b] = a
            size[a] += size[b]
            total[a] += total[b]
            left -= 1
    for k in range(n):
        root = k
        while parent[root] != root:
            root = parent[root]
        parent[k] = root
    return parent
