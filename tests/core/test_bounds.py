"""Lower bounds hold for every strategy, and are reached where the optimum is known."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepd.core.bounds import best_bound, lower_bound
from stepd.core.simulator import simulate_placement

BIG = 10**9
PAIR = [(0, 1, 1.0, 1.0), (1, 0, 1.0, 1.0)]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_strategy_beats_the_bound(lab, data):
    problem = data.draw(lab.problems())
    placement, priority = data.draw(lab.answers(problem))
    assert lower_bound(problem) <= simulate_placement(problem, placement, priority).step_seconds * (1 + 1e-12)


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


def _mesh(d):
    return [(a, b, 1.0, 1.0) for a in range(d) for b in range(d) if a != b]
