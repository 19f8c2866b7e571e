"""As many equal ops for Grappler to make one of in a copy's step as in the program's own.

Grappler makes one of equal ops on one device, most of them constants, and puts the last ops of the graph in the places of
those that it takes out. So how many it takes out says which ops it comes to first afterwards, and that says how it multiplies the
constants of a long product: `x * 0.7 * 0.3 * 0.1` by 0.7 * (0.3 * 0.1) or by (0.7 * 0.3) * 0.1. Constants lie with their readers,
and on several devices fewer of them are equal. A step on a copy is therefore asked for an op of the hook's own as well, which is
given as many equal constants as are missing. It must not know strategies, only where ops are.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Mapping
from typing import Any

from tensorflow.core.framework import graph_pb2, types_pb2

from stepd.hook.engine import capi, graphview, names
from stepd.hook.engine.graphview import GraphView, Node

_OP = "IdentityN"  # Grappler drops waits for constants before it looks for equal ops, but nothing that is given them
_VALUE = 0x7374657064  # of a type and a value that no constant of a program is likely to have
_KEPT = frozenset({"Enter", "RefEnter", "Exit", "RefExit"})  # by Grappler, however equal
_found: weakref.WeakKeyDictionary[GraphView, dict[str, int]] = weakref.WeakKeyDictionary()


class Ballast:
    """The ballast in one mirror, of any weight, which all copies share. Call it with the session's lock held."""

    def __init__(self, graph: Any, device: str) -> None:
        """`device`: where it lies; "" for nowhere: there is none."""
        self._graph = graph
        self._device = device
        self._constants: list[tuple[str, Any]] = []
        self._made: dict[int, Any] = {}

    def of(self, weight: int) -> Any:
        """The operation of which a run is asked so that Grappler takes out `weight` ops more; None if none is needed."""
        return self._made.get(weight)

    def make(self, weight: int, versions: Any) -> list[Any]:
        """See to it that there is one of `weight`; returns what the session must be extended by. `versions`: those of the program's
        graph."""
        if weight <= 0 or weight in self._made or not self._device:
            return []
        graph = graph_pb2.GraphDef(versions=versions)
        constants = [_name(f"{k}") for k in range(len(self._constants), weight + 1)]  # of one more, the one that is left
        for name in constants:
            node = graph.node.add(name=name, op="Const", device=self._device)
            node.attr["dtype"].type = types_pb2.DT_INT64
            tensor = node.attr["value"].tensor
            tensor.dtype = types_pb2.DT_INT64
            tensor.tensor_shape.SetInParent()
            tensor.int64_val.append(_VALUE)
        known = self._constants[: weight + 1]
        node = graph.node.add(name=_name(f"of_{weight}"), op=_OP, device=self._device)
        node.input.extend([*(name for name, _ in known), *constants])
        node.attr["T"].list.type.extend([types_pb2.DT_INT64] * (weight + 1))
        tensors = {(name, 0): capi.output(operation, 0) for name, operation in known}
        wanted = [*constants, node.name]
        made: list[Any] = capi.import_graph_def(self._graph, graph.SerializeToString(), tensors, None, wanted)
        self._constants += zip(constants, made, strict=False)
        self._made[weight] = made[-1]
        return made


def _name(what: str) -> str:
    return f"{names.prefix(0)}/{what}"


def missing(view: GraphView, run: Collection[str], ends: Collection[str], moved: Mapping[str, str]) -> int:
    """How many ops fewer Grappler takes out of a step where `moved` are on other devices than plainly (op -> device). `run`: what
    the step executes; `ends`: what it is asked for, which stays."""
    if not moved:
        return 0
    alike = _alike(view)
    members = [name for name in alike if name in run and name not in ends]
    return max(0, _taken_out(view, members, alike, {}) - _taken_out(view, members, alike, moved))


def _taken_out(view: GraphView, members: Collection[str], alike: Mapping[str, int], moved: Mapping[str, str]) -> int:
    """How many of `members` (in the order of the graph) are equal to one before them and lie beside it."""
    kept: dict[tuple[Any, ...], str] = {}
    stands_for: dict[str, str] = {}
    for name in members:
        given = tuple(stands_for.get(source, source) for source, _ in view.nodes[name].inputs)
        if graphview.op_def(view.nodes[name].op).is_commutative:
            given = tuple(sorted(given))
        stands_for[name] = kept.setdefault((alike[name], moved.get(name), given), name)
    return len(stands_for) - len(kept)


def _alike(view: GraphView) -> dict[str, int]:
    """Op -> a number that it shares with those of which Grappler makes one with it, where all lie as the program has them; in the
    order of the graph, without those that are alone."""
    found = _found.get(view)
    if found is None:
        numbers: dict[tuple[Any, ...], list[str]] = {}
        stands_for: dict[str, str] = {}
        for node in view.nodes.values():
            if _may_be_one(node):
                inputs = [(stands_for.get(source, source), k) for source, k in node.inputs]
                inputs = sorted(inputs) if graphview.op_def(node.op).is_commutative else inputs
                attrs = tuple((key, node.proto.attr[key].SerializeToString()) for key in sorted(node.proto.attr))
                same = numbers.setdefault((node.op, node.device, tuple(inputs), attrs), [])
                same.append(node.name)
                stands_for[node.name] = same[0]
        several = {name: number for number, names_ in enumerate(numbers.values()) for name in names_ if len(names_) > 1}
        found = _found[view] = {name: several[name] for name in view.nodes if name in several}
    return found


def _may_be_one(node: Node) -> bool:
    """Is this an op of which Grappler makes one with its equals?"""
    if graphview.op_def(node.op) is None or graphview.is_stateful(node.op) or node.op in _KEPT:
        return False
    types = graphview.input_types(node.proto) + graphview.output_types(node.proto)
    return not any(graphview.is_ref(dtype) for dtype in types)
