"""Variables that one step both writes and reads, with no path between the two: what is read may be from before or after. Pure.

TensorFlow gives no order then, but in practice the read, which waits for little, comes first: the step that hooks read beside a
training step, say. So that this stays so, what belongs to such a read is not moved when the variable is small; a large one may
move, and the operator is told.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from tensorflow.python.framework import dtypes

from stepd.hook.engine import rules
from stepd.hook.engine.draws import executed
from stepd.hook.engine.graphview import GraphView
from stepd.hook.ports import StepKind

_WRITES = ("Assign", "ResourceApply", "ResourceScatter", "ResourceSparseApply", "Apply", "Scatter", "SparseApply", "CountUpTo",
           "ResourceCountUpTo", "StridedSliceAssign", "ResourceStridedSliceAssign")  # fmt: skip
_TESTS = frozenset({"VarIsInitializedOp", "IsVariableInitialized", "VariableShape", "DestroyResourceOp"})
# What hands on the very memory of a reference variable: the read is whoever works on it.
HAND_ON = frozenset({"Identity", "RefIdentity", "Switch", "RefSwitch", "Merge", "RefMerge", "Enter", "RefEnter"})
_SMALL_BYTES = 1024
# A read that waits for more than this is late anyway.
SHORT_READ = 64


class Race(NamedTuple):
    """Ops `reader` and `writer` of `variable` run in one step in no order."""

    variable: str
    reader: str
    writer: str


def races(view: GraphView, kind: StepKind, every: bool = False) -> list[Race]:
    """One race of each variable that has any in a step of `kind`; with `every` all of them."""
    step = executed(view, kind)
    users = {name: _users(view, step, name) for name in step if view.nodes[name].op in rules.VARIABLES}
    ends = {op for readers, writers in users.values() if readers and writers for op in (*readers, *writers)}
    before = _ordered(view, step, ends)
    found = []
    for variable, (readers, writers) in users.items():
        pairs = (Race(variable, r, w) for w in writers for r in readers if r != w and r not in before[w] and w not in before[r])
        found += pairs if every else itertools.islice(pairs, 1)
    return found


def _users(view: GraphView, step: Collection[str], variable: str) -> tuple[list[str], list[str]]:
    """(ops that read the variable, ops that write it) within a step."""
    users = [name for name in dict.fromkeys(view.consumers[variable]) if name in step]
    writers = [name for name in users if is_write(view.nodes[name].op)]
    read = [name for name in users if name not in writers and view.nodes[name].op not in _TESTS]
    is_ref = view.nodes[variable].op != "VarHandleOp"
    return [reader for name in read for reader in (_work(view, step, name) if is_ref else [name])], writers


def is_write(op: str) -> bool:
    """Does an op of this type write to the variable that it works on?"""
    return op.startswith(_WRITES)


def _work(view: GraphView, step: Collection[str], name: str) -> Iterator[str]:
    """The ops that work on the memory that `name` hands on; itself when it is fetched or works."""
    seen, stack = {name}, [name]
    while stack:
        op = stack.pop()
        readers = [n for n in view.consumers[op] if n in step and (op, -1) not in view.nodes[n].inputs]
        if view.nodes[op].op not in HAND_ON or not readers:
            yield op
        for reader in readers if view.nodes[op].op in HAND_ON else ():
            if reader not in seen:
                seen.add(reader)
                stack.append(reader)


def _ordered(view: GraphView, step: Collection[str], ends: Collection[str]) -> dict[str, set[str]]:
    """For each of `ends` those of `ends` that it waits for. Edges back to the start of a loop do not count."""
    bits = {name: 1 << i for i, name in enumerate(ends)}
    reached: dict[str, int] = {}
    for name in _in_order(view, step):
        mask = bits.get(name, 0)
        for source, _ in view.nodes[name].inputs:
            mask |= reached.get(source, 0)
        reached[name] = mask
    return {name: {other for other in ends if reached.get(name, 0) & bits[other]} for name in ends} if ends else {}


def _in_order(view: GraphView, step: Collection[str]) -> Iterator[str]:
    """The ops of a step, each after those that it needs."""
    waits = {
        name: sum(1 for source, _ in view.nodes[name].inputs if source in step and not _is_back_edge(view, source)) for name in step
    }
    ready = [name for name, count in waits.items() if not count]
    while ready:
        name = ready.pop()
        yield name
        for reader in view.consumers[name] if not _is_back_edge(view, name) else ():
            if reader in waits:
                waits[reader] -= 1
                if not waits[reader]:
                    ready.append(reader)


def _is_back_edge(view: GraphView, source: str) -> bool:
    return view.nodes[source].op in ("NextIteration", "RefNextIteration")


def to_keep(view: GraphView, found: Collection[Race]) -> Mapping[str, str]:
    """Ops that should stay where they are for the read to come first, and why."""
    kept: dict[str, str] = {}
    for variable, reader, writer in found:
        needed = view.ancestors([reader])
        if len(needed) <= SHORT_READ and _is_small(view, variable):
            kept.update(dict.fromkeys(needed, f"{variable} is read by {reader} and written by {writer} without order"))
    return kept


def _is_small(view: GraphView, variable: str) -> bool:
    attr = view.nodes[variable].proto.attr
    shape = attr["shape"].shape
    elements = 1
    for dim in shape.dim:
        elements *= dim.size
    known = not shape.unknown_rank and all(dim.size >= 0 for dim in shape.dim)
    return known and elements * dtypes.as_dtype(attr["dtype"].type).size <= _SMALL_BYTES


def notes(view: GraphView, kinds: Collection[StepKind]) -> list[str]:
    """What the operator is told: one line a variable."""
    found = {race.variable: race for kind in kinds for race in races(view, kind)}
    kept = to_keep(view, list(found.values()))
    return [
        f"variable {name} is written and read without order ({race.writer}, {race.reader}): "
        + ("it stays where it is" if name in kept else "its values may legally change")
        for name, race in found.items()
    ]
