"""The simulator against the text of PROBLEM_FORMAT: worked cases by hand, and a second simulator on random problems."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepd.core.errors import StrategyError
from stepd.core.prepared import prepare
from stepd.core.simulator import simulate_placement, simulate_slowly

BIG = 10**9


def run(problem, placement, priority=None):
    order = np.arange(problem.n_ops) if priority is None else np.array(priority)
    return simulate_placement(problem, np.array(placement), order)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_agrees_with_a_simulator_written_from_the_text(lab, data):
    problem = data.draw(lab.problems())
    placement, priority = data.draw(lab.answers(problem))
    expected = lab.reference_simulation(problem, placement, priority)
    got = simulate_placement(problem, placement, priority)
    assert got.step_seconds == expected.step_seconds
    assert got.start.tolist() == expected.start
    assert got.finish.tolist() == expected.finish
    assert got.device_peak_bytes.tolist() == expected.peak
    columns = (
        got.transfers.op,
        got.transfers.index,
        got.transfers.dst,
        got.transfers.start,
        got.transfers.end,
    )
    assert list(zip(*(c.tolist() for c in columns), strict=True)) == expected.transfers


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_plain_python_says_the_same_as_what_is_compiled_from_it(lab, data):
    problem = data.draw(lab.problems())
    placement, priority = data.draw(lab.answers(problem))
    compiled, plain = (judge(problem, placement, priority) for judge in (simulate_placement, simulate_slowly))
    assert plain.step_seconds == compiled.step_seconds
    assert plain.finish.tolist() == compiled.finish.tolist()
    assert plain.device_peak_bytes.tolist() == compiled.device_peak_bytes.tolist()
    assert plain.link_busy_seconds.tolist() == compiled.link_busy_seconds.tolist()


def test_an_output_is_sent_once_to_a_device_at_its_largest_size(lab):
    links = [(0, 1, 2.0, 0.25), (1, 0, 2.0, 0.25)]
    problem = lab.make_problem([[1, 1]] * 3, [(0, 1, 0, 4), (0, 2, 0, 6)], links, [BIG] * 2)
    step = run(problem, [0, 1, 1])
    assert step.transfers.end.tolist() == [1 + 0.25 + 3.0]
    assert step.step_seconds == 4.25 + 2
    assert step.link_busy_seconds.tolist() == [3.25, 0.0]


def test_control_edges_cost_one_latency_and_no_bytes(lab):
    links = [(0, 1, 1.0, 0.5), (1, 0, 1.0, 0.5)]
    problem = lab.make_problem([[1, 1]] * 3, [(0, 1, -1, 0), (0, 2, -1, 0)], links, [BIG] * 2)
    step = run(problem, [0, 1, 1])
    assert len(step.transfers.op) == 1
    assert step.step_seconds == 1 + 0.5 + 2


def test_one_transfer_at_a_time_on_a_link_in_order_of_finish_then_priority(lab):
    links = [(0, 1, 1.0, 0.0), (1, 0, 1.0, 0.0)]
    problem = lab.make_problem([[0, 0], [0, 0], [1, 1], [1, 1]], [(0, 2, 0, 3), (1, 3, 0, 5)], links, [BIG] * 2)
    step = run(problem, [0, 0, 1, 1], [1, 0, 2, 3])
    assert step.transfers.op.tolist() == [1, 0]
    assert step.transfers.end.tolist() == [5.0, 8.0]
    assert step.step_seconds == 9.0


def test_a_route_of_two_links_holds_both(lab):
    """0 -> 2 goes over 1; the transfer 0 -> 1 reserved after it waits although it needs only the first link."""
    links = [(0, 1, 4.0, 1.0), (1, 2, 2.0, 1.0), (2, 1, 1.0, 0.0), (1, 0, 1.0, 0.0)]
    problem = lab.make_problem([[1] * 3] * 4, [(0, 2, 0, 8), (1, 3, 0, 4)], links, [BIG] * 3)
    step = run(problem, [0, 0, 2, 1])
    assert step.transfers.start.tolist() == [1.0, 7.0]  # 1 + 2 s of latency + 8 / min(4, 2)
    assert step.transfers.end.tolist() == [7.0, 9.0]
    assert step.step_seconds == 10.0


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_routes_are_the_best_of_all_simple_paths(lab, data):
    problem = data.draw(lab.problems(max_ops=1, max_devices=5))
    for (src, dst), route in prepare(problem).routes.items():
        expected = lab.widest_route(problem, src, dst)
        assert [problem.links[k] for k in route.links] == expected


def test_memory_of_an_output_lasts_until_its_last_reader_and_its_last_transfer(lab):
    """Producer's device: 5 + 10 (temp) while op 0 runs; then 4 until the transfer is done at 1 + 4."""
    links = [(0, 1, 1.0, 0.0), (1, 0, 1.0, 0.0)]
    problem = lab.make_problem(
        [[1, 1]] * 3,
        [(0, 1, 0, 4), (0, 2, 0, 4)],
        links,
        [15, 6],
        resident=[5, 0, 0],
        temp=[10, 0, 7],
    )
    step = run(problem, [0, 1, 0])
    assert step.device_peak_bytes.tolist() == [5 + 4 + 7, 4]
    assert step.overflow_bytes.tolist() == [1, 0]
    assert not step.feasible


def test_what_cannot_be_simulated_is_named(lab):
    problem = lab.make_problem([[1, 1], [1, 1]], [(0, 1, 0, 1)], [], [BIG] * 2)
    with pytest.raises(StrategyError, match="'op0' on '/device:GPU:0' feeds 'op1'"):
        run(problem, [0, 1])
    with pytest.raises(StrategyError, match="not a permutation"):
        run(problem, [0, 0], [0, 0])
    with pytest.raises(StrategyError, match="'op1' is placed on device 2"):
        run(problem, [0, 2])
