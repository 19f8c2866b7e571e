"""Ops that take ranges out of tensors or put borders round them: axes that are taken whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stepd.hook.rewrite.families.elementwise import units
from stepd.hook.rewrite.families.layout import integers
from stepd.hook.rewrite.slots import WHOLE, Dim, Way, cut, sizes

if TYPE_CHECKING:
    from stepd.hook.rewrite.facts import OpFacts


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
            constants = {2: integers([d for d in numbers if isinstance(d, int)], op.attr("Index").type)}
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
