"""Small integer tensors that are known, wholly or by symbols, without running the graph: shapes, parts of shapes, reduced axes.

It must not know how ops are split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from stepd.hook.rewrite.slots import Dim, Symbol

if TYPE_CHECKING:
    from stepd.hook.rewrite.facts import OpFacts

Value = tuple[Dim | None, ...]
"""Elements of a scalar (one element) or a vector; None: not known."""

_LONGEST = 64


def value_of(op: OpFacts) -> Iterator[Value | None]:
    """Values of the op's outputs, as many as it can say anything of."""
    rule = _RULES.get(op.op)
    if rule is not None:
        yield from rule(op)


def _const(op: OpFacts) -> Iterator[Value | None]:
    from stepd.hook.rewrite.facts import _constant

    array = _constant(op.node)
    fits = array is not None and array.dtype.kind == "i" and array.ndim <= 1
    yield tuple(int(v) for v in array.reshape(-1)) if fits and array is not None else None


def _shapes(op: OpFacts) -> Iterator[Value | None]:
    for index in range(len(op.inputs)):
        yield op.dims(index)


def _same(op: OpFacts) -> Iterator[Value | None]:
    yield op.value(0)


def _pack(op: OpFacts) -> Iterator[Value | None]:
    found: list[Dim | None] = []
    for index in range(len(op.inputs)):
        if op.rank(index) != 0:
            return
        value = op.value(index)
        found.append(value[0] if value is not None and len(value) == 1 else None)
    yield tuple(found)


def _concat(op: OpFacts) -> Iterator[Value | None]:
    found: list[Dim | None] = []
    axis = len(op.inputs) - 1 if op.op == "ConcatV2" else 0
    for index in range(len(op.inputs)):
        if index == axis:
            continue
        dims, value = op.dims(index), op.value(index)
        if dims is None or len(dims) != 1 or not isinstance(dims[0], int):
            return
        found += value if value is not None else (None,) * dims[0]
    yield tuple(found)


def _strided(op: OpFacts) -> Iterator[Value | None]:
    value, spec = op.value(0), [op.value(k) for k in (1, 2, 3)]
    if value is None or op.rank(0) != 1 or any(v is None or len(v) != 1 or not isinstance(v[0], int) for v in spec):
        return
    begin, end, stride = (int(v[0]) for v in spec if v is not None and isinstance(v[0], int))
    if op.flag("new_axis_mask") or op.number("new_axis_mask") or op.number("ellipsis_mask") or stride == 0:
        return
    if op.number("shrink_axis_mask"):
        if -len(value) <= begin < len(value):
            yield (value[begin],)
        return
    first = None if op.number("begin_mask") else begin
    last = None if op.number("end_mask") else end
    yield tuple(value[first:last:stride])


def _times(op: OpFacts) -> Iterator[Value | None]:
    one, other = op.value(0), op.value(1)
    if one is None or other is None or len(one) != 1 or len(other) != 1:
        return
    yield (_product(one[0], other[0]),)


def _prod(op: OpFacts) -> Iterator[Value | None]:
    value = op.value(0)
    if value is None or op.rank(0) != 1:
        return
    total: Dim | None = 1
    for element in value:
        total = _product(total, element)
    yield (total,)


def _rank(op: OpFacts) -> Iterator[Value | None]:
    rank = op.rank(0)
    yield None if rank is None else (rank,)


def _count(op: OpFacts) -> Iterator[Value | None]:
    total: Dim | None = 1
    for dim in op.dims(0) or (None,):
        total = _product(total, dim)
    yield (total,)


def _modulo(op: OpFacts) -> Iterator[Value | None]:
    yield _each(op, lambda a, b: a % b if isinstance(a, int) and isinstance(b, int) and b > 0 else None)


def _sum(op: OpFacts) -> Iterator[Value | None]:
    yield _each(op, lambda a, b: a + b if isinstance(a, int) and isinstance(b, int) else None)


def _difference(op: OpFacts) -> Iterator[Value | None]:
    yield _each(op, lambda a, b: a - b if isinstance(a, int) and isinstance(b, int) else None)


def _gathered(op: OpFacts) -> Iterator[Value | None]:
    """Of a vector, by known numbers."""
    value, where = op.value(0), op.value(1)
    if value is None or where is None or op.rank(0) != 1:
        return
    known = [k for k in where if isinstance(k, int) and 0 <= k < len(value)]
    if len(known) == len(where):
        yield tuple(value[k] for k in known)


def _each(op: OpFacts, function: Callable[[Dim | None, Dim | None], Dim | None]) -> Value | None:
    one, other = op.value(0), op.value(1)
    if one is None or other is None or (len(one) != len(other) and 1 not in (len(one), len(other))):
        return None
    length = len(one) if len(other) == 1 else len(other)
    one, other = (v * length if len(v) == 1 else v for v in (one, other))
    return tuple(function(a, b) for a, b in zip(one, other, strict=True))


def _range(op: OpFacts) -> Iterator[Value | None]:
    known = [op.value(k) for k in range(3)]
    numbers = [v[0] for v in known if v is not None and len(v) == 1 and isinstance(v[0], int)]
    yield tuple(range(*numbers)) if len(numbers) == 3 and numbers[2] and abs(numbers[1] - numbers[0]) < _LONGEST else None


def _filled(op: OpFacts) -> Iterator[Value | None]:
    shape, value = op.value(0), op.value(1)
    fits = shape is not None and len(shape) == 1 and isinstance(shape[0], int) and shape[0] < _LONGEST
    yield value * shape[0] if fits and shape and isinstance(shape[0], int) and value is not None and len(value) == 1 else None


def _stitched(op: OpFacts) -> Iterator[Value | None]:
    half = len(op.inputs) // 2
    made: dict[int, Dim | None] = {}
    for k in range(half):
        where, what = op.value(k), op.value(half + k)
        if where is None or what is None or len(where) != len(what):
            return
        for index, value in zip(where, what, strict=True):
            if not isinstance(index, int):
                return
            made[index] = value
    if sorted(made) == list(range(len(made))):
        yield tuple(made[k] for k in range(len(made)))


def _inverted(op: OpFacts) -> Iterator[Value | None]:
    value = op.value(0)
    if value is not None and all(isinstance(v, int) for v in value):
        yield tuple(value.index(k) for k in range(len(value)))


def _product(one: Dim | None, other: Dim | None) -> Dim | None:
    if isinstance(one, int) and isinstance(other, int):
        return one * other
    if isinstance(one, Symbol) and isinstance(other, int):
        return Symbol(one.base, one.factor * other)
    if isinstance(other, Symbol) and isinstance(one, int):
        return Symbol(other.base, other.factor * one)
    return None


def _reduced(op: OpFacts) -> Iterator[Value | None]:
    """BroadcastGradientArgs: the axes over which each side's gradient is summed up, when no run can differ.

    A dimension of 1 against an unknown one counts as summed on the first side only: where the unknown one turns out to be 1 too,
    TensorFlow sums on both, which changes the number of dimensions and no value; the Reshape that follows gives the same.
    """
    one, other = op.value(0), op.value(1)
    yield summed_axes(one, other)
    yield summed_axes(other, one)


def summed_axes(mine: Value | None, theirs: Value | None) -> Value | None:
    if mine is None or theirs is None:
        return None
    rank = max(len(mine), len(theirs))
    a: Value = (1,) * (rank - len(mine)) + mine
    b: Value = (1,) * (rank - len(theirs)) + theirs
    axes = []
    for k in range(rank):
        if a[k] is None or b[k] is None:
            return None
        if a[k] == 1:
            axes.append(k)
        elif a[k] != b[k] and b[k] != 1:
            return None
    return tuple(axes)


_RULES = {
    "Const": _const,
    "Shape": _shapes,
    "ShapeN": _shapes,
    "Identity": _same,
    "Cast": _same,
    "StopGradient": _same,
    "Pack": _pack,
    "Concat": _concat,
    "ConcatV2": _concat,
    "StridedSlice": _strided,
    "Mul": _times,
    "Prod": _prod,
    "BroadcastGradientArgs": _reduced,
    "Rank": _rank,
    "Size": _count,
    "FloorMod": _modulo,
    "Add": _sum,
    "AddV2": _sum,
    "Sub": _difference,
    "Gather": _gathered,
    "GatherV2": _gathered,
    "Range": _range,
    "Fill": _filled,
    "InvertPermutation": _inverted,
    "DynamicStitch": _stitched,
}
