"""From a live session to a planning Problem: graph, learned costs, devices and what must not move.

Pure. The daemon gathers a Situation, a planner process assembles and solves it. Knows no protobuf and no
TensorFlow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from stepd.core.cost.communication import LinkCost
from stepd.core.cost.models import CostModels
from stepd.core.cost.parts import op_costs
from stepd.core.errors import ProblemError
from stepd.core.graph import GraphCosts, Node, OpGraph, ancestors, op_graph, problem_of, requested_devices
from stepd.core.problem import Device, Float, Index, Problem, SplitChoice
from stepd.core.session_links import SessionDevice, link_costs, links

Flags = npt.NDArray[np.bool_]
FORWARDING = frozenset(("Identity", "StopGradient", "PreventGradient", "Reshape", "ExpandDims", "Squeeze", "EnsureShape"))
"""Ops whose only output has the bytes of their first input."""
UNLIMITED = 1 << 46
"""Stands for a device whose memory is not known (64 TiB)."""
GPU_SHARE = 0.8
"""Of a GPU's memory, what plans may fill: workspaces of kernels and another order of ops took up to 1.23 times the
peak that is predicted (docs/measurements/gpus.md), and a step that runs out of memory is an error that the
program gets to see.
"""


@dataclass(frozen=True)
class SplitOffer:
    """A split that the hook can carry out, by names; bytes as in SplitChoice, 1 where the hook does not know them."""

    op: str
    axis: str
    max_parts: int
    cut_bytes: tuple[int, ...]
    joined_bytes: tuple[int, ...]
    adds: bool = False


@dataclass(frozen=True)
class Situation:
    """What a plan starts from.

    `outputs`: names of the ops that the step kind fetches or runs. `pinned`: op to reason. `together`: sets
    of ops that share a device. `device_kinds`: op type to the device types that have a kernel, where not
    all do. `keeps_types`: an op stays on the type of device that it has today. `splits`: what the hook can
    split. `today`: device by op, as traced.
    """

    name: str
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    devices: tuple[SessionDevice, ...]
    models: CostModels
    today: Mapping[str, str]
    pinned: Mapping[str, str] = field(default_factory=dict)
    together: tuple[tuple[str, ...], ...] = ()
    device_kinds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    keeps_types: bool = False
    splits: tuple[SplitOffer, ...] = ()


@dataclass(frozen=True, eq=False)
class Assembled:
    """A Problem and today's answer to it. today: int32 [n]. `links`: what each device pair is taken to
    cost.
    """

    problem: Problem
    today: Index
    links: Mapping[tuple[str, str], LinkCost]


def assemble(situation: Situation) -> Assembled:
    """The Problem of the step kind's ops. Raises ProblemError when nothing that the step runs is in the
    graph.
    """
    nodes = ancestors(situation.nodes, situation.outputs)
    if not nodes:
        raise ProblemError(f"{situation.name}: none of the step's fetches and targets is an op of the reported graph")
    names = {node.name for node in nodes}
    together = [tuple(op for op in group if op in names) for group in situation.together]
    folded = _folded_into_consumer(nodes, situation)
    # What must share a device is the hook's to say; `_class` is a wish of the program that the hook lifts when it moves an op.
    graph = op_graph([replace(node, colocate_with=()) for node in nodes], [group for group in together if len(group) > 1] + folded)
    today = _today(graph, situation)
    colocation, fixed = _fixed(graph, situation, today)
    devices, models = [(d.name, d.type) for d in situation.devices], situation.models
    known = op_costs(models.computation, graph.names, graph.types, devices, models.batch)
    seconds = _seconds(graph, situation, known.seconds, today, fixed)
    costs = link_costs(situation.models, [device.name for device in situation.devices])
    problem = problem_of(
        situation.name,
        _with_colocation(graph, colocation),
        _costs(graph, situation.models, seconds),
        [Device(d.name, d.type, _usable_bytes(d)) for d in situation.devices],
        links(situation.devices, costs),
    )
    choices = split_choices(problem, situation.splits, known.dearer)
    return Assembled(replace(problem, split_choices=choices), today, costs)


def _usable_bytes(device: SessionDevice) -> int:
    if not device.memory_bytes:
        return UNLIMITED
    return int(device.memory_bytes * GPU_SHARE) if device.type == "GPU" else device.memory_bytes


def split_choices(
    problem: Problem, offers: Sequence[SplitOffer], dearer: Mapping[tuple[str, str], float]
) -> tuple[SplitChoice, ...]:
    """The offers for ops of the problem, with what steps have shown: the sizes, and what parts cost (`dearer`, by op and axis)."""
    index = {name: k for k, name in enumerate(problem.op_names)}
    rows = [offer for offer in offers if offer.op in index and offer.max_parts > 1]
    wanted = {index[offer.op] for offer in rows}
    read: dict[int, list[int]] = {op: [] for op in wanted}
    made: dict[int, dict[int, int]] = {op: {} for op in wanted}
    edges = zip(
        problem.edge_src.tolist(), problem.edge_dst.tolist(), problem.edge_output.tolist(), problem.edge_bytes.tolist(), strict=True
    )
    for source, target, output, size in edges:
        if target in read and output >= 0:
            read[target].append(size)
        if source in made and output >= 0:
            made[source][output] = max(size, made[source].get(output, 0))
    choices = []
    for offer in rows:
        op = index[offer.op]
        if len(read[op]) != len(offer.cut_bytes):
            continue  # the hook saw other inputs: an op that changed since
        cut = tuple(seen if known > 0 and seen else known for known, seen in zip(offer.cut_bytes, read[op], strict=True))
        joined = tuple(made[op].get(k, 0) or known for k, known in enumerate(offer.joined_bytes))
        factor = dearer.get((offer.op, offer.axis), 1.0)
        choices.append(SplitChoice(op, offer.axis, offer.max_parts, cut, joined, offer.adds, factor))
    return tuple(choices)


def _folded_into_consumer(nodes: Sequence[Node], situation: Situation) -> list[tuple[str, ...]]:
    """(op, its only consumer) for ops that no trace shows: the runtime fused them, so their cost is their
    consumer's.

    Without this a planner would cut between the halves of a fused convolution, where an edge seems to cost
    nothing.
    """
    traced = situation.models.computation.ops()
    consumers: dict[str, set[str]] = {}
    for node in nodes:
        for text in node.inputs:
            if not text.startswith("^"):
                consumers.setdefault(text.partition(":")[0], set()).add(node.name)
    return [
        (node.name, next(iter(consumers[node.name])))
        for node in nodes
        if node.name not in traced and node.name not in situation.pinned and len(consumers.get(node.name, ())) == 1
    ]


def _today(graph: OpGraph, situation: Situation) -> Index:
    """Device of every op today: as traced; else its group's; else its producer's or reader's; else what the
    program asked for; else where most ops run.
    """
    index = {device.name: k for k, device in enumerate(situation.devices)}
    today = np.array([index.get(situation.today.get(name, ""), -1) for name in graph.names], dtype=np.int32)
    counted = Counter(int(device) for device in today if device >= 0)
    usual = counted.most_common(1)[0][0] if counted else _first_usable(situation.devices)
    for group in range(int(graph.colocation.max(initial=-1)) + 1):
        members = np.flatnonzero(graph.colocation == group)
        seen = Counter(int(device) for device in today[members] if device >= 0)
        if seen:
            today[members[today[members] < 0]] = seen.most_common(1)[0][0]
    asked = requested_devices(graph.devices, list(index))
    today = np.where((today < 0) & (asked >= 0), asked, today).astype(np.int32)
    for source, target in ((graph.edge_dst, graph.edge_src), (graph.edge_src, graph.edge_dst)):
        fill = (today[target] < 0) & (today[source] >= 0)
        today[target[fill]] = today[source[fill]]
    return np.where(today < 0, usual, today).astype(np.int32)


def _first_usable(devices: Sequence[SessionDevice]) -> int:
    return next((k for k, device in enumerate(devices) if device.usable), 0)


def _fixed(graph: OpGraph, situation: Situation, today: Index) -> tuple[Index, Flags]:
    """Colocation and which ops stay where they are: the pinned ones, and whoever shares a device with them.

    A group that does not share a device today (the runtime did not honour it) is dissolved and stays as it
    is.
    """
    fixed = np.array([name in situation.pinned for name in graph.names], dtype=bool)
    colocation = graph.colocation.copy()
    for group in np.unique(colocation[colocation >= 0]):
        members = np.flatnonzero(colocation == group)
        if not fixed[members].any():
            continue
        fixed[members] = True
        if len(set(today[members].tolist())) > 1:
            colocation[members] = -1
    return colocation, fixed


def _seconds(graph: OpGraph, situation: Situation, seconds: Float, today: Index, fixed: Flags) -> Float:
    """float64 [n, d]; inf where an op cannot or must not run. An op that could run nowhere stays where it
    is.
    """
    devices = situation.devices
    allowed = np.ones(seconds.shape, dtype=bool)
    allowed[:, [k for k, device in enumerate(devices) if not device.usable]] = False
    for op_type, kinds in situation.device_kinds.items():
        rows = np.array([t == op_type for t in graph.types], dtype=bool)
        for k, device in enumerate(devices):
            if device.type not in kinds:
                allowed[rows, k] = False
    if situation.keeps_types:
        types = np.array([device.type for device in devices])
        allowed &= types[today][:, None] == types[None, :]
    allowed = _alike_in_groups(allowed, graph.colocation)
    stay = fixed | ~allowed.any(axis=1)
    allowed[stay] = False
    allowed[stay, today[stay]] = True
    result: Float = np.where(allowed, seconds, np.inf)
    return result


def _alike_in_groups(allowed: Flags, colocation: Index) -> Flags:
    """A group may only go where all its members may."""
    result: Flags = allowed.copy()
    if (colocation >= 0).any():
        grouped = np.ones((int(colocation.max()) + 1, allowed.shape[1]), dtype=bool)
        rows = colocation >= 0
        np.logical_and.at(grouped, colocation[rows], allowed[rows])
        result[rows] = grouped[colocation[rows]]
    return result


def _with_colocation(graph: OpGraph, colocation: Index) -> OpGraph:
    return OpGraph(
        graph.names,
        graph.types,
        graph.devices,
        graph.resident_bytes,
        colocation,
        graph.edge_src,
        graph.edge_dst,
        graph.edge_output,
    )


def _costs(graph: OpGraph, models: CostModels, seconds: Float) -> GraphCosts:
    """Sizes at the current batch. Temporary bytes hold an op's outputs too: kernels allocate them when they
    start.
    """
    index = {name: i for i, name in enumerate(graph.names)}
    outputs: dict[tuple[int, int], int] = {}
    temp = np.zeros(len(index), dtype=np.int64)
    for key, size in models.outputs.at_batch(models.batch).items():
        name, _, slot = key.rpartition(":")
        if name in index:
            outputs[index[name], int(slot)] = size
            temp[index[name]] += size
    outputs |= _forwarded(graph, outputs)
    for name, size in models.temporary.at_batch(models.batch).items():
        if name in index:
            temp[index[name]] += size
    resident = graph.resident_bytes.copy()
    for name, size in models.resident.at_batch(models.batch).items():
        if name in index:
            resident[index[name]] = max(int(resident[index[name]]), size)
    return GraphCosts(seconds, resident, temp, outputs)


def _forwarded(graph: OpGraph, outputs: Mapping[tuple[int, int], int]) -> dict[tuple[int, int], int]:
    """Sizes of what ops hand on that no trace shows, since the runtime took them out of the graph: the tensor crosses all the same
    where a strategy puts such an op and its reader on different devices.
    """
    first: dict[int, tuple[int, int]] = {}
    edges = zip(graph.edge_dst.tolist(), graph.edge_src.tolist(), graph.edge_output.tolist(), strict=True)
    for op, source, output in edges:  # inputs of an op are in their order
        if output >= 0 and graph.types[op] in FORWARDING and (op, 0) not in outputs:
            first.setdefault(op, (source, output))
    found = {}
    for op, read in first.items():
        while read[0] in first:  # a chain of them; the graph has no cycle
            read = first[read[0]]
        if read in outputs:
            found[op, 0] = outputs[read]
    return found
