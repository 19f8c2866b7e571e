"""Which ops may be given shapes that do not fit each other, as far as is known before a step. Pure.

What a program feeds may have other sizes than a constant or a variable beside which it is used. It must not know who waits for
whom, nor of two fed values that meet (`fallible.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

from tensorflow.python.framework import tensor_util

from stepd.hook.engine.graphview import GraphView, Node
from stepd.hook.rewrite.families import elementwise
from stepd.hook.rewrite.table import FAMILIES

Shape = tuple[int, ...]
Shapes = Callable[[str, int], Shape | None]  # of an op's output, with -1 where unknown; None: of no known rank

_BROADCASTING = (elementwise.broadcast, elementwise.addition)
_OF_MATRICES = {"MatMul": ("transpose_a", "transpose_b")} | dict.fromkeys(
    ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), ("adj_x", "adj_y")
)
_OF_EQUALS = frozenset({"Pack", "AddN", "ScalarSummary"})
_OF_EQUALLY_MANY = frozenset({"NonMaxSuppressionV2", "NonMaxSuppressionV3", "NonMaxSuppressionV4", "NonMaxSuppressionV5"})
_OF_IMAGES = frozenset({"Conv2D", "Conv3D", "DepthwiseConv2dNative"})
MEETING = frozenset({"BroadcastTo", "Einsum", "ConcatV2"}).union(
    _OF_MATRICES, _OF_IMAGES, _OF_EQUALS, _OF_EQUALLY_MANY, (op for op, family in FAMILIES.items() if family in _BROADCASTING)
)
"""Where sizes meet."""
_DENSE = frozenset({"MutableDenseHashTable", "MutableDenseHashTableV2"})  # they refuse two keys
# What is given something that stays -> which input that is.
_GIVEN = dict.fromkeys(("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp", "Assign", "AssignAdd", "AssignSub"), 1)
_GIVEN |= dict.fromkeys(("AccumulatorApplyGradient", "ResourceAccumulatorApplyGradient", "LookupTableInsertV2"), 2)


def may_not_fit(view: GraphView, name: str, shapes: Shapes) -> tuple[int, ...]:
    """The inputs of an op whose shapes may not suit each other; none where it is sure that they do, or nothing is known of it."""
    node = view.nodes[name]
    count = sum(index >= 0 for _, index in node.inputs)
    known = [shapes(*read) for read in node.inputs[:count]]
    wanted = [shapes(name, 0)] if node.op == "BroadcastTo" else []
    return () if all(_may_be_one(*dims) for dims in _meeting(view, node, [*known, *wanted])) else tuple(range(count))


def may_not_take(view: GraphView, name: str, shapes: Shapes) -> tuple[int, ...]:
    """The input of an update whose shape may not be the one of the variable or the accumulator, or that a table may not take."""
    node = view.nodes[name]
    index = _GIVEN.get(node.op)
    if index is None or (node.op == "AssignVariableOp" and not node.proto.attr["validate_shape"].b):
        return ()
    state = view.nodes[node.inputs[0][0]]
    if state.op in _DENSE:
        return (1,)
    key = "value_shape" if node.op == "LookupTableInsertV2" else "shape"
    if key not in state.proto.attr:  # asking for it would add it
        return ()
    shape = state.proto.attr[key].shape
    wanted = [] if shape.unknown_rank else [int(dim.size) for dim in shape.dim]
    # Of a table any number of values.
    known = (shapes(*node.inputs[index]) or ())[-len(wanted) :]
    return () if all(map(_may_be_one, known, wanted)) else (index,)


def _meeting(view: GraphView, node: Node, given: Sequence[Shape | None]) -> Iterator[tuple[int, ...]]:
    """The sizes that have to be one, group by group."""
    if FAMILIES.get(node.op) in _BROADCASTING:
        for one, other in itertools.combinations(given, 2):
            yield from ((a, b) for a, b in _aligned(one, other) if 1 not in (a, b))
    elif node.op == "BroadcastTo":
        yield from ((a, b) for a, b in _aligned(given[0], given[2]) if a != 1)
    elif node.op == "Einsum":
        sizes: dict[str, set[int]] = {}
        for label, size in _labelled(node, given):
            sizes.setdefault(label, set()).add(size)
        yield from map(tuple, sizes.values())
    elif node.op in _OF_MATRICES:
        one, other = given
        if one and other:
            first, second = (node.proto.attr[key].b for key in _OF_MATRICES[node.op])
            yield one[-2 if first else -1], other[-1 if second else -2]
            yield from ((a, b) for a, b in _aligned(one[:-2], other[:-2]) if 1 not in (a, b))
    elif node.op in _OF_IMAGES:
        image, kernel = given
        if image and kernel:
            channels = image[1 if node.proto.attr["data_format"].s.startswith(b"NC") else -1], kernel[-2]
            yield channels if -1 in channels else ()  # of two that are known one may be a multiple
    elif node.op == "ConcatV2":
        axis = view.nodes[node.inputs[len(given) - 1][0]]
        along = int(tensor_util.MakeNdarray(axis.proto.attr["value"].tensor)) if axis.op == "Const" else None
        yield from _equals(given[:-1], along)
    elif node.op in _OF_EQUALS:
        yield from _equals(given)
    elif node.op in _OF_EQUALLY_MANY:
        yield from _equals([shape and shape[:1] for shape in given[:2]])


def _labelled(node: Node, given: Sequence[Shape | None]) -> Iterator[tuple[str, int]]:
    """(label, size) of every axis of what is summed over."""
    for labels, shape in zip(node.proto.attr["equation"].s.decode().split("->")[0].split(","), given, strict=False):
        if "..." not in labels:
            yield from zip(labels, shape or (), strict=False)


def _equals(given: Sequence[Shape | None], without: int | None = None) -> Iterator[tuple[int, ...]]:
    """The sizes of shapes that are the same but for one axis."""
    ranked = [shape for shape in given if shape]
    for axis, dims in enumerate(zip(*ranked, strict=False)):
        if without is None or axis != without % len(ranked[0]):
            yield dims


def _aligned(one: Shape | None, other: Shape | None) -> Iterator[tuple[int, int]]:
    """Sizes that meet when shapes are broadcast."""
    yield from zip(reversed(one or ()), reversed(other or ()), strict=False)


def _may_be_one(*dims: int) -> bool:
    """Are sizes known to be one, or all unknown? Those come of what is fed, mostly of the same."""
    return len(set(dims)) < 2
