"""Ops that repeat elements or look them up by index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stepd.hook.rewrite.families.elementwise import units
from stepd.hook.rewrite.families.layout import one_axis
from stepd.hook.rewrite.slots import WHOLE, Slot, Way, cut, sizes

if TYPE_CHECKING:
    from stepd.hook.rewrite.facts import OpFacts


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
    """Gather, GatherV2: (values, indices, axis): axes of the indices, and axes of the values that are not gathered from; those
    that both begin with (`batch_dims`) are cut in both."""
    dims, ids = op.dims(0), op.dims(1)
    at: int | None = 0 if op.op == "Gather" else one_axis(op, 2)
    if dims is None or ids is None or at is None:
        return
    rest, rows = (WHOLE,) * (len(op.inputs) - 2), op.number("batch_dims")
    if not 0 <= rows <= min(at, len(ids)):
        return
    for axis in range(rows):
        if dims[axis] == ids[axis]:
            yield Way(str(axis), (cut(axis), cut(axis), *rest), (cut(axis),), units(dims[axis]))
    for axis, dim in list(enumerate(ids))[rows:]:
        yield Way(str(at + axis - rows), (WHOLE, cut(axis), *rest), (cut(at + axis - rows),), units(dim))
    for axis, dim in list(enumerate(dims))[rows:]:
        if axis != at:
            out = axis if axis < at else axis + len(ids) - rows - 1
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
