"""The exact solver against all placements and all orders, tried one by one on the simulator's kernel."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepd.core.compiled import kernel, lean
from stepd.core.placement.registry import PlanOptions
from stepd.core.prepared import prepare
from stepd.core.simulation_kernel import run_step
from stepd.core.simulation_state import new_state
from stepd.core.simulator import simulate_placement

pytest.importorskip("ortools")
from stepd.core.placement.exact import place


@lean
def _try_all(tables: Any, state: Any, placements: Any, priorities: Any, tail: Any) -> float:
    best = np.inf
    for p in range(len(placements)):
        for q in range(len(priorities)):
            seconds = run_step(tables, state, placements[p], priorities[q], tail, np.inf, True)
            if seconds < best:
                fits = True
                for d in range(len(tables.memory)):
                    fits = fits and state.peak[d] <= tables.memory[d]
                if fits:
                    best = seconds
    return best


@kernel
def _brute_force(tables: Any, placements: Any, priorities: Any) -> float:
    return _try_all(tables, new_state(tables), placements, priorities, np.zeros(placements.shape[1]))


def best_of_all(problem: Any) -> float:
    """The shortest feasible step of any placement and order; inf when nothing fits."""
    choices = [np.flatnonzero(np.isfinite(row)).tolist() for row in problem.seconds]
    placements = [
        answer
        for answer in itertools.product(*choices)
        if all(
            len({answer[i] for i in np.flatnonzero(problem.colocation == g)}) == 1 for g in set(problem.colocation.tolist()) - {-1}
        )
    ]
    priorities = list(itertools.permutations(range(problem.n_ops)))
    as_array = (np.array(rows, dtype=np.int32).reshape(-1, problem.n_ops) for rows in (placements, priorities))
    return float(_brute_force(prepare(problem).tables, *as_array))


@st.composite
def small_problems(draw: st.DrawFn, make: Any) -> Any:
    """Up to 7 ops on 2 devices, or 5 on 3: whole seconds (none of 0), memory loose or tight, kernels, groups, uneven links."""
    d = draw(st.sampled_from([2, 2, 3]))
    n = draw(st.integers(2, 7 if d == 2 else 5))
    uniform = draw(st.booleans())
    length = st.integers(1, 6).map(float)
    seconds = [[draw(length)] * d if uniform else [draw(length) for _ in range(d)] for _ in range(n)]
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    edges = []
    for i, j in draw(st.lists(st.sampled_from(pairs), unique=True, max_size=2 * n)):
        output = draw(st.integers(-1, 1))
        edges.append((i, j, output, 0 if output < 0 else draw(st.integers(0, 5))))
    for i in range(n):
        if not uniform and draw(st.integers(0, 5)) == 0:
            seconds[i][draw(st.integers(0, d - 1))] = float("inf")
    links = [
        (s, t, float(draw(st.sampled_from([1, 1, 2]))), float(draw(st.integers(0, 2))))
        for s, t in itertools.permutations(range(d), 2)
    ]
    if d == 3:  # 0 and 2 talk over 1
        links = [link for link in links if {link[0], link[1]} != {0, 2}]
    colocation = [-1] * n
    if uniform and draw(st.booleans()):
        colocation[0] = colocation[n - 1] = 0
    memory = [draw(st.integers(4, 20))] * d if draw(st.booleans()) else [10**6] * d
    resident = [draw(st.integers(0, 4)) for _ in range(n)]
    temp = [draw(st.integers(0, 3)) for _ in range(n)]
    return make(seconds, edges, links, memory, resident, temp, colocation)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(data=st.data())
def test_exact_equals_brute_force(lab: Any, data: st.DataObject) -> None:
    problem = data.draw(small_problems(lab.make_problem))
    best = best_of_all(problem)
    strategy = place(problem, PlanOptions())
    if np.isfinite(best):
        assert strategy.planner["feasible"]
        assert strategy.planner["status"] == "optimal"
        assert strategy.predicted_step_seconds == pytest.approx(best, rel=1e-9)
        assert strategy.planner["model_lower_bound_seconds"] == pytest.approx(best, rel=1e-6)
    else:
        assert not strategy.planner["feasible"]
        assert strategy.planner["status"] == "infeasible"


def tight_problem(make: Any, seed: int) -> Any:
    """5 ops on 2 devices; some take 0 seconds, others any; memory is what some strategy needs, to the byte."""
    rng = np.random.default_rng(seed)
    seconds = np.where(rng.random(5) < 0.3, 0.0, rng.exponential(1e-3, 5))[:, None] * rng.choice([0.5, 1.0], 2)
    sizes, pairs = rng.integers(0, 5e6, 10), [(i, j) for j in range(5) for i in range(j)]
    edges = [(i, j, k % 2, int(sizes[k])) for k, (i, j) in enumerate(pairs) if rng.random() < 0.5]
    links = [(0, 1, 1e9, 1e-5), (1, 0, 2e9, 0.0)]
    resident, temp = (np.where(rng.random(5) < 0.5, 0, rng.integers(0, 5e6, 5)).tolist() for _ in range(2))
    roomy = make(seconds.tolist(), edges, links, [1 << 40] * 2, resident, temp)
    needs = simulate_placement(roomy, rng.integers(0, 2, 5), rng.permutation(5)).device_peak_bytes
    return make(seconds.tolist(), edges, links, needs.tolist(), resident, temp)


def test_what_exact_claims_is_true(lab: Any) -> None:
    """Also where ops take 0 seconds and times are no round numbers: then the best found may remain without proof."""
    fitting = 0
    for seed in range(30):
        problem = tight_problem(lab.make_problem, seed)
        best = best_of_all(problem)
        strategy = place(problem, PlanOptions(max_work=1))
        fitting += strategy.planner["feasible"]
        assert strategy.predicted_step_seconds == pytest.approx(best, rel=1e-6) or not strategy.planner["feasible"], seed
        assert strategy.planner["model_lower_bound_seconds"] <= best * (1 + 1e-9), seed
        assert strategy.planner["status"] in (("optimal", "feasible") if strategy.planner["feasible"] else ("none",)), seed
    assert fitting >= 29


def test_bounded_work_finds_the_same_each_time(lab: Any) -> None:
    rng = np.random.default_rng(1)
    edges = [(int(rng.integers(j)), j, 0, int(rng.integers(1e6))) for j in range(1, 30)]
    links = [(a, b, 1e9, 1e-5) for a, b in itertools.permutations(range(4), 2)]
    seconds = rng.exponential(1e-3, (30, 1)) * rng.choice([0.5, 1.0, 2.0], (30, 4))
    problem = lab.make_problem(seconds.tolist(), edges, links, [1 << 40] * 4)
    answers = [place(problem, PlanOptions(max_work=1, workers=workers)) for workers in (1, 2, 2)]
    assert answers[0].planner == answers[1].planner == answers[2].planner
    assert all(np.array_equal(answers[0].priority, answer.priority) for answer in answers)


def test_what_fits_to_the_byte_fits(lab: Any) -> None:
    """Units of memory that sizes are rounded up to would forbid the fast device."""
    resident, sent = [(1 << 28) - 1, (1 << 29) + 1], (1 << 20) + 1
    links = [(0, 1, 1e9, 0.0), (1, 0, 1e9, 0.0)]
    memory = [sum(resident) + sent] * 2
    problem = lab.make_problem([[1.0, 5.0], [1.0, 5.0]], [(0, 1, 0, sent)], links, memory, resident, [sent, 0])
    strategy = place(problem, PlanOptions())
    assert strategy.planner["status"] == "optimal"
    assert strategy.planner["model_lower_bound_seconds"] == pytest.approx(best_of_all(problem), rel=1e-6) == pytest.approx(2.0)


def test_the_bound_holds_where_the_runtime_s_rules_are_left_out(lab: Any) -> None:
    """Without them schedules may wait, so the optimum of the model is a lower bound, also for durations that are no whole ticks."""
    seconds = [[1 / 3, 1 / 3], [0.7, 1.1], [0.7, 1.1], [0.25, 0.5]]
    edges = [(0, 1, 0, 3), (0, 2, 0, 3), (1, 3, 0, 2), (2, 3, 0, 2)]
    problem = lab.make_problem(seconds, edges, [(0, 1, 7.0, 0.01), (1, 0, 7.0, 0.01)], [10**6] * 2)
    best = best_of_all(problem)
    strategy = place(problem, PlanOptions(parameters={"small": 0}))
    assert best * 0.999 <= strategy.planner["model_lower_bound_seconds"] <= best * (1 + 1e-9)
    assert strategy.predicted_step_seconds == pytest.approx(best)


def test_a_runtime_does_not_wait_on_purpose(lab: Any) -> None:
    """Op 1 (5 s) is ready at once, op 2 on its device after a second, and 5 s elsewhere wait for op 2. Waiting would give 7 s."""
    inf = float("inf")
    seconds = [[inf, 1.0], [5.0, inf], [1.0, inf], [inf, 5.0]]
    problem = lab.make_problem(seconds, [(0, 2, 0, 0), (2, 3, 0, 0)], [(0, 1, 1.0, 0.0), (1, 0, 1.0, 0.0)], [10] * 2)
    full = place(problem, PlanOptions())
    relaxed = place(problem, PlanOptions(parameters={"small": 0}))
    assert full.predicted_step_seconds == full.planner["model_step_seconds"] == best_of_all(problem) == 11.0
    assert relaxed.planner["model_lower_bound_seconds"] == 7.0
    assert relaxed.predicted_step_seconds == 11.0
