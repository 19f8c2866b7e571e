"""GraphDef bytes to core's nodes."""

from __future__ import annotations

import pytest

from stepd.daemon.convert.graph import parse_nodes
from stepd.v1 import profile_pb2


def test_control_inputs_that_strategies_do_without_are_left_out() -> None:
    graph = profile_pb2.GraphDef()
    graph.node.add(name="barrier", op="NoOp", input=["^a", "^b"])
    graph.node.add(name="led", op="Identity", input=["a", "^barrier"])
    graph.node.add(name="kept", op="Identity", input=["b:1", "^barrier"])
    nodes = parse_nodes(graph.SerializeToString(), {"led": "barrier"})
    assert {node.name: node.inputs for node in nodes} == {
        "barrier": ("^a", "^b"),
        "led": ("a",),
        "kept": ("b:1", "^barrier"),
    }
    assert parse_nodes(graph.SerializeToString())[1].inputs == ("a", "^barrier")


def test_bytes_that_are_no_graph_are_refused() -> None:
    with pytest.raises(ValueError, match="not a GraphDef"):
        parse_nodes(b"\xff\xff\xff")
