"""Splits on their way through the daemon: from an operator's file and a planner's candidate to the wire, and to shares."""

from __future__ import annotations

import json

import numpy as np
import pytest

from stepd.daemon.convert.strategy import from_candidate, from_json, in_parts
from stepd.daemon.errors import BadRequestError
from stepd.v1 import runtime_pb2

DEVICES = ["/device:CPU:0", "/device:CPU:1"]


def test_an_operator_may_ask_for_splits_and_for_data_parallelism():
    split = {"op": "b", "axis": "1", "parts": 2, "devices": DEVICES, "weights": [1, 3]}
    given = json.dumps({"placement": {}, "splits": [split]}).encode()
    strategy = from_json(given, [], ["a", "b"], DEVICES, "print")
    assert in_parts(strategy, []) == {"b": ("1", {DEVICES[0]: 0.25, DEVICES[1]: 0.75})}
    added_up = from_json(
        json.dumps({"placement": {}, "splits": [{**split, "into": [0, 0]}]}).encode(), [], ["a", "b"], DEVICES, "print"
    )
    assert list(added_up.splits[0].into) == [0, 0] and added_up.id != strategy.id
    everywhere = from_json(json.dumps({"placement": {}, "replicate": True}).encode(), [], ["a", "b"], DEVICES, "print")
    offers = [runtime_pb2.SplitChoice(op="a", axis="batch"), runtime_pb2.SplitChoice(op="b", axis="1")]
    assert everywhere.replicate and everywhere.id != strategy.id
    assert in_parts(everywhere, offers) == {"a": ("batch", dict.fromkeys(DEVICES, 0.5))}


@pytest.mark.parametrize(
    "wrong",
    [{}, "b", {"op": 7, "axis": "1", "parts": 2}, {"op": "b", "axis": "1", "parts": "two"}, {"into": [-1]}, {"devices": [9]}],
)
def test_a_split_that_cannot_be_read_is_refused_by_its_number(wrong):
    split = {"op": "b", "axis": "1", "parts": 2, **wrong} if isinstance(wrong, dict) and len(wrong) == 1 else wrong
    with pytest.raises(BadRequestError, match="split 0 of the strategy"):
        from_json(json.dumps({"placement": {}, "splits": [split]}).encode(), [], ["a", "b"], DEVICES, "print")


def test_a_candidate_is_sent_with_its_splits():
    problem = {"ops": ["a", "b"], "devices": DEVICES, "pinned": np.array([False, True]), "seconds": np.ones((2, 2))}
    candidate = {"placement": np.array([0, 0]), "priority": np.array([0, 1]), "seconds": 1.0, "peak_bytes": (1, 2),
                 "lower_bound_seconds": 0.0, "algorithm": "replicate", "busy_fraction": (0.5, 0.5), "enforced": True,
                 "splits": [[0, "batch", 2, [0, 1], [], [0, 0]], [1, "1", 2, [], [], []]]}  # fmt: skip
    strategy = from_candidate(problem, candidate, "print", "none")
    assert [(s.op, s.axis, s.parts, list(s.device)) for s in strategy.splits] == [("a", "batch", 2, DEVICES), ("b", "1", 2, [])]
    assert in_parts(strategy, [])["b"] == ("1", {"": 1.0})
    assert [list(s.into) for s in strategy.splits] == [[0, 0], []]
    whole = from_candidate(problem, {**candidate, "splits": []}, "print", "none")
    assert whole.id != strategy.id


def test_an_order_is_sent_where_the_planner_has_it_kept():
    problem = {"ops": ["a"], "devices": DEVICES, "pinned": np.array([False]), "seconds": np.ones((1, 2))}
    candidate = {"placement": np.array([0]), "priority": np.array([7]), "seconds": 1.0, "peak_bytes": (1, 2),
                 "lower_bound_seconds": 0.0, "algorithm": "replicate", "busy_fraction": (0.5, 0.5)}  # fmt: skip
    for order, enforced, sent in (("control", True, [7]), ("control", False, []), ("none", True, [])):
        strategy = from_candidate(problem, {**candidate, "enforced": enforced}, "print", order)
        assert (list(strategy.priority), len(strategy.seconds)) == (sent, len(sent))
