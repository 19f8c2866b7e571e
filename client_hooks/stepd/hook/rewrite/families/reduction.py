"""Ops that make fewer elements of many: sums, means, extremes, softmax, losses, selections by row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from tensorflow.core.framework import types_pb2

from stepd.hook.rewrite.families.elementwise import units
from stepd.hook.rewrite.slots import PARTIAL, WHOLE, Way, cut

if TYPE_CHECKING:
    from stepd.hook.rewrite.facts import OpFacts

_EXACT_ENOUGH = (types_pb2.DT_FLOAT, types_pb2.DT_DOUBLE)


def axes_of(op: OpFacts, index: int = 1) -> tuple[int, ...] | None:
    """The axes that an input names, counted from the front; None when they are not known."""
    rank, value = op.rank(0), op.value(index)
    if rank is None or value is None:
        return None
    found = [v + rank if v < 0 else v for v in value if isinstance(v, int)]
    return tuple(found) if len(found) == len(value) and all(0 <= v < rank for v in found) else None


def reduction(op: OpFacts) -> Iterator[Way]:
    """Sum, Mean, Max and their like: (values, axes). Over the reduced axes sums and means add up, others are not split."""
    dims, axes = op.dims(0), axes_of(op)
    if dims is None or axes is None:
        return
    constants = {}
    if op.input_op(1) != "Const":
        if not op.followed_by("Reshape"):
            return  # how many dimensions remain may change from run to run
        constants = {1: np.array(axes, np.int64 if op.attr("Tidx").type == types_pb2.DT_INT64 else np.int32)}
    keep = op.flag("keep_dims")
    for axis, dim in enumerate(dims):
        if axis not in axes:
            out = axis if keep else axis - sum(a < axis for a in set(axes))
            yield Way(str(out), (cut(axis), WHOLE), (cut(out),), units(dim), constants=constants)
        elif op.op == "Sum":
            yield Way(f"in{axis}", (cut(axis), WHOLE), (PARTIAL,), units(dim), constants=constants)
        elif op.op == "Mean" and op.dtype() in _EXACT_ENOUGH:
            yield Way(f"in{axis}", (cut(axis), WHOLE), (PARTIAL,), units(dim), constants=constants, op="Sum", mean=True)


def extreme_index(op: OpFacts) -> Iterator[Way]:
    """ArgMax, ArgMin: (values, axis)."""
    dims, axes = op.dims(0), axes_of(op)
    if dims is None or axes is None:
        return
    for axis, dim in enumerate(dims):
        if axis not in axes:
            out = axis - (axes[0] < axis)
            yield Way(str(out), (cut(axis), WHOLE), (cut(out),), units(dim))


def square_sum(op: OpFacts) -> Iterator[Way]:
    """L2Loss: half the sum of squares."""
    for axis, dim in enumerate(op.dims(0) or ()):
        yield Way(f"in{axis}", (cut(axis),), (PARTIAL,), units(dim))


def by_row(op: OpFacts) -> Iterator[Way]:
    """Ops that work along the last axis: all axes but this one. Further inputs stay whole."""
    dims = op.dims(0)
    for axis, dim in enumerate((dims or ())[:-1]):
        yield Way(str(axis), (cut(axis), *(WHOLE,) * (len(op.inputs) - 1)), (cut(axis),) * op.n_outputs(), units(dim))


def by_matrix(op: OpFacts) -> Iterator[Way]:
    """Ops that work on the last two axes: all axes but these. Further inputs stay whole."""
    dims = op.dims(0)
    for axis, dim in enumerate((dims or ())[:-2]):
        yield Way(str(axis), (cut(axis), *(WHOLE,) * (len(op.inputs) - 1)), (cut(axis),) * op.n_outputs(), units(dim))


def diagonal(op: OpFacts) -> Iterator[Way]:
    """MatrixDiag in all versions: (diagonals, which, ...): all axes but those of the diagonals. Further inputs stay whole."""
    dims, which = op.dims(0), op.value(1) if len(op.inputs) > 1 else (0,)
    own = 1 if which is not None and len(which) == 1 else 2
    for axis, dim in enumerate((dims or ())[:-own]):
        yield Way(str(axis), (cut(axis), *(WHOLE,) * (len(op.inputs) - 1)), (cut(axis),), units(dim))


def by_matrices(op: OpFacts) -> Iterator[Way]:
    """Ops on two lists of matrices, or of matrices and their diagonals: leading axes that both have. Further inputs stay whole."""
    one, other = op.dims(0), op.dims(1)
    if one is None or other is None:
        return
    for axis, dim in enumerate(one[:-2]):
        if axis < len(other) and other[axis] == dim != 1:
            yield Way(str(axis), (cut(axis), cut(axis), *(WHOLE,) * (len(op.inputs) - 2)), (cut(axis),), units(dim))


def cross_entropy(op: OpFacts) -> Iterator[Way]:
    """SoftmaxCrossEntropyWithLogits: (logits, labels), which may broadcast; only where they do not."""
    one, other = op.dims(0), op.dims(1)
    if one and other and one[0] == other[0] != 1:
        yield Way("0", (cut(0), cut(0)), (cut(0), cut(0)), units(one[0]))


def sparse_cross_entropy(op: OpFacts) -> Iterator[Way]:
    """SparseSoftmaxCrossEntropyWithLogits: (logits, a label a row)."""
    one, other = op.dims(0), op.dims(1)
    if one and other:
        yield Way("0", (cut(0), cut(0)), (cut(0), cut(0)), units(one[0]) or units(other[0]))


def hits(op: OpFacts) -> Iterator[Way]:
    """InTopK: (predictions, a target a row, k)."""
    one = op.dims(0)
    if one:
        yield Way("0", (cut(0), cut(0), *(WHOLE,) * (len(op.inputs) - 2)), (cut(0),), units(one[0]))


def segments(op: OpFacts) -> Iterator[Way]:
    """UnsortedSegmentSum: (data, segment ids, how many): rows add up, what a row holds is cut."""
    data, ids = op.dims(0), op.dims(1)
    if data is None or ids is None or len(ids) > len(data):
        return
    for axis, dim in enumerate(data):
        if axis < len(ids):
            yield Way(f"in{axis}", (cut(axis), cut(axis), WHOLE), (PARTIAL,), units(dim))
        else:
            out = axis - len(ids) + 1
            yield Way(str(out), (cut(axis), WHOLE, WHOLE), (cut(out),), units(dim))


def along(op: OpFacts) -> Iterator[Way]:
    """Cumsum, Reverse, Roll: (values, ..., axes): every axis but these."""
    dims, axes = op.dims(0), axes_of(op, len(op.inputs) - 1)
    if dims is None or axes is None:
        return
    for axis, dim in enumerate(dims):
        if axis not in axes:
            yield Way(str(axis), (cut(axis), *(WHOLE,) * (len(op.inputs) - 1)), (cut(axis),), units(dim))
