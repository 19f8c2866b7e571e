"""Lower bounds hold for every strategy, and are reached where the optimum is known."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepd.core.bound_paths import earliest_starts, forwards
from stepd.core.bound_sharing import sharing
from stepd.core.bounds import best_bound, lower_bound
from stepd.core.prepared import prepare
from stepd.core.reach import connected_ops, runs
from stepd.core.simulator import simulate_placement

BIG = 10**9
PAIR = [(0, 1, 1.0, 1.0), (1, 0, 1.0, 1.0)]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_strategy_beats_the_bound(lab, data):
    problem = data.draw(lab.problems(memory=(12, 40, 10**6), one_way=data.draw(st.booleans())))
    placement, priority = data.draw(lab.answers(problem))
    step = simulate_placement(problem, connected_ops(prepare(problem), placement), priority)
    assert not step.feasible or lower_bound(problem) <= step.step_seconds * (1 + 1e-9)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_no_placement_of_a_small_problem_beats_the_bound(lab, data):
    """All placements, each in some orders."""
    problem = data.draw(lab.problems(max_ops=5, max_devices=3, memory=(9, 14, 10**6), one_way=data.draw(st.booleans())))
    bound = lower_bound(problem) / (1 + 1e-9)
    orders = [
        np.array(order, dtype=np.int32) for order in itertools.islice(itertools.permutations(range(problem.n_ops)), 0, 120, 31)
    ]
    for devices in itertools.product(*(np.flatnonzero(np.isfinite(row)).tolist() for row in problem.seconds)):
        placement = np.array(devices, dtype=np.int32)
        apart = any(len(set(placement[problem.colocation == group].tolist())) > 1 for group in (0, 1))
        if apart or not runs(prepare(problem).tables, placement):
            continue
        for order in orders:
            step = simulate_placement(problem, placement, order)
            assert not step.feasible or bound <= step.step_seconds


def test_independent_ops_are_bounded_by_the_shared_work(lab):
    problem = lab.make_problem([[2, 2]] * 6, [], PAIR, [BIG] * 2)
    assert lower_bound(problem) == pytest.approx(6.0)


def test_work_shared_between_unequal_devices(lab):
    """Rates 1 and 1/3: the fractional optimum runs 3/4 of the work on the fast device."""
    problem = lab.make_problem([[1, 3]] * 40, [], PAIR, [BIG] * 2)
    assert lower_bound(problem) == pytest.approx(30.0, rel=0.01)


def test_inputs_share_a_device_or_pay_a_transfer(lab):
    """Three producers of 4 s feed one op. One device: 12 + 1. The best mix: two there, one sent in 1 + 1 s: 8 + 1."""
    edges = [(0, 3, 0, 1), (1, 3, 0, 1), (2, 3, 0, 1)]
    problem = lab.make_problem([[4] * 3, [4] * 3, [4] * 3, [1] * 3], edges, _mesh(3), [BIG] * 3)
    bound = best_bound(problem)
    assert bound.kind == "path"
    assert bound.seconds == pytest.approx(7.0)
    assert bound.gap(7.7) == pytest.approx(0.1)


def test_a_group_is_on_one_device(lab):
    problem = lab.make_problem([[5, 5], [5, 5], [1, 1]], [], PAIR, [BIG] * 2, colocation=[0, 0, -1])
    assert best_bound(problem).kind == "group"
    assert lower_bound(problem) == 10.0


def test_a_chain_over_slow_links_stays_on_one_of_unequal_devices(lab):
    """Each op is fast where the next is slow; moving 10 bytes takes 11 s. Cheapest ops and cheapest links would say 4."""
    edges = [(0, 1, 0, 10), (1, 2, 0, 10), (2, 3, 0, 10)]
    problem = lab.make_problem([[1, 5], [5, 1], [1, 5], [5, 1]], edges, PAIR, [BIG] * 2)
    bound = best_bound(problem)
    assert (bound.kind, bound.seconds) == ("path", 12.0)  # on either device 12 s


def test_links_between_hosts_count_what_they_cost_there(lab):
    """Ops 0 and 1 run on device 0 and on device 2 only: the fast link between 0 and 1 is no help."""
    inf = float("inf")
    links = [(a, b, 100.0 if {a, b} == {0, 1} else 1.0, 0.0) for a in range(3) for b in range(3) if a != b]
    problem = lab.make_problem([[1, inf, inf], [inf, inf, 1]], [(0, 1, 0, 7)], links, [BIG] * 3)
    assert best_bound(problem).seconds == pytest.approx(9.0)


def test_memory_forces_work_onto_the_slow_device(lab):
    """Ten variables of 1 byte and 1 s; the fast device holds four, the other is five times slower: 6 * 5 s there."""
    problem = lab.make_problem([[1, 5]] * 10, [], PAIR, [4, 10], resident=[1] * 10)
    bound = best_bound(problem)
    assert bound.kind == "memory"
    assert bound.seconds == pytest.approx(30.0)
    assert lower_bound(lab.make_problem([[1, 5]] * 10, [], PAIR, [10, 10], resident=[1] * 10)) == pytest.approx(10 / 1.2, rel=0.01)


def test_a_group_begins_after_what_all_its_ops_wait_for(lab):
    edges = [(0, 1, 0, 0), (0, 2, 0, 0), (1, 3, 0, 0), (2, 3, 0, 0)]
    problem = lab.make_problem([[3, 3], [4, 4], [4, 4], [2, 2]], edges, PAIR, [BIG] * 2, colocation=[-1, 0, 0, -1])
    assert best_bound(problem).seconds == pytest.approx(13.0)


@pytest.mark.parametrize("blocks", [2, 1000])
def test_what_follows_waits_for_work_that_two_devices_share(blocks, lab):
    """Each time: an op of 1 s, six of 2 s that wait for it, one of 1 s that waits for them. Twice: longest way 8 s; all work shared
    14 s. The six take two devices 6 s: (1 + 6 + 1) * 2. Of a thousand times not every op is looked at, but half of the joins."""
    edges, seconds = [], []
    for block in range(blocks):
        first = 8 * block
        seconds += [1, *[2] * 6, 1]
        edges += [(first - 1, first, 0, 0)] if block else []
        edges += [(first, first + k, 0, 0) for k in range(1, 7)] + [(first + k, first + 7, 0, 0) for k in range(1, 7)]
    free = [(0, 1, 1e9, 0.0), (1, 0, 1e9, 0.0)]
    problem = lab.make_problem([[s, s] for s in seconds], edges, free, [BIG] * 2)
    found = best_bound(problem).seconds
    assert 8.0 * blocks * (0.93 if blocks > 2 else 1 - 1e-9) <= found <= 8.0 * blocks


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_no_op_starts_before_its_earliest_start_whichever_are_looked_at(lab, data):
    problem = data.draw(lab.problems(one_way=data.draw(st.booleans())))
    placement, priority = data.draw(lab.answers(problem))
    prepared = prepare(problem)
    placement = connected_ops(prepared, placement)
    step = simulate_placement(problem, placement, priority)
    ways = forwards(prepared.tables, prepared.tables.seconds, prepared.tables.latency, 1.0 / prepared.tables.bandwidth)
    shared = sharing(prepared.tables.seconds, np.full(len(problem.devices), 1.0 / len(problem.devices)))
    chosen = np.array(data.draw(st.lists(st.booleans(), min_size=problem.n_ops, max_size=problem.n_ops)), dtype=np.bool_)
    soonest = earliest_starts(ways, shared, chosen)
    assert (soonest[np.arange(problem.n_ops), placement] <= step.start * (1 + 1e-9)).all()


def test_devices_begin_with_different_ops(lab):
    """Ops that can begin after 0, 4, 8 ... s on two devices: the second device cannot begin before 4 s."""
    chain = [(k, k + 1, 0, 0) for k in range(4)]
    leaves = [(k, 5 + 4 * k + j, 0, 0) for k in range(5) for j in range(4)]
    free = [(0, 1, 1e9, 0.0), (1, 0, 1e9, 0.0)]
    problem = lab.make_problem([[4, 4]] * 5 + [[5, 5]] * 20, chain + leaves, free, [BIG] * 2)
    assert best_bound(problem).seconds >= (4 + 5 * 4 + 20 * 5) / 2 - 1e-6


def branches(lab, memory, resident=0):
    """An op of 2 s, four branches of two ops of 1 s each, an op of 1 s that joins them; a transfer takes 100 s."""
    edges = [e for k in (1, 3, 5, 7) for e in ((0, k, 0, 0), (k, k + 1, 0, 0), (k + 1, 9, 0, 0))]
    seconds = [[2] * 2, *[[1] * 2] * 9]
    far = [(0, 1, 1.0, 100.0), (1, 0, 1.0, 100.0)]
    return lab.make_problem(seconds, edges, far, [memory] * 2, resident=[resident] * 10)


def test_what_would_come_too_late_from_elsewhere_shares_a_device(lab):
    """2 + 8 + 1 s on one device. Of the join only what it reads is known to run one after the other: 3 + 4 + 1."""
    bound = best_bound(branches(lab, BIG))
    assert bound.kind == "anchors"
    assert bound.seconds == pytest.approx(11.0, rel=2e-3)
    assert bound.seconds <= 11.0


def test_what_must_share_a_device_that_does_not_hold_it_is_sent(lab):
    """Eight of ten fit. With the join and the op before it elsewhere the branches that stay are sent: 2 + 7 + 100 + 1 s."""
    problem = branches(lab, 8, resident=1)
    bound = best_bound(problem)
    found = simulate_placement(problem, np.array([0] * 8 + [1, 1], dtype=np.int32), np.arange(10, dtype=np.int32))
    assert found.feasible
    assert bound.kind == "anchors"
    assert 100.0 < bound.seconds <= found.step_seconds


def test_what_fits_nowhere_has_a_bound_all_the_same(lab):
    assert best_bound(branches(lab, 1, resident=2)).seconds <= 11.0


def _mesh(d):
    return [(a, b, 1.0, 1.0) for a in range(d) for b in range(d) if a != b]


def test_work_that_takes_no_time_on_one_device_and_ages_on_another_is_no_fault(lab):
    problem = lab.make_problem([[0.0, 1e90], [1.0, 1.0]], [], [(0, 1, 1e9, 0.0), (1, 0, 1e9, 0.0)], [10**9] * 2)
    with np.errstate(all="raise"):
        assert lower_bound(problem) == 1.0


def test_a_path_that_no_device_holds_is_cut_where_that_costs_least(lab):
    """Two of six ops fit on a device: two cuts, best at the small outputs, of 1 + 1 s each. Were ops 1 and 2 in a group, the path
    would be cut before and after them."""
    edges = [(k, k + 1, 0, (5, 1, 5, 1, 5)[k]) for k in range(5)]
    parts = {"memory": [4] * 3, "resident": [2] * 6}
    bound = best_bound(lab.make_problem([[1] * 3] * 6, edges, _mesh(3), **parts))
    assert bound.kind == "cuts"
    assert bound.seconds == pytest.approx(6 + 2 * 2)
    grouped = lab.make_problem([[1] * 4] * 6, edges, _mesh(4), [4] * 4, [2] * 6, colocation=[-1, 0, 0, -1, -1, -1])
    assert best_bound(grouped).seconds == pytest.approx(6 + 6 + 6 + 2)


def test_a_path_is_cut_for_a_slow_device_that_holds_more_where_that_is_cheaper(lab):
    """The fast device holds two of four ops; the others take 4 s each on the slow one, after a transfer of 3 + 1 s."""
    edges = [(k, k + 1, 0, 3) for k in range(3)]
    bound = best_bound(lab.make_problem([[1, 4]] * 4, edges, PAIR, [4, 99], resident=[2] * 4))
    assert (bound.kind, bound.seconds) == ("cuts", pytest.approx(2 + 4 + 8))
