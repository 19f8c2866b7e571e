"""What is known of a graph without running it: dimensions, small integer values, constants, and the ways to split every op.

Dimensions that are unknown until run time get symbols, and keep them through the ops whose rules say so; two tensors with the same
symbol have the same size in every run. It must not know strategies, devices or how anything is rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

from tensorflow.core.framework import types_pb2

from stepd.hook.arrays import array_of
from stepd.hook.engine import op_defs
from stepd.hook.engine.graphview import GraphView, Node
from stepd.hook.rewrite import table
from stepd.hook.rewrite.empties import can_be_padded
from stepd.hook.rewrite.slots import Array, Dim, Symbol, Way
from stepd.hook.rewrite.values import Value, value_of

Shape = tuple[int, ...]
Dims = tuple[Dim, ...]
# Constants that are looked into: shapes, axes, paddings.
_LARGEST_CONSTANT = 4096
_INTEGERS = (types_pb2.DT_INT32, types_pb2.DT_INT64)


class OpFacts:
    """One op as its rule sees it. Indices count data inputs and outputs."""

    def __init__(self, facts: Facts, node: Node) -> None:
        self._facts = facts
        self.node = node
        self.op = node.op
        self.inputs = facts.data_inputs(node.name)

    def attr(self, name: str) -> Any:
        """The attribute's AttrValue; an empty one where it is missing."""
        return self.node.proto.attr.get(name, _NO_ATTR)

    def flag(self, *names: str) -> bool:
        return any(self.attr(name).b for name in names)

    def number(self, name: str) -> int:
        return int(self.attr(name).i)

    def text(self, name: str) -> str:
        return str(self.attr(name).s.decode())

    def dims(self, index: int) -> Dims | None:
        return self._facts.dims(*self.inputs[index]) if index < len(self.inputs) else None

    def rank(self, index: int) -> int | None:
        dims = self.dims(index)
        return None if dims is None else len(dims)

    def out(self, index: int = 0) -> Shape | None:
        """The static shape of an output, -1 where a dimension is not known."""
        return self._facts.static(self.node.name, index)

    def n_outputs(self) -> int:
        return len(op_defs.output_types(self.node.proto))

    def dtype(self, index: int = 0) -> int:
        """DataType of an output."""
        return op_defs.output_types(self.node.proto)[index]

    def value(self, index: int) -> Value | None:
        """The elements of an integer input as far as they are known."""
        return self._facts.value(*self.inputs[index]) if index < len(self.inputs) else None

    def constant(self, index: int) -> Array | None:
        return self._facts.constant(self.inputs[index][0]) if index < len(self.inputs) else None

    def input_op(self, index: int) -> str:
        return self._facts.view.nodes[self.inputs[index][0]].op

    def followed_by(self, op: str) -> bool:
        """Is every reader of the op's values an `op`?"""
        nodes = self._facts.view.nodes
        return all(nodes[reader].op == op for reader in self._facts.view.consumers[self.node.name])

    def concat_axis(self, index: int) -> int | None:
        """The axis of the ConcatOffset that makes input `index`."""
        offset = OpFacts(self._facts, self._facts.view.nodes[self.inputs[index][0]])
        value = offset.value(0)
        return value[0] if value is not None and len(value) == 1 and isinstance(value[0], int) else None


class _NoAttr:
    b = False
    i = 0
    s = b""
    type = 0

    list = SimpleNamespace(i=(), type=())


_NO_ATTR = _NoAttr()


class Facts:
    """Facts of one version of a graph. `shapes`: static shape of (op, output), -1 for unknown dimensions, None for unknown rank."""

    def __init__(self, view: GraphView, shapes: Callable[[str, int], Shape | None]) -> None:
        self.view = view
        self.static = shapes
        self._inputs: dict[str, tuple[tuple[str, int], ...]] = {}
        self._dims: dict[tuple[str, int], Dims | None] = {}
        self._values: dict[tuple[str, int], Value | None] = {}
        self._constants: dict[str, Array | None] = {}
        self._ways: dict[str, Mapping[str, Way]] = {}
        self.order = _topological(view)
        self.in_loops = _in_loops(view, self.order)
        for name in self.order:
            self._study(name)

    def data_inputs(self, name: str) -> tuple[tuple[str, int], ...]:
        found = self._inputs.get(name)
        if found is None:
            found = self._inputs[name] = tuple((s, k) for s, k in self.view.nodes[name].inputs if k >= 0)
        return found

    def dims(self, name: str, index: int) -> Dims | None:
        """Dimensions of a tensor; None when not even their number is known."""
        return self._dims.get((name, index))

    def value(self, name: str, index: int) -> Value | None:
        return self._values.get((name, index))

    def ways(self, name: str) -> Mapping[str, Way]:
        """The ways to split an op, by the name of the axis; those that are not usable included."""
        return self._ways.get(name, {})

    def constant(self, name: str) -> Array | None:
        """The value of a small constant."""
        if name not in self._constants:
            self._constants[name] = _constant(self.view.nodes[name])
        return self._constants[name]

    def _study(self, name: str) -> None:
        node = self.view.nodes[name]
        op = OpFacts(self, node)
        for index, value in enumerate(value_of(op)):
            self._values[name, index] = value
        family = table.FAMILIES.get(node.op)
        ways: Mapping[str, Way] = {}
        if family is not None and name not in self.in_loops:
            ways = {way.axis: way if _safe(node.op, way) else replace(way, usable=False) for way in family(op)}
        self._ways[name] = ways
        for index, dtype in enumerate(op_defs.output_types(node.proto)):
            dims = self._named_dims(op, index, ways)
            self._dims[name, index] = dims
            if dims is not None and len(dims) == 1 and dtype in _INTEGERS and (name, index) not in self._values:
                self._values[name, index] = None

    def _named_dims(self, op: OpFacts, index: int, ways: Mapping[str, Way]) -> Dims | None:
        shape = op.out(index)
        known = table.shape_input(op)
        if shape is None and known is None:
            return None
        dims: list[Dim | None] = [None] * len(known) if shape is None and known is not None else []
        if shape is not None:
            dims = [d if d >= 0 else None for d in shape]
        if known is not None and index == 0 and len(known) == len(dims):
            dims = [d if d is not None else k for d, k in zip(dims, known, strict=True)]
        for way in ways.values():
            slot = way.outputs[index] if index < len(way.outputs) else None
            if slot is None or slot.kind != "cut" or slot.axis >= len(dims) or dims[slot.axis] is not None:
                continue
            dims[slot.axis] = _carried(op, way, slot.scale)
        name = op.node.name
        return tuple(Symbol(f"{name}:{index}[{k}]") if d is None else d for k, d in enumerate(dims))


def _safe(op: str, way: Way) -> bool:
    """Whether no part can have an effect, or be empty where its op type cannot bear that."""
    if op_defs.is_stateful(op):
        return False
    return way.units > 0 or op not in table.PADDED_WHEN_EMPTY or can_be_padded(way)


def _carried(op: OpFacts, way: Way, scale: Fraction) -> Dim | None:
    """The dimension that a way hands on from its inputs to its output. Inputs that it cuts together have one size in every run."""
    found: Dim | None = None
    for index, slot in enumerate(way.inputs):
        dims = op.dims(index) if slot.kind == "cut" else None
        if dims is None or slot.axis >= len(dims):
            continue
        dim = dims[slot.axis]
        number = (dim.factor if isinstance(dim, Symbol) else dim) * scale / slot.scale
        if number.denominator == 1 and (found is None or isinstance(dim, int)):
            found = Symbol(dim.base, int(number)) if isinstance(dim, Symbol) else int(number)
    return found


def _constant(node: Node) -> Array | None:
    if node.op != "Const":
        return None
    tensor = node.proto.attr["value"].tensor
    size = 1
    for dim in tensor.tensor_shape.dim:
        size *= dim.size
    if size > _LARGEST_CONSTANT:
        return None
    return array_of(tensor)


def _topological(view: GraphView) -> list[str]:
    """Producers first; the edges that close a loop are left out."""
    missing: dict[str, int] = {}
    readers: dict[str, list[str]] = {name: [] for name in view.nodes}
    for name, node in view.nodes.items():
        sources = [s for s, _ in node.inputs if s in view.nodes and not view.nodes[s].op.endswith("NextIteration")]
        missing[name] = len(sources)
        for source in sources:
            readers[source].append(name)
    order = [name for name, count in missing.items() if count == 0]
    for name in order:
        for reader in readers[name]:
            missing[reader] -= 1
            if missing[reader] == 0:
                order.append(reader)
    return order


def _in_loops(view: GraphView, order: Sequence[str]) -> frozenset[str]:
    """Ops inside the frame of a v1 loop: a new node without inputs would not be in the frame."""
    depth: dict[str, int] = {}
    for name in order:
        node = view.nodes[name]
        outer = max((depth.get(source, 0) for source, _ in node.inputs), default=0)
        depth[name] = outer + node.op.endswith("Enter") - node.op.endswith("Exit")
        if node.op.endswith("Exit"):
            depth[name] = max(0, depth[name])
    return frozenset(name for name, level in depth.items() if level > 0)
