"""Random graphs with devices, costs, priorities and step kinds, for tests of order edges."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import strategies as st

pytest.importorskip("tensorflow")

from tensorflow.core.framework import node_def_pb2, types_pb2

from stepd.hook.engine.classify import Classes
from stepd.hook.engine.graphview import GraphView, Node, Union
from stepd.hook.order.edges import Edge, Wanted, order_edges
from stepd.hook.order.schedule import Pool
from stepd.hook.ports import StepKind

DEVICES = ("d0", "d1", "d2")
POOLS = {device: Pool(device, 1) for device in DEVICES}
NOTHING_HELD = Classes({}, {}, (), {}, frozenset())


@dataclass(frozen=True)
class Case:
    """A graph, where its ops are, what they cost, their priorities and the steps that run."""

    view: GraphView
    device_of: Mapping[str, str]
    seconds: Mapping[str, float]
    priority: Mapping[str, int]
    kinds: tuple[StepKind, ...]
    classes: Classes = NOTHING_HELD

    def edges(self) -> tuple[Edge, ...]:
        return order_edges(self.view, self.classes, self.kinds, Wanted(self.priority, self.seconds), self.device_of, POOLS)


def node(name: str, inputs: Sequence[str], op: str = "Einsum") -> Node:
    """A node of a kind that takes and gives floats; "^x" is a control input."""
    proto = node_def_pb2.NodeDef(name=name, op=op, input=inputs)
    if op == "Einsum":
        proto.attr["T"].type = types_pb2.DT_FLOAT
        proto.attr["N"].i = sum(not i.startswith("^") for i in inputs)
    parsed = tuple((i.lstrip("^").partition(":")[0], -1 if i.startswith("^") else int(i.partition(":")[2] or 0)) for i in inputs)
    return Node(name, op, parsed, "", "", proto)


def view_of(*nodes: Node) -> GraphView:
    return GraphView({n.name: n for n in nodes}, {})


def kind(*fetches: str, feeds: Sequence[str] = ()) -> StepKind:
    return StepKind(",".join((*fetches, "|", *feeds)), tuple(feeds), tuple(f"{name}:0" for name in fetches), ())


@st.composite
def cases(draw: Any) -> Case:
    """Up to 40 ops on up to three devices; some dequeue, some depend by control only; up to three step kinds, some feed inside."""
    seed = draw(st.integers(0, 2**32))
    rng = random.Random(seed)
    count = draw(st.integers(2, 40))
    names = [f"n{i}" for i in range(count)]
    rng.shuffle(names)
    nodes = []
    for i, name in enumerate(names):
        found = rng.sample(names[:i], min(i, rng.choice((0, 1, 1, 2, 3))))
        inputs = sorted((f"^{s}" if rng.random() < 0.15 else s for s in found), key=lambda s: s.startswith("^"))
        op = "QueueDequeueV2" if rng.random() < 0.07 else "Einsum"
        nodes.append(node(name, [i for i in inputs if op == "Einsum" or i.startswith("^")], op))
    rng.shuffle(nodes)
    devices = DEVICES[: draw(st.integers(1, 3))]
    kinds = []
    for _ in range(draw(st.integers(1, 3))):
        feeds = tuple(f"{n}:0" for n in names if rng.random() < 0.05)
        kinds.append(kind(*rng.sample(names, rng.randint(1, min(count, 4))), feeds=feeds))
    priority = list(range(count))
    rng.shuffle(priority)
    return Case(
        view_of(*nodes),
        {name: rng.choice(devices) for name in names},
        {name: rng.choice((0.0, 1e-6, 1e-3, 5e-3)) for name in names},
        dict(zip(names, priority, strict=True)),
        tuple(kinds),
        grouped(nodes, rng, draw(st.sampled_from((0.0, 0.3)))),
    )


def grouped(nodes: Sequence[Node], rng: random.Random, share: float) -> Classes:
    """Some neighbours may be fused."""
    union = Union()
    for one in nodes:
        for source, index in one.inputs:
            if index >= 0 and rng.random() < share:
                union.join(source, one.name)
    groups = tuple(tuple(names) for names in union.sets() if len(names) > 1)
    return Classes({}, {}, groups, {name: i for i, group in enumerate(groups) for name in group}, frozenset())
