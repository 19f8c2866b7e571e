"""Layers with large weights that stay whole in an otherwise replicated step: which ops they are, and where they may go.

A layer is what needs all of one weight and what makes its gradient. Whole, it goes where its weight is, with the optimizer's state:
then neither the weight nor its gradient is ever sent. What lies between two whole layers stays whole as well: cutting it
would send every value twice. It knows no costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from stepd.core.placement.fallback import nearest_allowed
from stepd.core.placement.split_problem import Splittable
from stepd.core.problem import Index
from stepd.core.strategy import Split


@dataclass(frozen=True)
class Layer:
    """`weight`: the output that holds it; `ops`: those that need all of it, and those that make its gradient in parts."""

    weight: int
    ops: frozenset[int]


def layers(base: Splittable, splits: Sequence[Split]) -> list[Layer]:
    """The layers of the split ops, those with the largest weights first."""
    size: dict[int, int] = {}
    readers: dict[int, set[int]] = {}
    makers: dict[int, set[int]] = {}
    values: dict[int, set[int]] = {}
    for split in splits:
        choice = base.choices[split.op, split.axis]
        for output, cut in zip(base.inputs[split.op], choice.cut_bytes, strict=False):
            if cut == 0:
                size[output] = int(base.prepared.tables.output_bytes[output])
                readers.setdefault(output, set()).add(split.op)
            elif cut > 0:
                values.setdefault(split.op, set()).add(output)
        if choice.adds and choice.joined_bytes:
            makers.setdefault(choice.joined_bytes[0], set()).add(split.op)
    found = []
    for output in sorted(size, key=lambda o: -size[o]):
        mine = readers[output]
        flowing = set().union(*(values.get(op, set()) for op in mine))
        gradients = {op for op in makers.get(size[output], set()) if values.get(op, set()) & flowing}
        found.append(Layer(output, frozenset(mine | gradients)))
    return found


def with_takers_of_terms(base: Splittable, ops: AbstractSet[int], splits: Sequence[Split]) -> frozenset[int]:
    """`ops`, and the split ops that take terms of sums from parts of them: whole ops have none to give."""
    found = set(ops)
    axis = {split.op: split.axis for split in splits}
    tables = base.prepared.tables
    for op in map(int, tables.topological):
        if op in axis and op not in found:
            cut = zip(base.inputs[op], base.choices[op, axis[op]].cut_bytes, strict=False)
            if any(nbytes < 0 and int(tables.output_op[o]) in found for o, nbytes in cut):
                found.add(op)
    return frozenset(found)


def between(base: Splittable, whole: AbstractSet[int], splits: Sequence[Split]) -> set[int]:
    """The split ops that lie between ops of `whole`, and those behind them that take less time than sending them their values."""
    split = {s.op: s for s in splits}
    above, below = _reached(base, whole, forward=False), _reached(base, whole, forward=True)
    found = set(whole) | {op for op in split if op in above and op in below}
    tables = base.prepared.tables
    fastest = float(tables.bandwidth[~np.eye(len(tables.memory), dtype=bool)].max(initial=1.0))
    for op in map(int, tables.topological):
        if op in split and op not in found:
            cut = dict(zip(base.inputs[op], base.choices[op, split[op].axis].cut_bytes, strict=False))
            sources = {int(tables.output_op[o]) for o, nbytes in cut.items() if nbytes}
            sent = sum(max(nbytes, 0) for nbytes in cut.values()) / fastest
            if sources and sources <= found and float(tables.seconds[op].min()) <= sent:
                found.add(op)
    return found - set(whole)


def _reached(base: Splittable, ops: Iterable[int], forward: bool) -> set[int]:
    tables = base.prepared.tables
    seen = set(ops)
    stack = list(seen)
    while stack:
        op = stack.pop()
        if forward:
            outputs = range(tables.output_pointer[op], tables.output_pointer[op + 1])
            near = {int(r) for o in outputs for r in tables.reader[tables.reader_pointer[o] : tables.reader_pointer[o + 1]]}
        else:
            near = {int(s) for s in tables.output_op[tables.input[tables.input_pointer[op] : tables.input_pointer[op + 1]]]}
        stack += near - seen
        seen |= near
    return seen


def with_layer_on(base: Splittable, placement: Index, layer: Layer, near: AbstractSet[int], device: int) -> Index:
    """`placement` with a layer, its weight with all that shares its device, and the ops `near` on `device`, where they can run."""
    tables, problem = base.prepared.tables, base.problem
    wanted = placement.copy()
    for op in (*layer.ops, *near, *_holders(base, layer.weight)):
        members = tables.group_op[tables.group_pointer[tables.group[op]] : tables.group_pointer[tables.group[op] + 1]]
        if np.isfinite(problem.seconds[members, device]).all():
            wanted[members] = device
    return nearest_allowed(base.prepared, wanted)


def _holders(base: Splittable, weight: int) -> set[int]:
    """The op that makes the weight's value, and those with bytes that it reads them from."""
    tables = base.prepared.tables
    found, stack = set(), [int(tables.output_op[weight])]
    while stack:
        op = stack.pop()
        found.add(op)
        if not base.prepared.group_resident[tables.group[op]]:
            sources = tables.output_op[tables.input[tables.input_pointer[op] : tables.input_pointer[op + 1]]]
            stack += [int(s) for s in sources if int(s) not in found]
    return found


def follow_readers(base: Splittable, placement: Index, split: AbstractSet[int], gradients: AbstractSet[int]) -> None:
    """Put gradients, and what is made of them, where the only variable is that takes them: they would be sent twice.

    split: the ops in parts; gradients: ops that make a weight's gradient, as a sum of parts, from pieces or whole.
    """
    tables = base.prepared.tables
    behind: set[int] = set()
    for op in map(int, tables.topological):
        sources = tables.output_op[tables.input[tables.input_pointer[op] : tables.input_pointer[op + 1]]]
        if op in gradients or (op not in split and not behind.isdisjoint(map(int, sources))):
            behind.add(op)
    for op in map(int, reversed(tables.topological)):
        group = tables.group[op]
        alone = tables.group_pointer[group + 1] - tables.group_pointer[group] == 1
        if op not in behind or not alone or base.prepared.group_resident[group]:
            continue
        outputs = range(tables.output_pointer[op], tables.output_pointer[op + 1])
        readers = [r for o in outputs for r in tables.reader[tables.reader_pointer[o] : tables.reader_pointer[o + 1]]]
        places = {int(placement[r]) for r in readers}
        if len(places) == 1:
            placement[op] = places.pop()
