"""GraphDef bytes, as TensorFlow wrote them, to core's nodes."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.message import DecodeError

from stepd.core.graph import Node
from stepd.v1 import profile_pb2


def parse_nodes(
    graph_def: bytes, lifted: Mapping[str, str] | None = None, shared: Mapping[str, str] | None = None
) -> tuple[Node, ...]:
    """Nodes of a serialized GraphDef, without the control inputs `lifted` (op -> what it does not wait for). What reads from an op
    of `shared` reads from the op given there. ValueError: the bytes are none.
    """
    try:
        graph = profile_pb2.GraphDef.FromString(graph_def)
    except DecodeError as error:
        raise ValueError(f"the reported graph is not a GraphDef: {error}") from error
    without = {op: f"^{control}" for op, control in (lifted or {}).items()}
    return tuple(_node(node, without.get(node.name, ""), shared or {}) for node in graph.node)


def _node(node: profile_pb2.NodeDef, without: str, shared: Mapping[str, str]) -> Node:
    attr = node.attr
    together = tuple(
        item.decode(errors="replace").removeprefix("loc:@")
        for item in (attr["_class"].list.s if "_class" in attr else ())
        if item.startswith(b"loc:@")
    )
    return Node(
        name=node.name,
        op=node.op,
        inputs=tuple(shared.get(name, name) for name in node.input if name != without),
        device=node.device,
        colocate_with=together,
        frame_name=attr["frame_name"].s.decode(errors="replace") if "frame_name" in attr else "",
        dtype=attr["dtype"].type if "dtype" in attr else 0,
        shape=_shape(attr["shape"].shape) if "shape" in attr else None,
    )


def _shape(shape: profile_pb2.TensorShape) -> tuple[int, ...] | None:
    return None if shape.unknown_rank else tuple(dim.size for dim in shape.dim)


def op_names(graph_def: bytes) -> frozenset[str]:
    """Names of all ops. ValueError: the bytes are no GraphDef."""
    try:
        graph = profile_pb2.GraphDef.FromString(graph_def)
    except DecodeError as error:
        raise ValueError(f"the reported graph is not a GraphDef: {error}") from error
    return frozenset(node.name for node in graph.node)
