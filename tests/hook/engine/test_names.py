"""Errors of spread steps read as those of one device."""

from __future__ import annotations

import pytest

pytest.importorskip("tensorflow.compat.v1")

from tensorflow.core.protobuf import config_pb2

from stepd.hook.engine import names

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
