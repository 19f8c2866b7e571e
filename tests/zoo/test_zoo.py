"""The problem zoo at its smallest: LeNet, as TensorFlow trains it, with costs that can be checked by hand."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepd.core.problem import Problem
from stepd.core.problem_format import dump_problem, parse_problem

pytest.importorskip("tensorflow")


@pytest.fixture(scope="module")
def catalogue() -> Iterator[Any]:
    """The zoo's modules, importable from the benchmarks' directory as the scripts there import them."""
    folder = str(Path(__file__).parents[1] / "benchmarks")
    sys.path.insert(0, folder)
    yield importlib.import_module("zoo.catalogue")
    sys.path.remove(folder)


@pytest.fixture(scope="module")
def lenet(catalogue: Any) -> Problem:
    return catalogue.problem(catalogue.Entry("lenet", partial(catalogue.testbeds.fastt, 2)))


def op(problem: Problem, name: str) -> int:
    return problem.op_names.index(name)


def test_a_zoo_problem_is_a_valid_problem_file(lenet: Problem) -> None:
    assert parse_problem(dump_problem(lenet)).op_names == lenet.op_names
    assert "train" in lenet.op_names
    assert not any("Initializer" in name for name in lenet.op_names)  # what a step does not run is not in it


def test_costs_are_the_roofline_of_static_shapes(lenet: Problem) -> None:
    # conv2: 256 x 14 x 14 x 64 outputs, 5 x 5 x 32 products each, at 70 % of 15.7 TFLOP/s, and a launch.
    flops = 2 * (256 * 14 * 14 * 64) * (5 * 5 * 32)
    assert lenet.seconds[op(lenet, "conv2/Conv2D"), 0] == pytest.approx(5e-6 + flops / (0.70 * 15.7e12))
    # The dense layer's weights: 7 x 7 x 64 by 1024 floats.
    assert lenet.resident_bytes[op(lenet, "dense1/kernel")] == 7 * 7 * 64 * 1024 * 4
    # Its product reads 256 x 3136 floats from the reshape before it.
    edge = np.flatnonzero(lenet.edge_dst == op(lenet, "dense1/MatMul"))
    assert 256 * 3136 * 4 in lenet.edge_bytes[edge].tolist()


def test_a_variable_and_its_update_share_a_device(lenet: Problem) -> None:
    group = lenet.colocation
    assert group[op(lenet, "dense1/kernel")] == group[op(lenet, "train/update_dense1/kernel/ApplyGradientDescent")] >= 0
    assert group[op(lenet, "dense1/kernel")] != group[op(lenet, "conv2/kernel")]


def test_towers_are_replicas_on_the_devices_that_the_code_names(catalogue: Any) -> None:
    towers = catalogue.problem(catalogue.Entry("lenet", partial(catalogue.testbeds.fastt, 2), towers=2))
    assert towers.user_devices is not None
    for k in range(2):
        conv = op(towers, f"tower_{k}/conv2/Conv2D")
        assert towers.user_devices[conv] == k
    # Half the batch in each tower: half the FLOPs of the whole.
    assert towers.seconds[conv, 0] - 5e-6 == pytest.approx(128 * 14 * 14 * 64 * 5 * 5 * 32 * 2 / (0.70 * 15.7e12))
    assert sum("kernel/ApplyGradientDescent" in name for name in towers.op_names) == 4  # variables are shared
