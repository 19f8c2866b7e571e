"""Queue content on its way from one session to the next. Nothing may run in either meanwhile, and nothing may break it off.

Elements are read by turning the queue round once: each one is taken out and put back behind the others in one run, so that the
old session has them all, in their order, whatever becomes of the new one. It must not know what runs (see `draining`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tensorflow.core.framework import graph_pb2, types_pb2

from stepd.hook.engine import capi
from stepd.hook.engine.ahead import Ahead, aligned, as_fed
from stepd.hook.engine.graphview import GraphView, Node, name_of_state
from stepd.hook.engine.mirror import Mirror

# First in, first out, and nothing else to them.
CARRIED = frozenset({"FIFOQueueV2", "PaddingFIFOQueueV2"})
# Among elements of one priority their order depends on all that was ever in the queue, so that only an empty one is like a new one.
CARRIED_EMPTY = frozenset({"PriorityQueueV2"})


# A run returns their values as plain integers, which no run takes for them.
_QUANTIZED = {types_pb2.DT_QINT8, types_pb2.DT_QUINT8, types_pb2.DT_QINT16, types_pb2.DT_QUINT16, types_pb2.DT_QINT32}


class QueueObstacleError(Exception):
    """A queue is in a state that cannot be carried; the message names it and says why."""


Element = list[Any]  # component arrays


@dataclass(frozen=True)
class Content:
    """Of queue op `name`: its elements, first to leave first; and whether it is closed."""

    name: str
    elements: tuple[Element, ...]
    closed: bool


def carriable(node: Node) -> bool:
    """May this op's content be carried, as far as its type says?"""
    if node.op not in CARRIED | CARRIED_EMPTY:
        return False
    return not (_QUANTIZED | {types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT}) & set(component_types(node))


def component_types(node: Node) -> list[int]:
    """DataType numbers of an element's components."""
    types = list(node.proto.attr["component_types"].list.type)
    return [types_pb2.DT_INT64, *types] if node.op == "PriorityQueueV2" else types


class Ops:
    """The helper ops on one session's queues. `by_role`: (queue, role) -> operation."""

    def __init__(self, ahead: Ahead, mirror: Mirror, view: GraphView, queues: Iterable[str], prefix: str) -> None:
        self._ahead = ahead
        graph = graph_pb2.GraphDef()
        graph.versions.CopyFrom(mirror.user_graph.graph_def_versions)
        tensors: dict[tuple[str, int], Any] = {}
        where: dict[tuple[str, str], str] = {}
        for i, name in enumerate(dict.fromkeys(one_of_each(view, queues).values())):
            here = mirror.name_here(name)
            tensors[here, 0] = capi.output(mirror.operation(name), 0)
            for role, node in _nodes(f"{prefix}/q{i}", here, component_types(view.nodes[name])).items():
                graph.node.append(node)
                where[name, role] = node.name
        self.queues = list(dict.fromkeys(name for name, _ in where))
        self._components = {name: len(component_types(view.nodes[name])) for name in self.queues}
        self.types = {name: view.nodes[name].op for name in self.queues}
        # How many elements there is room for; 2^31 - 1 where the program sets no limit.
        self.capacity = {name: _capacity(view.nodes[name]) for name in self.queues}
        self._operations: dict[tuple[str, str], Any] = {}
        if where:
            made = capi.import_graph_def(mirror.graph, graph.SerializeToString(), tensors, {}, list(where.values()))
            capi.extend_session(ahead.session)
            self._operations = dict(zip(where, made, strict=True))

    def build(self) -> None:
        """Have the executors of all that may be run here built."""
        for name in self.queues:
            for role in ("size", "is_closed"):
                self._ahead.build([], [self._output(name, role)], [])
            self._ahead.build([], self._taken(name), [])
            self._ahead.build([], self._taken(name), [self._operations[name, "put back"]])
            feeds = [self._output(name, f"in{k}") for k in range(self._components[name])]
            for role in ("put", "put many"):
                self._ahead.build(feeds, [], [self._operations[name, role]])

    def contents(self, ahead: Mapping[str, list[Element]]) -> list[Content]:
        """What the queues hold, behind what was taken `ahead`. Raises QueueObstacleError before anything more was touched."""
        states = {name: (self.size(name), self.is_closed(name)) for name in self.queues}
        for name, (size, closed) in states.items():
            if size and closed:
                raise QueueObstacleError(f"queue {name} is closed and still holds {size} elements")
            if size and self.types[name] in CARRIED_EMPTY:
                raise QueueObstacleError(f"queue {name} ({self.types[name]}) holds {size} elements whose order is not known")
        return [
            Content(name, (*ahead.get(name, ()), *(self._turn(name) for _ in range(size))), closed)
            for name, (size, closed) in states.items()
        ]

    def fill(self, contents: Iterable[Content]) -> dict[str, list[Element]]:
        """Put `contents` into empty queues; returns what there was no room for. Raises RuntimeError when one has not the rest."""
        beyond: dict[str, list[Element]] = {}
        for content in contents:
            fit = min(len(content.elements), self.capacity[content.name])
            for element in content.elements[:fit]:
                self.put(content.name, [element])
            if content.closed:
                self._run({}, [], [self._operations[content.name, "close"]])
            size = self.size(content.name)
            if size != fit:
                raise RuntimeError(f"queue {content.name} has {size} elements in the new session, not {fit}")
            beyond[content.name] = list(content.elements[fit:])
        return beyond

    def give_back(self, taken: Mapping[str, list[Element]]) -> dict[str, list[Element]]:
        """Put what was taken out before all else that the queues hold; returns what there was no room for. Nothing else may run."""
        whole = {name: [*elements, *(self.take(name) for _ in range(self.size(name)))] for name, elements in taken.items()}
        return self.fill(Content(name, tuple(elements), False) for name, elements in whole.items())

    def size(self, name: str) -> int:
        return int(self._read(name, "size"))

    def is_closed(self, name: str) -> bool:
        return bool(self._read(name, "is_closed"))

    def take(self, name: str) -> Element:
        """Take the next element out of a queue that has one."""
        return list(self._run({}, self._taken(name), []))

    def put(self, name: str, elements: list[Element], options: Any = None) -> None:
        """Put one element, or several that are of one shape at once; waits for room, under a run's `options`."""
        columns = list(zip(*elements, strict=True))
        values = [as_fed(column[0]) if len(elements) == 1 else np.stack([as_fed(v) for v in column]) for column in columns]
        feeds = {self._output(name, f"in{k}"): aligned(value) for k, value in enumerate(values)}
        target = self._operations[name, "put" if len(elements) == 1 else "put many"]
        if options is None:
            self._run(feeds, [], [target])
        else:
            capi.run_session(self._ahead.session, options, feeds, [], [target], None)

    def own_name(self, name: str, many: bool) -> str:
        """The name, in errors, of the op that puts one element or many."""
        return capi.op_name(self._operations[name, "put many" if many else "put"])

    def _turn(self, name: str) -> list[Any]:
        return list(self._run({}, self._taken(name), [self._operations[name, "put back"]]))

    def _taken(self, name: str) -> list[Any]:
        return [capi.output(self._operations[name, "take"], k) for k in range(self._components[name])]

    def _read(self, name: str, role: str) -> Any:
        return self._run({}, [self._output(name, role)], [])[0]

    def _output(self, name: str, role: str) -> Any:
        return capi.output(self._operations[name, role], 0)

    def _run(self, feeds: dict[Any, Any], fetches: list[Any], targets: list[Any]) -> Any:
        return self._ahead.run(fetches, targets, feeds)


def one_of_each(view: GraphView, queues: Iterable[str]) -> dict[str, str]:
    """Queue op -> the first that stands for the same queue: ops may share one by its name."""
    found: dict[tuple[bytes, bytes], str] = {}
    made = {}
    for name in queues:
        made[name] = found.setdefault(name_of_state(view.nodes[name].proto), name)
    return made


def _capacity(node: Node) -> int:
    capacity = int(node.proto.attr["capacity"].i)
    return capacity if capacity >= 0 else (1 << 31) - 1


def _nodes(base: str, queue: str, types: list[int]) -> dict[str, Any]:
    """Role -> NodeDef of the helpers of one queue."""
    graph = graph_pb2.GraphDef()

    def node(role: str, op: str, inputs: list[str]) -> Any:
        made = graph.node.add()
        made.name, made.op = f"{base}/{role.replace(' ', '_')}", op
        made.input.extend(inputs)
        return made

    made = {"size": node("size", "QueueSizeV2", [queue]), "is_closed": node("is_closed", "QueueIsClosedV2", [queue])}
    made["close"] = node("close", "QueueCloseV2", [queue])
    made["take"] = node("take", "QueueDequeueV2", [queue])
    made["take"].attr["component_types"].list.type.extend(types)
    taken = [f"{made['take'].name}:{k}" if k else made["take"].name for k in range(len(types))]
    made["put back"] = node("put back", "QueueEnqueueV2", [queue, *taken])
    made["put back"].attr["Tcomponents"].list.type.extend(types)
    for k, dtype in enumerate(types):
        made[f"in{k}"] = node(f"in{k}", "Placeholder", [])
        made[f"in{k}"].attr["dtype"].type = dtype
    made["put"] = node("put", "QueueEnqueueV2", [queue, *(made[f"in{k}"].name for k in range(len(types)))])
    made["put many"] = node("put many", "QueueEnqueueManyV2", [queue, *(made[f"in{k}"].name for k in range(len(types)))])
    for role in ("put", "put many"):
        made[role].attr["Tcomponents"].list.type.extend(types)
    return made
