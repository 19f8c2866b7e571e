"""A read-only view of the user's graph as it stands in the mirror: nodes, edges, types, functions.

It parses a GraphDef once and answers questions of structure. It must not know devices, strategies or sessions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tensorflow.core.framework import graph_pb2, node_def_pb2

from stepd.hook.engine import op_defs, rules


def split_input(name: str) -> tuple[str, int]:
    """("node", output index) of a NodeDef input; -1 for a control input."""
    if name.startswith("^"):
        return name[1:], -1
    node, _, index = name.partition(":")
    return node, int(index) if index else 0


def with_node(name: str, node: str) -> str:
    """The NodeDef input `name` with its node replaced."""
    _, index = split_input(name)
    return f"^{node}" if index < 0 else node if index == 0 else f"{node}:{index}"


class Node(NamedTuple):
    """A node by its user name; `inputs` are (node, output index), -1 for control.

    `device` is what the mirror asks for, `requested` what the user asked for.
    """

    name: str
    op: str
    inputs: tuple[tuple[str, int], ...]
    device: str
    requested: str
    proto: Any


class GraphView:
    """Nodes and edges of one version of the graph."""

    def __init__(self, nodes: Mapping[str, Node], functions: Mapping[str, Any]) -> None:
        self.nodes = nodes
        self.functions = functions

    @classmethod
    def parse(
        cls, graph_def: bytes, user_name: Callable[[str], str | None], requested: Mapping[str, str] | None = None
    ) -> GraphView:
        """`user_name` gives the user's name of a node, None for a node of the hook's own.

        `requested`: the user's devices where the mirror asks for others (user name -> device).
        """
        proto = graph_pb2.GraphDef.FromString(graph_def)
        nodes: dict[str, Node] = {}
        for node in proto.node:
            name = user_name(node.name)
            if name is not None:
                inputs = tuple((user_name(src) or src, k) for src, k in map(split_input, node.input))
                user_device = node.device if requested is None else requested.get(name, "")
                nodes[name] = Node(name, node.op, inputs, node.device, user_device, node)
        return cls(nodes, {f.signature.name: f for f in proto.library.function})

    @functools.cached_property
    def consumers(self) -> dict[str, list[str]]:
        made: dict[str, list[str]] = {name: [] for name in self.nodes}
        for node in self.nodes.values():
            for source, _ in node.inputs:
                made[source].append(node.name)
        return made

    def ancestors(self, names: Iterable[str]) -> set[str]:
        """The nodes `names` and everything that they need."""
        return _closure(names, lambda name: (source for source, _ in self.nodes[name].inputs))

    def descendants(self, names: Iterable[str]) -> set[str]:
        """The nodes `names` and everything that needs them."""
        return _closure(names, self.consumers.__getitem__)

    def outputs(self, name: str) -> tuple[int, ...]:
        """DataType numbers of the node's outputs (reference types above 100)."""
        return op_defs.output_types(self.nodes[name].proto)

    def bodies(self, node: Any) -> list[Any]:
        """FunctionDefs that a NodeDef names in its attributes, those they call included."""
        seen: dict[str, Any] = {}
        queue = list(op_defs.called(node))
        while queue:
            name = queue.pop()
            body = self.functions.get(name)
            if body is not None and name not in seen:
                seen[name] = body
                queue.extend(callee for inner in body.node_def for callee in op_defs.called(inner))
        return list(seen.values())


def made(node: node_def_pb2.NodeDef) -> Node:
    """The Node of a NodeDef that is in the session already, whose value is let go of."""
    node.attr.pop("value", None)
    return Node(node.name, node.op, tuple(map(split_input, node.input)), node.device, "", node)


UNNAMED = b"\0"
"""Before the name of an op in the place of a name that it does not give what it owns."""


def name_of_state(node: Any) -> tuple[bytes, bytes]:
    """(container, name) by which a session knows what a NodeDef owns: ops that say the same stand for the same.

    What has no name is called after its op, in its kernel, by a number too, so that no name says the same; variables of the old
    kind, and tables that ask for it, by the op's name alone. Handles without a name stand for one variable, whose name is empty.
    """
    name, op = node.attr["shared_name"].s, node.name.encode()
    if node.op == "VarHandleOp":
        return node.attr["container"].s, name
    after_op = node.op in rules.VARIABLES or ("use_node_name_sharing" in node.attr and node.attr["use_node_name_sharing"].b)
    return node.attr["container"].s, name or (op if after_op else UNNAMED + op)


def _closure(names: Iterable[str], neighbours: Callable[[str], Iterable[str]]) -> set[str]:
    seen = set(names)
    stack = list(seen)
    while stack:
        for name in neighbours(stack.pop()):
            if name not in seen:
                seen.add(name)
                stack.append(name)
    return seen


def takers(view: GraphView, name: str) -> Iterator[str]:
    """Ops that are given a value of `name`."""
    for user in dict.fromkeys(view.consumers[name]):
        if any(source == name and index >= 0 for source, index in view.nodes[user].inputs):
            yield user


def ancestors_among(view: GraphView, bits: Mapping[str, int]) -> dict[str, int]:
    """Node -> the bits of those of its ancestors that have some. Nodes mostly come after what they need: few rounds are enough."""
    before = dict.fromkeys(view.nodes, 0)
    changed = True
    while changed:
        changed = False
        for name, node in view.nodes.items():
            found = before[name]
            for source, _ in node.inputs:
                found |= before[source] | bits.get(source, 0)
            if found != before[name]:
                before[name], changed = found, True
    return before


def colocated_with(node: Any) -> list[str]:
    """Names in a NodeDef's `_class` attribute."""
    if "_class" not in node.attr:
        return []
    mark = b"loc:@"
    return [s[len(mark) :].decode() for s in node.attr["_class"].list.s if s.startswith(mark)]


class Union:
    """Union-find over names."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def add(self, name: str) -> None:
        self._parent.setdefault(name, name)

    def _root(self, name: str) -> str:
        root = name
        while (up := self._parent.setdefault(root, root)) != root:
            root = up
        while self._parent[name] != root:
            self._parent[name], name = root, self._parent[name]
        return root

    def join(self, one: str, other: str) -> None:
        self._parent[self._root(other)] = self._root(one)

    def sets(self) -> list[list[str]]:
        found: dict[str, list[str]] = {}
        for name in self._parent:
            found.setdefault(self._root(name), []).append(name)
        return list(found.values())
