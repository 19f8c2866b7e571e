"""Functions of single elements that Grappler takes out of the parts of a concatenation, or of what a split gives: one computes all
of them, behind the concatenation or before the split, where all share its device. Pure.

A kernel computes most elements several at a time and the last ones by another way, which for an exponential and its like rounds
otherwise: other parts have other last elements. It must not know what else moves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import zip_longest

from stepd.hook.engine import rules, unchanged
from stepd.hook.engine.graphview import GraphView, Node

_RESHAPING = unchanged.NAMES | {"Reshape", "ExpandDims", "Squeeze"}  # beside what turns out to change nothing
_BEHIND = frozenset({"BiasAdd", "FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})  # a Relu stays with these


def chains(view: GraphView) -> Iterator[tuple[str, str]]:
    """(concatenation or split, op that Grappler may take out of its parts or of what it gives); how many read an op is not looked
    at, since readers may be gone in a step that does not need them."""
    for name, node in view.nodes.items():
        if node.op in ("Concat", "ConcatV2"):
            levels = _above(view, node)
        elif node.op in ("Split", "SplitV"):
            levels = _below(view, node)
        else:
            continue
        taken: list[str] = []
        for level in levels:
            taken += level
            if view.nodes[level[0]].op not in rules.EXACT:
                yield from ((name, op) for op in taken)
                taken = []


def _above(view: GraphView, concat: Node) -> Iterator[list[str]]:
    """Of each part the function nearest to the concatenation, then the next, as long as it is the same one in all parts."""
    given = [source for source, k in concat.inputs if k >= 0]
    parts = given[1:] if concat.op == "Concat" else given[:-1]
    while len(parts) > 1:
        between: list[str] = []
        level = [_behind_shapes(view, name, between) for name in parts]
        if not _same_function(view, level):
            return
        yield list(dict.fromkeys((*level, *between)))
        parts = [view.nodes[name].inputs[0][0] for name in level]


def _behind_shapes(view: GraphView, name: str, between: list[str]) -> str:
    """Who makes the elements that `name` hands on in another shape; who hands them on is added to `between`."""
    while (behind := _reshaped(view, view.nodes[name])) is not None:
        between.append(name)
        name = behind
    return name


def _reshaped(view: GraphView, node: Node) -> str | None:
    """Whose elements `node` hands on, maybe in another shape; None if it computes its own."""
    if node.op in _RESHAPING:
        return node.inputs[0][0]
    behind = unchanged.handed_on(view, node)
    return None if behind is None else behind[0][0]


def _below(view: GraphView, split: Node) -> Iterator[list[str]]:
    """The function of all that a split gives, then that of what this gives, as long as there is one."""
    given = (output for name in view.consumers[split.name] for output in view.nodes[name].inputs)
    outputs = {(source, k) for source, k in given if source == split.name and k >= 0}
    while len(outputs) > 1:
        users: dict[str, dict[tuple[str, int], list[str]]] = {}
        for output in outputs:
            for way in _ways_to_functions(view, output):
                users.setdefault(view.nodes[way[0]].op, {}).setdefault(output, way)
        level = next((list(by.values()) for _, by in sorted(users.items()) if len(by) == len(outputs)), [])
        if not level:
            return
        yield list(dict.fromkeys(name for way in zip_longest(*level) for name in way if name is not None))
        outputs = {(way[0], 0) for way in level}


def _ways_to_functions(view: GraphView, output: tuple[str, int]) -> Iterator[list[str]]:
    """Each function that is given this output, maybe in another shape, and who hands it on to it."""
    for name in view.consumers[output[0]]:
        if output == next(iter(view.nodes[name].inputs), None):
            if _same_function(view, [name]):
                yield [name]
            elif _reshaped(view, view.nodes[name]) == output[0]:
                yield from ([*way, name] for way in _ways_to_functions(view, (name, 0)))


def _same_function(view: GraphView, names: Collection[str]) -> bool:
    """Whether all are one function of single elements, which Grappler may take out."""
    nodes = [view.nodes[name] for name in names]
    if len({node.op for node in nodes}) != 1 or nodes[0].op not in rules.HOISTED:
        return False
    return not (nodes[0].op in ("Relu", "Relu6") and any(view.nodes[node.inputs[0][0]].op in _BEHIND for node in nodes))
