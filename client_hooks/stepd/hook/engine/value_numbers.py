"""Value numbering of a graph: what computes the same has the same number, whatever it is called and wherever it lies. Pure.

Two graphs in which a step's fetches, and all that it does to state, have the same numbers compute the same bits, where each op's
kernel does on all devices. It must not know what made the graphs.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from tensorflow.core.framework import graph_pb2, node_def_pb2, types_pb2
from tensorflow.python.framework import dtypes, tensor_util

from stepd.hook.engine import op_defs, rules
from stepd.hook.engine.graphview import split_input
from stepd.hook.order.walk import ENTER, NEXT

_HANDING = frozenset({
    "Identity", "IdentityN", "StopGradient", "PreventGradient", "DebugGradientIdentity", "PlaceholderWithDefault", "Snapshot",
})  # fmt: skip
# A cast changes places with these.
_RESHAPING = frozenset({"Reshape", "Squeeze", "ExpandDims"})
_READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd"})
_SOURCES = _READS | {"Placeholder", "VarHandleOp", "VariableV2", "Variable", "VarIsInitializedOp"}
_SUMS = frozenset({"Add", "AddV2", "AddN"})
_TERMS = 9  # so many an AddN adds from the first to the last, as if two by two; the rest by eights
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
    numbering = _Numbering(graph, user_name)
    for name in _sorted(numbering.nodes):
        numbering.add(numbering.nodes[name])
    return Numbers(numbering.of, numbering.handed_on, tuple(sorted(numbering.effects)))


class _Numbering:
    """What is numbered so far; ops come after what they are given."""

    def __init__(self, graph: graph_pb2.GraphDef, user_name: Callable[[str], str]) -> None:
        self.nodes = {node.name: node for node in graph.node}
        self.of: dict[str, bytes] = {}
        self.handed_on: dict[tuple[str, int], tuple[str, int]] = {}
        self.effects: list[bytes] = []
        self._turned: dict[bytes, tuple[bytes, bytes]] = {}  # the number of a transposition -> those of what it is given
        self._user_name = user_name
        self._bodies = _Bodies(graph)
        self._has_loops = any(node.op in ENTER for node in graph.node)
        self._filters: dict[tuple[str, int], list[node_def_pb2.NodeDef]] = {}  # whose gradients are made of this one
        for node in graph.node:
            if node.op == "Conv2DBackpropFilter":
                self._filters.setdefault(split_input(node.input[2]), []).append(node)

    def add(self, node: node_def_pb2.NodeDef) -> None:
        values = [each for each in map(split_input, node.input) if each[1] >= 0]
        if values and (node.op in _HANDING or node.op in _RESHAPING or (node.op in ENTER and node.attr["is_constant"].b)):
            for index, source in enumerate(values if node.op == "IdentityN" else values[:1]):
                self.handed_on[node.name, index] = self._made(source)
            return
        inputs, known = [self._value(each, b"the next round") for each in values], op_defs.op_def(node.op)
        if node.op in NEXT:
            self.effects.append(_digest("next", *inputs))
        if len(inputs) == 2 and known is not None and known.is_commutative:
            inputs.sort()
        owns = node.op in _SOURCES or known is None or known.is_stateful
        number = self.of[node.name] = self._number(node, values, inputs, owns)
        if owns and node.op not in _SOURCES and not (node.op == "Assert" and inputs[0] == _TRUE):  # which Grappler may know
            self.effects.append(number)

    def _number(self, node: node_def_pb2.NodeDef, values: Sequence[tuple[str, int]], inputs: Sequence[bytes], owns: bool) -> bytes:
        if not owns and _is_whole(node) and (node.op in _OF_SHAPES or all(each == _WHOLE for each in inputs)):
            return _WHOLE
        if node.op == "Const":
            return _constant(node)
        if node.op == "Fill":
            return inputs[1]
        if node.op in _LIKE and node.attr["T"].type != types_pb2.DT_VARIANT:  # else as many as there are
            return _filled(node.attr["T"].type, _LIKE[node.op])
        if node.op == "Mul" and (two := _filled(node.attr["T"].type, 2)) in inputs and two != _WHOLE:
            one = inputs[1 - inputs.index(two)]  # added to itself, of which Grappler makes this, as exact
            return _sum(one, one)
        if node.op in _SUMS and len(inputs) <= _TERMS and node.attr["T"].type != types_pb2.DT_STRING:
            return functools.reduce(_sum, inputs)
        if node.op == "Transpose":
            return self._transposed(inputs[0], inputs[1])
        if node.op == "Cast":
            return self._cast(_digest(*_kind(node, self._bodies)), inputs[0])
        if node.op.startswith("SparseSegment"):
            return _digest(node.op, *self._looked_up(values), *inputs[2:])
        called = self._user_name(node.name) if owns and node.op not in _READS else ""
        joined = self._joined(node) if node.op == "BiasAddGrad" and "GPU" not in node.device else ()
        return _digest(*_kind(node, self._bodies), called, *inputs, *joined)

    def _joined(self, bias: node_def_pb2.NodeDef) -> list[str]:
        """The filters with whose gradients that of a bias becomes one kernel of oneDNN's, behind Grappler: those that take the very
        same value there, and wait for the same. In loops what comes from elsewhere may have one of them wait."""
        waits = _waits(bias)
        found = [f for f in self._filters.get(split_input(bias.input[0]), ()) if f.device == bias.device and _waits(f) == waits]
        if self._has_loops:
            found = [f for f in found if all(self._is_beside(f, name) for name in (*f.input, *bias.input))]
        return sorted(self._user_name(f.name) for f in found)

    def _is_beside(self, node: node_def_pb2.NodeDef, source: str) -> bool:
        return self.nodes[split_input(source)[0]].device == node.device

    def _transposed(self, value: bytes, axes: bytes) -> bytes:
        number = _digest("transposed", value, axes)
        self._turned[number] = value, axes
        return number

    def _cast(self, kind: bytes, value: bytes) -> bytes:
        """A cast changes places with transpositions, whose type alone is another one then."""
        if value in self._turned:
            inner, axes = self._turned[value]
            return self._transposed(self._cast(kind, inner), axes)
        return _digest(kind, value)

    def _made(self, value: tuple[str, int]) -> tuple[str, int]:
        return self.handed_on.get(value, value)

    def _value(self, value: tuple[str, int], unknown: bytes = b"") -> bytes:
        name, index = self._made(value)
        return _place(self.of.get(name, unknown), index)

    def _looked_up(self, values: Sequence[tuple[str, int]]) -> tuple[bytes, bytes]:
        """Of which table, and which of its rows. Grappler leaves out that equal rows are gathered once, where all lies on one
        device, which makes no difference to them."""
        table, rows = (self._made(each) for each in values[:2])
        gathers = self.nodes[table[0]]
        if gathers.op in _GATHERS and self.nodes[rows[0]].op == "Unique" and rows[1] == 1:
            table, rows = (split_input(self.nodes[each].input[0]) for each in (gathers.name, rows[0]))
        elif gathers.op == "ReadVariableOp":
            table = split_input(gathers.input[0])
        return self._value(table), self._value(rows)


def _waits(node: node_def_pb2.NodeDef) -> set[str]:
    return {name for name in node.input if name.startswith("^")}


def _is_whole(node: node_def_pb2.NodeDef) -> bool:
    types = op_defs.output_types(node)
    return bool(types) and _INTEGERS.issuperset(types)


def _place(number: bytes, index: int) -> bytes:
    return number if number == _WHOLE or not index else _digest(number, index)


def _filled(dtype: int, value: int) -> bytes:
    """The number of a tensor of this value throughout, of whatever shape; of integers what all of them have."""
    return _WHOLE if dtype in _INTEGERS else _of_filled(dtype, np.array([value], dtypes.as_dtype(dtype).as_numpy_dtype).tobytes())


def _of_filled(dtype: int, value: bytes) -> bytes:
    return _digest("filled", dtype, value)


def _sum(one: bytes, other: bytes) -> bytes:
    return _digest("a sum of two", *sorted((one, other)))


def _digest(*parts: Any) -> bytes:
    made = hashlib.blake2b(digest_size=12)
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        made.update(b"%d:" % len(data) + data)
    return made.digest()


_TRUE = _filled(types_pb2.DT_BOOL, 1)


def _kind(node: node_def_pb2.NodeDef, bodies: _Bodies) -> tuple[Any, ...]:
    """What the op is, apart from what it is given."""
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
            return _of_filled(tensor.dtype, first.tobytes())
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
            parts = [(node.name, ",".join(node.input), *_kind(node, self)) for node in inner]
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
