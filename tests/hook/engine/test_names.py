"""Errors of spread steps read as those of one device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

from tensorflow.core.protobuf import config_pb2  # noqa: E402

from stepd.hook.engine import error_words, names  # noqa: E402
from stepd.hook.engine.kinds import Kind, step_kind  # noqa: E402

FAILED = "Input to reshape is a tensor with 3 values, but the requested shape has 4\n\t [[{{node Reshape}}]]"


def several(*errors: str) -> str:
    listed = "".join(f"  ({i}) {error}\n" for i, error in enumerate(errors))
    return f"{len(errors)} root error(s) found.\n{listed}0 successful operations.\n0 derived errors ignored."


@pytest.mark.parametrize(
    ("errors", "told"),
    [
        ([f"INVALID_ARGUMENT: {FAILED}\n\t [[mul/_1]]", f"INVALID_ARGUMENT: {FAILED}\n\t [[Kept]]"], f"{FAILED}\n\t [[Kept]]"),
        (["CANCELLED: RecvAsync is cancelled.", f"INVALID_ARGUMENT: {FAILED}\n\t [[Kept]]"], f"{FAILED}\n\t [[Kept]]"),
        ([f"INVALID_ARGUMENT: {FAILED}\n\t [[mul/_1]]", f"INVALID_ARGUMENT: {FAILED}"], FAILED),
    ],
)
def test_one_of_several_errors_is_told(errors: list[str], told: str) -> None:
    assert names.one_error(several(*errors)) == told


def test_the_hint_that_every_device_adds_is_told_once() -> None:
    hint = "\nHint: If you want to see a list of allocated tensors when OOM happens, add this to RunOptions.\n"
    failed = "OOM when allocating tensor\n\t [[{{node large}}]]"
    assert names.one_error(f"{failed}{hint}{hint}\n\t [[Sum/_7]]{hint}".rstrip("\n")) == f"{failed}{hint}".rstrip("\n")
    assert names.one_error(failed + hint) == failed + hint


def test_a_servers_error_is_one_too() -> None:
    """Such a text says from which task it is, and calls receiving ops otherwise."""
    server = "From /job:worker/replica:0/task:1:\n"
    told = several(f"INVALID_ARGUMENT: {FAILED}\n\t [[Kept_G36]]", f"INVALID_ARGUMENT: {FAILED}")
    assert names.one_error(server + told) == server + FAILED
    assert names.one_error(server + FAILED) == server + FAILED


def test_traces_show_no_own_names_in_attributes() -> None:
    metadata = config_pb2.RunMetadata()
    node = metadata.partition_graphs.add().node.add(name="x/_3", op="_Send", input=["x-stepd_2"])
    node.attr["tensor_name"].s = b"edge_7_x-stepd_2"
    node.attr["_class"].list.s.append(b"loc:@y/z-stepd_2")
    node.attr["T"].type = 1
    (told,) = config_pb2.RunMetadata.FromString(names.repair_metadata(metadata.SerializeToString(), {})).partition_graphs[0].node
    assert (told.attr["tensor_name"].s, told.attr["_class"].list.s[0]) == (b"edge_7_x", b"loc:@y/z")
    assert told.attr["T"].type == 1 and told.attr["T"].WhichOneof("value") == "type"


def test_traces_show_nothing_that_stands_for_no_op() -> None:
    metadata = config_pb2.RunMetadata()
    besides = ("open", "always", "there0", "there0-given", "t00001", "sent2", "fetched", "last", "stepd_7")
    stats, nodes = metadata.step_stats.dev_stats.add().node_stats, metadata.partition_graphs.add().node
    for name in ("x-stepd_2", "x-stepd_2-part1", *(f"x-stepd_2-{word}" for word in besides)):
        stats.add(node_name=name)
        nodes.add(name=name, input=["y-stepd_2-sent2", "^z-stepd_2", "^x-stepd_2-open", "^x-stepd_2-there0"])
    told = config_pb2.RunMetadata.FromString(names.repair_metadata(metadata.SerializeToString(), {}))
    assert [each.node_name for each in told.step_stats.dev_stats[0].node_stats] == ["x", "x"]
    assert [(node.name, *node.input) for node in told.partition_graphs[0].node] == [("x", "y", "^z")] * 2


class _BrokenError(Exception):
    def __init__(self, message: str) -> None:
        super().__init__(message)
        self._message = message


@pytest.mark.parametrize("node", ["", "\n\t [[{{node add/_27}}]]"])
def test_a_transfer_that_is_broken_off_says_what_the_step_waits_for(node: str) -> None:
    for message, wanted in ((f"RecvAsync is cancelled.{node}", "Dequeue was cancelled"), (f"Another error.{node}", None)):
        error = _BrokenError(message)
        names.repair_error(error, {}, waits=lambda: "Dequeue was cancelled")
        assert error.args[0] == (wanted or "Another error." + node)
    alone = _BrokenError(f"RecvAsync is cancelled.{node}")
    names.repair_error(alone, {})
    assert alone.args[0].startswith("RecvAsync is cancelled.")


def test_what_a_step_waits_for_is_known_where_one_op_of_it_can_wait() -> None:
    with tf.Graph().as_default() as graph:
        queue = tf.FIFOQueue(2, tf.float32, [])
        taken, put = queue.dequeue(name="taken"), queue.enqueue(1.0, name="put")
        with tf.control_dependencies([put]):
            both = tf.identity(taken * 2.0, name="both")
        tf.sin(taken, name="one")
    engine: Any = SimpleNamespace(mirror=SimpleNamespace(user_graph=graph))

    def of(feeds: list[str], fetches: list[str], targets: list[str]) -> str:
        return error_words.waits(engine, Kind(step_kind(feeds, fetches, targets), ((), (), ())))

    assert of([], ["one:0"], []) == "Dequeue operation was cancelled\n\t [[{{node taken}}]]"
    assert of([], [], ["put"]) == "Enqueue operation was cancelled\n\t [[{{node put}}]]"
    assert of([], [both.name], []) == ""
    assert of(["taken:0"], ["one:0"], []) == ""


def test_the_frames_that_pybind11_lists_are_the_programs() -> None:
    """Where a signal's handler raises while it raises an error of TensorFlow's own."""
    told = "pybind11::error_already_set: MISMATCH ...: alarm\n\nAt:\n  /my.py(4): on_alarm\n{}  /tf/session.py(14): _do_run\n"
    error = RuntimeError(told.format("  /room/engine/runs.py(137): run_on\n  /room/engine/runs.py(143): guarded\n"))
    names.without_frames(error, "/room/")
    assert str(error) == told.format("")
    own = RuntimeError("At:\n  /room/engine/runs.py(137): run_on\n")
    names.without_frames(own, "/room/")
    assert "run_on" in str(own)
