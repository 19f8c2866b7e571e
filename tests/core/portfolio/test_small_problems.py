"""Small problems whose best answer is known by trying everything: memory that just suffices, links dearer than all ops together."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from stepd.core.bounds import longest_step
from stepd.core.errors import PlannerError
from stepd.core.placement import registry
from stepd.core.placement.registry import PlanOptions
from stepd.core.prepared import prepare
from stepd.core.simulation_kernel import run_step
from stepd.core.simulation_state import new_state

MEMORY_AWARE_SEARCHES = ("portfolio", "exact", "mcmc", "cross-entropy")


def plan(name, problem, work):
    try:
        return registry.plan(name, problem, PlanOptions(max_work=work, budget_seconds=1.0))
    except PlannerError as error:
        pytest.skip(str(error))


def best_step(problem):
    """The shortest step of all placements and orders that fit; inf when none does."""
    tables = prepare(problem).tables
    state, tail = new_state(tables), np.zeros(problem.n_ops)
    best = np.inf
    orders = [np.array(order, dtype=np.int32) for order in itertools.permutations(range(problem.n_ops))]
    for groups in itertools.product(range(problem.n_devices), repeat=len(tables.group_pointer) - 1):
        placement = np.array(groups, dtype=np.int32)[tables.group]
        if not np.isfinite(problem.seconds[np.arange(problem.n_ops), placement]).all():
            continue
        for order in orders:
            seconds = run_step(tables, state, placement, order, tail, best, True)
            if seconds < best and (state.peak <= tables.memory).all():
                best = seconds
    return best


def random_problem(lab, seed):
    """Up to five ops on two devices, or four on three; devices hold just what some strategy needs."""
    rng = np.random.default_rng([seed, 41])
    d = int(rng.integers(2, 4))
    n = int(rng.integers(2, 8 - d))
    pairs = [(a, b) for a in range(n) for b in range(a + 1, n) if rng.random() < 0.5]
    edges = [(a, b, 0, int(size)) for (a, b), size in zip(pairs, rng.choice([0, 1, 5, 20], n)[[a for a, _ in pairs]], strict=True)]
    seconds = rng.exponential(1.0, n)[:, None] * rng.choice([1.0, 1.0, 3.0], (1, d))
    rate = 1.0 / rng.choice([0.02, 0.3, 30.0])
    links = [(a, b, rate, 0.01) for a in range(d) for b in range(d) if a != b]
    resident, temp = rng.choice([0, 1, 5], n).tolist(), rng.choice([0, 1, 3], n).tolist()
    problem = lab.make_problem(seconds, edges, links, [10**9] * d, resident, temp)
    some = rng.integers(0, d, n).astype(np.int32)
    step = lab.reference_simulation(problem, some, rng.permutation(n).astype(np.int32))
    devices = zip(problem.devices, step.peak, strict=True)
    return replace(problem, devices=tuple(replace(device, memory_bytes=int(peak)) for device, peak in devices))


@pytest.mark.parametrize("seed", range(40))
def test_the_portfolio_finds_the_best_that_fits(lab, seed):
    problem = random_problem(lab, seed)
    strategy = plan("portfolio", problem, 8)
    assert strategy.planner["feasible"]
    assert strategy.predicted_step_seconds == pytest.approx(best_step(problem), rel=1e-9)


def two_variables(lab):
    """Neither device holds both variables, and what one op sends the other takes thirty times as long as the ops themselves."""
    links = [(0, 1, 1.0, 0.0), (1, 0, 1.0, 0.0)]
    return lab.make_problem([[1.0, 1.0], [1.0, 1.0]], [(0, 1, 0, 60)], links, [150, 150], resident=[80, 80])


@pytest.mark.parametrize("name", MEMORY_AWARE_SEARCHES)
def test_what_fits_is_preferred_however_long_it_takes(lab, name):
    problem = two_variables(lab)
    alone = replace(problem, edge_bytes=np.array([1]), devices=tuple(replace(k, memory_bytes=200) for k in problem.devices))
    assert plan(name, alone, 5).predicted_step_seconds == pytest.approx(2.0)
    strategy = plan(name, problem, 5)
    assert strategy.planner["feasible"]
    assert strategy.predicted_step_seconds == pytest.approx(62.0)


def test_no_step_takes_longer_than_the_longest(lab):
    problem = two_variables(lab)
    step = lab.reference_simulation(problem, np.array([0, 1], dtype=np.int32), np.arange(2, dtype=np.int32))
    assert step.step_seconds <= longest_step(prepare(problem)) == pytest.approx(62.0)


def test_more_devices_than_groups_make_no_noise(lab, capfd):
    problem = two_variables(lab)
    plan("metis", problem, 1)
    plan("metis", replace(problem, colocation=np.zeros(2, dtype=np.int32)), 1)
    assert capfd.readouterr().out == ""
