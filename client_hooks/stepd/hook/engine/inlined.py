"""Who must lie where a function's body is put inline, because Grappler rewrites it together with ops of the body. Pure.

A body comes to lie where its call does. What is looked at is whether there is an op of a kind in it at all, not where: calls are
few in graphs of sessions, and stay. It must not know what else moves together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stepd.hook.engine import calls, graphview, rules, unchanged
from stepd.hook.engine.graphview import GraphView, Node

_PAIRS = rules.FUSED + rules.FUSED_IF_SOLE_READER + tuple((ops, ops) for ops in rules.PUSHED_DOWN)
_PUSHED = frozenset[str]().union(*rules.PUSHED_DOWN)


def neighbours(view: GraphView, call: Node) -> Iterator[str]:
    """The ops that `call` is given, or that are given what it makes, of which its body's ops may become one kernel, or which may
    change places with them; with what they are given themselves where a constant may be pushed down into them."""
    if call.op not in rules.INLINED or calls.runs_as_one(call.proto):
        return
    bodies = view.bodies(call.proto)
    inside = {inner.op for body in bodies for inner in body.node_def}
    producers = [each for source, k in call.inputs if k >= 0 for each in unchanged.behind_names(view, source, k)]
    readers = [(view.nodes[name], between) for name, between in _readers(view, call.name)]
    through = any(map(_hands_on, bodies))  # what stands before the call meets what stands behind it
    behind = inside.union(reader.op for reader, _ in readers if through)
    before = inside.union(producer.op for producer, _ in producers if through)
    for producer, between in producers:
        if _meet({producer.op}, behind):
            yield from (producer.name, *between, *_given(producer))
    for reader, between in readers:
        if _meet(before, {reader.op}):
            yield from (reader.name, *between, *_given(reader))


def _hands_on(body: Any) -> bool:
    """Does a function return one of its arguments, or one that an op in it only hands on?"""
    inner = {node.name: node for node in body.node_def}
    for value in body.ret.values():
        node = inner.get(value.partition(":")[0])
        while node is not None and node.op in unchanged.NAMES:
            node = inner.get(node.input[0].partition(":")[0])
        if node is None:
            return True
    return False


def _meet(before: set[str], behind: set[str]) -> bool:
    return any(before & first and behind & second for first, second in _PAIRS)


def _given(node: Node) -> Iterator[str]:
    yield from (source for source, k in node.inputs if k >= 0 and node.op in _PUSHED)


def _readers(view: GraphView, name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Who takes a value of `name`, and through which ops that may only hand it on."""
    stack: list[tuple[str, tuple[str, ...]]] = [(name, ())]
    while stack:
        one, between = stack.pop()
        for user in graphview.takers(view, one):
            yield user, between
            if behind := unchanged.handed_on(view, view.nodes[user]):
                stack.append((user, (*between, *behind[1])))
