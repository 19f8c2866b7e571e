"""A planning problem from TensorFlow's own files: a GraphDef and the RunMetadata of one traced step of it, both as binary protobuf.

Devices are those that the trace names, and all pairs are linked alike. An op took, on its device, what the trace says; on other
devices of that type the same; on a type on which it did not run it is taken not to run. An op that the trace does not have
was folded or costs nothing. Sizes of outputs, temporary and persistent memory are the trace's too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from google.protobuf.message import DecodeError, Message

from stepd.core.cost.observation import StepObservation
from stepd.core.errors import ProblemError
from stepd.core.graph import GraphCosts, Node, OpGraph, ancestors, op_graph, problem_of
from stepd.core.problem import Device, Link, Problem
from stepd.core.validation import validate
from stepd.traces.profile import observed
from stepd.v1 import profile_pb2

_DEVICE = re.compile(r"(?i)(device:)?[A-Z]+:\d+$")


@dataclass(frozen=True)
class Hardware:
    """What a trace does not tell: memory of each device (bytes), and every link's bytes/s and latency (seconds)."""

    device_memory_bytes: int = 16 << 30
    link_bytes_per_second: float = 12e9
    link_latency_seconds: float = 20e-6


def parse_graph(content: bytes) -> profile_pb2.GraphDef:
    """A GraphDef from its bytes. Raises ProblemError."""
    graph = profile_pb2.GraphDef()
    _parse(graph, content, "a GraphDef")
    return graph


def parse_metadata(content: bytes) -> profile_pb2.RunMetadata:
    """RunMetadata from its bytes. Raises ProblemError."""
    metadata = profile_pb2.RunMetadata()
    _parse(metadata, content, "RunMetadata")
    return metadata


def problem_of_graph(name: str, graph: profile_pb2.GraphDef, metadata: profile_pb2.RunMetadata, hardware: Hardware) -> Problem:
    """The valid problem of the ops that the traced step ran. Raises ProblemError."""
    nodes = [_node(node) for node in graph.node]
    devices = _devices(metadata, hardware)
    step = observed(metadata, {node.name for node in nodes}, {device.name for device in devices})
    ran = {op for seen in step.devices for op in seen.ops}
    if not ran:
        raise ProblemError("the RunMetadata has no step statistics of this graph's ops: trace a step with trace_level FULL_TRACE")
    columns = op_graph(ancestors(nodes, ran))
    links = [
        Link(a, b, hardware.link_bytes_per_second, hardware.link_latency_seconds)
        for a in range(len(devices))
        for b in range(len(devices))
        if a != b
    ]
    problem = problem_of(name, columns, _columns(columns, step, devices), devices, links)
    validate(problem)
    return problem


def _parse(message: Message, content: bytes, what: str) -> None:
    try:
        message.ParseFromString(content)
    except DecodeError as error:
        raise ProblemError(f"not {what} in binary protobuf form: {error}") from error


def _node(node: profile_pb2.NodeDef) -> Node:
    attr = node.attr
    shape = attr["shape"].shape if "shape" in attr else None
    known = shape is not None and not shape.unknown_rank
    classes = [text.decode() for text in attr["_class"].list.s] if "_class" in attr else []
    return Node(
        name=node.name,
        op=node.op,
        inputs=tuple(node.input),
        device=node.device,
        colocate_with=tuple(text.removeprefix("loc:@") for text in classes if text.startswith("loc:@")),
        frame_name=attr["frame_name"].s.decode() if "frame_name" in attr else "",
        dtype=attr["dtype"].type if "dtype" in attr else 0,
        shape=tuple(dim.size for dim in shape.dim) if shape is not None and known else None,
    )


def _devices(metadata: profile_pb2.RunMetadata, hardware: Hardware) -> list[Device]:
    """The devices that ran something, without the lines that GPUs have besides."""
    names = [line.device for line in metadata.step_stats.dev_stats if "/stream:" not in line.device]
    return [Device(name, _type(name), hardware.device_memory_bytes) for name in names if _DEVICE.search(name)]


def _type(device: str) -> str:
    return device.rpartition("/")[2].removeprefix("device:").partition(":")[0].upper()


def _columns(graph: OpGraph, step: StepObservation, devices: list[Device]) -> GraphCosts:
    """Temporary bytes hold an op's outputs too: kernels allocate them when they start."""
    n, d = len(graph.names), len(devices)
    seconds, ran = np.zeros((n, d)), {name: i for i, name in enumerate(graph.names)}
    kinds = {device.name: device.type for device in devices}
    for seen in step.devices:
        others = [k for k, device in enumerate(devices) if device.type != kinds[seen.device]]
        for op, took in zip(seen.ops, seen.seconds.tolist(), strict=True):
            if op in ran:
                seconds[ran[op]] += took
                seconds[ran[op], others] = np.inf
    resident, temp = graph.resident_bytes.copy(), np.zeros(n, dtype=np.int64)
    sizes: dict[tuple[int, int], int] = {}
    for i, name in enumerate(graph.names):
        slots = step.output_bytes.get(name, {})
        sizes |= {(i, slot): size for slot, size in slots.items()}
        temp[i] = sum(slots.values()) + step.temp_bytes.get(name, 0)
        resident[i] = max(int(resident[i]), step.resident_bytes.get(name, 0))
    return GraphCosts(seconds, resident, temp, sizes)
