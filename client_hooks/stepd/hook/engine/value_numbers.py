"""Value numbering of a graph: what computes the same has the same number, whatever it is called and wherever it lies. Pure.

Two graphs in which a step's fetches, and all that it does to state, have the same numbers compute the same bits, where each op's
kernel does on all devices. It must not know what made the graphs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from tensorflow.core.framework import graph_pb2, node_def_pb2, types_pb2
from tensorflow.python.framework import dtypes, tensor_util

from stepd.hook.engine import graphview, rules
from stepd.hook.engine.graphview import split_input
from stepd.hook.order.walk import ENTER, NEXT

_HANDING = frozenset({
    "Identity", "IdentityN", "StopGradient", "PreventGradient", "DebugGradientIdentity", "PlaceholderWithDefault", "Snapshot",
})  # fmt: skip
# A cast changes places with these.
_RESHAPING = frozenset({"Reshape", "Squeeze", "ExpandDims"})
_SOURCES = frozenset({"Placeholder", "VarHandleOp", "VariableV2", "Variable", "ReadVariableOp", "VarIsInitializedOp"})
_SUMS = frozenset({"Add", "AddV2", "AddN"})
# What says whose state an op works on, or in which loop it is, and so does its own name; others of the kind begin with "_".
_NAMING = ("shared_name", "container", "var_name", "frame_name")
_SMALL = 4096  # bytes of a constant that may be written in several ways
# Of integers that are computed of shapes, or constant, only that they are: whether Grappler knows the shapes makes no difference to
# their values, and it may know them in one graph and not in another.
_WHOLE = b"integers"
_INTEGERS = frozenset({types_pb2.DT_INT32, types_pb2.DT_INT64})
_OF_SHAPES = rules.OF_SHAPES | {"BroadcastGradientArgs"}
_GATHERS = frozenset({"Gather", "GatherV2", "ResourceGather"})
_LIKE = {"ZerosLike": 0, "OnesLike": 1}


class Numbers(NamedTuple):
    """`of`: op -> its number; `handed_on`: what hands on a value -> whose that is; `effects`: the numbers of all that does
    something, or goes on to the next round of a loop, sorted."""

    of: Mapping[str, bytes]
    handed_on: Mapping[tuple[str, int], tuple[str, int]]
    effects: tuple[bytes, ...]

    def value(self, name: str, index: int) -> bytes:
        """The number of a value; of an op's first one if it has none."""
        name, index = self.handed_on.get((name, index), (name, index))
        return _place(self.of.get(name, b""), index)


def numbered(graph: graph_pb2.GraphDef, user_name: Callable[[str], str]) -> Numbers:
    """`user_name`: by what name an op that owns or draws something is known."""
    nodes = {node.name: node for node in graph.node}
    bodies = _Bodies(graph)
    numbers: dict[str, bytes] = {}
    handed_on: dict[tuple[str, int], tuple[str, int]] = {}
    effects = []

    def given(node: node_def_pb2.NodeDef) -> Iterator[bytes]:
        for source, index in map(split_input, node.input):
            if index >= 0:
                name, place = handed_on.get((source, index), (source, index))
                yield _place(numbers.get(name, b"the next round"), place)

    def looked_up(values: Sequence[tuple[str, int]]) -> Iterator[bytes]:
        """Of which table, and which of its rows. Grappler leaves out that equal rows are gathered once, where all lies on one
        device, which makes no difference to them."""
        table, rows = (handed_on.get(each, each) for each in values[:2])
        gathers = nodes[table[0]]
        if gathers.op in _GATHERS and nodes[rows[0]].op == "Unique" and rows[1] == 1:
            table, rows = (split_input(nodes[each].input[0]) for each in (gathers.name, rows[0]))
        elif gathers.op == "ReadVariableOp":
            table = split_input(gathers.input[0])
        for each in (table, rows):
            name, place = handed_on.get(each, each)
            yield _place(numbers.get(name, b""), place)

    for name in _sorted(nodes):
        node = nodes[name]
        values = [each for each in map(split_input, node.input) if each[1] >= 0]
        if values and (node.op in _HANDING or node.op in _RESHAPING or (node.op in ENTER and node.attr["is_constant"].b)):
            for index, source in enumerate(values if node.op == "IdentityN" else values[:1]):
                handed_on[name, index] = handed_on.get(source, source)
            continue
        inputs, known = list(given(node)), graphview.op_def(node.op)
        if node.op in NEXT:
            effects.append(_digest("next", *inputs))
        if len(inputs) == 2 and (node.op in _SUMS or (known is not None and known.is_commutative)):
            inputs.sort()
        owns = node.op in _SOURCES or known is None or known.is_stateful
        called = user_name(name) if owns and node.op != "ReadVariableOp" else ""
        if not owns and _is_whole(node) and (node.op in _OF_SHAPES or all(each == _WHOLE for each in inputs)):
            numbers[name] = _WHOLE
        elif node.op == "Const":
            numbers[name] = _constant(node)
        elif node.op == "Fill":
            numbers[name] = inputs[1]
        elif node.op in _LIKE:
            numbers[name] = _like(node)
        elif node.op.startswith("SparseSegment"):
            numbers[name] = _digest(node.op, *looked_up(values), *inputs[2:])
        else:
            numbers[name] = _digest(*_kind(node, len(inputs), bodies), called, *inputs)
        if owns and node.op not in _SOURCES:
            effects.append(numbers[name])
    return Numbers(numbers, handed_on, tuple(sorted(effects)))


def _is_whole(node: node_def_pb2.NodeDef) -> bool:
    types = graphview.output_types(node)
    return bool(types) and _INTEGERS.issuperset(types)


def _place(number: bytes, index: int) -> bytes:
    return number if number == _WHOLE or not index else _digest(number, index)


def _filled(dtype: int, value: bytes) -> bytes:
    """The number of a tensor of this value throughout, of whatever shape."""
    return _digest("filled", dtype, value)


def _like(node: node_def_pb2.NodeDef) -> bytes:
    dtype = node.attr["T"].type
    if dtype in _INTEGERS:
        return _WHOLE
    return _filled(dtype, np.array([_LIKE[node.op]], dtypes.as_dtype(dtype).as_numpy_dtype).tobytes())


def _digest(*parts: Any) -> bytes:
    made = hashlib.blake2b(digest_size=12)
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        made.update(b"%d:" % len(data) + data)
    return made.digest()


def _kind(node: node_def_pb2.NodeDef, inputs: int, bodies: _Bodies) -> tuple[Any, ...]:
    """What the op is, apart from what it is given."""
    if node.op in _SUMS and inputs == 2:
        return ("a sum of two",)
    if node.op == "Const":
        return (_constant(node),)
    bare = node_def_pb2.NodeDef()
    bare.CopyFrom(node)
    bare.name = bare.device = ""
    del bare.input[:]
    called = []
    for key in sorted(bare.attr):
        if key.startswith("_") or key in _NAMING:
            del bare.attr[key]
        elif bare.attr[key].HasField("func") or bare.attr[key].list.func:
            called += [bodies.number(name) for name in _called(bare.attr[key])]
            del bare.attr[key]
    op = bodies.number(node.op) if node.op in bodies else b""
    if op:
        bare.op = ""
    return bare.SerializeToString(deterministic=True), op, *called


def _constant(node: node_def_pb2.NodeDef) -> bytes:
    tensor = node.attr["value"].tensor
    if tensor.ByteSize() <= _SMALL and tensor.dtype != types_pb2.DT_STRING:
        value = tensor_util.MakeNdarray(tensor)
        first = value.reshape(-1)[:1]
        if first.size and value.tobytes() == first.tobytes() * value.size:
            return _filled(tensor.dtype, first.tobytes())
        return _digest(tensor.dtype, value.shape, value.tobytes())
    return _digest(tensor.SerializeToString(deterministic=True))


def _called(attr: Any) -> list[str]:
    return [attr.func.name] if attr.HasField("func") else [each.name for each in attr.list.func]


class _Bodies:
    """Numbers of functions, which Grappler names by who calls them."""

    def __init__(self, graph: graph_pb2.GraphDef) -> None:
        self._functions = {function.signature.name: function for function in graph.library.function}
        self._numbers: dict[str, bytes] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._functions

    def number(self, name: str) -> bytes:
        if name not in self._functions:
            return name.encode()
        if name not in self._numbers:
            self._numbers[name] = b"itself"
            function = self._functions[name]
            ends = [f"{end}={function.ret[end]}" for end in sorted(function.ret)]
            inner = sorted(function.node_def, key=lambda node: node.name)
            parts = [(node.name, ",".join(node.input), *_kind(node, 0, self)) for node in inner]
            self._numbers[name] = _digest(*ends, *(part for each in parts for part in each))
        return self._numbers[name]


def _sorted(nodes: Mapping[str, node_def_pb2.NodeDef]) -> Iterator[str]:
    """Each op after what it is given; in a loop after what it is given in the first round."""
    seen = set[str]()
    for root in nodes:
        if root in seen:
            continue
        seen.add(root)
        stack = [(root, iter(nodes[root].input))]
        while stack:
            name, sources = stack[-1]
            for source, _ in map(split_input, sources):
                turns = nodes[name].op in rules.MERGES and source in nodes and nodes[source].op in NEXT
                if source in nodes and source not in seen and not turns:
                    seen.add(source)
                    stack.append((source, iter(nodes[source].input)))
                    break
            else:
                yield name
                stack.pop()
