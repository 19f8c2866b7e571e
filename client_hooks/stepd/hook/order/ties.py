"""How an order edge is tied into the graph without Grappler computing anything else than before. Pure.

Grappler fuses and rearranges neighbours only when no control edge hangs on them, and fused kernels may round differently. The sets
of ops that it may join are known (`Classes.groups`): a device border may lie around them, and so may a node of ours, but not where
Grappler rewrites across devices (`rules.REWRITTEN_APART`). An edge from or to such a set is tied to a node that is put on a tensor
that leaves or enters it (`engine/handing.py`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tensorflow.core.framework import types_pb2

from stepd.hook.engine import hoisted, onednn, rules, sums, twins, unchanged
from stepd.hook.engine.classify import Classes
from stepd.hook.engine.graphview import GraphView
from stepd.hook.engine.op_defs import input_types, output_types

# The order of terms is decided by their names, and where a sum begins by who holds their buffers: no node goes between.
_SUMS = frozenset({"Add", "AddV2", "AddN", "AccumulateNV2", "Mul", "Sub"})
# So far is looked through a group.
_MOST_MEMBERS = 64
# What lies between two ops that Grappler rewrites across devices without keeping it from that.
_BETWEEN = sums.VIEWS | {"Transpose"}
_rewritten: weakref.WeakKeyDictionary[GraphView, frozenset[tuple[str, int]]] = weakref.WeakKeyDictionary()
FLOATS = frozenset({types_pb2.DT_FLOAT, types_pb2.DT_DOUBLE, types_pb2.DT_HALF, types_pb2.DT_BFLOAT16})


@dataclass(frozen=True)
class Tie:
    """`signal`: the op whose end counts, `tap`: (reader, its input) between which a node tells of it; None: the op itself tells.

    `held`: the op that waits, `gate`: its input on which a node is put that waits for it; -1: the op itself. A fused kernel goes by
    the name of its last op, and takes what the first one takes: what is held is then before the op that the edge is for.
    """

    signal: str
    tap: tuple[str, int] | None
    held: str
    gate: int


def tie(
    view: GraphView, classes: Classes, before: str, after: str, run: Collection[str], may: Callable[[str, str], bool]
) -> Tie | None:
    """A way to have `after` wait for `before`; None when there is none that leaves all rounding alone.

    `run`: ops that some step executes; no others are touched. `may`: whether its second op may wait for its first.
    """
    group = classes.group_of.get(before)
    if group is not None and group == classes.group_of.get(after):
        return None
    for signal, tap in _signals(view, classes, before, run):
        for held, gate in _gates(view, classes, after, run):
            if may(signal, held) and (tap is None or tap[0] != held):
                return Tie(signal, tap, held, gate)
    return None


def _signals(view: GraphView, classes: Classes, name: str, run: Collection[str]) -> Iterator[tuple[str, tuple[str, int] | None]]:
    """Ops that have run only when `name` has, and where a node can tell of it: on through its group, the nearest first."""
    if name not in classes.group_of:
        if view.nodes[name].op not in _SUMS:
            yield name, None
        return
    for member in _through_group(view, classes, name, lambda n: view.consumers[n]):
        tap = _tap(view, classes, member, run)
        if tap is not None:
            yield member, tap


def _made_one(classes: Classes, filters: Mapping[str, bool]) -> set[int]:
    """The groups in which a gradient of a filter and one of a bias become one kernel, as long as nothing holds either."""
    return {classes.group_of[name] for name, two in filters.items() if not two and name in classes.group_of}


def _gates(view: GraphView, classes: Classes, name: str, run: Collection[str]) -> Iterator[tuple[str, int]]:
    """Ops without which `name` cannot run, and the inputs on which they can be held: back through its group, the nearest first."""
    filters = onednn.filter_gradients(view)
    if filters.get(name):
        yield name, -1
    if name in filters or (view.nodes[name].op == "BiasAddGrad" and classes.group_of.get(name) in _made_one(classes, filters)):
        return
    if name not in classes.group_of and view.nodes[name].op not in _SUMS:
        if not _taken_over(view, name):
            yield name, -1
        return
    for member in _through_group(view, classes, name, lambda n: [s for s, k in view.nodes[n].inputs if k >= 0]):
        gate = _gate(view, classes, member) if member in run and member not in filters else None
        if gate is not None:
            yield member, gate


def _taken_over(view: GraphView, name: str) -> bool:
    """Does Grappler have a reader do what the op does, wherever it lies? Whom the op waits for that one would wait for, and not be
    fused: a product whose transposition is held."""
    readers = ((user, k) for user in view.consumers[name] for k, given in enumerate(view.nodes[user].inputs) if given[0] == name)
    return any(reader in _kept(view) for reader in readers)


def _through_group(view: GraphView, classes: Classes, name: str, further: Callable[[str], Iterable[str]]) -> list[str]:
    group = classes.group_of.get(name)
    found = [name]
    for member in found:  # it grows
        if len(found) < _MOST_MEMBERS:
            found += [
                n
                for n in dict.fromkeys(further(member))
                if group is not None and classes.group_of.get(n) == group and n not in found
            ]
    return found


def _gate(view: GraphView, classes: Classes, name: str) -> int | None:
    """An input of floats from outside of the op's group that is neither a constant nor a variable, and not what joins the group:
    the moments of a normalization take the same as the rest of it, say."""
    node, group = view.nodes[name], classes.group_of.get(name)
    if node.op in _SUMS:
        return None
    types = input_types(node.proto)
    for position, (source, index) in enumerate(node.inputs):
        other = view.nodes[source]
        if (
            index >= 0
            and position < len(types)
            and types[position] in FLOATS
            and other.op != "Const"
            and not rules.works_on_variable(other.op)
            and other.op not in rules.CONTROL_FLOW
            and (group is None or classes.group_of.get(source) != group)
            and (name, position) not in _kept(view)
            and not _joined_by(view, classes, name, (source, index))
        ):
            return position
    return None


def _joined_by(view: GraphView, classes: Classes, name: str, value: tuple[str, int]) -> bool:
    """May Grappler join the op with others of its group because of whose value it takes? Twins, and those of which several take the
    value, also through what Grappler takes out."""
    group = classes.group_of.get(name)
    if group is None or view.nodes[name].op == "BiasAddGrad":  # with its filter's (`_gates`)
        return False
    if name in twins.of(view).members:
        return True
    while view.nodes[value[0]].op in unchanged.NAMES and view.nodes[value[0]].inputs[0][1] >= 0:
        value = view.nodes[value[0]].inputs[0]
    values, taken = [value], 0
    for one in values:  # it grows
        for reader in dict.fromkeys(view.consumers[one[0]]):
            count = view.nodes[reader].inputs.count(one)
            taken += count if classes.group_of.get(reader) == group else 0
            if count and view.nodes[reader].op in unchanged.NAMES:
                values.append((reader, 0))
    return taken > 1


def _tap(view: GraphView, classes: Classes, name: str, run: Collection[str]) -> tuple[str, int] | None:
    """A reader outside of the op's group, and its input, between which a node may be put; not what joins the reader's own group."""
    group = classes.group_of.get(name)
    types = output_types(view.nodes[name].proto)
    for reader in view.consumers[name]:
        node = view.nodes[reader]
        if reader not in run or classes.group_of.get(reader) == group or node.op in _SUMS or node.op in rules.CONTROL_FLOW:
            continue
        for position, (source, index) in enumerate(node.inputs):
            if source != name or not 0 <= index < len(types) or types[index] not in FLOATS or (reader, position) in _kept(view):
                continue
            if not _joined_by(view, classes, reader, (source, index)):
                return reader, position
    return None


def _kept(view: GraphView) -> frozenset[tuple[str, int]]:
    """Ops and their inputs on which no node may be put, because Grappler rewrites what is behind and before it across devices."""
    found = _rewritten.get(view)
    if found is None:
        found = _rewritten[view] = frozenset(_ways(view))
    return found


def _ways(view: GraphView) -> Iterator[tuple[str, int]]:
    for node in view.nodes.values():
        for first, second, positions in rules.REWRITTEN_APART:
            for position in positions if node.op in second else ():
                way: list[tuple[str, int]] = []
                for name, place, source in _back(view, node.name, position):
                    way.append((name, place))
                    if view.nodes[source].op in first:
                        yield from way
    for root in dict.fromkeys(root for root, _ in hoisted.chains(view)):
        # The functions of what it gives, or of its parts, come to lie there, and meet who is there.
        op = view.nodes[root].op
        if op in ("Split", "SplitV"):
            yield from ((name, place) for name, place, _ in _back(view, root, 1 if op == "Split" else 0))
        else:
            for reader in view.consumers[root]:
                yield from ((reader, place) for place, given in enumerate(view.nodes[reader].inputs) if given == (root, 0))


def _back(view: GraphView, name: str, position: int) -> Iterator[tuple[str, int, str]]:
    """(op, its input, who gives it), from an input back through what Grappler may take out or look through."""
    while position < len(view.nodes[name].inputs):
        source, index = view.nodes[name].inputs[position]
        if index < 0:
            return
        yield name, position, source
        if view.nodes[source].op not in _BETWEEN:
            return
        name, position = source, 0
