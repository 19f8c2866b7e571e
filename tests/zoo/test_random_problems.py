"""Random planning problems: valid, the same for the same seed, and what their names say."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepd.core.problem_format import dump_problem, parse_problem


@pytest.fixture(scope="module")
def drawn() -> Iterator[Any]:
    folder = str(Path(__file__).parents[1] / "benchmarks")
    sys.path.insert(0, folder)
    yield importlib.import_module("random_problems")
    sys.path.remove(folder)


def test_problems_are_valid_and_determined_by_the_seed(drawn: Any) -> None:
    for problem, again in zip(drawn.suite(10, seed=3, ops=120), drawn.suite(10, seed=3, ops=120), strict=True):
        text = json.dumps(dump_problem(problem))
        assert json.dumps(dump_problem(again)) == text
        assert parse_problem(json.loads(text)).op_names == problem.op_names
        assert np.isfinite(problem.seconds).any(axis=1).all()
    other = next(drawn.suite(1, seed=4, ops=120))
    assert not np.array_equal(other.edge_bytes, next(drawn.suite(1, seed=3, ops=120)).edge_bytes)


@pytest.mark.parametrize("family", ["branches", "random", "recurrent", "stacked", "towers"])
def test_problems_are_about_as_large_as_asked(drawn: Any, family: str) -> None:
    problem = drawn.random_problem(family, 5, ops=1000, devices=4)
    assert 800 <= problem.n_ops <= 1250
    assert problem.name.startswith(family)


def test_weights_and_their_update_share_a_group_and_towers_name_devices(drawn: Any) -> None:
    problem = drawn.random_problem("towers", 0, ops=300, devices=2)
    weights, update = problem.op_names.index("layer_0/kernel"), problem.op_names.index("train/update_layer_0")
    assert problem.colocation[weights] == problem.colocation[update] >= 0
    assert problem.user_devices[problem.op_names.index("tower_1/layer_0/Conv2D")] == 1
    assert problem.resident_bytes[weights] > 0
