"""Which inputs of a sum must lie where the sum is computed, for its bits to be the same everywhere. Pure.

TensorFlow's AddN adds up in the order of its inputs, which Grappler sorts by name, but begins with the first input whose buffer
nobody else holds. A buffer that came from another device may be held or not, depending on the moment. Grappler makes one AddN of a
tree of additions.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator

from stepd.hook.engine import op_defs, rules, settled, twins, unchanged, unwanted
from stepd.hook.engine.graphview import GraphView, Node

_SUMS = frozenset({"Add", "AddV2", "AddN"})
# Ops whose output is the buffer of their input.
VIEWS = frozenset({"Identity", "Reshape", "Squeeze", "ExpandDims", "StopGradient", "PreventGradient", "Snapshot"})
# Ops that may turn out to change nothing: gradients sum over the dimensions that were broadcast, of which there may be none.
PASSING = VIEWS | {"Sum", "BroadcastTo", "Tile"}
# The order of two terms does not matter.
_LEAST_TERMS = 3
_found: weakref.WeakKeyDictionary[GraphView, frozenset[str]] = weakref.WeakKeyDictionary()


def first_terms(view: GraphView, node: Node) -> set[str]:
    """The inputs that a sum may begin with, up to the first that it is sure to begin with, and whose buffers these hand on; none
    for ops that do not sum."""
    return {buffer for name in _may_begin(view, node) for buffer in _views(view, name)}


def held_terms(view: GraphView, node: Node) -> dict[str, set[str]]:
    """Those of `first_terms` that others hold -> who reads them or what only hands them on. The sum begins with another if these
    read later than it adds. So does a sum in what the op calls."""
    found = {}
    inside = node.name in _edges(view) and _hands_on(view, node) is None
    for name in [source for source, index in node.inputs if index >= 0] if inside else _may_begin(view, node):
        if not _has_buffer_alone(view, name):
            others = {user for buffer in _views(view, name) for user in _behind_views(view, buffer)} - {node.name}
            if others:
                found[name] = others
    return found


def _may_begin(view: GraphView, node: Node) -> set[str]:
    if not adds_many(view, node):
        return set()
    terms = list(_terms(view, node))
    if _at_edge(view, node):
        return set(terms)
    # Grappler takes the identities out of the graph, sometimes, and sorts a sum of sums last of all, or not any more: all of these
    # orders may come about.
    orders = (
        sorted(terms),
        sorted(terms, key=lambda name: _without_identities(view, name)),
        list(_terms(view, node, by_name=True)),
    )
    return {name for order in orders for name in _up_to_free(view, order)}


def _views(view: GraphView, name: str) -> list[str]:
    """`name`, and whose buffer its value may be in."""
    found = [name]
    for one in found:  # it grows
        found += [source for source in _hands_on(view, view.nodes[one]) or () if source not in found]
    return found


def _behind_views(view: GraphView, name: str) -> list[str]:
    """Who reads the value of `name`, also through what hands on its buffer."""
    found, held = list(dict.fromkeys(_readers(view, name))), {name}
    for user in found:  # it grows
        if not held.isdisjoint(_hands_on(view, view.nodes[user]) or ()):
            held.add(user)
            found += [other for other in dict.fromkeys(_readers(view, user)) if other not in found]
    return found


def adds_many(view: GraphView, node: Node) -> bool:
    """Does this op add up so many terms that their order matters, and not for another sum?"""
    if node.op not in _SUMS or absorbed(view, node):
        return False
    return sum(1 for _ in _terms(view, node)) >= _LEAST_TERMS or _at_edge(view, node)


def sums(op: str) -> bool:
    """Does an op of this type add up floats that Grappler may add up in another order?"""
    return op in _SUMS


def in_bodies(view: GraphView, node: Node) -> bool:
    """Does this op call functions that sum? What they are given may be among the terms, and must lie where they are."""
    if not op_defs.function_attrs(node.op) and op_defs.op_def(node.op) is not None:
        return False
    return any(inner.op in _SUMS for body in view.bodies(node.proto) for inner in body.node_def)


def _edges(view: GraphView) -> frozenset[str]:
    """Ops behind which Grappler may find more terms of a sum: ends of settled conditions, and what it puts the body in place of."""
    found = _found.get(view)
    if found is None:
        called = (node.name for node in view.nodes.values() if node.op in rules.INLINED and in_bodies(view, node))
        found = _found[view] = settled.ends(view).union(called)
    return found


def _at_edge(view: GraphView, root: Node) -> bool:
    """Does a sum take a term from such an op, or give it what it adds up?"""
    edges = _edges(view)
    if not edges:
        return False
    given = {name for term in _terms(view, root) for name in _views(view, term)}
    return not edges.isdisjoint(given) or not edges.isdisjoint(_behind_views(view, root.name))


def _hands_on(view: GraphView, node: Node) -> list[str] | None:
    """Whose buffers the op may hand on as it is; None if it has one of its own."""
    if node.op in VIEWS or _may_change_nothing(view, node):
        return [node.inputs[0][0]] if node.inputs else []
    if node.name not in settled.ends(view) or node.op not in rules.CONTROL_FLOW:
        return None
    given = [source for source, index in node.inputs if index >= 0]
    return given if node.op in rules.MERGES else given[:1]


def _may_change_nothing(view: GraphView, node: Node) -> bool:
    """Does it sum over the dimensions that were broadcast, which are known at run time only? Where none were, Grappler takes it
    out, and its value is in the buffer of what it is given."""
    return node.op == "Sum" and len(node.inputs) > 1 and view.nodes[node.inputs[1][0]].op == "BroadcastGradientArgs"


def _up_to_free(view: GraphView, order: list[str]) -> Iterator[str]:
    for name in order:
        yield name
        if _has_buffer_alone(view, name):
            return


def _terms(view: GraphView, root: Node, by_name: bool = False) -> Iterator[str]:
    """What a tree of sums adds up, from left to right, also where what changes nothing stands between two of them. `by_name`: with
    every sum's inputs sorted."""
    stack = [root.name]
    while stack:
        name = stack.pop()
        node = view.nodes[name] if name == root.name else _sum_behind(view, name)
        if node is None or (node.name != root.name and not absorbed(view, node)):
            yield name
            continue
        given = [source for source, index in node.inputs if index >= 0]
        stack += reversed(sorted(given) if by_name else given)


def waits_of_terms(view: GraphView, node: Node) -> Iterator[str]:
    """Of a sum and those that it may be made one with: the barriers of the tuples that the inner ones' terms are ends of, and what
    only these wait for. With all of it beside, Grappler takes the tuples out, and who waits for what afterwards says whether it
    makes one sum of all."""
    given = [source for source, index in node.inputs if index >= 0] if node.op in _SUMS else []
    for source in given:
        inner = _sum_behind(view, source)
        if inner is None or not absorbed(view, inner):
            continue
        for term in _terms(view, inner):
            for barrier in _tuples_of(view, view.nodes[term]):
                nobodys = unwanted.before(view, barrier)
                yield from (term, barrier, *nobodys, *unwanted.taken(view, nobodys))


def _tuples_of(view: GraphView, end: Node) -> Iterator[str]:
    """The barriers that `end` waits for and that wait for its value: not a group of updates, say, that a whole scope waits for."""
    for other, k in end.inputs:
        if k < 0 and view.nodes[other].op == "NoOp" and end.inputs[0][0] in {source for source, _ in view.nodes[other].inputs}:
            yield other


def _sum_behind(view: GraphView, name: str) -> Node | None:
    """The sum whose value `name` is, behind what changes nothing; None if it is of something else."""
    return next((node for node, _ in unchanged.behind_names(view, name) if node.op in _SUMS), None)


def absorbed(view: GraphView, node: Node) -> bool:
    """Is this sum a term of another one and nothing else, as it is or behind what changes nothing?"""
    made_one = twins.of(view)
    while True:
        readers = [user for name in made_one.alike(node.name) for user in _readers(view, name)]
        if made_one.count(dict.fromkeys(readers)) != 1:
            return False
        reader = view.nodes[readers[0]]
        if reader.op in _SUMS:
            return True
        behind = unchanged.handed_on(view, reader)
        if behind is None or behind[0][0] != node.name:
            return False
        node = reader


def _readers(view: GraphView, name: str) -> list[str]:
    """Ops that read the node's values, once for every input."""
    users = dict.fromkeys(view.consumers[name])
    return [user for user in users for source, index in view.nodes[user].inputs if source == name and index >= 0]


def _has_buffer_alone(view: GraphView, name: str) -> bool:
    while len(_readers(view, name)) == 1 and name not in twins.of(view).members:
        node = view.nodes[name]
        if node.op not in VIEWS and not _may_change_nothing(view, node):
            # What is fed, constants and variables are held by others.
            return any(index >= 0 for _, index in node.inputs) and not rules.works_on_variable(node.op)
        name = node.inputs[0][0]
    return False


def _without_identities(view: GraphView, name: str) -> str:
    while view.nodes[name].op == "Identity":
        name = view.nodes[name].inputs[0][0]
    return name
