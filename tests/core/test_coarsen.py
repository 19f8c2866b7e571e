"""Coarse problems: what is summed, what is kept, and that an expanded strategy is one of the fine problem."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepd.core.coarsen import coarsen, expand
from stepd.core.errors import PlannerError, ProblemError
from stepd.core.placement.coarse_groups import merge_ops
from stepd.core.placement.exact import best_start
from stepd.core.placement.registry import PlanOptions
from stepd.core.prepared import prepare
from stepd.core.simulator import simulate_placement
from stepd.core.validation import validate

LINKS = [(0, 1, 1.0, 0.0), (1, 0, 1.0, 0.0)]


def clusters(*numbers: int) -> Any:
    return np.array(numbers, dtype=np.int32)


def test_a_cluster_sums_seconds_and_resident_bytes_and_sends_once_what_goes_to_the_same_clusters(lab: Any) -> None:
    seconds = [[1.0, 2.0], [3.0, 4.0], [5.0, 5.0], [7.0, 7.0]]
    edges = [(0, 1, 0, 10), (0, 2, 1, 20), (1, 2, 0, 30), (1, 3, 0, 30), (0, 3, -1, 0)]
    coarse = coarsen(lab.make_problem(seconds, edges, LINKS, [999] * 2, resident=[1, 2, 4, 8]), clusters(0, 0, 1, 2)).problem
    assert coarse.seconds.tolist() == [[4.0, 6.0], [5.0, 5.0], [7.0, 7.0]]
    assert coarse.resident_bytes.tolist() == [3, 4, 8]
    sent = set(zip(coarse.edge_src.tolist(), coarse.edge_dst.tolist(), coarse.edge_bytes.tolist(), strict=True))
    # output 1 of op 0 goes to cluster 1 alone; that of op 1 to both; the control edge is covered by it
    assert sent == {(0, 1, 20), (0, 1, 30), (0, 2, 30)}
    assert coarse.op_names == ("op0", "op2", "op3")


def test_temp_bytes_are_the_peak_inside_a_cluster(lab: Any) -> None:
    """0 -> 1 -> 2 in one cluster: while 1 runs, output 0 (10) and its own temp (5) are there; while 2 runs, output 1 (20) and 7."""
    problem = lab.make_problem([[1.0] * 2] * 4, [(0, 1, 0, 10), (1, 2, 0, 20), (2, 3, 0, 1)], LINKS, [999] * 2, temp=[3, 5, 7, 0])
    assert coarsen(problem, clusters(0, 0, 0, 1)).problem.temp_bytes.tolist() == [27, 0]


def test_an_output_that_leaves_the_cluster_stays_until_its_end(lab: Any) -> None:
    problem = lab.make_problem([[1.0] * 2] * 4, [(0, 1, 0, 10), (0, 3, 0, 10), (1, 2, 0, 20)], LINKS, [999] * 2, temp=[0, 0, 0, 0])
    assert coarsen(problem, clusters(0, 0, 0, 1)).problem.temp_bytes.tolist() == [30, 0]


def test_clusters_of_one_colocation_group_are_colocated(lab: Any) -> None:
    problem = lab.make_problem([[1.0] * 2] * 5, [(0, 1, 0, 1)], LINKS, [999] * 2, colocation=[0, -1, 0, 1, 1])
    assert coarsen(problem, clusters(0, 0, 1, 1, 2)).problem.colocation.tolist() == [0, 0, 0]
    assert coarsen(problem, clusters(0, 1, 2, 3, 4)).problem.colocation.tolist() == [0, -1, 0, 1, 1]


def test_bad_clusters_are_refused_by_name(lab: Any) -> None:
    inf = float("inf")
    chain = [(0, 1, 0, 1), (1, 2, 0, 1)]
    with pytest.raises(ProblemError, match="cycle"):
        coarsen(lab.make_problem([[1.0] * 2] * 3, chain, LINKS, [999] * 2), clusters(0, 1, 0))
    with pytest.raises(PlannerError, match="op0"):
        coarsen(lab.make_problem([[1.0, inf], [inf, 1.0], [1.0, 1.0]], chain, LINKS, [999] * 2), clusters(0, 0, 1))


@given(data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_merged_problems_are_valid_and_expanded_strategies_are_too(lab: Any, data: st.DataObject) -> None:
    problem = data.draw(lab.problems(memory=(10**6,)))
    target = data.draw(st.integers(1, 8))
    coarse = coarsen(problem, merge_ops(problem, target))
    validate(coarse.problem)
    assert coarse.problem.seconds[:, 0].sum() == pytest.approx(problem.seconds[:, 0].sum())
    assert coarse.problem.resident_bytes.sum() == problem.resident_bytes.sum()
    small_placement, small_priority = best_start(coarse.problem, PlanOptions())
    placement, priority = expand(coarse, small_placement, small_priority)
    simulation = simulate_placement(problem, placement, priority)  # raises StrategyError when it is not one
    assert np.isfinite(simulation.step_seconds)
    order = np.argsort(priority)
    assert (np.diff(small_priority[coarse.cluster[order]]) >= 0).all(), "clusters keep their order"


@given(data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_goes_to_the_same_clusters_is_one_output(lab: Any, data: st.DataObject) -> None:
    """Against an account by dictionaries, for any clusters that close no cycle."""
    problem = data.draw(lab.problems(max_ops=14, memory=(10**6,)))
    tables = prepare(problem).tables
    cluster = np.empty(problem.n_ops, dtype=np.int32)
    widths = data.draw(st.lists(st.integers(0, 1), min_size=problem.n_ops, max_size=problem.n_ops))
    cluster[tables.topological] = np.cumsum([0, *widths[1:]])
    sums: dict[tuple[int, frozenset[int]], int] = {}
    for out, op in enumerate(tables.output_op.tolist()):
        readers = tables.reader[tables.reader_pointer[out] : tables.reader_pointer[out + 1]]
        to = frozenset(cluster[readers].tolist()) - {int(cluster[op])}
        if to:
            sums[int(cluster[op]), to] = sums.get((int(cluster[op]), to), 0) + int(tables.output_bytes[out])
    coarse = coarsen(problem, cluster).problem
    sent: dict[tuple[int, int], tuple[set[int], int]] = {}
    control = set()
    for src, dst, output, size in zip(
        coarse.edge_src.tolist(), coarse.edge_dst.tolist(), coarse.edge_output.tolist(), coarse.edge_bytes.tolist(), strict=True
    ):
        if output < 0:
            control.add((src, dst))
        else:
            sent.setdefault((src, output), (set(), size))[0].add(dst)
    assert sorted((src, sorted(to), size) for (src, _), (to, size) in sent.items()) == sorted(
        (src, sorted(to), size) for (src, to), size in sums.items() if size
    )
    served = {(src, dst) for (src, to), size in sums.items() if size for dst in to}
    assert control == {(src, dst) for (src, to), size in sums.items() if not size for dst in to} - served
