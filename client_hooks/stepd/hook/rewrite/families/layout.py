"""Ops that rearrange: an axis is offered where its pieces stay contiguous and whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from tensorflow.core.framework import types_pb2

from stepd.hook.rewrite.families.elementwise import units
from stepd.hook.rewrite.families.reduction import axes_of
from stepd.hook.rewrite.slots import PARTIAL, WHOLE, Array, Dim, Symbol, Way, cut, sizes

if TYPE_CHECKING:
    from stepd.hook.rewrite.facts import OpFacts


def integers(values: Sequence[int], dtype: int) -> Array:
    """A constant of a TensorFlow integer type."""
    return np.array(values, np.int64 if dtype == types_pb2.DT_INT64 else np.int32)


def one_axis(op: OpFacts, index: int) -> int | None:
    """The axis that a scalar input names, counted from the front of input 0; None when it is not known."""
    axes = axes_of(op, index)
    return axes[0] if axes is not None and len(axes) == 1 else None


def reshape(op: OpFacts) -> Iterator[Way]:
    """Reshape: (values, shape): axes whose pieces are contiguous in both shapes. A sum in parts is reshaped part by part."""
    before, after = op.dims(0), _after_reshape(op)
    if before is not None and after is not None:
        taken: set[int] = set()
        for i, dim in enumerate(before):
            if dim == 1:
                continue
            found = _same_pieces(before, after, i)
            if found is None or found[0] in taken:
                continue
            j, scale = found
            taken.add(j)
            yield _reshaped(op, after, i, j, scale, dim)
    yield Way("partial", (PARTIAL, WHOLE), (PARTIAL,))


def _reshaped(op: OpFacts, after: Sequence[Dim | None], i: int, j: int, scale: Fraction, dim: Dim) -> Way:
    others = [d for k, d in enumerate(after) if k != j]
    grain = scale.denominator
    most = units(dim) // grain
    if all(isinstance(d, int) for d in others):
        shape = [-1 if k == j else d for k, d in enumerate(after)]
        constants = {1: integers([d for d in shape if isinstance(d, int)], op.attr("Tshape").type)}
        return Way(str(j), (cut(i), WHOLE), (cut(j, scale),), most, grain, constants)
    return Way(str(j), (cut(i), sizes(j, scale)), (cut(j, scale),), most, grain)


def _after_reshape(op: OpFacts) -> list[Dim | None] | None:
    shape, value = op.out(), op.value(1)
    if shape is None and value is None:
        return None
    known: list[Dim | None] = [d if d >= 0 else None for d in shape or (-1,) * len(value or ())]
    for k, dim in enumerate(value or ()):
        if known[k] is None and dim != -1:
            known[k] = dim
    return known


def _count(dims: Sequence[Dim | None]) -> tuple[int, Counter[str]] | None:
    """A product as an integer times symbols; None when an element is not known."""
    number, names = 1, Counter[str]()
    for dim in dims:
        if dim is None:
            return None
        if isinstance(dim, Symbol):
            names[dim.base] += 1
            number *= dim.factor
        else:
            number *= dim
    return number, names


def _same_pieces(before: Sequence[Dim], after: Sequence[Dim | None], i: int) -> tuple[int, Fraction] | None:
    """The axis of `after` that begins where axis `i` of `before` does, and how its sizes scale."""
    head, row = _count(before[:i]), _count(before[i + 1 :])
    for j, dim in enumerate(after):
        if dim == 1 or _count(after[:j]) != head or head is None:
            continue
        out_row = _count(after[j + 1 :])
        if row is None or out_row is None or row[1] != out_row[1] or not row[0] or not out_row[0]:
            continue
        scale = Fraction(row[0], out_row[0])
        if 1 in (scale.numerator, scale.denominator):
            return j, scale
    return None


def squeeze(op: OpFacts) -> Iterator[Way]:
    """Squeeze: the axes that remain."""
    dims = op.dims(0)
    if dims is None:
        return
    gone = {a % len(dims) for a in op.attr("squeeze_dims").list.i}
    if not gone and any(isinstance(d, Symbol) for d in dims):
        return
    gone = gone or {k for k, d in enumerate(dims) if d == 1}
    for axis, dim in enumerate(dims):
        if axis not in gone:
            out = axis - sum(g < axis for g in gone)
            # A piece of one row must not lose its axis.
            yield Way(str(out), (cut(axis),), (cut(out),), units(dim), lists={"squeeze_dims": tuple(sorted(gone))})


def expand(op: OpFacts) -> Iterator[Way]:
    """ExpandDims: (values, axis)."""
    dims, where = op.dims(0), op.value(1)
    if dims is None or where is None or len(where) != 1 or not isinstance(where[0], int):
        return
    at = where[0] + len(dims) + 1 if where[0] < 0 else where[0]
    for axis, dim in enumerate(dims):
        out = axis + (axis >= at)
        yield Way(str(out), (cut(axis), WHOLE), (cut(out),), units(dim))


def transpose(op: OpFacts) -> Iterator[Way]:
    """Transpose: (values, permutation)."""
    dims, order = op.dims(0), op.value(1)
    if dims is None or order is None or len(order) != len(dims):
        return
    for out, axis in enumerate(order):
        if not isinstance(axis, int):
            return
        yield Way(str(out), (cut(axis % len(dims)), WHOLE), (cut(out),), units(dims[axis]))


def concat(op: OpFacts) -> Iterator[Way]:
    """ConcatV2 (values..., axis) and Concat (axis, values...): all other axes."""
    last = op.op == "ConcatV2"
    where = op.value(len(op.inputs) - 1 if last else 0)
    values = range(len(op.inputs) - 1) if last else range(1, len(op.inputs))
    shapes = [s for k in values if (s := op.dims(k)) is not None]
    if not shapes or where is None or len(where) != 1 or not isinstance(where[0], int):
        return
    rank = len(shapes[0])
    at = where[0] % rank if rank else 0
    for axis in range(rank):
        if axis != at:
            slots = (cut(axis),) * len(values)
            most = max(units(s[axis]) for s in shapes)
            yield Way(str(axis), (*slots, WHOLE) if last else (WHOLE, *slots), (cut(axis),), most)


def split(op: OpFacts) -> Iterator[Way]:
    """Split (axis, values) and SplitV (values, sizes, axis): all other axes."""
    own, at = (1, 0) if op.op == "Split" else (0, 2)
    dims, where = op.dims(own), op.value(at)
    if dims is None or where is None or len(where) != 1 or not isinstance(where[0], int):
        return
    for axis, dim in enumerate(dims):
        if axis != where[0] % len(dims):
            slots = tuple(cut(axis) if k == own else WHOLE for k in range(len(op.inputs)))
            yield Way(str(axis), slots, (cut(axis),) * op.n_outputs(), units(dim))


def pack(op: OpFacts) -> Iterator[Way]:
    """Pack: a new axis among those of its inputs, which are alike."""
    shapes = [s for k in range(len(op.inputs)) if (s := op.dims(k)) is not None]
    if not shapes:
        return
    at = op.number("axis") % (len(shapes[0]) + 1)
    for axis in range(len(shapes[0])):
        out = axis + (axis >= at)
        yield Way(str(out), (cut(axis),) * len(op.inputs), (cut(out),), max(units(s[axis]) for s in shapes))


def unpack(op: OpFacts) -> Iterator[Way]:
    """Unpack: the axes that remain."""
    dims = op.dims(0)
    if not dims:
        return
    at = op.number("axis") % len(dims)
    for axis, dim in enumerate(dims):
        if axis != at:
            out = axis - (axis > at)
            yield Way(str(out), (cut(axis),), (cut(out),) * op.n_outputs(), units(dim))
