"""Linear clustering, DSC and guided load balancing on graphs whose answers are known."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepd.core.placement.clustering_kernels import dominant_sequence, start_times
from stepd.core.placement.clusters import balance_guided, clusters_of_groups
from stepd.core.placement.longest_paths import linear_clusters
from stepd.core.placement.ranks import op_seconds, transfer_seconds, upward_ranks
from stepd.core.prepared import prepare

LINKS = [(0, 1, 1.0, 0.0), (1, 0, 1.0, 0.0)]


def costs(problem: Any) -> tuple[Any, Any, Any]:
    prepared = prepare(problem)
    return prepared.tables, op_seconds(prepared, "mean"), transfer_seconds(prepared, "mean")


def dsc(problem: Any) -> Any:
    tables, seconds, transfer = costs(problem)
    return dominant_sequence(tables, seconds, transfer, upward_ranks(tables, seconds, transfer))


def two_paths(lab: Any) -> Any:
    """0 -> {1 -> 2, 3} -> 4; the path over 1 and 2 is the longest."""
    edges = [(0, 1, 0, 4), (1, 2, 0, 4), (2, 4, 0, 4), (0, 3, 1, 1), (3, 4, 0, 1)]
    return lab.make_problem([[2.0] * 2] * 5, edges, LINKS, [999] * 2)


def test_linear_clustering_takes_the_longest_path_first(lab: Any) -> None:
    tables, seconds, transfer = costs(two_paths(lab))
    assert linear_clusters(tables, seconds, transfer, 100).tolist() == [0, 0, 0, 1, 0]


def test_linear_clustering_stops_looking_for_paths_at_the_limit(lab: Any) -> None:
    chains = lab.make_problem([[1.0] * 2] * 6, [(0, 1, 0, 1), (2, 3, 0, 1), (4, 5, 0, 1)], LINKS, [999] * 2)
    tables, seconds, transfer = costs(chains)
    assert len(set(linear_clusters(tables, seconds, transfer, 100).tolist())) == 3
    assert len(set(linear_clusters(tables, seconds, transfer, 1).tolist())) == 5


@given(data=st.data())
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_linear_cluster_is_the_longest_path_of_what_is_left(lab: Any, data: st.DataObject) -> None:
    problem = data.draw(lab.problems(max_ops=14))
    tables, seconds, transfer = costs(problem)
    assert linear_clusters(tables, seconds, transfer, 4).tolist() == plain_linear_clusters(tables, seconds, transfer, 4)


def plain_linear_clusters(tables: Any, seconds: Any, transfer: Any, most: int) -> list[int]:
    """A pass over all that is left for every path."""
    cluster, count = [-1] * len(seconds), 0
    left = [int(op) for op in tables.topological]
    while left and count < most:
        way: dict[int, tuple[float, int]] = {}
        for op in reversed(left):
            outputs = range(tables.output_pointer[op], tables.output_pointer[op + 1])
            readers = [(o, int(r)) for o in outputs for r in tables.reader[tables.reader_pointer[o] : tables.reader_pointer[o + 1]]]
            further = [(transfer[o] + way[reader][0], reader) for o, reader in readers if reader in way]
            longest = max(further, key=lambda item: item[0], default=(0.0, -1))
            way[op] = (longest[0] + seconds[op], longest[1])
        op = max(left, key=lambda op: way[op][0])
        while op >= 0:
            cluster[op] = count
            op = way[op][1]
        count += 1
        left = [op for op in left if cluster[op] < 0]
    for op in left:
        cluster[op] = count
        count += 1
    return cluster


def test_dsc_zeroes_the_dominant_sequence_and_leaves_a_cheap_branch_apart(lab: Any) -> None:
    clustering = dsc(two_paths(lab))
    cluster = clustering.cluster.tolist()
    assert cluster[0] == cluster[1] == cluster[2] == cluster[4] != cluster[3]
    assert clustering.start.tolist() == [0.0, 2.0, 4.0, 3.0, 6.0]


def test_dsc_joins_a_fork_where_transfers_cost_more_than_waiting(lab: Any) -> None:
    """Yang and Gerasoulis: a fork is merged as long as waiting in line is no longer than the transfer."""
    fork = lab.make_problem([[1.0] * 2] * 4, [(0, 1, 0, 5), (0, 2, 1, 4), (0, 3, 2, 1)], LINKS, [999] * 2)
    cluster = dsc(fork).cluster.tolist()
    assert cluster[0] == cluster[1] == cluster[2] != cluster[3]


@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_dsc_never_makes_the_schedule_longer(lab: Any, data: st.DataObject) -> None:
    """Every merge is accepted only where the op starts no later, so the clustering is no longer than one cluster per op."""
    tables, seconds, transfer = costs(data.draw(lab.problems(max_ops=12)))
    alone = start_times(tables, seconds, transfer, np.arange(len(seconds), dtype=np.int32))
    clustering = dominant_sequence(tables, seconds, transfer, upward_ranks(tables, seconds, transfer))
    assert (clustering.cluster >= 0).all()
    assert (clustering.start + seconds).max() <= (alone + seconds).max() + 1e-9


def test_guided_load_balancing_evens_out_work_and_keeps_to_memory_and_kernels(lab: Any) -> None:
    inf = float("inf")
    seconds = [[4.0, 4.0], [3.0, 3.0], [2.0, 2.0], [1.0, inf]]
    problem = lab.make_problem(seconds, [], LINKS, [100, 100], resident=[60, 60, 30, 0])
    prepared = prepare(problem)
    every_op = np.arange(4, dtype=np.int32)
    start = np.array([0.0, 1.0, 2.0, 3.0])
    assert balance_guided(prepared, every_op, start).tolist() == [0, 1, 1, 0]
    together = np.array([0, 0, 1, 1], dtype=np.int32)
    placement = balance_guided(prepared, clusters_of_groups(prepared, together), start, memory_factor=2.0)
    assert placement.tolist() == [0, 0, 0, 0] or placement[2] != placement[0]
    assert placement[3] == 0
