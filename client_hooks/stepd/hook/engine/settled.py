"""Conditions whose outcome is known before the graph runs, and who must lie where they do. Pure.

Grappler takes such a condition out: what goes into its branch and what comes out of it is then handed on directly, so that sums
inside and outside become one, where they share a device. It must not know what else moves together.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator

from stepd.hook.engine import folded, graphview, rules
from stepd.hook.engine.graphview import GraphView, Node

_BRANCHES = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
# Conditions in conditions that a way through a branch is followed into.
_DEEPEST = 8
_found: weakref.WeakKeyDictionary[GraphView, frozenset[str]] = weakref.WeakKeyDictionary()


def neighbours(view: GraphView) -> Iterator[tuple[str, str]]:
    """Pairs of an end of such a condition and an op that it is given or that is given what it hands on."""
    for name in sorted(ends(view)):
        yield from ((name, other) for other in _given(view, name, folded.constants(view)))
        for other in _takers(view, name):
            yield name, other
            yield from ((name, one) for one in _undoing(view, other))


def _undoing(view: GraphView, taker: str) -> Iterator[str]:
    """With what gradients undo broadcasting, where `taker` asks for the shape of what such a condition hands on: the sums, their
    ends and neighbours. When Grappler takes these out depends on all of their devices, and until then the last term of a sum in
    the branch has one reader more."""
    found = [taker] if view.nodes[taker].op in rules.OF_SHAPES else []
    for name in found:  # it grows
        node = view.nodes[name]
        if name == taker or node.op in rules.UNDOES_BROADCASTING:
            found += [user for user in view.consumers[name] if user not in found]
        if node.op == "Sum":
            yield node.inputs[0][0]
        yield name


def ends(view: GraphView) -> frozenset[str]:
    """Where values go into such conditions and come out of them: Switches, Merges and, for both, what has branches in bodies."""
    found = _found.get(view)
    if found is None:
        found = _found[view] = frozenset(_ends(view))
    return found


def _ends(view: GraphView) -> Iterator[str]:
    constants = folded.constants(view)
    for node in view.nodes.values():
        if node.op in rules.SWITCHES and node.inputs[1][0] in constants:
            yield node.name
            yield from _ends_behind(view, node)
        elif node.op in _BRANCHES and node.inputs[0][0] in constants:
            yield node.name


def _ends_behind(view: GraphView, switch: Node) -> Iterator[str]:
    """The Merges at which what goes through `switch` leaves the condition."""
    seen = {(switch.name, 1)}
    stack = list(seen)
    while stack:
        name, depth = stack.pop()
        for user in graphview.takers(view, name):
            op = view.nodes[user].op
            inside = depth + (op in rules.SWITCHES) - (op in rules.MERGES)
            if inside == 0:
                yield user
            elif inside <= _DEEPEST and (user, inside) not in seen:
                seen.add((user, inside))
                stack.append((user, inside))


def _given(view: GraphView, name: str, constants: frozenset[str]) -> Iterator[str]:
    """What `name` is given, and whose value that is where it is only handed on."""
    for source, index in view.nodes[name].inputs:
        while index >= 0 and source not in constants:
            yield source
            if view.nodes[source].op != "Identity":
                break
            source, index = view.nodes[source].inputs[0]


def _takers(view: GraphView, name: str) -> Iterator[str]:
    """Who is given what `name` hands on, also through ops that only hand it on further."""
    for user in graphview.takers(view, name):
        yield user
        if view.nodes[user].op == "Identity":
            yield from _takers(view, user)
