"""Towers that share weights: found with and without names; the weights, with what belongs to them, spread over the devices."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepd.core.errors import PlannerError
from stepd.core.placement import data_parallel
from stepd.core.placement.name_scopes import tower_of_ops
from stepd.core.placement.registry import PlanOptions
from stepd.core.placement.replicas import replicas_of
from stepd.core.placement.shared_weights import bytes_of, parts_of, seconds_of
from stepd.core.placement.sharing_out import least_first
from stepd.core.prepared import prepare
from stepd.core.simulator import simulate


def nameless(problem):
    return replace(problem, op_names=tuple(f"n{k}" for k in range(problem.n_ops)))


def where(problem, placement):
    """What the tests look at: devices of each tower's ops, and of each weight and what belongs to it."""
    towers, parts = {}, {}
    for name, device in zip(problem.op_names, placement, strict=True):
        if name.startswith("tower_"):
            towers.setdefault(name.split("/")[0], set()).add(int(device))
        elif name != "batch":
            parts.setdefault("".join(c for c in name if c.isdigit()), set()).add(int(device))
    return SimpleNamespace(towers=towers, parts=parts)


@settings(deadline=None)  # compiling takes part of the first
@given(data=st.data())
def test_towers_are_found_by_structure(lab, data):
    """Whatever ops take: that is measured, and differs from tower to tower."""
    towers = data.draw(st.integers(2, 5))
    weights = data.draw(st.lists(st.integers(1, 10**6), min_size=1, max_size=6))
    noise = data.draw(st.lists(st.floats(0.0, 1e-3), max_size=7))
    problem = lab.replicated(towers, weights, 2, noise, colocated=data.draw(st.booleans()))
    found, named = replicas_of(nameless(problem)), tower_of_ops(problem)
    inside = found >= 0
    assert inside.any() and (found[inside] == named[inside]).all()
    assert all(inside[k] for k, kind in enumerate(problem.op_types) if kind.startswith("MatMul"))


@pytest.mark.parametrize("rest", ["both", "bytes", "seconds", "turns"])
@settings(deadline=None)  # compiling takes part of the first
@given(data=st.data())
def test_a_weight_is_on_one_device_with_its_gradients_mean_and_update(lab, data, rest):
    towers = data.draw(st.integers(2, 4))
    weights = data.draw(st.lists(st.integers(1, 10**6), min_size=2, max_size=8))
    problem = lab.replicated(towers, weights, towers, colocated=data.draw(st.booleans()))
    expected = data_parallel.place(problem, PlanOptions(parameters={"rest": rest}))
    assert (data_parallel.place(nameless(problem), PlanOptions(parameters={"rest": rest})).placement == expected.placement).all()
    seen = where(problem, expected.placement)
    assert seen.towers == {f"tower_{k}": {k} for k in range(towers)}
    assert all(len(devices) == 1 for devices in seen.parts.values())


@settings(deadline=None)  # compiling takes part of the first
@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=9), st.integers(2, 4))
def test_weights_are_shared_out_evenly(lab, weights, devices):
    """The most that the largest first can leave between two devices is the largest."""
    problem = lab.replicated(devices, weights, devices)
    prepared = prepare(problem)
    parts = parts_of(prepared, replicas_of(problem))
    assert parts.count == len(weights)
    everywhere = np.arange(devices, dtype=np.int32)
    held = np.bincount(least_first(bytes_of(prepared, parts, everywhere)), weights=weights, minlength=devices)
    assert held.max() - held.min() <= max(weights)
    home = np.where(parts.towers == 0, 1, parts.towers).astype(np.int32)  # two towers on device 1, none on device 0
    work = np.bincount(home[home >= 0], weights=prepared.tables.seconds[home >= 0, 0], minlength=devices)
    takes = np.bincount(parts.part[parts.part >= 0], weights=prepared.tables.seconds[parts.part >= 0, 0])
    ends = work + np.bincount(least_first(seconds_of(prepared, parts, home, everywhere)), weights=takes, minlength=devices)
    assert ends.max() <= max(work.max(), ends.sum() / devices + takes.max()) + 1e-12  # the last one came where least was


def test_unequal_devices_get_towers_by_their_speed(lab):
    """Four towers on a device of speed 1, one of 0.5 and one that is far slower: nothing for the last one."""
    problem = lab.replicated(4, [1000, 2000, 3000, 4000], 3)
    unequal = replace(problem, seconds=problem.seconds * np.array([1.0, 2.0, 20.0]))
    for rest in ("both", "bytes", "seconds", "turns"):
        placement = data_parallel.place(unequal, PlanOptions(parameters={"rest": rest})).placement
        towers = where(unequal, placement).towers.values()
        assert sorted(next(iter(devices)) for devices in towers) == [0, 0, 0, 1] and 2 not in placement


def test_spread_weights_do_not_wait_for_one_device(lab):
    problem = lab.replicated(4, [10**7] * 8, 4)
    spread, first = (
        simulate(problem, data_parallel.place(problem, PlanOptions(parameters={"rest": rest}))).step_seconds
        for rest in ("both", "first")
    )
    assert spread < 0.9 * first


def test_weights_named_in_the_first_tower_are_shared_all_the_same(lab):
    """As with `reuse=True` in name scopes: the first tower's scope holds the variables."""
    problem = lab.replicated(2, [1000, 2000, 3000, 4000], 2)
    names = tuple(f"tower_0/{name}" if name[0] in "wu" else name for name in problem.op_names)
    uneven = replace(problem, op_names=names, op_types=tuple(f"{kind}{k}" for k, kind in enumerate(problem.op_types)))
    assert (replicas_of(uneven) < 0).all()  # so that names decide
    placement = data_parallel.place(uneven, PlanOptions(parameters={"rest": "turns"})).placement
    assert [int(placement[names.index(f"tower_0/w{k}")]) for k in range(4)] == [0, 1, 0, 1]


def test_without_towers_everything_is_on_one_device(lab):
    problem = lab.replicated(1, [1000, 2000], 2)
    found = data_parallel.place(nameless(problem), PlanOptions(parameters={"rest": "bytes"}))
    assert found.planner["towers"] == 0 and not found.placement.any()


@settings(deadline=None)  # compiling takes part of the first
@given(data=st.data())
def test_ops_that_cannot_run_everywhere(lab, data):
    """Whatever is missing where: the answer is one that can run, and says what the simulator says."""
    problem = lab.replicated(data.draw(st.integers(2, 4)), [1000, 2000, 3000], 3)
    seconds = problem.seconds * np.array([1.0, data.draw(st.floats(0.3, 3.0)), 1.0])
    for op, only in data.draw(st.dictionaries(st.integers(0, problem.n_ops - 1), st.integers(0, 2))).items():
        seconds[op, np.arange(3) != only] = np.inf
    seconds[problem.colocation >= 0, 0] = 1e-3  # there is a device for each group
    limited = replace(problem, seconds=seconds)
    for rest in data_parallel.RESTS:
        found = data_parallel.place(limited, PlanOptions(parameters={"rest": rest}))
        assert simulate(limited, found).step_seconds == found.predicted_step_seconds < np.inf


def test_an_unknown_rest_is_named(lab):
    with pytest.raises(PlannerError, match="no rest 'everywhere'"):
        data_parallel.place(lab.replicated(2, [1000], 2), PlanOptions(parameters={"rest": "everywhere"}))
