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
from stepd.hook.rewrite.slots import PARTIAL, WHOLE, Array, Dim, Slot, Symbol, Way, cut, sizes

if TYPE_CHECKING:
    from stepd.hook.rewrite.facts import OpFacts


def _integers(values: Sequence[int], dtype: int) -> Array:
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
        constants = {1: _integers([d for d in shape if isinstance(d, int)], op.attr("Tshape").type)}
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


def pad(op: OpFacts) -> Iterator[Way]:
    """Pad, PadV2, MirrorPad and its gradient: (values, paddings, ...): axes without padding."""
    dims, paddings = op.dims(0), op.constant(1)
    if dims is None or paddings is None or paddings.shape != (len(dims), 2):
        return
    for axis, dim in enumerate(dims):
        if not paddings[axis].any():
            yield Way(str(axis), (cut(axis), *(WHOLE,) * (len(op.inputs) - 1)), (cut(axis),), units(dim))


def slice_(op: OpFacts) -> Iterator[Way]:
    """Slice: (values, begin, size): axes that are taken whole."""
    dims, begin, size = op.dims(0), _begins(op), op.value(2)
    if dims is None or begin is None or size is None or len(size) != len(dims):
        return
    for axis, dim in enumerate(dims):
        if begin[axis] != 0 or size[axis] not in (-1, dim):
            continue
        numbers = [-1 if k == axis else d for k, d in enumerate(size)]
        if all(isinstance(d, int) for d in numbers):
            constants = {2: _integers([d for d in numbers if isinstance(d, int)], op.attr("Index").type)}
            yield Way(str(axis), (cut(axis), WHOLE, WHOLE), (cut(axis),), units(dim), constants=constants)
        elif size[axis] == dim:
            yield Way(str(axis), (cut(axis), WHOLE, sizes(axis)), (cut(axis),), units(dim))


def _begins(op: OpFacts) -> tuple[Dim | None, ...] | None:
    """The begin of a Slice; offsets of a concatenation are 0 on all axes but its own."""
    known = op.value(1)
    if known is not None or op.input_op(1) != "ConcatOffset":
        return known
    rank, axis = op.rank(0), op.concat_axis(1)
    if rank is None or axis is None:
        return None
    return tuple(None if k == axis % rank else 0 for k in range(rank))


def strided_axes(op: OpFacts, rank: int, first: int) -> list[tuple[int, int]] | None:
    """(axis of the sliced tensor, axis of the result) of the axes that a strided slice takes whole; None when it is not known.

    `first`: the input that holds begin; end and strides follow.
    """
    begin, end, stride = (op.value(first + k) for k in range(3))
    if begin is None or end is None or stride is None or len(begin) != len(stride) or len(end) != len(stride):
        return None
    masks = {name: op.number(f"{name}_mask") for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    new = sum(bool(masks["new_axis"] >> k & 1) for k in range(len(stride)))
    ellipsis = bool(masks["ellipsis"])
    found: list[tuple[int, int]] = []
    axis = out = 0
    for k in range(len(stride)):
        if masks["ellipsis"] >> k & 1:
            for _ in range(rank - (len(stride) - new - 1)):
                found.append((axis, out))
                axis, out = axis + 1, out + 1
        elif masks["new_axis"] >> k & 1:
            out += 1
        elif masks["shrink_axis"] >> k & 1:
            axis += 1
        else:
            from_start = masks["begin"] >> k & 1 or begin[k] == 0
            if from_start and masks["end"] >> k & 1 and stride[k] == 1:
                found.append((axis, out))
            axis, out = axis + 1, out + 1
    if not ellipsis:
        found += [(a, out + a - axis) for a in range(axis, rank)]
    return found


def strided(op: OpFacts) -> Iterator[Way]:
    """StridedSlice: axes that are taken whole."""
    dims = op.dims(0)
    for axis, out in (strided_axes(op, len(dims), 1) if dims is not None else None) or ():
        if dims is not None and axis < len(dims):
            yield Way(str(out), (cut(axis), *(WHOLE,) * 3), (cut(out),), units(dims[axis]))


def strided_gradient(op: OpFacts) -> Iterator[Way]:
    """StridedSliceGrad: (shape, begin, end, strides, gradient)."""
    length, gradient = op.dims(0), op.dims(4)
    if length is None or len(length) != 1 or not isinstance(length[0], int) or gradient is None:
        return
    for axis, out in strided_axes(op, length[0], 1) or ():
        if out < len(gradient):
            yield Way(str(axis), (sizes(axis), *(WHOLE,) * 3, cut(out)), (cut(axis),), units(gradient[out]))


def tile(op: OpFacts) -> Iterator[Way]:
    """Tile: (values, multiples): axes that are not repeated; an axis of size 1 by its repetitions."""
    dims, multiples = op.dims(0), op.value(1)
    for axis, dim in enumerate(dims or ()):
        times = multiples[axis] if multiples is not None and len(multiples) == len(dims or ()) else None
        if dim == 1:
            if times != 1:
                yield Way(str(axis), (WHOLE, sizes(axis)), (cut(axis),), times if isinstance(times, int) else 0)
        elif times == 1:
            yield Way(str(axis), (cut(axis), WHOLE), (cut(axis),), units(dim))


def broadcast_to(op: OpFacts) -> Iterator[Way]:
    """BroadcastTo: (values, shape)."""
    dims, shape = op.dims(0), op.value(1)
    if dims is None or shape is None:
        return
    for axis, wanted in enumerate(shape):
        own = axis - len(shape) + len(dims)
        have = dims[own] if own >= 0 else 1
        slot: Slot | None = WHOLE if have == 1 else cut(own) if have == wanted else None
        if slot is not None and wanted not in (1, None):
            yield Way(str(axis), (slot, sizes(axis)), (cut(axis),), units(wanted) if wanted is not None else 0)


def fill(op: OpFacts) -> Iterator[Way]:
    """Fill: (shape, value)."""
    for axis, dim in enumerate(op.value(0) or ()):
        if dim is not None and dim != 1:
            yield Way(str(axis), (sizes(axis), WHOLE), (cut(axis),), units(dim))


def shape_fed(op: OpFacts) -> Iterator[Way]:
    """Random draws of a given shape: never split, but their dimensions are known."""
    for axis, dim in enumerate(op.value(0) or ()):
        if dim is not None:
            slots = (sizes(axis), *(WHOLE,) * (len(op.inputs) - 1))
            yield Way(str(axis), slots, (cut(axis),), usable=False)


def gather(op: OpFacts) -> Iterator[Way]:
    """Gather, GatherV2: (values, indices, axis): axes of the indices, and axes of the values that are not gathered from."""
    dims, ids = op.dims(0), op.dims(1)
    at: int | None = 0 if op.op == "Gather" else one_axis(op, 2)
    if dims is None or ids is None or at is None or op.number("batch_dims"):
        return
    rest = (WHOLE,) * (len(op.inputs) - 2)
    for axis, dim in enumerate(ids):
        yield Way(str(at + axis), (WHOLE, cut(axis), *rest), (cut(at + axis),), units(dim))
    for axis, dim in enumerate(dims):
        if axis != at:
            out = axis if axis < at else axis + len(ids) - 1
            yield Way(str(out), (cut(axis), WHOLE, *rest), (cut(out),), units(dim))


def resource_gather(op: OpFacts) -> Iterator[Way]:
    """ResourceGather: reads a variable where it is, and is never split; the indices' axes are the result's."""
    for axis in range(len(op.dims(1) or ())):
        yield Way(str(axis), (WHOLE, cut(axis)), (cut(axis),), usable=False)


def gather_nd(op: OpFacts) -> Iterator[Way]:
    """GatherNd: (values, indices): all axes of the indices but the last."""
    for axis, dim in enumerate((op.dims(1) or ())[:-1]):
        yield Way(str(axis), (WHOLE, cut(axis)), (cut(axis),), units(dim))


def one_hot(op: OpFacts) -> Iterator[Way]:
    """OneHot: (indices, depth, on, off): the indices' axes."""
    dims = op.dims(0)
    if dims is None:
        return
    at = op.number("axis") % (len(dims) + 1)
    for axis, dim in enumerate(dims):
        out = axis + (axis >= at)
        yield Way(str(out), (cut(axis), WHOLE, WHOLE, WHOLE), (cut(out),), units(dim))


def reverse_sequence(op: OpFacts) -> Iterator[Way]:
    """ReverseSequence: (values, a length a row)."""
    dims = op.dims(0)
    if dims is None:
        return
    rows, steps = op.number("batch_dim") % len(dims), op.number("seq_dim") % len(dims)
    for axis, dim in enumerate(dims):
        if axis != steps:
            yield Way(str(axis), (cut(axis), cut(0) if axis == rows else WHOLE), (cut(axis),), units(dim))
