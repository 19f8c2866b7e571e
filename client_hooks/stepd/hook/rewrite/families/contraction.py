"""Products of matrices and the like: rows, columns, batches, and the inner dimension, whose parts are added."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stepd.hook.rewrite.families.elementwise import units
from stepd.hook.rewrite.slots import PARTIAL, WHOLE, Dim, Way, cut

if TYPE_CHECKING:
    from stepd.hook.rewrite.facts import OpFacts


def matmul(op: OpFacts) -> Iterator[Way]:
    """MatMul and BatchMatMul in all versions; batch dimensions may broadcast."""
    a, b = op.dims(0), op.dims(1)
    if a is None or b is None or len(a) < 2 or len(b) < 2:
        return
    turned_a, turned_b = op.flag("transpose_a", "adj_x"), op.flag("transpose_b", "adj_y")
    rank = max(len(a), len(b))
    rows, inner_a = (len(a) - 1, len(a) - 2) if turned_a else (len(a) - 2, len(a) - 1)
    inner_b, columns = (len(b) - 1, len(b) - 2) if turned_b else (len(b) - 2, len(b) - 1)
    for axis in range(rank - 2):
        own_a, own_b = axis - rank + len(a), axis - rank + len(b)
        dim_a, dim_b = a[own_a] if own_a >= 0 else 1, b[own_b] if own_b >= 0 else 1
        wide = {d for d in (dim_a, dim_b) if d != 1}
        if len(wide) == 1:
            slots = (WHOLE if dim_a == 1 else cut(own_a), WHOLE if dim_b == 1 else cut(own_b))
            yield Way(str(axis), slots, (cut(axis),), units(wide.pop()))
    yield Way(str(rank - 2), (cut(rows), WHOLE), (cut(rank - 2),), units(a[rows]))
    yield Way(str(rank - 1), (WHOLE, cut(columns)), (cut(rank - 1),), units(b[columns]))
    yield Way("inner", (cut(inner_a), cut(inner_b)), (PARTIAL,), units(a[inner_a]) or units(b[inner_b]))


def einsum(op: OpFacts) -> Iterator[Way]:
    """Einsum without ellipsis and repeated labels: labels of the output are cut, the others added up."""
    equation = op.text("equation").replace(" ", "")
    if "->" not in equation or "." in equation:
        return
    left, result = equation.split("->")
    terms = left.split(",")
    if len(terms) != len(op.inputs) or any(len(set(t)) != len(t) for t in (*terms, result)):
        return
    for label in dict.fromkeys("".join(terms)):
        dims: list[Dim] = []
        for k, term in enumerate(terms):
            shape = op.dims(k)
            if shape is not None and label in term and len(shape) == len(term):
                dims.append(shape[term.index(label)])
        if not dims or 1 in dims:
            continue
        slots = tuple(cut(term.index(label)) if label in term else WHOLE for term in terms)
        most = max(units(d) for d in dims)
        if label in result:
            yield Way(str(result.index(label)), slots, (cut(result.index(label)),), most)
        else:
            yield Way(f"in_{label}", slots, (PARTIAL,), most)
