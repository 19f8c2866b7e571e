"""Mending an order of ops gives the order that making it anew gives."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepd.core.portfolio.points import MANY_SHIFTS, order_by, rank_again, ranking_of
from stepd.core.prepared import prepare


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_mended_order_is_the_order_made_anew(data, lab):
    problem = data.draw(lab.problems(max_ops=40))
    tables, n = prepare(problem).tables, problem.n_ops
    position = np.empty(n, dtype=np.int32)
    position[tables.topological] = np.arange(n, dtype=np.int32)
    some = st.lists(st.integers(0, 6), min_size=n, max_size=n)  # few values: equal keys are what is delicate
    keys = np.array(data.draw(some), dtype=np.float64)
    before = ranking_of(order_by(tables, keys), keys)
    after = ranking_of(order_by(tables, keys), keys)
    for _ in range(3):
        changed = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
        after.key[:] = np.where(changed, np.array(data.draw(some), dtype=np.float64), before.key)
        priority, moved = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)
        rank_again(tables, position, before, after, moved, priority)
        assert priority.tolist() == order_by(tables, after.key).tolist()
        assert after.op[priority].tolist() == list(range(n))
        before, after = after, before


def test_an_order_turned_round_is_made_anew(lab):
    n = 8 * MANY_SHIFTS
    problem = lab.make_problem([[1.0]] * n, [], [], [10])
    tables = prepare(problem).tables
    position = tables.topological.argsort().astype(np.int32)
    keys = np.arange(n, dtype=np.float64)
    before, after = ranking_of(order_by(tables, keys), keys), ranking_of(order_by(tables, keys), keys)
    after.key[:] = -keys
    priority, moved = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)
    rank_again(tables, position, before, after, moved, priority)
    assert priority.tolist() == list(range(n))
    assert after.op.tolist() == list(range(n))
