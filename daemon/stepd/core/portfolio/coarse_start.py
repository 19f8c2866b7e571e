"""Where a search can begin: the graph as a few large clusters, and annealing over where each of them runs.

Heuristics that place op by op cut a graph in many places, and a search that moves some ops at a time does not find its way from
there to few cuts in the right places. Of a few dozen clusters, grown along the edges that cost most to cut, a thousand moves see
much of what there is; the step is simulated with all ops all the same. Making such starts better is the local search's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stepd.core.placement.rng import new_rng
from stepd.core.portfolio.annealing import Walk, anneal
from stepd.core.portfolio.candidates import by_load, group_labels
from stepd.core.portfolio.estimate import doubt_of
from stepd.core.portfolio.labels import Labelling
from stepd.core.portfolio.moves import DRAWN
from stepd.core.portfolio.pool import Entry, Pool
from stepd.core.portfolio.units import heavy_clusters, heavy_edges, pack_units
from stepd.core.problem import Index

TARGETS = (2, 3, 4, 6, 8, 12, 16, 24)
"""Clusters for each device, about."""
MOST_PARTS = 32
"""Parts for each device of a labelling that is taken for such clusters, too."""
MOVES = 1000
WORK = 1_500_000
"""Ops and edges simulated by one chain at most, whatever the budget."""
WORK_A_SECOND = 600_000
"""The same for each second of it: about a fiftieth of the budget."""
LEAST, MOST = 4, 32
"""Moves for each cluster and device beyond the first: with fewer a chain is not worth its time, more find nothing new."""
HEATS = (0.1, 0.02)
TRAFFIC = 0.1
"""What a mean second of link time counts beside a second of the step."""


@dataclass(frozen=True, eq=False)
class Start:
    """A chain to run. clusters: int32 [g], numbered from 0; number: of the chain, for its random numbers."""

    origin: str
    clusters: Index
    moves: int
    heat: float
    number: int


def starts(pool: Pool, labellings: list[Labelling], budget_seconds: float = 0.0) -> Iterator[Start]:
    """Chains over labellings with few parts and over clusters of several sizes."""
    prepared = pool.prepared
    devices = int(np.isfinite(prepared.group_seconds).any(axis=0).sum())
    found = [(item.kind, group_labels(prepared, item.label)) for item in labellings if item.count <= devices * MOST_PARTS]
    edges = heavy_edges(prepared)
    found += [(f"{devices * target} clusters", heavy_clusters(prepared, edges, devices * target)) for target in TARGETS]
    work = max(WORK, int(WORK_A_SECOND * budget_seconds))
    most = min(MOVES, work // (len(prepared.tables.reader) + len(prepared.tables.group)))
    number = 0
    for heat in HEATS:
        for kind, label in found:
            clusters = np.unique(label, return_inverse=True)[1].reshape(-1).astype(np.int32)
            choices = (int(clusters.max()) + 1) * (devices - 1)
            number += 1
            if clusters.max() > 0 and 0 < LEAST * choices <= most:
                yield Start(f"{kind}, annealed at {heat:g}", clusters, min(most, MOST * choices), heat, number)


def anneal_clusters(pool: Pool, start: Start, seed: int) -> Entry:
    """The best point of the chain, which begins with the clusters shared out by load."""
    prepared = pool.prepared
    position = np.empty(len(prepared.tables.topological), dtype=np.int32)
    position[prepared.tables.topological] = np.arange(len(position), dtype=np.int32)
    candidate = pool.from_groups(start.origin, by_load(prepared, start.clusters))
    entry = pool.in_first_order(candidate)
    only_clusters = np.concatenate(([1.0], np.ones(DRAWN)))  # cumulated shares of the moves: all are of the one level
    found = anneal(
        prepared.tables,
        pack_units(prepared.n_groups, [start.clusters], position),
        prepared.group_seconds,
        entry.point,
        entry.weight,
        pool.tail,
        pool.penalty,
        pool.track,
        Walk(start.moves, start.heat, 0.0, only_clusters, TRAFFIC, doubt_of(len(pool.tail))),
        new_rng(seed * 1_000_003 + start.number),
    )
    return Entry(found.best, entry.weight, entry.origin)
