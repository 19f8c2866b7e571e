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
    """Einsum without repeated labels: labels of the output are cut, the others added up. What an ellipsis stands for may broadcast;
    an axis of it where a run could broadcast either way is not offered."""
    equation = op.text("equation").replace(" ", "")
    if "->" not in equation:
        return
    left, after = equation.split("->")
    texts = left.split(",")
    widths = [_hidden(text, op.rank(k)) for k, text in enumerate(texts)] if len(texts) == len(op.inputs) else [None]
    known = [width for width in widths if width is not None]
    if len(known) < len(widths) or min(known) < 0 or (_ELLIPSIS in left and _ELLIPSIS not in after):
        return
    terms = [_labels(text, width) for text, width in zip(texts, known, strict=True)]
    result = _labels(after, max(known))
    if any(len(set(t)) != len(t) for t in (*terms, result)):
        return
    for label in dict.fromkeys(label for term in terms for label in term):
        dims: list[Dim] = []
        for k, term in enumerate(terms):
            shape = op.dims(k)
            if shape is not None and label in term and len(shape) == len(term):
                dims.append(shape[term.index(label)])
        wide = {d for d in dims if d != 1}
        spread = label in _BROADCAST
        if not wide or (len(wide) > 1 if spread else 1 in dims):
            continue
        slots = tuple(
            WHOLE if label not in term or (spread and (op.dims(k) or ())[term.index(label)] == 1) else cut(term.index(label))
            for k, term in enumerate(terms)
        )
        most = max(units(d) for d in wide)
        if label in result:
            yield Way(str(result.index(label)), slots, (cut(result.index(label)),), most)
        else:
            yield Way(f"in_{label}", slots, (PARTIAL,), most)


_ELLIPSIS = "..."
_BROADCAST = "9876543210"
"""Labels for the axes that an ellipsis stands for; the last axis of every ellipsis has the last one."""


def _hidden(term: str, rank: int | None) -> int | None:
    """How many axes the ellipsis of a term stands for; None when that is not known, or more than there are labels."""
    if _ELLIPSIS not in term:
        return 0
    return None if rank is None or rank - len(term) + len(_ELLIPSIS) > len(_BROADCAST) else rank - len(term) + len(_ELLIPSIS)


def _labels(term: str, width: int) -> str:
    """A term with a label in place of every axis."""
    return term.replace(_ELLIPSIS, _BROADCAST[len(_BROADCAST) - width :])
