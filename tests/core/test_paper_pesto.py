"""What Pesto's paper claims, claim by claim (Middleware 2021)."""

from __future__ import annotations

import graphlib
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepd.core.errors import PlannerError
from stepd.core.placement import registry
from stepd.core.placement.pesto_merging import Sharing, heights, match_batch, merge
from stepd.core.placement.registry import PlanOptions
from stepd.core.simulator import simulate_placement

Pairs = list[tuple[int, int]]


def sharing(n: int, n_devices: int = 2, resident: Any = None, capacity: int = 10**9) -> Sharing:
    own = np.arange(n, dtype=np.int64)
    return Sharing(
        component=own,
        parent=own.copy(),
        seconds=np.ones((n, n_devices)),
        resident=np.zeros(n, dtype=np.int64) if resident is None else np.array(resident, dtype=np.int64),
        capacity=np.full(n_devices, capacity, dtype=np.int64),
        ideal=np.ones(n),
    )


def columns(pairs: Pairs) -> tuple[Any, Any]:
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return table[:, 0].copy(), table[:, 1].copy()


def batch(n: int, pairs: Pairs, order: list[int]) -> Any:
    src, dst = columns(pairs)
    limits = sharing(n)
    state = (limits.component, limits.parent, limits.seconds, limits.resident, limits.capacity, limits.ideal, np.inf, np.inf)
    return match_batch(n, src, dst, np.array(order, dtype=np.int64), n, *state)


def assert_acyclic(n: int, pairs: Pairs, cluster: Any) -> None:
    before: dict[int, set[int]] = {int(c): set() for c in cluster}
    for u, v in pairs:
        if cluster[u] != cluster[v]:
            before[int(cluster[v])].add(int(cluster[u]))
    tuple(graphlib.TopologicalSorter(before).static_order())  # raises CycleError


@st.composite
def dags(draw: st.DrawFn, most: int = 14) -> tuple[int, Pairs]:
    n = draw(st.integers(2, most))
    everything = [(u, v) for u in range(n) for v in range(u + 1, n)]
    names = draw(st.permutations(range(n)))
    pairs = draw(st.lists(st.sampled_from(everything), unique=True, min_size=1, max_size=3 * n))
    return n, [(names[u], names[v]) for u, v in pairs]


def test_height_is_the_longest_distance_in_vertices_from_a_root() -> None:
    src, dst = columns([(0, 1), (1, 2), (0, 2), (3, 2)])
    assert heights(5, src, dst).tolist() == [1, 2, 3, 1, 1]


def test_figure_6_only_one_of_two_crossing_pairs_is_merged() -> None:
    a, b, c, d = range(4)
    pairs = [(a, c), (b, d), (a, d), (b, c)]
    partner = batch(4, pairs, [0, 1, 2, 3])
    assert partner.tolist() == [c, -1, a, -1]


def test_theorem_3_5_refuses_an_edge_that_is_not_the_only_path() -> None:
    # 0 -> 1 -> 2 and 0 -> 2 (and another successor of 0, predecessor of 2, so that no degree is one)
    pairs = [(0, 2), (0, 1), (1, 2), (0, 3), (4, 2)]
    assert batch(5, pairs, [0]).tolist() == [-1] * 5
    assert batch(5, pairs, [1])[0] == 1


def test_theorem_3_5_allows_a_long_edge_below_which_no_other_successor_lies() -> None:
    # (0, 4) has d = 3; the other successor of 0 is higher still, so no path 0 ~> 4 besides the edge exists.
    pairs = [(1, 2), (2, 3), (3, 4), (4, 5), (0, 4), (0, 5)]
    assert batch(6, pairs, [4])[0] == 4


@given(dags(), st.randoms(use_true_random=False))
@settings(max_examples=300, deadline=None)
def test_theorem_3_5_a_batch_never_makes_a_cycle(dag: tuple[int, Pairs], random: Any) -> None:
    n, pairs = dag
    order = list(range(len(pairs)))
    random.shuffle(order)
    partner = batch(n, pairs, order)
    own = np.arange(n)
    assert_acyclic(n, pairs, np.where(partner >= 0, np.minimum(own, partner), own))


@given(dags(), st.integers(1, 6), st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_corollary_3_6_any_size_is_reached_without_a_cycle(dag: tuple[int, Pairs], target: int, random: Any) -> None:
    n, pairs = dag
    src, dst = columns(pairs)
    weight = np.array([random.randrange(1000) for _ in pairs], dtype=np.int64)
    cluster = merge(src, dst, weight, sharing(n), target, force=True)
    assert_acyclic(n, pairs, cluster)
    count = int(cluster.max()) + 1
    assert sorted(set(cluster.tolist())) == list(range(count))
    assert count == min(n, target)


def test_the_heaviest_edge_is_merged_first() -> None:
    src, dst = columns([(0, 1), (1, 2), (2, 3)])
    cluster = merge(src, dst, np.array([1, 100, 1]), sharing(4), 3)
    assert cluster[1] == cluster[2]
    assert len(set(cluster.tolist())) == 3


def test_merging_respects_memory_and_kernels() -> None:
    src, dst = columns([(0, 1), (1, 2)])
    weight = np.array([10, 5])
    limits = sharing(3, resident=[60, 60, 10], capacity=100)
    cluster = merge(src, dst, weight, limits, 1)
    assert cluster[0] != cluster[1]
    limits = sharing(3)
    limits.seconds[:] = [[1.0, np.inf], [np.inf, 1.0], [np.inf, 1.0]]
    cluster = merge(src, dst, weight, limits, 1)
    assert cluster[0] != cluster[1] == cluster[2]


def test_what_runs_well_on_different_devices_stays_apart_while_it_can() -> None:
    src, dst = columns([(0, 1), (1, 2), (2, 3)])
    limits = sharing(4)
    limits.seconds[:] = [[1.0, 10.0], [1.0, 10.0], [np.inf, 1.0], [np.inf, 1.0]]
    cluster = merge(src, dst, np.array([1, 100, 1]), limits, 2)
    assert cluster.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("leaves", [500])
def test_a_star_is_merged_in_a_few_rounds(leaves: int) -> None:
    src = np.zeros(leaves, dtype=np.int64)
    dst = np.arange(1, leaves + 1, dtype=np.int64)
    cluster = merge(src, dst, np.ones(leaves, dtype=np.int64), sharing(leaves + 1), 10)
    assert int(cluster.max()) + 1 == 10


LINKS = [(0, 1, 1.0, 0.0), (1, 0, 1.0, 0.0)]


def figure_2(lab: Any) -> Any:
    """In the manner of Figure 2 (its numbers are in the drawing only): a chain of five short ops beside one of two long ones."""
    seconds = [[1.0] * 2] * 5 + [[6.0] * 2, [5.0] * 2, [1.0] * 2]
    edges = [(0, 1, 0, 1), (1, 2, 0, 1), (2, 3, 0, 1), (3, 4, 0, 1), (5, 6, 0, 1), (4, 7, 0, 1), (6, 7, 0, 1)]
    return lab.make_problem(seconds, edges, LINKS, [10**6] * 2)


def test_figure_2_the_long_ops_are_scheduled_first_and_placement_and_order_are_joint(lab: Any) -> None:
    pytest.importorskip("ortools")
    problem = figure_2(lab)
    optimal = registry.plan("pesto", problem, PlanOptions())
    assert optimal.planner["status"] == "optimal"
    assert optimal.planner["optimality_gap"] == 0.0
    assert optimal.predicted_step_seconds == 12.0
    assert optimal.placement[5] == optimal.placement[6] == optimal.placement[7]
    one_device = np.zeros(8, dtype=np.int32)
    in_hops = np.array([0, 1, 2, 3, 4, 5, 6, 7], dtype=np.int32)  # the longest path in ops first, whatever they take
    naive = simulate_placement(problem, one_device, in_hops).step_seconds
    assert optimal.predicted_step_seconds < (1 - 0.22) * naive


def test_theorem_3_1_figure_5_congestion_is_part_of_the_optimum(lab: Any) -> None:
    """A source feeds four ops of 3 s. With transfers of 2 s two of them go away: the second transfer hides behind the first op.
    With 5 s each the second would end after 11 s: only one goes."""
    pytest.importorskip("ortools")
    seconds = [[1.0] * 2] + [[3.0] * 2] * 4
    problem = lab.make_problem(seconds, [(0, k, k, 2) for k in range(1, 5)], LINKS, [10**6] * 2)
    strategy = registry.plan("pesto", problem, PlanOptions())
    assert strategy.planner["status"] == "optimal"
    assert strategy.predicted_step_seconds == 9.0
    crowded = lab.make_problem(seconds, [(0, k, k, 5) for k in range(1, 5)], LINKS, [10**6] * 2)
    strategy = registry.plan("pesto", crowded, PlanOptions())
    assert strategy.predicted_step_seconds == 10.0  # one apart: 1 + 5 + 3 beside 1 + 9; two apart would be 1 + 10 + 3
    assert np.bincount(strategy.placement).min() == 1


def test_four_devices_and_memory_that_forces_all_of_them(lab: Any) -> None:
    pytest.importorskip("ortools")
    pairs = [(i, j, 100.0, 0.0) for i in range(4) for j in range(4) if i != j]
    problem = lab.make_problem([[1.0] * 4] * 8, [], pairs, [20] * 4, resident=[10] * 8)
    strategy = registry.plan("pesto", problem, PlanOptions())
    assert strategy.planner["feasible"]
    assert np.bincount(strategy.placement).tolist() == [2, 2, 2, 2]
    assert strategy.predicted_step_seconds == 2.0


def test_the_coarse_answer_is_expanded_and_its_gap_reported(lab: Any) -> None:
    pytest.importorskip("ortools")
    strategy = registry.plan("pesto", figure_2(lab), PlanOptions(parameters={"clusters": 4}))
    assert strategy.planner["clusters"] == 4
    assert 0.0 <= strategy.planner["optimality_gap"] <= 1.0
    assert strategy.planner["model_lower_bound_seconds"] <= strategy.planner["model_step_seconds"] + 1e-9
    assert strategy.predicted_step_seconds <= 17.0, "no worse than one device"


@pytest.mark.parametrize(("name", "extra", "module"), [("pesto", "exact", "ortools"), ("metis", "metis", "pymetis")])
def test_a_missing_extra_is_named(name: str, extra: str, module: str, lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for loaded in [key for key in sys.modules if key.startswith("stepd.core.placement.") and key != registry.__name__]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)
    for loaded in [key for key in sys.modules if key.startswith(f"{module}.")]:
        monkeypatch.setitem(sys.modules, loaded, None)
    with pytest.raises(PlannerError, match=rf"stepd\[{extra}\]"):
        registry.plan(name, figure_2(lab), PlanOptions())
