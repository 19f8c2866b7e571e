"""What some of the devices are good for, the portfolio finds where there are more; parts of a problem cost what they cost in it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepd.core.placement import registry
from stepd.core.placement.registry import PlanOptions
from stepd.core.portfolio.fewer_devices import parts, subsets
from stepd.core.portfolio.planner import place
from stepd.core.prepared import on_devices, prepare
from stepd.core.problem import Device
from stepd.core.simulator import simulate_placement

BIG = 10**12


def narrow(lab, seed, d):
    """100 ops that each wait for one or two of the three before them: work for two devices. Devices are in pairs, with links of
    10 GB/s; the first ones of the pairs are joined by links of 2 GB/s."""
    rng = np.random.default_rng([seed, 8])
    sizes = [int(4e6 * np.exp(0.8 * rng.standard_normal())) for _ in range(100)]
    edges = []
    for op in range(1, 100):
        producers = {max(0, op - int(rng.integers(1, 4))) for _ in range(1 + int(rng.integers(0, 2)))}
        edges += [(producer, op, 0, sizes[producer]) for producer in sorted(producers)]
    seconds = [[float(1e-3 * np.exp(0.8 * rng.standard_normal()))] * d for _ in range(100)]
    pairs = [(a, b) for a in range(d) for b in range(d) if a != b]
    links = [(a, b, 1e10, 1e-5) for a, b in pairs if a // 2 == b // 2]
    links += [(a, b, 2e9, 5e-5) for a, b in pairs if a // 2 != b // 2 and a % 2 == b % 2 == 0]
    return lab.make_problem(seconds, edges, links, [BIG] * d)


@pytest.mark.parametrize("seed", [2, 7, 9])
def test_eight_devices_are_no_worse_than_two_of_them(lab, seed):
    two = registry.plan("heft", narrow(lab, seed, 2), PlanOptions())
    eight = place(narrow(lab, seed, 8), PlanOptions(max_work=1, parameters={"algorithms": ("heft", "metis")}))
    assert eight.predicted_step_seconds <= two.predicted_step_seconds


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_strategy_costs_on_a_part_what_it_costs_on_all_devices(lab, data):
    problem = data.draw(lab.problems(memory=(12, 10**6)))
    d = problem.n_devices
    # the last device runs everything
    devices = np.array(sorted({*data.draw(st.sets(st.integers(0, d - 1))), d - 1}), dtype=np.int32)
    part = on_devices(problem, devices)
    placement, priority = data.draw(lab.answers(part))
    there = simulate_placement(part, placement, priority)
    everywhere = simulate_placement(problem, devices[placement].astype(np.int32), priority)
    assert there.step_seconds == everywhere.step_seconds
    assert there.device_peak_bytes.tolist() == everywhere.device_peak_bytes[devices].tolist()


def test_parts_are_neighbours_of_every_size_below_all(lab):
    assert [part.tolist() for part in subsets(prepare(narrow(lab, 0, 8)))] == [[0, 1], [0, 1, 2, 3]]
    assert parts(narrow(lab, 0, 2), {}) == []


def test_parts_hold_what_runs_nowhere_else_and_what_stays_in_memory(lab):
    problem = narrow(lab, 0, 5)
    seconds = problem.seconds.copy()
    seconds[:, 4] = np.inf  # the last device runs the first op alone
    seconds[0] = [np.inf] * 4 + [1e-6]
    problem = replace(problem, seconds=seconds)
    assert [part.tolist() for part in subsets(prepare(problem))] == [[0, 1, 4]]
    full = replace(
        problem,
        devices=tuple(Device(device.name, device.type, 100) for device in problem.devices),
        resident_bytes=np.full(100, 4, dtype=np.int64),
    )
    assert subsets(prepare(full)) == []
