"""The wire contract at the hook's border."""

from __future__ import annotations

import pytest

from stepd.hook import convert
from stepd.hook.director import Outcome, TrialVerdict
from stepd.hook.model import NotHonoured, Order, Split, SwitchOutcome, Way
from stepd.v1 import profile_pb2, runtime_pb2, strategy_pb2

CPU = "/job:localhost/replica:0/task:0/device:CPU:"


def activate(**changes: object) -> runtime_pb2.Activate:
    values = {"id": "ab", "devices": [CPU + "0", CPU + "1"], "op": ["x", "y"], "device": [1, 0], "priority": [5, 3], "order": 2}
    return runtime_pb2.Activate(session_id="s1", strategy=strategy_pb2.Strategy(**(values | changes)), origin="operator", pin=True)


def test_a_strategy_arrives_whole() -> None:
    message = activate(predicted_step_seconds=0.5, graph_fingerprint="f")
    message.strategy.splits.add(op="x", axis="batch", parts=2, device=[CPU + "0", CPU + "1"], weight=[0.5, 0.5])
    got = convert.strategy(message)
    assert got.placement == {"x": CPU + "1", "y": CPU + "0"}
    assert got.priority == {"x": 5, "y": 3}
    assert got.order is Order.CONTROL
    assert got.splits == (Split("x", "batch", 2, (CPU + "0", CPU + "1"), (0.5, 0.5)),)
    assert (got.origin, got.pin, got.predicted_step_seconds, got.graph_fingerprint) == ("operator", True, 0.5, "f")


def test_without_priorities_there_is_no_order() -> None:
    assert convert.strategy(activate(priority=[])).order is Order.NONE


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"device": [1]}, "2 ops but 1 devices"), ({"priority": [1]}, "1 priorities"), ({"device": [0, 2]}, "beyond its 2 devices")],
)
def test_a_strategy_that_contradicts_itself_is_refused(changes: dict[str, object], why: str) -> None:
    with pytest.raises(convert.MalformedStrategyError, match=why):
        convert.strategy(activate(**changes))


def test_unknown_ways_of_newer_daemons_mean_auto() -> None:
    assert convert.way(strategy_pb2.WAY_RESTART) is Way.RESTART
    assert convert.way(99) is Way.AUTO  # type: ignore[arg-type]


def test_a_switch_and_a_verdict_are_told_whole() -> None:
    outcome = SwitchOutcome("ab", Way.RESTART, True, honoured=7, not_honoured=(NotHonoured("x", "a", "b"),), rollback=True)
    report = convert.switch_report("s1", outcome).switch
    assert (report.way, report.honoured, report.not_honoured[0].got, report.rollback) == (strategy_pb2.WAY_RESTART, 7, "b", True)
    verdict = convert.verdict("s1", TrialVerdict("ab", "k", Outcome.FAILED, "it raised")).verdict
    assert (verdict.outcome, verdict.reason) == (runtime_pb2.Verdict.FAILED, "it raised")
    assert {outcome.name for outcome in Outcome} == set(runtime_pb2.Verdict.Outcome.keys()) - {"OUTCOME_UNKNOWN"}


def field(number: int, payload: bytes) -> bytes:
    """A length-delimited protobuf field, as TensorFlow would write it."""
    length, size = len(payload), b""
    while length > 127:
        size, length = size + bytes([length & 127 | 128]), length >> 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + payload


def constant(name: bytes, tensor: bytes) -> bytes:
    """A NodeDef with attr["value"].tensor (field 8 of AttrValue, which stepd's trimmed message does not have)."""
    return field(1, name) + field(2, b"Const") + field(5, field(1, b"value") + field(2, field(8, tensor)))


def test_large_constants_are_cut_and_small_ones_stay() -> None:
    graph = field(1, constant(b"big", b"z" * 5000)) + field(1, constant(b"small", b"z" * 50))
    body = field(2, field(1, field(1, field(1, b"f")) + field(3, constant(b"inner", b"z" * 5000))))
    parsed = profile_pb2.GraphDef.FromString(convert.cut_constants(graph + body))
    assert [node.name for node in parsed.node] == ["big", "small"]
    assert parsed.node[0].attr["value"].ByteSize() == 0
    assert parsed.node[1].attr["value"].ByteSize() > 50
    assert parsed.library.function[0].node_def[0].attr["value"].ByteSize() == 0


def test_a_graph_without_large_constants_is_passed_on_as_it_is() -> None:
    graph = field(1, constant(b"small", b"z" * 50))
    assert convert.cut_constants(graph) is graph


def test_bytes_that_are_no_graph_are_left_to_the_daemon() -> None:
    assert convert.cut_constants(b"\xff\xff\xff") == b"\xff\xff\xff"
