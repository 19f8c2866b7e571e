"""Sums of terms over many devices: every shape adds each term once, trees follow the links, the planner takes the shortest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepd.core.errors import StrategyError
from stepd.core.placement import replicate
from stepd.core.placement.registry import PlanOptions
from stepd.core.placement.split_answer import part_placement, simulate_split
from stepd.core.placement.split_problem import SplitCosts, split_problem, splittable
from stepd.core.placement.split_tables import PART, SUM
from stepd.core.placement.sums import RING, SLICES, TREE, inwards, shapes, slices_of
from stepd.core.problem import SplitChoice
from stepd.core.strategy import Split, Strategy

X, W, FORWARD, GRADIENT, UPDATE = range(5)
FREE = SplitCosts(overhead_seconds=0.0, copy_bytes_per_second=1e15)


def network(lab, links, weight=1000.0, devices=4, work=4.0):
    """x, w -> forward -> gradient of w -> update beside w."""
    seconds = [[t] * devices for t in (0.001, 0.001, work, work, 0.001)]
    size = int(weight)
    edges = [(X, FORWARD, 0, 8), (W, FORWARD, 0, size), (X, GRADIENT, 0, 8), (FORWARD, GRADIENT, 0, 8), (GRADIENT, UPDATE, 0, size)]
    problem = lab.make_problem(
        seconds, edges, links, [10**12] * devices, resident=[0, size, 0, 0, 0], colocation=[-1, 0, -1, -1, 0]
    )
    offers = (SplitChoice(FORWARD, "batch", 8, (8, 0), (8,)), SplitChoice(GRADIENT, "batch", 8, (8, 8), (size,), True))
    return replace(problem, split_choices=offers)


def mesh(bandwidth, latency=0.0, devices=4, hosts=1):
    """Links between all devices; those between hosts are ten times as slow."""
    of = [k * hosts // devices for k in range(devices)]
    pairs = [(i, j) for i in range(devices) for j in range(devices) if i != j]
    return [(i, j, bandwidth / (1.0 if of[i] == of[j] else 10.0), latency) for i, j in pairs]


def sent(devices, home, into, size):
    """Bytes by (from, to), and per slice how often each term is in what arrives."""
    parts = len(devices)
    moved: dict[tuple[int, int], float] = {}
    arrivals = []
    for tree in slices_of(into, parts) or [tuple(range(parts))]:
        held = [{k: 1} for k in range(parts)]
        arrived: dict[int, int] = {}
        for k in inwards(tree):
            target = arrived if tree[k] == k else held[tree[k]]
            for term, times in held[k].items():
                target[term] = target.get(term, 0) + times
            way = devices[k], home if tree[k] == k else devices[tree[k]]
            moved[way] = moved.get(way, 0.0) + size / max(1, len(into) // parts)
        arrivals.append(arrived)
    return moved, arrivals


@given(
    devices=st.lists(st.integers(0, 4), min_size=2, max_size=7),
    home=st.integers(0, 4),
    costs=st.lists(st.floats(0.1, 9.0), min_size=25, max_size=25),
)
@settings(deadline=None)
def test_every_shape_adds_each_term_once(devices, home, costs):
    send = np.array(costs).reshape(5, 5)
    np.fill_diagonal(send, 0.0)
    found = dict(shapes(devices, home, send))
    assert found.keys() == ({TREE, SLICES, RING} if len(set(devices)) > 2 else set())
    assert dict(shapes(devices, home, send)) == found
    for into in found.values():
        assert len(into) in (len(devices), len(devices) * len(set(devices)))
        _, arrivals = sent(devices, home, into, 1.0)
        assert all(arrived == dict.fromkeys(range(len(devices)), 1) for arrived in arrivals)


def test_a_tree_crosses_a_slow_link_once():
    near, far = 1.0, 10.0
    send = np.array([[0.0 if i == j else near if i // 2 == j // 2 else far for j in range(6)] for i in range(6)])
    moved, _ = sent(tuple(range(6)), 2, dict(shapes(tuple(range(6)), 2, send))[TREE], 1.0)
    assert sum(moved.get((i, j), 0.0) for i in range(6) for j in range(6) if i // 2 != j // 2) == 2.0
    assert moved[2, 2] == 1.0, "it ends where the sum is wanted"


def test_slices_load_all_links_alike():
    send = np.ones((4, 4)) - np.eye(4)
    into = dict(shapes((0, 1, 2, 3), 0, send))
    assert set(sent((0, 1, 2, 3), 9, into[RING], 4.0)[0].values()) == {1.0, 3.0}, "three slices from each to the next, one home"
    assert set(sent((0, 1, 2, 3), 9, into[SLICES], 4.0)[0].values()) == {1.0}


@pytest.mark.parametrize("into", [(0, 1), (0, 1, 2, 4), (1, 0, 2, 3), (0, 1, 2, 3, 1, 2, 0, 3)])
def test_what_is_no_tree_is_refused(lab, into):
    split = Split(GRADIENT, "batch", 4, (0, 1, 2, 3), into=into)
    with pytest.raises(StrategyError, match=r"numbers below 4|in a circle"):
        split_problem(splittable(network(lab, mesh(1e3))), [split], FREE)


def test_sums_on_the_way_are_made_beside_parts_and_take_their_time(lab):
    """Of two hosts: 1000 bytes take 1 s within a host and 10 s between them, one at a time on each link."""
    problem = network(lab, mesh(1e3, hosts=2))
    base = splittable(problem)
    own = (0, 1, 2, 3)

    def step(into):
        splits = (Split(FORWARD, "batch", 4, own), Split(GRADIENT, "batch", 4, own, (), into))
        strategy = Strategy("p", np.zeros(5, dtype=np.int32), np.arange(5, dtype=np.int32), 0.0, splits)
        split = split_problem(base, splits, FREE)
        placement = part_placement(base, split, strategy.placement, splits)
        sums = np.flatnonzero(split.kind == SUM)
        return simulate_split(problem, strategy, FREE).makespan, placement[sums].tolist(), split

    at_once, none, _ = step(())
    tree, places, split = step((0, 0, 2, 2))
    assert none == [] and sorted(places) == [0, 2] and (split.kind == PART).sum() == 8
    assert tree == pytest.approx(at_once + 1.0, rel=0.01), "2's term waits for 3's, and goes over a link of its own anyway"
    _, places, _ = step((0, 0, 0, 0, 1, 1, 1, 1))
    assert sorted(places) == [0, 1]


def chosen(problem):
    found = replicate.place(problem, PlanOptions())
    assert found.predicted_step_seconds == pytest.approx(
        replicate.simulate(base := splittable(problem), split_problem(base, found.splits, replicate.split_costs(problem)), found)[0]
    )
    return found, next(split.into for split in found.splits if split.op == GRADIENT)


def test_few_bytes_are_added_up_at_once(lab):
    assert chosen(network(lab, mesh(1e6)))[1] == ()


def test_two_devices_add_up_at_once(lab):
    assert chosen(network(lab, mesh(1e3, devices=2), devices=2))[1] == ()


def test_a_tree_is_chosen_where_terms_share_a_slow_link(lab):
    """Devices 2 to 5 reach the others by one link from 2 to 0."""
    fast = [(i, j, 1e6, 0.0) for group in ((0, 1), (2, 3, 4, 5)) for i in group for j in group if i != j]
    problem = network(lab, [*fast, (0, 2, 1e3, 0.5), (2, 0, 1e3, 0.5)], devices=6, work=40.0)
    found, into = chosen(problem)
    assert len(into) == 6
    plain = replace(found, splits=tuple(replace(s, into=()) for s in found.splits))
    base = splittable(problem)
    costs = replicate.split_costs(problem)
    before, _ = replicate.simulate(base, split_problem(base, plain.splits, costs), plain)
    assert before - found.predicted_step_seconds > 2.5, "one term of 1 s and more over the link in place of four"


def test_large_sums_are_made_in_slices_where_adding_takes_long(lab):
    links = mesh(1e12, devices=4)
    problem = network(lab, links, weight=2e11, work=40.0)
    assert replicate.split_costs(problem).copy_bytes_per_second == 1e11  # 2 s a term to be added
    found, into = chosen(problem)
    assert len(into) == 16 and found.planner["feasible"]
