"""The searches on the simulator (MCMC, cross-entropy), METIS, and how budgets end them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stepd.core.placement import cross_entropy, mcmc
from stepd.core.placement.anytime import Allowance
from stepd.core.placement.clusters import group_graph
from stepd.core.placement.registry import PlanOptions
from stepd.core.placement.rng import below, new_rng, uniform
from stepd.core.prepared import prepare

SEARCHES = pytest.mark.parametrize("search", [mcmc, cross_entropy])


@SEARCHES
def test_a_search_finds_the_split_of_two_branches(search: Any, branches: Any) -> None:
    """12 s alone; the best is one branch a device, 6 s and a little."""
    strategy = search.place(branches, PlanOptions(max_work=4000))
    assert strategy.predicted_step_seconds < 6.4


@SEARCHES
def test_a_search_spreads_what_fits_nowhere_alone(search: Any, branches: Any) -> None:
    devices = tuple(replace(device, memory_bytes=130) for device in branches.devices)
    assert search.place(replace(branches, devices=devices), PlanOptions(max_work=2000)).planner["feasible"]


@SEARCHES
def test_a_search_reports_ever_better_answers_and_ends_with_its_budget(search: Any, branches: Any) -> None:
    now = iter(range(10**6))
    seen: list[float] = []
    options = PlanOptions(
        budget_seconds=20, clock=lambda: float(next(now)), report=lambda strategy: seen.append(strategy.predicted_step_seconds)
    )
    strategy = search.place(branches, options)
    assert next(now) < 50, "it looked at the clock a few more times only"
    assert seen and seen[-1] == strategy.predicted_step_seconds


def test_an_allowance_counts_work_when_the_clock_stands_still() -> None:
    allowance = Allowance(PlanOptions(max_work=250), default_work=10)
    assert [allowance.take(100) for _ in range(4)] == [100, 100, 50, 0]
    assert Allowance(PlanOptions(), default_work=10).take(100) == 10


def test_random_numbers_are_the_published_splitmix64() -> None:
    """The first outputs for seed 1234567 (Vigna's reference implementation)."""
    rng = new_rng(1234567)
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [uniform(rng) for _ in expected] == [(value >> 11) / 2**53 for value in expected]
    draws = [below(rng, 3) for _ in range(3000)]
    assert min(np.bincount(draws)) > 900


def test_the_group_graph_counts_an_output_once_for_each_group(lab: Any) -> None:
    links = [(0, 1, 1.0, 0.0), (1, 0, 1.0, 0.0)]
    edges = [(0, 1, 0, 7), (0, 2, 0, 7), (0, 3, 0, 7), (3, 1, 0, 2)]
    problem = lab.make_problem([[1.0] * 2] * 4, edges, links, [999] * 2, colocation=[-1, 0, 0, -1])
    graph = group_graph(prepare(problem))
    rows = [
        dict(zip(graph.neighbour[a:b].tolist(), graph.sent[a:b].tolist(), strict=True))
        for a, b in zip(graph.first[:-1], graph.first[1:], strict=True)
    ]
    assert rows == [{1: 7, 2: 7}, {0: 7, 2: 2}, {0: 7, 1: 2}]


def test_metis_cuts_where_little_is_sent(lab: Any) -> None:
    pytest.importorskip("pymetis")
    from stepd.core.placement.metis import place

    cliques = [(i, j, 0, 100) for base in (0, 5) for i in range(base, base + 5) for j in range(i + 1, base + 5)]
    links = [(0, 1, 1.0, 0.0), (1, 0, 1.0, 0.0)]
    problem = lab.make_problem([[1.0] * 2] * 10, [*cliques, (4, 9, 1, 1)], links, [10**6] * 2)
    placement = place(problem, PlanOptions()).placement
    assert len(set(placement[:5].tolist())) == len(set(placement[5:].tolist())) == 1
    assert placement[0] != placement[9]
