"""From the nodes of a TensorFlow graph to the op, edge and colocation columns of a Problem.

The nodes are plain values and the costs plain arrays: who reads GraphDefs (the daemon, the command line, the
problem zoo) hands them over. Which ops must share a device is said in `placer_rules`. It knows no protobuf and no TensorFlow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from stepd.core.errors import ProblemError
from stepd.core.placer_rules import REFERENCE_VARIABLES, class_pairs, frame_pairs, groups, handle_pairs
from stepd.core.problem import CONTROL as CONTROL
from stepd.core.problem import Device, Float, Index, Int, Link, Problem

_VARIABLES = REFERENCE_VARIABLES | {"VarHandleOp"}

# Bytes of an element by TensorFlow's DataType number; strings, resources and variants are handles here.
_ELEMENT_BYTES = {1: 4, 2: 8, 3: 4, 4: 1, 5: 2, 6: 1, 8: 8, 9: 8, 10: 1, 11: 1, 12: 1, 13: 4, 14: 2, 15: 2}
_ELEMENT_BYTES |= {16: 2, 17: 2, 18: 16, 19: 2, 22: 4, 23: 8, 24: 1, 25: 1, 29: 1, 30: 1}
_REFERENCE_TYPE = 100  # DataType of a reference: its value's plus this


@dataclass(frozen=True)
class Node:
    """One node as a GraphDef says it.

    `inputs`: "a" (output 0), "a:1", "^a" (control). `colocate_with`: the names in its `_class` attribute,
    without
    "loc:@". `frame_name`: of an Enter op. `dtype` (DataType number) and `shape`: of a variable; None: not
    known.
    """

    name: str
    op: str
    inputs: tuple[str, ...] = ()
    device: str = ""
    colocate_with: tuple[str, ...] = ()
    frame_name: str = ""
    dtype: int = 0
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True, eq=False)
class OpGraph:
    """Ops and edges as columns; n ops, m edges.

    `resident_bytes`: of variables with a known shape, else 0. `colocation`: -1 for none. `edge_output`:
    CONTROL or the producer's output.
    """

    names: tuple[str, ...]
    types: tuple[str, ...]
    devices: tuple[str, ...]
    resident_bytes: Int
    colocation: Index
    edge_src: Index
    edge_dst: Index
    edge_output: Index


@dataclass(frozen=True, eq=False)
class GraphCosts:
    """What the ops of an OpGraph cost.

    seconds: float64 [n, d], inf where op i cannot run on device j. resident_bytes, temp_bytes: int64 [n].
    output_bytes: by (op, output); an output that is absent has 0 bytes.
    """

    seconds: Float
    resident_bytes: Int
    temp_bytes: Int
    output_bytes: Mapping[tuple[int, int], int]


def ancestors(nodes: Sequence[Node], targets: Iterable[str]) -> list[Node]:
    """The nodes that a run of `targets` executes: they and all that they need, in the order given.

    Names that the graph does not have are passed over: traces hold ops of the runtime's own.
    """
    index = {node.name: i for i, node in enumerate(nodes)}
    inputs = _resolved_inputs(nodes, index)
    needed: set[int] = set()
    waiting = [index[name] for name in targets if name in index]
    while waiting:
        i = waiting.pop()
        if i not in needed:
            needed.add(i)
            waiting.extend(source for source, _ in inputs[i])
    return [nodes[i] for i in sorted(needed)]


def op_graph(nodes: Sequence[Node], together: Iterable[Sequence[str]] = ()) -> OpGraph:
    """The columns of `nodes`; `together` are further sets of names that share a device.

    Edges back to the start of a while loop (NextIteration to Merge) are left out.
    Raises ProblemError that names the node, when an input is missing, a name occurs twice or a cycle is not a
    loop's.
    """
    index = _unique_index(nodes)
    inputs = [
        [(j, output) for j, output in sources if not (nodes[j].op == "NextIteration" and nodes[i].op == "Merge")]
        for i, sources in enumerate(_resolved_inputs(nodes, index))
    ]
    # A dictionary, not a list: an op that reads one output twice is one consumer of it.
    edges = dict.fromkeys((j, i, output) for i, sources in enumerate(inputs) for j, output in sources)
    columns = np.array(list(edges), dtype=np.int32).reshape(-1, 3)
    order = _topological_order(nodes, inputs)
    pairs = [
        *class_pairs(nodes, index),
        *handle_pairs(nodes, inputs, order),
        *frame_pairs(nodes, inputs, order),
        *((index[group[0]], index[name]) for group in together for name in group),
    ]
    return OpGraph(
        names=tuple(node.name for node in nodes),
        types=tuple(node.op for node in nodes),
        devices=tuple(node.device for node in nodes),
        resident_bytes=np.array([variable_bytes(node) for node in nodes], dtype=np.int64),
        colocation=groups(len(nodes), pairs),
        edge_src=columns[:, 0].copy(),
        edge_dst=columns[:, 1].copy(),
        edge_output=columns[:, 2].copy(),
    )


def problem_of(name: str, graph: OpGraph, costs: GraphCosts, devices: Sequence[Device], links: Sequence[Link]) -> Problem:
    """A Problem of `graph`; what the user's code asks for (tf.device) becomes `user_devices`."""
    outputs = zip(graph.edge_src.tolist(), graph.edge_output.tolist(), strict=True)
    sizes = [costs.output_bytes.get(pair, 0) if pair[1] != CONTROL else 0 for pair in outputs]
    return Problem(
        name=name,
        devices=tuple(devices),
        links=tuple(links),
        op_names=graph.names,
        op_types=graph.types,
        seconds=np.array(costs.seconds, dtype=np.float64),
        resident_bytes=np.array(costs.resident_bytes, dtype=np.int64),
        temp_bytes=np.array(costs.temp_bytes, dtype=np.int64),
        colocation=graph.colocation.copy(),
        edge_src=graph.edge_src.copy(),
        edge_dst=graph.edge_dst.copy(),
        edge_output=graph.edge_output.copy(),
        edge_bytes=np.array(sizes, dtype=np.int64),
        user_devices=requested_devices(graph.devices, [device.name for device in devices]),
    )


def variable_bytes(node: Node) -> int:
    """Bytes that a variable keeps for as long as the session lives; 0 for other ops and unknown shapes."""
    if node.op not in _VARIABLES or node.shape is None or min(node.shape, default=0) < 0:
        return 0
    return prod(node.shape) * element_bytes(node.dtype)


def element_bytes(dtype: int) -> int:
    """Bytes of one element of DataType `dtype`, references too; 8 for what is held by a pointer."""
    return _ELEMENT_BYTES.get(dtype % _REFERENCE_TYPE, 8)


def requested_devices(requests: Sequence[str], device_names: Sequence[str]) -> Index:
    """The device that each request ("/device:GPU:1", "/gpu:1", "/job:worker/task:0") names, or -1."""
    known = [_device_fields(name) for name in device_names]
    answers: dict[str, int] = {}
    for request in dict.fromkeys(requests):
        wanted = _device_fields(request)
        fitting = [k for k, fields in enumerate(known) if wanted.items() <= (wanted | fields).items()]
        answers[request] = fitting[0] if wanted and len(fitting) == 1 else -1
    return np.array([answers[request] for request in requests], dtype=np.int32)


def _device_fields(name: str) -> dict[str, str]:
    """{"task": "0", "type": "GPU", "id": "1"} of a full or partial name in long or short form."""
    fields: dict[str, str] = {}
    for part in name.strip("/").split("/"):
        key, _, value = part.removeprefix("device:").partition(":")
        if key.lower() in ("cpu", "gpu", "tpu"):
            fields |= {"type": key.upper(), "id": value or "0"}
        elif value:
            fields[key] = value
    return fields


def _unique_index(nodes: Sequence[Node]) -> dict[str, int]:
    index: dict[str, int] = {}
    for i, node in enumerate(nodes):
        if index.setdefault(node.name, i) != i:
            raise ProblemError(f"two ops are called {node.name!r}: names in a graph are unique")
    return index


def _resolved_inputs(nodes: Sequence[Node], index: Mapping[str, int]) -> list[list[tuple[int, int]]]:
    """For each op, the (producer, its output or CONTROL) of each of its inputs."""

    def resolve(node: Node, text: str) -> tuple[int, int]:
        source, _, number = text.removeprefix("^").partition(":")
        if source not in index:
            raise ProblemError(f"op {node.name!r} reads {text!r}, and the graph has no op {source!r}")
        return index[source], CONTROL if text.startswith("^") else int(number or 0)

    return [[resolve(node, text) for text in node.inputs] for node in nodes]


def _topological_order(nodes: Sequence[Node], inputs: Sequence[Sequence[tuple[int, int]]]) -> list[int]:
    """Op indices, producers first. Raises ProblemError that names an op on a cycle."""
    waiting = [len(sources) for sources in inputs]
    readers: list[list[int]] = [[] for _ in nodes]
    for i, sources in enumerate(inputs):
        for j, _ in sources:
            readers[j].append(i)
    ready = deque(i for i, count in enumerate(waiting) if not count)
    order = []
    while ready:
        order.append(ready.popleft())
        for reader in readers[order[-1]]:
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    if len(order) < len(nodes):
        i = next(i for i, count in enumerate(waiting) if count)
        seen: set[int] = set()
        while i not in seen:  # walk back through unfinished producers until one comes again: it lies on the cycle
            seen.add(i)
            i = next(j for j, _ in inputs[i] if waiting[j])
        raise ProblemError(f"the graph has a cycle through op {nodes[i].name!r}, which is not a while loop's")
    return order
