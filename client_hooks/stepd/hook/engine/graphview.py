"""A read-only view of the user's graph as it stands in the mirror: nodes, edges, types, functions.

It parses a GraphDef once and answers questions of structure. It must not know devices, strategies or sessions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tensorflow.core.framework import graph_pb2, node_def_pb2, types_pb2
from tensorflow.python.framework import op_def_registry

from stepd.hook.engine import rules

_REF = 100  # DataType numbers of reference types begin here


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
        return output_types(self.nodes[name].proto)

    def bodies(self, node: Any) -> list[Any]:
        """FunctionDefs that a NodeDef names in its attributes, those they call included."""
        seen: dict[str, Any] = {}
        queue = list(called(node))
        while queue:
            name = queue.pop()
            body = self.functions.get(name)
            if body is not None and name not in seen:
                seen[name] = body
                queue.extend(callee for inner in body.node_def for callee in called(inner))
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


@functools.cache
def op_def(op: str) -> Any:
    """The OpDef of an op type; None for a function name or an op that is not registered."""
    return op_def_registry.get(op)


@functools.cache
def is_stateful(op: str) -> bool:
    known = op_def(op)
    return known is None or known.is_stateful


@functools.cache
def function_attrs(op: str) -> tuple[str, ...] | None:
    """Names of the attributes of an op type that hold functions; None for an op that is not registered."""
    known = op_def(op)
    return None if known is None else tuple(a.name for a in known.attr if a.type in ("func", "list(func)"))


def called(node: node_def_pb2.NodeDef) -> Iterator[str]:
    """Names of the functions that a node calls."""
    attrs = function_attrs(node.op)
    if attrs is None:
        yield node.op
        return
    for name in attrs:
        value = node.attr[name]
        if value.HasField("func"):
            yield value.func.name
        for function in value.list.func:
            yield function.name
    if node.op == "SymbolicGradient":
        yield node.attr["f"].func.name


class _Arg(NamedTuple):
    """An argument of an op type: its type, or the attributes that say it. An OpDef itself answers much more slowly."""

    type: int
    type_attr: str
    list_attr: str
    number_attr: str
    ref: int


@functools.cache
def _args(op: str, outputs: bool) -> tuple[tuple[_Arg, ...], tuple[int, ...] | None]:
    """The arguments of an op type; and their types, where these depend on no attribute."""
    known = op_def(op)
    if known is None:
        return (), ()
    args = tuple(
        _Arg(a.type, a.type_attr, a.type_list_attr, a.number_attr, _REF if a.is_ref else 0)
        for a in (known.output_arg if outputs else known.input_arg)
    )
    free = any(a.type_attr or a.list_attr or a.number_attr for a in args)
    return args, None if free else tuple(a.type + a.ref for a in args)


def _types(node: Any, outputs: bool) -> tuple[int, ...]:
    args, fixed = _args(node.op, outputs)
    if fixed is not None:
        return fixed
    types: list[int] = []
    attr = node.attr
    for one, type_attr, list_attr, number_attr, ref in args:
        if list_attr:
            types += [dtype + ref for dtype in attr[list_attr].list.type]
        else:
            dtype = (one or attr[type_attr].type) + ref
            types += [dtype] * attr[number_attr].i if number_attr else (dtype,)
    return tuple(types)


def output_types(node: Any) -> tuple[int, ...]:
    return _types(node, True)


def input_types(node: Any) -> tuple[int, ...]:
    return _types(node, False)


def is_ref(dtype: int) -> bool:
    return dtype > _REF


def holds_state(dtype: int) -> bool:
    """References, resources and variants: values that stand for state somewhere."""
    return dtype > _REF or dtype in (types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT)


@functools.cache
def may_hold_state(op: str) -> bool:
    """May an op of this type be given such a value, or give one? Most numeric ones may not."""
    known = op_def(op)
    if known is None:
        return False
    allowed = {attr.name: tuple(attr.allowed_values.list.type) for attr in known.attr}
    for arg in (*known.input_arg, *known.output_arg):
        types = (arg.type,) if arg.type else allowed[arg.type_list_attr or arg.type_attr]
        if arg.is_ref or not types or any(map(holds_state, types)):
            return True
    return False


def handles_state(node: Any) -> bool:
    """Is the op of a NodeDef given such a value, or does it give one?"""
    return may_hold_state(node.op) and any(map(holds_state, input_types(node) + output_types(node)))


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
