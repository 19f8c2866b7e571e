"""What holds for every planning algorithm, whoever wrote it: the answer is valid, and it says truly what it costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepd.core.errors import PlannerError
from stepd.core.placement import registry
from stepd.core.placement.registry import PlanOptions
from stepd.core.placement.split_answer import simulate_split
from stepd.core.prepared import prepare
from stepd.core.simulator import simulate_placement
from stepd.core.validation import validate_strategy

MODEST = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))


def plan(name, problem, **options):
    """The planner's answer; skips a planner whose extra is not installed."""
    try:
        place = registry.find(name).load()
    except PlannerError as error:
        pytest.skip(str(error))
    # Searches get a fixed, small amount of work: the clock stands still.
    return place(problem, PlanOptions(max_work=20, budget_seconds=1.0, **options))


def check(problem, strategy, name):
    """Valid, truly predicted, and honest about memory."""
    assert strategy.planner["algorithm"] == name
    assert strategy.problem == problem.name
    assert sorted(strategy.priority.tolist()) == list(range(problem.n_ops))
    assert np.isfinite(problem.seconds[np.arange(problem.n_ops), strategy.placement]).all()
    for group in set(problem.colocation.tolist()) - {-1}:
        assert len(set(strategy.placement[problem.colocation == group].tolist())) == 1
    if strategy.splits:
        trace = simulate_split(problem, strategy)
        seconds, peaks = trace.makespan, trace.peak
    else:
        validate_strategy(problem, strategy)
        simulation = simulate_placement(problem, strategy.placement, strategy.priority)
        seconds, peaks = simulation.step_seconds, simulation.device_peak_bytes
    assert strategy.predicted_step_seconds == pytest.approx(seconds, rel=1e-12)
    fits = all(peak <= device.memory_bytes for peak, device in zip(peaks, problem.devices, strict=True))
    assert strategy.planner["feasible"] == fits


@pytest.mark.parametrize("name", registry.names())
@MODEST
@given(data=st.data())
def test_every_planner_gives_a_valid_answer_and_predicts_what_the_simulator_says(name, data, lab):
    problem = data.draw(lab.problems(memory=(4, 12, 40, 10**6), one_way=data.draw(st.booleans())))
    link_aware = data.draw(st.booleans())
    check(problem, plan(name, problem, link_aware=link_aware), name)


@pytest.mark.parametrize("name", registry.names())
def test_every_parameter_set_of_a_sweep_works(name, branches):
    for parameters in registry.find(name).sweep:
        for link_aware in (True, False):
            check(branches, plan(name, branches, link_aware=link_aware, parameters=parameters), name)


@pytest.mark.parametrize("name", registry.names())
def test_the_same_seed_gives_the_same_answer(name, branches):
    one, two = (plan(name, branches, seed=3) for _ in range(2))
    assert one.placement.tolist() == two.placement.tolist()
    assert one.priority.tolist() == two.priority.tolist()
    assert one.splits == two.splits


@pytest.mark.parametrize("name", registry.names())
def test_the_problem_is_left_as_it_was(name, branches):
    before = {key: value.copy() for key, value in vars(branches).items() if isinstance(value, np.ndarray)}
    tables = shared_tables(branches)
    plan(name, branches)
    for key, value in before.items():
        assert np.array_equal(getattr(branches, key), value), key
    for key, value in shared_tables(branches).items():
        assert np.array_equal(tables[key], value), key


def shared_tables(problem):
    """Copies of the arrays that planners share."""
    return {key: np.array(value, copy=True) for key, value in prepare(problem).tables._asdict().items()}


LIST_SCHEDULERS = ("fastt-dpos", "fastt-os-dpos", "heft", "etf", "m-etf", "getf")


@pytest.mark.parametrize("name", LIST_SCHEDULERS)
def test_list_schedulers_use_both_devices_for_independent_branches(name, branches):
    strategy = plan(name, branches)
    alone = plan("single", branches).predicted_step_seconds
    assert strategy.predicted_step_seconds < 0.7 * alone


@pytest.mark.parametrize("name", ("fastt-dpos", "heft", "m-etf", "celeritas", "order-place"))
def test_what_fits_only_on_two_devices_is_spread(name, branches):
    """12 variables of 10 bytes and devices of 130, which one and its running op do not leave enough of: an answer uses both."""
    devices = tuple(replace(device, memory_bytes=130) for device in branches.devices)
    strategy = plan(name, replace(branches, devices=devices))
    assert not plan("single", replace(branches, devices=devices)).planner["feasible"]
    assert strategy.planner["feasible"]
    assert len(set(strategy.placement.tolist())) == 2
