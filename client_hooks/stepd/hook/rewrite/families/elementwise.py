"""Ops that work element by element, with and without broadcasting, and sums of equal terms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stepd.hook.rewrite.slots import FIRST, PARTIAL, WHOLE, Dim, Way, cut, sizes

if TYPE_CHECKING:
    from stepd.hook.rewrite.facts import Dims, OpFacts


def units(dim: Dim) -> int:
    """The most parts of a dimension; 0 when it is known at run time only."""
    return dim if isinstance(dim, int) else 0


def broadcast(op: OpFacts) -> Iterator[Way]:
    """Any number of inputs, broadcast against each other. An axis where a run could broadcast either way is not offered."""
    shapes = [op.dims(k) for k in range(len(op.inputs))]
    known = [s for s in shapes if s is not None]
    if len(known) != len(shapes) or not known:
        return
    yield from _aligned(known, op.n_outputs())


def _aligned(shapes: list[Dims], outputs: int) -> Iterator[Way]:
    rank = max(len(s) for s in shapes)
    for axis in range(rank):
        own = [axis - rank + len(s) for s in shapes]
        dims = [s[a] if a >= 0 else 1 for s, a in zip(shapes, own, strict=True)]
        wide = {d for d in dims if d != 1}
        if len(wide) == 1:
            slots = tuple(WHOLE if d == 1 else cut(a) for d, a in zip(dims, own, strict=True))
            yield Way(str(axis), slots, (cut(axis),) * outputs, units(wide.pop()))


def alike(op: OpFacts) -> Iterator[Way]:
    """All inputs and outputs have one shape, and an error says so where they have not."""
    shapes = [op.dims(k) for k in range(len(op.inputs))]
    known = [s for s in shapes if s is not None]
    if not known:
        return
    rank = len(known[0])
    if any(len(s) != rank for s in known):
        return
    for axis in range(rank):
        dims = {s[axis] for s in known}
        fixed = {d for d in dims if isinstance(d, int)}
        if dims != {1} and len(fixed) <= 1:
            most = fixed.pop() if fixed else 0
            yield Way(str(axis), (cut(axis),) * len(op.inputs), (cut(axis),) * op.n_outputs(), most)


def ensured(op: OpFacts) -> Iterator[Way]:
    """EnsureShape: axes of any size; a piece of the others would not have the size that is asked for."""
    wanted = op.attr("shape").shape
    for way in alike(op):
        if wanted.unknown_rank or (int(way.axis) < len(wanted.dim) and wanted.dim[int(way.axis)].size < 0):
            yield way


def ranged(op: OpFacts) -> Iterator[Way]:
    """FakeQuantWithMinMaxVars and its gradient: values alike, then two scalars, whose gradients are sums."""
    values = len(op.inputs) - 2
    dims = op.dims(0)
    for axis, dim in enumerate(dims or ()):
        slots = (*(cut(axis),) * values, WHOLE, WHOLE)
        yield Way(str(axis), slots, (cut(axis), *(PARTIAL,) * (op.n_outputs() - 1)), units(dim))


def forwarding(op: OpFacts) -> Iterator[Way]:
    """Identity and its like: any axis, and terms of a sum."""
    yield from alike(op)
    yield Way("partial", (PARTIAL,), (PARTIAL,), usable=True)


def total(op: OpFacts) -> Iterator[Way]:
    """AddN: terms of equal shape."""
    yield from alike(op)
    yield Way("partial", (PARTIAL,) * len(op.inputs), (PARTIAL,))


def addition(op: OpFacts) -> Iterator[Way]:
    """Add: as any broadcasting op; two sums in parts add up part by part."""
    yield from broadcast(op)
    yield Way("partial", (PARTIAL, PARTIAL), (PARTIAL,))


def lists(op: OpFacts) -> Iterator[Way]:
    """IdentityN: tensors of one shape are cut on one axis together."""
    if len({op.dims(k) for k in range(len(op.inputs))}) == 1:
        yield from alike(op)


def select(op: OpFacts) -> Iterator[Way]:
    """Select (v1): a scalar condition, one value a row, or the shape of the others."""
    condition, one = op.dims(0), op.dims(1) or op.dims(2)
    if condition is None or one is None:
        return
    for axis, dim in enumerate(one):
        if dim == 1:
            continue
        if len(condition) == 0 or (len(condition) == 1 and len(one) > 1 and axis > 0):
            first = WHOLE
        elif len(condition) == len(one) or axis == 0:
            first = cut(axis)
        else:
            continue
        yield Way(str(axis), (first, cut(axis), cut(axis)), (cut(axis),), units(dim))


def shape(op: OpFacts) -> Iterator[Way]:
    """Shape: its vector has the size of the piece where the input is cut."""
    for axis, dim in enumerate(op.dims(0) or ()):
        yield Way(str(axis), (cut(axis),), (sizes(axis),), units(dim))


def shapes(op: OpFacts) -> Iterator[Way]:
    """ShapeN: the tensors that share a dimension are cut on it together; the others' shapes are the same in all parts."""
    dims = [op.dims(k) or () for k in range(len(op.inputs))]
    done: set[tuple[int, Dim]] = set()
    for first, own in enumerate(dims):
        for axis, dim in enumerate(own):
            if dim == 1 or (axis, dim) in done:
                continue
            done.add((axis, dim))
            cuts = [axis < len(d) and d[axis] == dim for d in dims]
            slots = tuple(cut(axis) if c else WHOLE for c in cuts)
            yield Way(f"{first}.{axis}", slots, tuple(sizes(axis) if c else FIRST for c in cuts), units(dim))


def size(op: OpFacts) -> Iterator[Way]:
    """Size: the pieces' sizes add up."""
    for axis, dim in enumerate(op.dims(0) or ()):
        yield Way(f"in{axis}", (cut(axis),), (PARTIAL,), units(dim))


def rank(op: OpFacts) -> Iterator[Way]:
    """Rank: the same in all parts."""
    for axis, dim in enumerate(op.dims(0) or ()):
        yield Way(str(axis), (cut(axis),), (FIRST,), units(dim))
