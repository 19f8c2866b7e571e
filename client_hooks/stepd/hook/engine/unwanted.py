"""Which ops are there for nobody: gradients of constants, for which only a tuple's NoOp waits. Pure.

Where all share a device Grappler takes such ops out before it counts who reads a value, or asks whether somebody waits for an op.
It must not know what is made of that.
"""

from __future__ import annotations

import functools
import operator
import weakref
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from stepd.hook.engine import rules
from stepd.hook.engine.graphview import GraphView, Node
from stepd.hook.engine.races import is_write
from stepd.hook.order.walk import NEXT, sorted_by_needs

_HANDS_ON = rules.UNDOES_BROADCASTING & {"Sum", "Reshape", "Identity"}
_MOST = 16  # ops that are looked through: an exponent's gradient has nine


class Waits(NamedTuple):
    """What several barriers wait for -> its bit; and op -> the bits of what comes before it."""

    bits: dict[str, int]
    before: dict[str, int]


_found: weakref.WeakKeyDictionary[GraphView, Waits] = weakref.WeakKeyDictionary()


def behind(view: GraphView, name: str, fetched: bool = False) -> Iterator[str]:
    """Readers of the value `name`, and what is made of theirs, of which nobody takes a value in the end, or only what a step need
    not want: who reads what a tuple waits for beside the tuple (a program that looks at a gradient in some of its steps).
    `fetched`: also where it ends with a gradient that a program might fetch."""
    for reader in dict.fromkeys(view.consumers[name]):
        found = [reader]
        for op in found:  # it grows
            users = [user for user in dict.fromkeys(view.consumers[op]) if view.nodes[user].op != "NoOp" and user not in found]
            ends = [user for user in users if is_tuples(view, view.nodes[user])]
            found += ends if ends and _is_awaited(view, op, ends) else users
            if len(found) > _MOST or not (_may_be(view, op) or (fetched and _is_gradient(view, op))):
                break
        else:
            yield from found


def taken(view: GraphView, names: Iterable[str]) -> Iterator[str]:
    """The values that these ops take: where one comes from another device the op stays in the graph for longer."""
    for name in names:
        yield from (source for source, k in view.nodes[name].inputs if k >= 0 and view.nodes[source].op != "Const")


def awaiting(view: GraphView, names: Iterable[str]) -> Iterator[str]:
    """The barriers of tuples that wait for any of these ops, the tuples' ends, what undoes broadcasting before these, and who reads
    them: with barrier and ends taken out it is the readers that wait, unless one of these is on another device."""
    barriers = dict.fromkeys(user for name in names for user in view.consumers[name] if view.nodes[user].op == "NoOp")
    for barrier in barriers:
        ends = [user for user in view.consumers[barrier] if view.nodes[user].op == "Identity"]
        if ends:
            yield from (barrier, *ends, *(name for end in ends for name in _made_of(view, end)[1:-1]))
        yield from (reader for end in ends for reader in view.consumers[end])


def across_devices(view: GraphView) -> Iterator[tuple[str, str]]:
    """Barriers of tuples that the program has on several devices, and what these are made of and handed on to: `tf.group` waits on
    each device apart, and Grappler takes out what is there for nobody only in the end, if at all."""
    for name, node in view.nodes.items():
        inner = [source for source, _ in node.inputs if view.nodes[source].op == "NoOp"] if node.op == "NoOp" else []
        if len({view.nodes[barrier].requested for barrier in (name, *inner)}) < 2:
            continue
        waited = dict.fromkeys(source for barrier in (name, *inner) for source, _ in view.nodes[barrier].inputs)
        ends = [
            user for user in view.consumers[name] if view.nodes[user].op == "Identity" and view.nodes[user].inputs[0][0] in waited
        ]
        readers = [reader for end in ends for reader in view.consumers[end]]
        yield from ((name, other) for other in (*waited, *ends, *readers) if ends)


def undoing(view: GraphView, name: str) -> list[str]:
    """Who asks for the shape of the value `name`, and what gradients undo broadcasting with there, if there was any, to the ends of
    their tuples. As long as one of these is on another device Grappler keeps all, and the value has readers."""
    asking = [user for user in dict.fromkeys(view.consumers[name]) if view.nodes[user].op in rules.OF_SHAPES]
    return _undone(view, asking, ("Identity",))


def left_out(view: GraphView, name: str, reader: str) -> list[str]:
    """What is made of other products and sums of the value `name` than `reader`, with broadcasting undone, up to the barriers of
    tuples that wait for it. In a step that wants no such gradient Grappler leaves what is waited for, and the value has not one
    reader only, unless all share a device."""
    others = [user for user in dict.fromkeys(view.consumers[name]) if view.nodes[user].op in rules.ARITHMETIC and user != reader]
    return _undone(view, others, ("NoOp", "Identity"))


def undo_broadcasting(view: GraphView, name: str) -> bool:
    """Whether a gradient that a tuple hands on beside that of `name`, or with it, is summed up: one of its factors is smaller."""
    found = _undone(view, [name], ("NoOp", "Identity"))
    waited = (source for barrier in found if view.nodes[barrier].op == "NoOp" for source, _ in view.nodes[barrier].inputs)
    return any(view.nodes[op].op == "Sum" for source in waited for op in _made_of(view, source))


def _undone(view: GraphView, found: list[str], last: Collection[str]) -> list[str]:
    """`found` and what undoes broadcasting behind these, barriers too, to ops of the types `last`."""
    for op in found:  # it grows
        if view.nodes[op].op not in last:
            found += [u for u in view.consumers[op] if view.nodes[u].op in rules.UNDOES_BROADCASTING and u not in found]
    return found


def before(view: GraphView, barrier: str) -> list[str]:
    """What a tuple's `barrier` waits for and only it, with what is computed for that alone, and the barrier; nothing if there is
    none."""
    found = [barrier]
    for op in found:  # it grows
        given = dict.fromkeys(source for source, _ in view.nodes[op].inputs)
        found += [name for name in given if name not in found and _is_for(view, name, found)]
    return found if len(found) > 1 else []


def behind_tuples(view: GraphView, name: str, partly: bool = False) -> tuple[list[str], list[str]]:
    """The value `name` and whose it is, from op to op through tuples of which nobody wants another end and through what undoes
    broadcasting; and what must lie beside these for Grappler to take them out. `partly`: through tuples, too, of which a step that
    wants some gradients only may not want another end, where that is a product or a sum."""
    chain, aside = [name], list[str]()
    while view.nodes[chain[-1]].op in _HANDS_ON:
        first, *others = view.nodes[chain[-1]].inputs
        barriers = [other for other, k in others if k < 0]
        alone = [before(view, barrier) for barrier in barriers]
        waited = {source for barrier in barriers for source, _ in view.nodes[barrier].inputs}
        wanted = waited.difference([first[0], *(one for found in alone for one in found)])
        ends = [one for one in sorted(wanted) if not _comes_before(view, one, first[0])]
        made = [_made_of(view, end) for end in ends]
        if first[1] < 0 or not all(partly and view.nodes[ops[-1]].op in rules.ARITHMETIC for ops in made):
            break
        aside += [*barriers, *(one for found in (*alone, *made) for one in found)]
        shapes = [other for other, k in others if k >= 0 and view.nodes[other].op != "Const"]
        undone = (view.nodes[other] for other in shapes if view.nodes[other].op == "BroadcastGradientArgs")
        asked = [source for node in undone for source, _ in node.inputs]
        aside += dict.fromkeys([*shapes, *asked])
        chain.append(first[0])
    return chain, aside


def given_by_tuples(view: GraphView, name: str, every: bool = False) -> Iterator[str]:
    """The ends of tuples that the op `name` takes values of, also where what undoes broadcasting stands between, their barriers,
    and what these wait for that nobody wants, with what that takes: where Grappler takes ends and barriers out, it is the op that
    waits if there is anything left to wait for, and what waits is not put in another order. `every`: and all that these wait for,
    since an end stays, and waits for itself, where something of that is on another device."""
    for source, k in view.nodes[name].inputs:
        ends = [one for one in _made_of(view, source)[:-1] if is_tuples(view, view.nodes[one])] if k >= 0 else []
        for end in ends:
            yield end
            for barrier in (other for other, j in view.nodes[end].inputs if j < 0):
                nobodys = before(view, barrier)
                yield from (barrier, *nobodys, *taken(view, nobodys))
                yield from (source for source, _ in view.nodes[barrier].inputs if every)


def _made_of(view: GraphView, name: str) -> list[str]:
    """`name`, and what it is before broadcasting was undone."""
    found = [name]
    while view.nodes[found[-1]].op in _HANDS_ON and view.nodes[found[-1]].inputs[0][1] >= 0:
        found.append(view.nodes[found[-1]].inputs[0][0])
    return found


def _comes_before(view: GraphView, one: str, other: str) -> bool:
    """Whether `other` waits for `one` anyway, which several barriers wait for: gradients in a scope that waits for the loss, or for
    a normalization's updates, do."""
    found = _found.get(view)
    if found is None:
        waits = Counter(source for node in view.nodes.values() if node.op == "NoOp" for source, _ in node.inputs)
        bits = {name: 1 << rank for rank, name in enumerate(name for name, times in waits.items() if times > 1)}
        found = _found[view] = Waits(bits, _before(view, bits))
    return bool(found.bits.get(one, 0) & found.before[other])


def _before(view: GraphView, bits: Mapping[str, int]) -> dict[str, int]:
    """Op -> the bits of what comes before it; of a loop, in its first round. None, where a program made a cycle of its own."""
    before: dict[str, int] = {}
    awaited = {name: [] if node.op in NEXT else [source for source, _ in node.inputs] for name, node in view.nodes.items()}
    order = sorted_by_needs(awaited)
    if order is None:
        return dict.fromkeys(view.nodes, 0)
    for name in order:
        before[name] = functools.reduce(operator.or_, (before[source] | bits.get(source, 0) for source in awaited[name]), 0)
    return before


def _is_for(view: GraphView, name: str, ops: list[str]) -> bool:
    """Do only `ops` read it, and tuples that hand it on to nobody?"""
    users = view.consumers[name]
    alone = all(user in ops or (is_tuples(view, view.nodes[user]) and not view.consumers[user]) for user in users)
    return alone and not is_write(view.nodes[name].op) and view.nodes[name].op not in rules.CONTROL_FLOW


def _may_be(view: GraphView, name: str) -> bool:
    """A program fetches nothing of it, as far as one can tell."""
    node = view.nodes[name]
    return not is_write(node.op) and node.op not in rules.CONTROL_FLOW and (bool(view.consumers[name]) or is_tuples(view, node))


def _is_gradient(view: GraphView, name: str) -> bool:
    """Whether broadcasting is undone up to the op `name`, as it is for what `tf.gradients` returns."""
    return view.nodes[name].op == "Reshape" and view.nodes[view.nodes[name].inputs[0][0]].op == "Sum"


def _is_awaited(view: GraphView, name: str, ends: Iterable[str]) -> bool:
    """Whether the barrier of a tuple with one of these ends waits for the op `name`."""
    barriers = {source for end in ends for source, k in view.nodes[end].inputs if k < 0}
    return not barriers.isdisjoint(view.consumers[name])


def is_tuples(view: GraphView, node: Node) -> bool:
    """Whether it is what a tuple hands on."""
    return node.op == "Identity" and any(index < 0 and view.nodes[source].op == "NoOp" for source, index in node.inputs)
