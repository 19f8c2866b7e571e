"""A planning problem from TensorFlow's own files: a GraphDef and the RunMetadata of one traced step of it, both as binary protobuf.

Devices are those that the trace names, and all pairs are linked alike. An op took, on its device, what the trace says; on other
devices of that type the same; on a type on which it did not run it is taken not to run. An op that the trace does not have
was folded or costs nothing. Sizes of outputs, temporary and persistent memory are the trace's too.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
from google.protobuf.message import DecodeError, Message

from stepd.core.errors import ProblemError
from stepd.core.graph import GraphCosts, Node, OpGraph, ancestors, element_bytes, op_graph, problem_of
from stepd.core.problem import Device, Link, Problem
from stepd.core.validation import validate
from stepd.v1 import profile_pb2

_COPY_NUMBER = re.compile(r"(/ctrl)?/_\d+$")


@dataclass(frozen=True)
class Hardware:
    """What a trace does not tell: memory of each device (bytes), and every link's bytes/s and latency (seconds)."""

    device_memory_bytes: int = 16 << 30
    link_bytes_per_second: float = 12e9
    link_latency_seconds: float = 20e-6


@dataclass
class _OpCost:
    """One op's sums over its runs in the step."""

    device: int = -1
    seconds: float = 0.0
    temp_bytes: int = 0
    resident_bytes: int = 0
    outputs: dict[int, int] = field(default_factory=dict)


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
    costs, devices = _trace(metadata, {node.name for node in nodes}, hardware)
    if not costs:
        raise ProblemError("the RunMetadata has no step statistics of this graph's ops: trace a step with trace_level FULL_TRACE")
    columns = op_graph(ancestors(nodes, costs))
    links = [
        Link(a, b, hardware.link_bytes_per_second, hardware.link_latency_seconds)
        for a in range(len(devices))
        for b in range(len(devices))
        if a != b
    ]
    problem = problem_of(name, columns, _columns(columns, costs, devices), devices, links)
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


def _trace(metadata: profile_pb2.RunMetadata, names: set[str], hardware: Hardware) -> tuple[dict[str, _OpCost], list[Device]]:
    """Costs by op name, and the devices. Times of GPU ops are those of their kernels, where the trace has them."""
    kernels: defaultdict[tuple[str, str], float] = defaultdict(float)
    lines = []
    for line in metadata.step_stats.dev_stats:
        base, stream, which = line.device.partition("/stream:")
        if not stream:
            lines.append(line)
        elif which == "all":
            for stats in line.node_stats:
                kernels[(base, _op_name(stats, names))] += _duration(stats)
    kinds = [line for line in lines if re.search(r"(?i)(device:)?[A-Z]+:\d+$", line.device)]
    devices = [Device(line.device, _type(line.device), hardware.device_memory_bytes) for line in kinds]
    costs: dict[str, _OpCost] = {}
    for k, line in enumerate(kinds):
        for stats in line.node_stats:
            name = _op_name(stats, names)
            if name:
                cost = costs.setdefault(name, _OpCost())
                _add(cost, k, stats)
                if (line.device, name) in kernels:
                    cost.seconds = kernels[(line.device, name)]
    return costs, devices


def _type(device: str) -> str:
    return device.rpartition("/")[2].removeprefix("device:").partition(":")[0].upper()


def _op_name(stats: profile_pb2.NodeExecStats, names: set[str]) -> str:
    """The op of the graph that an entry is about; "" for the runtime's own."""
    for name in (
        stats.node_name,
        stats.node_name.partition(":")[0],
        _COPY_NUMBER.sub("", stats.node_name),
        stats.timeline_label.partition(" = ")[0],
    ):
        if name in names:
            return name
    return ""


def _duration(stats: profile_pb2.NodeExecStats) -> float:
    if stats.op_end_rel_nanos:
        return max(0, stats.op_end_rel_nanos - stats.op_start_rel_nanos) * 1e-9
    return max(0, stats.op_end_rel_micros - stats.op_start_rel_micros) * 1e-6


def _add(cost: _OpCost, device: int, stats: profile_pb2.NodeExecStats) -> None:
    cost.device = device
    cost.seconds += _duration(stats)
    for output in stats.output:
        cost.outputs[output.slot] = max(cost.outputs.get(output.slot, 0), _bytes(output.tensor_description))
    written = sum(cost.outputs.values())
    cost.temp_bytes = max(cost.temp_bytes, written + stats.memory_stats.temp_memory_size)
    cost.resident_bytes = max(cost.resident_bytes, stats.memory_stats.persistent_memory_size)


def _bytes(tensor: profile_pb2.TensorDescription) -> int:
    if tensor.allocation_description.requested_bytes > 0:
        return int(tensor.allocation_description.requested_bytes)
    count = 1
    for dim in tensor.shape.dim:
        count *= max(0, dim.size)
    return count * element_bytes(tensor.dtype)


def _columns(graph: OpGraph, costs: dict[str, _OpCost], devices: list[Device]) -> GraphCosts:
    n, d = len(graph.names), len(devices)
    seconds = np.zeros((n, d))
    resident, temp = graph.resident_bytes.copy(), np.zeros(n, dtype=np.int64)
    sizes: dict[tuple[int, int], int] = {}
    for i, name in enumerate(graph.names):
        cost = costs.get(name)
        if cost is None:
            continue
        kind = devices[cost.device].type
        seconds[i] = [cost.seconds if device.type == kind else np.inf for device in devices]
        resident[i] = max(int(resident[i]), cost.resident_bytes)
        temp[i] = cost.temp_bytes
        sizes |= {(i, slot): size for slot, size in cost.outputs.items()}
    return GraphCosts(seconds, resident, temp, sizes)
