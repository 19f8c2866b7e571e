"""What a step is estimated to take in the order in which its ops started is what it takes, where no transfer waits for another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepd.core.compiled import interpreted
from stepd.core.portfolio.estimate import estimate, new_outlook
from stepd.core.prepared import prepare
from stepd.core.simulation_kernel import run_step
from stepd.core.simulation_state import new_state


def simulated(tables, placement, priority):
    """Seconds of the step, and room for estimates in its order."""
    state = new_state(tables)
    seconds = run_step(tables, state, placement, priority, np.zeros(len(placement)), np.inf, False)
    return seconds, new_outlook(tables, state.sequence)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_without_queues_on_links_the_estimate_is_the_step(data, lab):
    problem = data.draw(lab.problems())
    placement, priority = data.draw(lab.answers(problem))
    tables = prepare(problem).tables
    tables = tables._replace(route_pointer=np.zeros_like(tables.route_pointer), handling=np.zeros_like(tables.handling))
    seconds, outlook = simulated(tables, placement, priority)
    assert sorted(outlook.order.tolist()) == list(range(problem.n_ops))
    assert interpreted(estimate)(tables, outlook, placement) == pytest.approx(seconds)
    assert outlook.far.tolist() == [-1.0] * problem.n_devices


@pytest.mark.parametrize("handling", [0.0, 0.25])
def test_transfers_queue_on_a_link_and_keep_devices_busy(lab, handling):
    """One op sends three outputs to device 1; the last one is awaited longest."""
    seconds = [[1.0] * 2, [2.0] * 2, [2.0] * 2, [5.0] * 2]
    problem = lab.make_problem(seconds, [(0, k, k, 4) for k in (1, 2, 3)], [(0, 1, 2.0, 0.5, handling)], [100] * 2)
    tables = prepare(problem).tables
    placement, priority = np.array([0, 1, 1, 1], dtype=np.int32), np.arange(4, dtype=np.int32)
    step, outlook = simulated(tables, placement, priority)
    assert step == 1.0 + 3 * 2.5 + handling + 5.0
    assert interpreted(estimate)(tables, outlook, placement) == pytest.approx(step, abs=2 * handling)
    assert outlook.sent[0] == pytest.approx(3 * 2.5)
    beside = np.array([0, 1, 1, 0], dtype=np.int32)  # the last op stays: it waits for nothing, and two transfers are left
    assert interpreted(estimate)(tables, outlook, beside) == pytest.approx(1.0 + 2 * 2.5 + 2.0, abs=2 * handling)
    assert outlook.sent[0] == pytest.approx(2 * 2.5)
