"""The workload graphs of "Efficient Algorithms for Device Placement of DNN Graph Operators" (Tarnawski et al., NeurIPS 2020).

    {"maxSizePerFPGA": bytes, "maxFPGAs": k, "maxCPUs": c,
     "nodes": [{"id", "name", "supportedOnFpga", "cpuLatency", "fpgaLatency" (ms), "size" (bytes), "colorClass", ...}],
     "edges": [{"sourceId", "destId", "cost" (ms, between an accelerator and host memory), ...}]}

How it becomes a problem: k accelerators with maxSizePerFPGA of memory and c CPUs without a limit that matters. A node's `size` is
resident for the whole step: the published model adds sizes up, and they hold the node's outputs already. An edge's cost is its
time, so bytes are only a unit here: COST_UNIT bytes take one second between accelerator and host, and two between
accelerators (leaving and entering; such a link's rate is half). At that unit the outputs weigh nothing beside the sizes (the
largest published graph: 0.17 GB of 103 GB) and times are rounded to 0.05 us. CPUs share host memory: nothing moves between them.
Equal costs of one node's edges are one output, other costs are further outputs. A color class is a colocation group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stepd.core.errors import ProblemError
from stepd.core.problem import Device, Index, Int, Link, Problem
from stepd.core.validation import validate
from stepd.core.what_if import MOST_DEVICES

COST_UNIT = 10_000_000
_HOST_BYTES = 1 << 50
_LARGEST = 1e14
"""Of any number in a file: bytes and their sums stay below 2^63, seconds far from what a sum of floats loses."""
_SHARED_MEMORY_RATE = 1e18
_KEYS = ("maxSizePerFPGA", "maxFPGAs", "maxCPUs", "nodes", "edges")


def is_partitioning_workload(value: Any) -> bool:
    """Whether decoded JSON is such a workload."""
    return isinstance(value, Mapping) and "nodes" in value and "maxFPGAs" in value


def read_partitioning_workload(name: str, value: Mapping[str, Any]) -> Problem:
    """The workload as a valid problem. Raises ProblemError that names the node or edge."""
    missing = [key for key in _KEYS if key not in value]
    if missing:
        raise ProblemError(f"workload: the top level lacks the key {missing[0]!r}")
    nodes, edges = value["nodes"], value["edges"]
    if not isinstance(nodes, list) or not isinstance(edges, list):
        raise ProblemError("workload: nodes and edges must be lists")
    accelerators, cpus = _count(value, "maxFPGAs"), _count(value, "maxCPUs")
    if accelerators + cpus > MOST_DEVICES:
        raise ProblemError(f"workload: maxFPGAs and maxCPUs are {accelerators + cpus} devices: {MOST_DEVICES} at most")
    index = _index(nodes)
    src, dst, output, size = _edges(edges, index)
    problem = Problem(
        name=name,
        devices=_devices(accelerators, cpus, int(_number(value, "maxSizePerFPGA", "workload"))),
        links=_links(accelerators, cpus),
        op_names=_names(nodes),
        op_types=tuple("Backward" if node.get("isBackwardNode") else "Forward" for node in nodes),
        seconds=np.array([_seconds(node, accelerators, cpus) for node in nodes], dtype=np.float64),
        resident_bytes=np.array([int(_number(node, "size", _what(node))) for node in nodes], dtype=np.int64),
        temp_bytes=np.zeros(len(nodes), dtype=np.int64),
        colocation=_color_groups(nodes),
        edge_src=src,
        edge_dst=dst,
        edge_output=output,
        edge_bytes=size,
    )
    validate(problem)
    return problem


def _what(node: Mapping[str, Any]) -> str:
    return f"node {node.get('name', node.get('id'))!r}"


def _number(holder: Mapping[str, Any], key: str, what: str) -> float:
    value = holder.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ProblemError(f"{what}: {key} must be a number, not {value!r}")
    if not 0 <= value <= _LARGEST:  # false for NaN, too
        raise ProblemError(f"{what}: {key} is {str(value)[:40]}: it must be finite, not negative and {_LARGEST:.0g} at most")
    return float(value)


def _count(value: Mapping[str, Any], key: str) -> int:
    number = _number(value, key, "workload")
    if not number.is_integer():
        raise ProblemError(f"workload: {key} is {number}: it must be a whole number of devices")
    return int(number)


def _label(value: Any, what: str) -> int | str:
    """An id or a color class."""
    if not isinstance(value, (int, str)):
        raise ProblemError(f"{what} is {value!r}: it must be a number or a text")
    return value


def _index(nodes: Sequence[Any]) -> dict[Any, int]:
    index: dict[Any, int] = {}
    for i, node in enumerate(nodes):
        if not isinstance(node, Mapping) or "id" not in node:
            raise ProblemError(f"workload: node {i} is not an object with an id")
        if index.setdefault(_label(node["id"], f"workload: the id of node {i}"), i) != i:
            raise ProblemError(f"workload: two nodes have the id {node['id']!r}")
    return index


def _names(nodes: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    names = [str(node.get("name", node["id"])) for node in nodes]
    shared = {name for name, count in Counter(names).items() if count > 1}
    return tuple(f"{name}@{node['id']}" if name in shared else name for name, node in zip(names, nodes, strict=True))


def _devices(accelerators: int, cpus: int, memory: int) -> tuple[Device, ...]:
    return (
        *(Device(f"/device:FPGA:{k}", "FPGA", memory) for k in range(accelerators)),
        *(Device(f"/device:CPU:{k}", "CPU", _HOST_BYTES) for k in range(cpus)),
    )


def _links(accelerators: int, cpus: int) -> tuple[Link, ...]:
    """Between any two devices: half the rate between accelerators, no time between CPUs."""

    def rate(a: int, b: int) -> float:
        if a >= accelerators and b >= accelerators:
            return _SHARED_MEMORY_RATE
        return COST_UNIT / 2 if a < accelerators and b < accelerators else float(COST_UNIT)

    count = accelerators + cpus
    return tuple(Link(a, b, rate(a, b), 0.0) for a in range(count) for b in range(count) if a != b)


def _seconds(node: Mapping[str, Any], accelerators: int, cpus: int) -> list[float]:
    fast = _number(node, "fpgaLatency", _what(node)) / 1e3 if node.get("supportedOnFpga", True) else np.inf
    return [fast] * accelerators + [_number(node, "cpuLatency", _what(node)) / 1e3] * cpus


def _color_groups(nodes: Sequence[Mapping[str, Any]]) -> Index:
    colors = [
        None if node.get("colorClass") is None else _label(node["colorClass"], f"{_what(node)}: its colorClass") for node in nodes
    ]
    shared = [color for color, count in Counter(colors).items() if count > 1 and color is not None]
    number = {color: k for k, color in enumerate(shared)}
    return np.array([-1 if color is None else number.get(color, -1) for color in colors], dtype=np.int32)


def _edges(edges: Sequence[Any], index: Mapping[Any, int]) -> tuple[Index, Index, Index, Int]:
    """Columns src, dst, output, bytes."""
    outputs: dict[int, dict[int, int]] = {}
    rows = []
    for k, edge in enumerate(edges):
        if not isinstance(edge, Mapping):
            raise ProblemError(f"workload: edge {k} is not an object")
        ends = [_label(edge.get(key), f"workload: {key} of edge {k}") for key in ("sourceId", "destId")]
        unknown = [end for end in ends if end not in index]
        if unknown:
            raise ProblemError(f"workload: edge {k} names the node {unknown[0]!r}, which does not exist")
        size = round(_number(edge, "cost", f"edge {k} ({ends[0]} -> {ends[1]})") / 1e3 * COST_UNIT)
        known = outputs.setdefault(index[ends[0]], {})
        rows.append((index[ends[0]], index[ends[1]], known.setdefault(size, len(known)), size))
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    src, dst, output = (table[:, k].astype(np.int32) for k in range(3))
    return src, dst, output, table[:, 3].copy()
