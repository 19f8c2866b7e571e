"""Variables that one step both writes and reads, with no path between the two: what is read may be from before or after. Pure.

TensorFlow gives no order then, but in practice the read, which waits for little, comes first: the step that hooks read beside a
training step, say. So that this stays so, what belongs to such a read is not moved when the variable is small; a large one may
move, and the operator is told.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from tensorflow.python.framework import dtypes

from stepd.hook.engine import rules
from stepd.hook.engine.before import Before
from stepd.hook.engine.graphview import GraphView, name_of_state, split_input
from stepd.hook.engine.op_defs import function_attrs, holds_state, input_types, is_stateful
from stepd.hook.order.steps import executed
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


_known: weakref.WeakKeyDictionary[GraphView, dict[tuple[StepKind, bool], list[Race]]] = weakref.WeakKeyDictionary()


def races(view: GraphView, kind: StepKind, every: bool = False) -> list[Race]:
    """One race of each variable that has any in a step of `kind`; with `every` all of them, and those of two writes."""
    known = _known.setdefault(view, {})
    if (kind, every) not in known:
        known[kind, every] = _races(view, kind, every)
    return known[kind, every]


def _races(view: GraphView, kind: StepKind, every: bool) -> list[Race]:
    step = executed(view, kind)
    used = {name: users(view, step, alike) for name, alike in variables(view, step).items()}
    used = {name: (readers, writers) for name, (readers, writers) in used.items() if writers and len({*readers, *writers}) > 1}
    ends = {op: None for readers, writers in used.values() for op in (*readers, *writers)}
    order = Before(view, step, {split_input(name) for name in kind.feeds}, ends)
    found: list[Race] = []
    for variable, (readers, writers) in used.items():
        pairs = itertools.chain(
            ((reader, writer) for writer in writers for reader in readers if reader != writer),
            itertools.combinations(writers, 2) if every else (),
        )
        racing = (Race(variable, *pair) for pair in pairs if _may_race(order, *pair))
        found += racing if every else itertools.islice(racing, 1)
    return found


def _may_race(order: Before, one: str, other: str) -> bool:
    return not (order.is_before(one, other) or order.is_before(other, one) or order.exclude(one, other))


def variables(view: GraphView, step: Collection[str]) -> dict[str, list[str]]:
    """The first op of each variable -> all ops that stand for it: those that say the same name say the same variable."""
    alike: dict[tuple[bytes, bytes], list[str]] = {}
    for name in view.nodes:
        if name in step and view.nodes[name].op in rules.VARIABLES:
            alike.setdefault(name_of_state(view.nodes[name].proto), []).append(name)
    return {names[0]: names for names in alike.values()}


def users(view: GraphView, step: Collection[str], handles: Iterable[str]) -> tuple[list[str], list[str]]:
    """(ops that read the variable, ops that write it) within a step, whatever hands its handle or its memory on to them."""
    readers, writers = dict[str, None](), dict[str, None]()
    stack = list(handles)
    in_memory = any(view.nodes[name].op != "VarHandleOp" for name in stack)  # who hands it on hands on what is read
    seen = set(stack)
    while stack:
        source = stack.pop()
        users = [user for user in dict.fromkeys(view.consumers[source]) if user in step and _takes(view, user, source)]
        if in_memory and not users and view.nodes[source].op in HAND_ON:
            readers[source] = None
        for user in users:
            op = view.nodes[user].op
            if user not in seen and op in HAND_ON:
                stack.append(user)
            elif (is_write(op) or _calls_a_write(view, user)) and _takes_state(view, user, source):
                writers[user] = None
                if user not in seen and in_memory:
                    stack.append(user)
            elif op not in HAND_ON and op not in _TESTS:
                readers[user] = None
            seen.add(user)
    return list(readers), list(writers)


def _takes(view: GraphView, user: str, source: str) -> bool:
    """Is `user` given what `source` hands on, rather than waiting for it?"""
    return any(name == source and index >= 0 for name, index in view.nodes[user].inputs)


def _takes_state(view: GraphView, user: str, source: str) -> bool:
    """Is it given the variable itself, rather than its value?"""
    types = input_types(view.nodes[user].proto)
    return any(name == source and holds_state(dtype) for (name, _), dtype in zip(view.nodes[user].inputs, types, strict=False))


def _calls_a_write(view: GraphView, name: str) -> bool:
    """Does the op call a function with a write in it? Whether to this variable is not looked at."""
    node = view.nodes[name]
    return function_attrs(node.op) != () and any(is_write(inner.op) for body in view.bodies(node.proto) for inner in body.node_def)


def is_write(op: str) -> bool:
    """Does an op of this type write to the variable that it works on?"""
    return op.startswith(_WRITES)


def counts_alone(view: GraphView, race: Race) -> bool:
    """Does the write wait for nothing but the variable itself and constants, as a counter beside a training step does?"""
    needed, stack = {race.variable}, [race.writer]
    while stack:
        name = stack.pop()
        if name not in needed:
            needed.add(name)
            if name != race.writer and _says_more(view.nodes[name].op):
                return False
            if len(needed) > SHORT_READ + 2:  # a training step's write waits for thousands
                return False
            stack += [source for source, _ in view.nodes[name].inputs]
    return True


def may_count_first(view: GraphView, race: Race) -> bool:
    """May such a counter's write come before the read, plainly? Of a reference variable's next value that is made of this one.

    TensorFlow runs an op on a thread of its own until it has found, in some 90 runs, that the op is cheap. Until then the write of
    `step.assign(step + 1)` came before the rate that is made of the step in nearly all steps of 10 of 26 random programs, and in
    none of the other 16. What adds a constant came after it in all but 2 of 3,910 steps of these, and what counts a resource
    variable in all of 3,400 of 40; afterwards constants come first, too, in a quarter to all of the steps."""
    return view.nodes[race.variable].op != "VarHandleOp" and counts_alone(view, race) and not adds_a_constant(view, race)


def adds_a_constant(view: GraphView, race: Race) -> bool:
    """Does such a counter's write need no read of the variable?"""
    needed = view.ancestors([race.writer]) - {race.writer}
    return needed.isdisjoint(view.consumers[race.variable])


def _says_more(op: str) -> bool:
    """Does an op hand on anything but what a variable, which was looked at, and constants say?"""
    stateful = is_stateful(op) and op != "ReadVariableOp"
    return stateful or op.startswith("Placeholder") or bool(function_attrs(op))


def to_keep(view: GraphView, found: Collection[Race]) -> Mapping[str, str]:
    """Ops that should stay where they are for the read, or a counter's write, to come when it plainly does, and why."""
    kept: dict[str, str] = {}
    for race in found:
        if not _is_small(view, race.variable):
            continue
        why = f"{race.variable} is read by {race.reader} and written by {race.writer} without order"
        for end in (race.reader, race.writer) if counts_alone(view, race) else (race.reader,):
            needed = view.ancestors([end])
            if len(needed) <= SHORT_READ:
                kept.update(dict.fromkeys(needed, why))
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
