"""Where a step takes hardly longer than its busiest device works, exchanges even out what the devices have to do."""

from __future__ import annotations

import numpy as np
import pytest

from stepd.core.portfolio.balancing import balanced
from stepd.core.portfolio.pool import Candidate, Pool
from stepd.core.simulator import simulate_placement


def best_of(problem, placement):
    pool = Pool(problem)
    pool.try_all([Candidate("given", np.array(placement, dtype=np.int32))])
    return pool, pool.best


def test_an_exchange_that_moves_a_thousandth_is_found(lab):
    seconds = [[1.004] * 2, [1.002] * 2, [1.0] * 2, [1.0] * 2, *[[0.5] * 2] * 20]
    problem = lab.make_problem(seconds, [], [(0, 1, 1e9, 0.0), (1, 0, 1e9, 0.0)], [100] * 2)
    pool, entry = best_of(problem, [0, 0, 1, 1, *[0, 1] * 10])
    assert entry.point.seconds == pytest.approx(7.006)
    better = balanced(pool, entry)
    step = simulate_placement(problem, better.point.placement, better.point.priority)
    assert step.step_seconds == better.point.seconds
    assert step.step_seconds == pytest.approx(7.004, abs=1e-9)


def test_groups_go_whole_and_where_they_can_run(lab):
    never = float("inf")
    seconds = [[2.0, never], [1.0, 1.0], [1.5, 1.5], [1.0, 1.0], [2.2, 2.2]]
    problem = lab.make_problem(seconds, [], [(0, 1, 1e9, 0.0), (1, 0, 1e9, 0.0)], [100] * 2, colocation=[-1, 0, -1, 0, -1])
    pool, entry = best_of(problem, [0, 0, 0, 0, 1])
    better = balanced(pool, entry)
    step = simulate_placement(problem, better.point.placement, better.point.priority)
    assert better.point.placement[0] == 0
    assert better.point.placement[1] == better.point.placement[3]
    assert step.step_seconds == better.point.seconds == 4.0


def test_what_waits_for_transfers_is_left_alone(lab):
    problem = lab.make_problem([[1.0] * 2] * 2, [(0, 1, 0, 10)], [(0, 1, 1.0, 0.0), (1, 0, 1.0, 0.0)], [100] * 2)
    pool, entry = best_of(problem, [0, 1])
    assert balanced(pool, entry) is entry
