"""As many equal ops for Grappler to make one of in a copy's step as in the program's own.

Grappler makes one of equal ops on one device, most of them constants, and puts the last ops of the graph in the places of
those that it takes out. So how many it takes out says which ops it comes to first afterwards, and that says how it multiplies the
constants of a long product: `x * 0.7 * 0.3 * 0.1` by 0.7 * (0.3 * 0.1) or by (0.7 * 0.3) * 0.1. Constants lie with their readers,
and on several devices fewer of them are equal; and at the end of a copy are ops that the program has not. A step on a copy is
therefore asked for an op of the hook's own as well, which is given as many equal constants as are missing. It must not know
strategies, only where ops are.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from tensorflow.core.framework import graph_pb2, types_pb2

from stepd.hook.engine import capi, names, op_defs, sorting
from stepd.hook.engine.graphview import GraphView, Node, split_input
from stepd.hook.order.steps import executed
from stepd.hook.ports import StepKind

_OP = "IdentityN"  # Grappler drops waits for constants before it looks for equal ops, but nothing that is given them
_VALUE = 0x7374657064  # of a type and a value that no constant of a program is likely to have
_KEPT = frozenset({"Enter", "RefEnter", "Exit", "RefExit"})  # by Grappler, however equal
_found: weakref.WeakKeyDictionary[GraphView, dict[str, int]] = weakref.WeakKeyDictionary()
_listed: weakref.WeakKeyDictionary[GraphView, dict[StepKind, list[str]]] = weakref.WeakKeyDictionary()


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


class Made(NamedTuple):
    """What a copy is made of, and where it lies.

    `nodes`: those that were made for it, by their names; `names`: user's name -> what stands for the op in a step on the copy, if
    another; `fetched`: -> what is fetched in its place, with it; `moved`: -> the device of an op that is on another one than
    plainly; `device`: of any op of the user's; `home`: where that is plainly.
    """

    nodes: Mapping[str, Node]
    names: Mapping[str, str]
    fetched: Mapping[str, str]
    moved: Mapping[str, str]
    device: Callable[[str], str]
    home: Callable[[str], str]


def weight(view: GraphView, step: StepKind, made: Made) -> int:
    """How many ops more Grappler must take out of `step` on a copy so that it comes to the same ones first as plainly."""
    fetched, targets, fed = ({split_input(name)[0] for name in each} for each in (step.fetches, step.targets, step.feeds))
    before, now = taken_out(view, executed(view, step), fetched | targets, made.moved)
    if not before:
        return 0
    functions, whose = frozenset(view.functions), {here: name for name, here in made.names.items()}
    plain = _listed.setdefault(view, {}).get(step)
    if plain is None:
        plain = _listed[view][step] = sorting.listed(view.nodes, fetched | targets | fed, fed, made.home, functions)

    def device(name: str) -> str:
        user = whose.get(name, name)
        if user in view.nodes:
            return made.device(user)
        return made.nodes[name].device if name in made.nodes else ""

    here = {name: made.names.get(name, name) for name in fetched | targets | fed}
    stand_ins = {made.fetched[name] for name in fetched if name in made.fetched}
    ends, cut = {*here.values(), *stand_ins, names.LOWEST}, {here[name] for name in fed}
    copy = sorting.listed({**view.nodes, **made.nodes}, ends, cut, device, functions)
    return missing(plain, [whose.get(name, name) for name in copy], before, now)


def taken_out(view: GraphView, run: Collection[str], ends: Collection[str], moved: Mapping[str, str]) -> tuple[int, int]:
    """How many ops Grappler takes out of a step plainly, and where `moved` are on other devices than plainly (op -> device). `run`:
    what the step executes; `ends`: what it is asked for, which stays."""
    alike = _alike(view)
    members = [name for name in alike if name in run and name not in ends]
    return _taken_out(view, members, alike, {}), _taken_out(view, members, alike, moved)


def missing(plain: Sequence[str], copy: Sequence[str], before: int, now: int) -> int:
    """How many ops more than `now` are to be taken out of the list `copy` so that those at its end, which come to their places, are
    those at the end of `plain`, of which `before` are taken out; as nearly as possible. Both as they are `sorting.listed`, by the
    program's names. What only one of them has, such as what hands on the terms of a sum, counts at the end as well."""
    late, other = set(plain[len(plain) - before :]), set(plain[: len(plain) - before])
    lacking, best = len(late), (len(plain) + len(copy), 0)
    for count, name in enumerate(["", *reversed(copy)]):
        lacking += (name in other) - (name in late)
        if count >= now:
            best = min(best, (lacking, count - now))
    return best[1]


def _taken_out(view: GraphView, members: Collection[str], alike: Mapping[str, int], moved: Mapping[str, str]) -> int:
    """How many of `members` (in the order of the graph) are equal to one before them and lie beside it."""
    kept: dict[tuple[Any, ...], str] = {}
    stands_for: dict[str, str] = {}
    for name in members:
        given = tuple(stands_for.get(source, source) for source, _ in view.nodes[name].inputs)
        if op_defs.op_def(view.nodes[name].op).is_commutative:
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
                inputs = sorted(inputs) if op_defs.op_def(node.op).is_commutative else inputs
                attrs = tuple((key, node.proto.attr[key].SerializeToString()) for key in sorted(node.proto.attr))
                same = numbers.setdefault((node.op, node.device, tuple(inputs), attrs), [])
                same.append(node.name)
                stands_for[node.name] = same[0]
        several = {name: number for number, names_ in enumerate(numbers.values()) for name in names_ if len(names_) > 1}
        found = _found[view] = {name: several[name] for name in view.nodes if name in several}
    return found


def _may_be_one(node: Node) -> bool:
    """Is this an op of which Grappler makes one with its equals?"""
    if op_defs.op_def(node.op) is None or op_defs.is_stateful(node.op) or node.op in _KEPT:
        return False
    types = op_defs.input_types(node.proto) + op_defs.output_types(node.proto)
    return not any(op_defs.is_ref(dtype) for dtype in types)
