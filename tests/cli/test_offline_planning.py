"""What a search's budget is: Ctrl-C ends it, and the best so far is the answer; compiling is not part of it."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import numpy as np
import pytest
from numba.core import event

from stepd.cli import offline_planning
from stepd.core.errors import StrategyError
from stepd.core.placement import registry
from stepd.core.placement.registry import PlanOptions
from stepd.core.problem import Device, Problem
from stepd.core.strategy import Strategy


def one_op() -> Problem:
    return Problem(
        name="one",
        devices=(Device("d", "GPU", 100),),
        links=(),
        op_names=("op",),
        op_types=("Op",),
        seconds=np.ones((1, 1)),
        resident_bytes=np.zeros(1, np.int64),
        temp_bytes=np.zeros(1, np.int64),
        colocation=np.full(1, -1, np.int32),
        edge_src=np.zeros(0, np.int32),
        edge_dst=np.zeros(0, np.int32),
        edge_output=np.zeros(0, np.int32),
        edge_bytes=np.zeros(0, np.int64),
    )


def test_an_interrupted_search_answers_with_its_best(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def search(name: str, problem: Problem, options: PlanOptions) -> Strategy:
        """A search of an hour that someone interrupts."""
        began = options.clock()
        os.kill(os.getpid(), signal.SIGINT)
        while options.clock() - began < options.budget_seconds:
            pass
        calls.append(name)
        return Strategy(problem.name, np.zeros(1, np.int32), np.zeros(1, np.int32), 1.0)

    monkeypatch.setattr(registry, "plan", search)
    monkeypatch.setattr(registry, "swept", lambda name, options: (options, options))
    handler = signal.getsignal(signal.SIGINT)
    best = offline_planning.plan(one_op(), "single", offline_planning.make_options(3600.0, 0, 1))
    assert best.planner["lower_bound_seconds"] == 1.0
    assert calls == ["single"]  # the rest of the sweep is not run
    assert signal.getsignal(signal.SIGINT) is handler


def test_compiling_takes_nothing_off_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def search(name: str, problem: Problem, options: PlanOptions) -> Strategy:
        """Its first step takes a second, and its kernels are compiled in a minute."""
        nonlocal now
        began = options.clock()
        now += 1.0
        with event.trigger_event("numba:compile"):
            now += 60.0
        assert options.clock() - began == 1.0
        now += 2.0
        return Strategy(problem.name, np.zeros(1, np.int32), np.zeros(1, np.int32), 1.0)

    monkeypatch.setattr(registry, "plan", search)
    options = PlanOptions(budget_seconds=10.0, clock=lambda: now)
    best = offline_planning.plan(one_op(), "single", options)
    assert (best.planner["seconds"], best.planner["compiling_seconds"]) == (3.0, 60.0)
    with event.trigger_event("numba:compile"):  # of others, when nothing listens any more
        now += 60.0
    assert offline_planning.plan(one_op(), "single", options).planner["compiling_seconds"] == 60.0


def test_a_sweep_answers_with_the_parameter_sets_that_have_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def search(name: str, problem: Problem, options: PlanOptions) -> Strategy:
        if options.seed != 2:
            raise StrategyError(f"no answer for seed {options.seed}")
        return Strategy(problem.name, np.zeros(1, np.int32), np.zeros(1, np.int32), 1.0)

    monkeypatch.setattr(registry, "plan", search)
    monkeypatch.setattr(registry, "swept", lambda name, options: [replace(options, seed=seed) for seed in seeds])
    options = offline_planning.make_options(1.0, 0, 1)
    seeds = [1, 2, 3]
    assert offline_planning.plan(one_op(), "single", options).predicted_step_seconds == 1.0
    seeds = [1, 3]
    with pytest.raises(StrategyError, match="seed 1"):
        offline_planning.plan(one_op(), "single", options)
