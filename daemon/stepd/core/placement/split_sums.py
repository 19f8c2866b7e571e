"""Sums of terms on their way to the join of a split op: as new ops of a split problem, and which shapes they may have there.

A sum is made beside the part whose own term it begins with. It does not know which shape is best.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from stepd.core.placement.split_tables import CUT, SUM, Additions
from stepd.core.placement.sums import Into, inwards, shapes, slices_of
from stepd.core.problem import Float
from stepd.core.strategy import Split, Strategy

if TYPE_CHECKING:
    from stepd.core.placement.split_problem import SplitProblem, Splittable


class Draft(Protocol):
    """A split problem in the making."""

    added: Additions

    def copy_seconds(self, nbytes: int) -> Float: ...

    def new_op(self, seconds: Float, temp: int, group: int, origin: int, kind: int) -> int: ...

    def new_output(self, op: int, index: int, nbytes: int) -> int: ...


def added_up(draft: Draft, split: Split, terms: list[int], whole: int) -> tuple[list[int], int]:
    """(outputs that the join reads in place of `terms`, how many times `whole` bytes it moves then). Raises StrategyError."""
    trees = slices_of(split.into, split.parts)
    if not trees:
        return terms, split.parts
    size = whole // len(trees)
    pieces = [[term] if len(trees) == 1 else _slices(draft, split, term, size, len(trees)) for term in terms]
    arrived: list[int] = []
    for number, tree in enumerate(trees):
        here = [[own[number]] for own in pieces]  # a part's own term first: the sum is made where that is
        for k in inwards(tree):
            together = here[k]
            if len(together) > 1:
                total = draft.new_op(draft.copy_seconds(size * len(together)), size, -1, split.op, SUM)
                draft.added.edges.extend((output, total) for output in together)
                together = [draft.new_output(total, 0, size)]
            (arrived if tree[k] == k else here[tree[k]]).extend(together)
    return arrived, -(-len(arrived) // len(trees)) if len(arrived) > 1 else 0


def _slices(draft: Draft, split: Split, term: int, size: int, count: int) -> list[int]:
    cut = draft.new_op(draft.copy_seconds(0), 0, -1, split.op, CUT)  # rows of a tensor are handed on without a copy
    draft.added.edges.append((term, cut))
    return [draft.new_output(cut, number, size) for number in range(count)]


def ways_to_add_up(base: Splittable, split: SplitProblem, strategy: Strategy) -> dict[int, dict[str, Into]]:
    """Of each split op that joins terms of more than two devices, the largest sum first: its shapes by name.

    Slices are among them where sending one takes longer than the link's own delay.
    """
    tables = split.prepared.tables
    sums: dict[int, int] = {}
    for chosen, parts in zip(split.splits, split.parts, strict=True):
        read = tables.input[tables.input_pointer[chosen.op] : tables.input_pointer[chosen.op + 1]]
        terms = read[np.isin(tables.output_op[read], parts)]
        if len(set(chosen.devices)) > 2 and base.choices[chosen.op, chosen.axis].adds and len(terms):
            sums[chosen.op] = int(tables.output_bytes[terms].max())
    ways = {}
    by_op = {chosen.op: chosen for chosen in split.splits}
    for op in sorted(sums, key=lambda op: (-sums[op], op)):
        devices, home = by_op[op].devices, int(strategy.placement[op])
        delay, per_byte = tables.latency + tables.handling[0], 1.0 / tables.bandwidth + tables.handling[1]
        found = dict(shapes(devices, home, delay + sums[op] * per_byte))
        places = sorted({*devices, home})
        apart = [(i, j) for i in places for j in places if i != j]
        if any(sums[op] / len(set(devices)) * per_byte[pair] < delay[pair] for pair in apart):
            found = {name: into for name, into in found.items() if len(into) <= len(devices)}
        ways[op] = found
    return ways
