"""Ops that compute the same of the same, of which Grappler makes one where they share a device. Pure.

The value is the same either way. But a value that is made once has all the readers of both, and on how many read it depends what
else is joined and with which term a sum begins (see `sums`). So twins move together, and with them constants of one value that they
are given: Grappler makes one of those, too, but only of what lies on one device. It must not know what else moves.
"""

from __future__ import annotations

import itertools
import weakref
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from stepd.hook.engine import folded, op_defs, rules, unchanged
from stepd.hook.engine.graphview import GraphView, Node

_found: weakref.WeakKeyDictionary[GraphView, Twins] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Twins:
    """`one`: op -> the twin that stands for it, where Grappler is sure to make one of them; missing: itself. `all_of`: that twin ->
    all that it stands for.

    `maybe`: op -> those of which Grappler may make one with it, once it has taken out what only hands a value on; missing: itself.
    `sets`: these, with what decides whether it does; `members`: all of these.
    """

    one: dict[str, str]
    all_of: dict[str, list[str]]
    maybe: dict[str, tuple[str, ...]]
    sets: tuple[tuple[str, ...], ...]
    members: frozenset[str]

    def alike(self, name: str) -> list[str]:
        """The op and those that Grappler is sure to make one of with it."""
        return self.all_of.get(self.one.get(name, name), [name])

    def count(self, names: Iterable[str]) -> int:
        """How many of `names` are left where Grappler has made one of twins; a name that is there twice counts twice."""
        users = list(names)
        kept = {self.one.get(name, name): name for name in reversed(users)}
        return sum(kept[self.one.get(name, name)] == name for name in users)


def of(view: GraphView) -> Twins:
    """The twins of a graph, looked for once."""
    found = _found.get(view)
    if found is None:
        # What is made of constants is a constant before anything is joined, and of these every device has its own.
        folds = folded.certain(view)
        valued = [(node, node.proto.attr["value"].SerializeToString()) for node in view.nodes.values() if node.op == "Const"]
        sure = _alike(view, _equal([each for each in valued if not each[0].inputs]), strict=True)
        constants = _equal(valued)
        alike = _alike(view, constants, strict=False, folds=folds, values=_equal(valued, anywhere=True))
        sets = _sets({name: first for name, first in alike.items() if name not in folds})
        maybe = {name: tuple(names) for names in sets.values() for name in names}
        one = constants | {name: alike.get(name, name) for name in folds if view.nodes[name].op != "Const"}
        for names in sets.values():
            names += [*_apart(view, names, one), *_between(view, names, alike)]
        sets |= _sets(_waiting(view, constants | alike))
        sets |= _summed(view, sets, sure, alike)
        members = frozenset(name for names in sets.values() for name in names)
        found = _found[view] = Twins(sure, _sets(sure), maybe, tuple(map(tuple, sets.values())), members)
    return found


def _sets(first: Mapping[str, str]) -> dict[str, list[str]]:
    sets: dict[str, list[str]] = {}
    for name, one in first.items():
        sets.setdefault(one, [one]).append(name)
    return sets


def _summed(
    view: GraphView, sets: Mapping[str, list[str]], sure: Mapping[str, str], alike: Mapping[str, str]
) -> dict[str, list[str]]:
    """Twins of twins, as far back as there are any, that go into sums of three and more terms: two backward passes of one loss. How
    many of them Grappler has made one of when it gives up, and so by which names a sum is sorted, hangs on all of them."""
    unsure = {one: names for one, names in sets.items() if any(sure.get(name, name) == name != one for name in names)}
    set_of = {name: one for one, names in unsure.items() for name in names}
    found: dict[str, list[str]] = {}
    walked: set[str] = set()  # from another sum, with which this one then shares a set, and moves
    for node in view.nodes.values():
        if node.op != "AddN" or len(_sources(view, node.name)) < 3:
            continue
        seen = {set_of[name]: None for name in (node.name, *(name for name, _ in _sources(view, node.name))) if name in set_of}
        stack = list(seen)
        while stack:
            one = stack.pop()
            if one not in walked:
                walked.add(one)
                sources = (_origin(view, *source, alike)[0] for name in sets[one] for source in _sources(view, name))
                further = {set_of[name]: None for name in sources if name in set_of and set_of[name] not in seen}
                seen.update(further)
                stack += further
        if len(seen) > 1:
            found[f"{node.name} and its terms"] = [node.name, *(name for one in seen for name in sets[one])]
    return found


def _equal(constants: Iterable[tuple[Node, bytes]], anywhere: bool = False) -> dict[str, str]:
    """Constant -> the first in the graph of its value and type, on its device or `anywhere`. Those count that wait for an op, too,
    such as what is added to a logarithm's gradient: where twins wait for twins, one is made of these."""
    first: dict[Any, str] = {}
    return {node.name: first.setdefault((anywhere or node.requested, value), node.name) for node, value in constants}


def _apart(view: GraphView, names: Iterable[str], one: Mapping[str, str]) -> list[str]:
    """The constants of which twins read one each, where they could read the same, and what computes them. `one`: constant -> the
    first that is the same."""
    read = dict.fromkeys(source for name in names for source, k in view.nodes[name].inputs if k >= 0 and source in one)
    times = Counter(one[name] for name in read)
    found = dict.fromkeys(name for name in read if times[one[name]] > 1)
    stack = list(found)
    for name in stack:  # it grows
        given = [source for source, k in view.nodes[name].inputs if k >= 0 and view.nodes[source].op != "Const"]
        stack += [source for source in given if source not in found]
        found.update(dict.fromkeys(given))
    return list(found)


def _between(view: GraphView, names: Iterable[str], alike: Mapping[str, str]) -> list[str]:
    """What hands a value on to some of these twins and not to all, and who makes it: on another device than that it would be taken
    out too late."""
    chains = [[[each for each, _ in _handed_on(view, *source, alike)] for source in _sources(view, name)] for name in names]
    times = Counter(name for of_one in chains for name in {name for chain in of_one for name in chain})
    found: dict[str, None] = {}
    for *between, origin in itertools.chain.from_iterable(chains):
        own = [name for name in between if times[name] < len(chains)]
        found.update(dict.fromkeys([*own, origin] if own else ()))
    return list(found)


def _alike(
    view: GraphView,
    constants: Mapping[str, str],
    strict: bool,
    folds: Collection[str] = frozenset(),
    values: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Op -> the first in the graph that computes the same. Not `strict`: who hands a value on, what an op waits for and who it is
    with make no difference. `folds`: what becomes a constant where it is, wherever those lie that it is computed of; `values`:
    constant -> the first of its value, wherever that lies."""
    first: dict[str, str] = {}
    seen: dict[Any, list[Node]] = {}
    valued: dict[Any, list[Node]] = {}
    values = {**values}
    for node in view.nodes.values():
        if not _computes(node):
            continue
        if not strict and node.op in unchanged.NAMES:
            continue
        given = list(node.inputs) if strict else [_origin(view, *source, first) for source in _sources(view, node.name)]
        # What is made of constants alone is folded, and waits for what they waited for.
        waits = any(view.nodes[source].inputs for source, _ in given) and all(source in constants for source, _ in given)
        if node.name in folds and not waits:
            inputs = [(values.get(source, source), index) for source, index in given]
        else:
            given = [(source if waits else constants.get(source, source), index) for source, index in given]
            inputs = [(first.get(source, source), index) for source, index in given]
        if op_defs.op_def(node.op).is_commutative:
            inputs.sort()
        twin = _first(seen.setdefault((node.op, tuple(inputs), node.requested), []), node, strict)
        if twin is not node:
            first[node.name] = twin.name
        if node.name in folds:
            values[node.name] = _first(valued.setdefault((node.op, tuple(inputs)), []), node, strict).name
    return first


def _first(others: list[Node], node: Node, strict: bool) -> Node:
    """The first of `others`, with `node` then, that has its attributes."""
    twin = next((other for other in others if _same_attributes(node.proto, other.proto, strict)), node)
    if twin is node:
        others.append(node)
    return twin


def _waiting(view: GraphView, alike: Mapping[str, str]) -> dict[str, str]:
    """Op -> the first in the graph that hands on the same, or nothing, and waits for the same: of these Grappler makes one, too,
    where it does not take them out before. Both ends of the gradient of `y + y` are one value twice, that is, a product by two.
    `alike`: op -> the first that computes the same."""
    first: dict[str, str] = {}
    seen: dict[Any, str] = {}
    for node in view.nodes.values():
        if (node.op in unchanged.NAMES or node.op == "NoOp") and _stays(view, node):
            inputs = sorted((first.get(source, alike.get(source, source)), k) for source, k in node.inputs)
            one = seen.setdefault((node.op, tuple(inputs), node.requested), node.name)
            if one != node.name:
                first[node.name] = one
    return first


def _stays(view: GraphView, node: Node) -> bool:
    """Does it wait for something, or decide which way a condition goes?"""
    return any(k < 0 for _, k in node.inputs) or any(
        view.nodes[user].op in rules.CONTROL_FLOW for user in view.consumers[node.name]
    )


def _sources(view: GraphView, name: str) -> list[tuple[str, int]]:
    return [source for source in view.nodes[name].inputs if source[1] >= 0]


def _handed_on(view: GraphView, name: str, k: int, alike: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """The output `k` of `name`, and behind it whose value it may be, one by one; whatever who hands it on waits for."""
    while True:
        yield name, k
        node = view.nodes[name]
        if (node.op in unchanged.NAMES and node.inputs and node.inputs[0][1] >= 0) or _undoes_nothing(view, node, alike):
            name, k = node.inputs[0]
        elif behind := unchanged.handed_on(view, node, k, surely=True):
            name, k = behind[0]
        elif one := unchanged.neutral(view, node):
            name, k = one
        else:
            return


def _undoes_nothing(view: GraphView, node: Node, alike: Mapping[str, str]) -> bool:
    """Is it there to undo the broadcasting of two values of one shape, of which there is none: the gradient of `q + q`?"""
    if node.op == "Reshape":
        inner = view.nodes[node.inputs[0][0]]
        return inner.op == "Sum" and view.nodes[node.inputs[1][0]].op in rules.OF_SHAPES and _undoes_nothing(view, inner, alike)
    axes = view.nodes[node.inputs[1][0]] if node.op == "Sum" else node
    return axes.op == "BroadcastGradientArgs" and axes is not node and len({alike.get(name, name) for name, _ in axes.inputs}) == 1


def _origin(view: GraphView, name: str, k: int, alike: Mapping[str, str]) -> tuple[str, int]:
    *_, origin = _handed_on(view, name, k, alike)
    return origin


def _computes(node: Node) -> bool:
    """Is this an op whose value depends on nothing but what it is given?"""
    op = node.op
    if not op_defs.is_pure(op) or op in rules.CONTROL_FLOW or op in rules.UNMOVED or op in rules.WITHOUT_MEMORY:
        return False
    if not any(k >= 0 for _, k in node.inputs):
        return False
    return not op_defs.handles_state(node.proto)


def _same_attributes(one: Any, other: Any, strict: bool) -> bool:
    keys = {key for node in (one, other) for key in node.attr if strict or not key.startswith("_")}
    return all(key in one.attr and key in other.attr and one.attr[key] == other.attr[key] for key in keys)
