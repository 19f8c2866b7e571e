"""PROBLEM_FORMAT as text: what is read is what was written, and everything else is an error that names its cause."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepd.core.errors import ProblemError, StrategyError
from stepd.core.problem_format import dump_problem, dump_strategy, parse_problem, parse_strategy

GOOD = {
    "version": 1,
    "name": "tiny",
    "devices": [{"name": f"/device:GPU:{k}", "type": "GPU", "memory_bytes": 100} for k in range(2)],
    "links": [
        {"src": 0, "dst": 1, "bytes_per_second": 10.0, "latency_seconds": 0.1},
        {"src": 1, "dst": 0, "bytes_per_second": 10.0, "latency_seconds": 0.1},
    ],
    "ops": {
        "name": ["a", "b", "c"],
        "type": ["X", "Y", "Z"],
        "seconds": [[1, 2.5], [1, None], [0, 0]],
        "resident_bytes": [10, 0, 0],
        "temp_bytes": [0, 5, 0],
        "colocation": [None, 7, 7],
    },
    "edges": {"src": [0, 1, 0], "dst": [1, 2, 2], "output": [0, 0, -1], "bytes": [4, 8, 0]},
}


def broken(path, value):
    problem = copy.deepcopy(GOOD)
    at = problem
    for key in path[:-1]:
        at = at[key]
    if value is KeyError:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return json.dumps(problem)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_problem_survives_being_written_and_read(lab, data):
    problem = data.draw(lab.problems())
    again = parse_problem(json.dumps(dump_problem(problem), allow_nan=False))
    for column in (
        "seconds",
        "resident_bytes",
        "temp_bytes",
        "colocation",
        "edge_src",
        "edge_output",
        "edge_bytes",
    ):
        np.testing.assert_array_equal(getattr(again, column), getattr(problem, column))
        assert getattr(again, column).dtype == getattr(problem, column).dtype
    assert (again.devices, again.links, again.op_names) == (problem.devices, problem.links, problem.op_names)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("version",), 2, "version 2 is not supported"),
        (("version",), True, "version True"),
        (("extra",), 1, "unknown key 'extra'"),
        (("ops", "cost"), [], "unknown key 'cost'"),
        (("links", 1, "speed"), 1, "link 1 has the unknown key 'speed'"),
        (("edges",), KeyError, "lacks the key 'edges'"),
        (("ops", "temp_bytes"), [1], "ops.temp_bytes has 1 entries"),
        (("ops", "seconds", 0), [1], "seconds of op 'a' has 1 entries for 2 devices"),
        (("ops", "seconds", 0, 1), -1, r"seconds\[1\] of op 'a' is -1"),
        (("ops", "seconds", 0, 1), float("nan"), r"seconds\[1\] of op 'a' is nan: it must be finite"),
        (("ops", "seconds", 0, 1), float("inf"), r"seconds\[1\] of op 'a' is inf: it must be finite"),
        (("ops", "seconds", 2), [None, None], "op 'c' can run on no device"),
        (("ops", "seconds", 2), [None, 0], "colocation group 7 .*'b', 'c'.* has no device that can run all"),
        (("ops", "resident_bytes", 0), 101, "op 'a' needs 105 bytes at once"),
        (("ops", "temp_bytes", 1), 1.5, "temp_bytes of op 'b' must be a whole number"),
        (("devices", 1, "name"), "/device:GPU:0", "names must differ"),
        (("links", 0, "bytes_per_second"), 0, "bytes_per_second of link 0"),
        (("links", 0, "dst"), 5, "link 0 goes from device 0 to 5"),
        (("links", 0, "dst"), 0, "link 0 goes from device 0 to itself"),
        (("edges", "dst", 1), 0, "cycle of 2 ops: '[ab]' -> '[ab]'"),
        (("edges", "dst", 0), 0, r"edge 0 \('a' -> 'a'\) leads an op to itself"),
        (("edges", "dst", 0), 3, "dst of edge 0 is 3: ops are 0..2"),
        (("edges", "bytes", 1), -8, r"bytes of edge 1 \('b' -> 'c'\) is -8"),
        (("edges", "bytes", 2), 8, r"edge 2 \('a' -> 'c'\) is a control edge"),
        (("ops",), [], "ops must be an object, not list"),
    ],
)
def test_what_is_wrong_is_named(path, value, message):
    with pytest.raises(ProblemError, match=message):
        parse_problem(broken(path, value))


def test_truncated_text_is_no_json():
    with pytest.raises(ProblemError, match="not JSON"):
        parse_problem(json.dumps(GOOD)[:-9])


def test_memory_of_all_devices_together_must_hold_what_stays():
    problem = copy.deepcopy(GOOD)
    problem["ops"]["resident_bytes"] = [90, 90, 30]
    problem["ops"]["colocation"] = [None, None, None]
    with pytest.raises(ProblemError, match="210 bytes together, all devices have 200"):
        parse_problem(problem)


STRATEGY = {"version": 1, "problem": "tiny", "placement": [1, 0, 0], "priority": [0, 2, 1]}


def test_a_strategy_survives_being_written_and_read():
    full = {
        **STRATEGY,
        "splits": [{"op": 1, "axis": "batch", "parts": 2, "devices": [0, 1]}],
        "predicted_step_seconds": 2.5,
        "planner": {"algorithm": "portfolio", "seed": 3},
    }
    assert dump_strategy(parse_strategy(json.dumps(full))) == full


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("placement", [1, 0], "placement has 2 entries, the problem 'tiny' has 3 ops"),
        ("placement", [2, 0, 0], "op 'a' is placed on device 2"),
        ("placement", [-1, 0, 0], "placement of op 0 is -1"),
        ("placement", [0, 1, 1], "op 'b' is placed on '/device:GPU:1', where it cannot run"),
        ("placement", [0, 0, 1], "colocation group 7 is torn: op 'c'"),
        ("priority", [0, 0, 1], "not a permutation"),
        ("problem", "other", "is for problem 'other'"),
        ("splits", [{"op": 0, "axis": "batch", "parts": 2}], "describes no splits"),
        ("colour", 1, "unknown key 'colour'"),
    ],
)
def test_a_strategy_that_does_not_fit_is_named(key, value, message):
    with pytest.raises(StrategyError, match=message):
        parse_strategy({**STRATEGY, key: value}, parse_problem(GOOD))
