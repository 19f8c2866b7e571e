"""Which inputs of a sum must lie where the sum is computed, for its bits to be the same everywhere. Pure.

TensorFlow's AddN adds up in the order of its inputs, which Grappler sorts by name, but begins with the first input whose buffer
nobody else holds. A buffer that came from another device may be held or not, depending on the moment. Grappler makes one AddN of a
tree of additions.
"""

from __future__ import annotations

from collections.abc import Iterator

from stepd.hook.engine import graphview, rules, twins
from stepd.hook.engine.graphview import GraphView, Node

_SUMS = frozenset({"Add", "AddV2", "AddN"})
# Ops whose output is the buffer of their input.
VIEWS = frozenset({"Identity", "Reshape", "Squeeze", "ExpandDims", "StopGradient", "PreventGradient", "Snapshot"})
# Ops that may turn out to change nothing: gradients sum over the dimensions that were broadcast, of which there may be none.
PASSING = VIEWS | {"Sum", "BroadcastTo", "Tile"}
# The order of two terms does not matter.
_LEAST_TERMS = 3


def first_terms(view: GraphView, node: Node) -> set[str]:
    """The inputs that a sum may begin with, up to the first that it is sure to begin with, and whose buffers they hand on; empty for
    ops that do not sum."""
    found: set[str] = set()
    for name in _may_begin(view, node):
        found.update(_views(view, name))
    return found


def held_terms(view: GraphView, node: Node) -> dict[str, set[str]]:
    """Those of `first_terms` that others hold -> who reads them or what only hands them on. The sum begins with another if these
    read later than it adds."""
    found = {}
    for name in _may_begin(view, node):
        if not _has_buffer_alone(view, name):
            others = {user for buffer in _views(view, name) for user in _behind_views(view, buffer)} - {node.name}
            if others:
                found[name] = others
    return found


def _may_begin(view: GraphView, node: Node) -> set[str]:
    if not adds_many(view, node):
        return set()
    terms = list(_terms(view, node))
    # Grappler takes the identities out of the graph, sometimes, and sorts a sum of sums last of all, or not any more: all of these
    # orders may come about.
    orders = (sorted(terms), sorted(terms, key=lambda name: _without_identities(view, name)), list(_terms(view, node, by_name=True)))
    return {name for order in orders for name in _up_to_free(view, order)}


def _views(view: GraphView, name: str) -> Iterator[str]:
    """`name`, and whose buffer its value is in."""
    yield name
    while view.nodes[name].op in VIEWS and view.nodes[name].inputs:
        name = view.nodes[name].inputs[0][0]
        yield name


def _behind_views(view: GraphView, name: str) -> Iterator[str]:
    """Who reads the value of `name`, also through what hands on its buffer."""
    for user in dict.fromkeys(_readers(view, name)):
        yield user
        if view.nodes[user].op in VIEWS:
            yield from _behind_views(view, user)


def adds_many(view: GraphView, node: Node) -> bool:
    """Does this op add up so many terms that their order matters, and not for another sum?"""
    return node.op in _SUMS and not absorbed(view, node) and sum(1 for _ in _terms(view, node)) >= _LEAST_TERMS


def sums(op: str) -> bool:
    """Does an op of this type add up floats that Grappler may add up in another order?"""
    return op in _SUMS


def in_bodies(view: GraphView, node: Node) -> bool:
    """Does this op call functions that sum? What they are given may be among the terms, and must lie where they are."""
    if not graphview.function_attrs(node.op) and graphview.op_def(node.op) is not None:
        return False
    return any(inner.op in _SUMS for body in view.bodies(node.proto) for inner in body.node_def)


def _up_to_free(view: GraphView, order: list[str]) -> Iterator[str]:
    for name in order:
        yield name
        if _has_buffer_alone(view, name):
            return


def _terms(view: GraphView, root: Node, by_name: bool = False) -> Iterator[str]:
    """What a tree of sums adds up, from left to right. `by_name`: with every sum's inputs sorted."""
    given = [source for source, index in root.inputs if index >= 0]
    for source in sorted(given) if by_name else given:
        node = view.nodes[source]
        if node.op in _SUMS and absorbed(view, node):
            yield from _terms(view, node, by_name)
        else:
            yield source


def absorbed(view: GraphView, node: Node) -> bool:
    """Is this sum a term of another one and nothing else?"""
    made_one = twins.of(view)
    readers = [user for name in made_one.alike(node.name) for user in _readers(view, name)]
    return made_one.count(readers) == 1 and view.nodes[readers[0]].op in _SUMS


def _readers(view: GraphView, name: str) -> list[str]:
    """Ops that read the node's values, once for every input."""
    users = dict.fromkeys(view.consumers[name])
    return [user for user in users for source, index in view.nodes[user].inputs if source == name and index >= 0]


def _has_buffer_alone(view: GraphView, name: str) -> bool:
    while len(_readers(view, name)) == 1 and name not in twins.of(view).members:
        node = view.nodes[name]
        if node.op not in VIEWS:
            # What is fed, constants and variables are held by others.
            return any(index >= 0 for _, index in node.inputs) and not rules.works_on_variable(node.op)
        name = node.inputs[0][0]
    return False


def _without_identities(view: GraphView, name: str) -> str:
    while view.nodes[name].op == "Identity":
        name = view.nodes[name].inputs[0][0]
    return name
