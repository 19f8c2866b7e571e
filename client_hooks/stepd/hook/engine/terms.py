"""In which order TensorFlow adds up in the program's own graph, and how a copy is made to add up in the same.

Grappler sorts the inputs of a sum by name, after it has taken out some of the ops that only hand a value on and has made one op of
some twins; which ones depends on the devices of all ops around them. Where that can change the order of a sum, what the plain graph
came to is read from the partition graphs of a plain run, and the copy's sum reads its terms through ops that Grappler leaves alone,
whose names sort so. Sums that are twins, and two plainly, stay two in the copy: on how many read a value it depends with which
term a sum begins. It must not know sessions.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from tensorflow.core.framework import node_def_pb2, types_pb2
from tensorflow.core.protobuf import config_pb2

from stepd.hook.engine import sums, twins
from stepd.hook.engine.devices import near
from stepd.hook.engine.graphview import GraphView, Node, split_input, takers
from stepd.hook.engine.handing import handing_on
from stepd.hook.engine.names import APART, copy_name, holds_own, is_own
from stepd.hook.ports import StepKind

_FLOATS = frozenset({types_pb2.DT_FLOAT, types_pb2.DT_DOUBLE, types_pb2.DT_HALF, types_pb2.DT_BFLOAT16})
# A cast changes places with an op that only changes a value's shape.
_PASSING = sums.PASSING | {"Cast"}
_PRODUCTS = frozenset({"Mul", "Div", "RealDiv"})
# What partitioning adds to the name of a value that comes from another device.
_SENT = re.compile(r"/_\d+$")
# The name of what Grappler makes of an op, here of one that it moves behind a cast: scope/ArithmeticOptimizer/Rule_float_Op.
_REMADE = re.compile(r"ArithmeticOptimizer/ReorderCastLikeAndValuePreserving_[a-z0-9]+_")

# The ops that one term of a sum may be read from, the sum's input first.
Chain = tuple[str, ...]
# Sum -> its inputs' positions, in the order in which they are added.
Orders = Mapping[str, tuple[int, ...]]


def uncertain(view: GraphView) -> dict[str, tuple[Chain, ...]]:
    """Sums whose order may depend on what Grappler leaves of the ops behind their inputs: a chain for each input."""
    found = {node.name: _chains(view, node) for node in view.nodes.values() if _counts(node)}
    return {name: chains for name, chains in found.items() if _may_change(view, name, chains)}


def _counts(node: Node) -> bool:
    return node.op == "AddN" and node.proto.attr["T"].type in _FLOATS and sum(k >= 0 for _, k in node.inputs) > 2


def _chains(view: GraphView, node: Node) -> tuple[Chain, ...]:
    # Of a sum without a twin, terms that are twins are one in every copy as they are plainly: they move together.
    name = _names if node.name in twins.of(view).maybe else _chain
    return tuple(name(view, source) for source, index in node.inputs if index >= 0)


def _names(view: GraphView, source: str) -> Chain:
    """The op that a term is read from, those behind it, and the twins of each: of twins Grappler makes one, or it does not, and the
    term sorts by the name of that one."""
    found = dict.fromkeys(_chain(view, source))
    for name in list(found):
        for twin in twins.of(view).maybe.get(name, ()):
            found |= dict.fromkeys(_chain(view, twin))
    return tuple(found)


def _chain(view: GraphView, name: str) -> Chain:
    chain = [name]
    while view.nodes[name].op in _PASSING and view.nodes[name].inputs:
        name = view.nodes[name].inputs[0][0]
        chain.append(name)
    return tuple(chain)


def _may_change(view: GraphView, name: str, chains: Sequence[Chain]) -> bool:
    makers = [view.nodes[_chain(view, chain[0])[-1]] for chain in chains]
    if sums.absorbed(view, view.nodes[name]) or any(
        sums.sums(maker.op) and len(view.consumers[maker.name]) == 1 for maker in makers
    ):
        return False  # Grappler makes one sum of several, which it would not do through what stands between
    if all(maker.op in _PRODUCTS for maker in makers) and set.intersection(*(_factors(view, maker) for maker in makers)):
        return False  # nor would it hoist a common factor
    spans = sorted((min(chain), max(chain)) for chain in chains)
    return any(least < most for (_, most), (least, _) in itertools.pairwise(spans))


def _factors(view: GraphView, product: Node) -> set[str]:
    return {_chain(view, source)[-1] for source, index in product.inputs if index >= 0}


class Known:
    """What plain runs of one session's program have shown."""

    def __init__(self) -> None:
        self.seen: set[StepKind] = set()
        # Sum -> the names of what it added, by step; None: steps differ.
        self._added: dict[str, tuple[str, ...] | None] = {}
        self._shown: set[frozenset[str]] = set()  # the sums of each step

    def learn(self, step: StepKind, metadata: bytes) -> None:
        """Take in the serialized RunMetadata, with partition graphs, of a plain run; a switch may have come before it after all."""
        nodes = [node for graph in config_pb2.RunMetadata.FromString(metadata).partition_graphs for node in graph.node]
        if holds_own(metadata) and any(is_own(node.name) for node in nodes):
            return
        self.seen.add(step)
        shown = set()
        for node in nodes:
            if node.op == "AddN" and len(node.input) > 2:
                inputs = (split_input(name) for name in node.input)
                added = tuple(_REMADE.sub("", _SENT.sub("", source)) for source, index in inputs if index >= 0)
                self._added[node.name] = added if self._added.get(node.name, added) == added else None
                shown.add(node.name)
        self._shown.add(frozenset(shown))

    def orders(self, view: GraphView, unsure: Mapping[str, Sequence[Chain]]) -> dict[str, tuple[int, ...]]:
        """The orders of those sums of which it is known. One that no run had on its own is its twin, of which all made one."""
        maybe = twins.of(view).maybe
        found: dict[str, tuple[int, ...]] = {}
        for name, chains in unsure.items():
            shown = [self._added[one] for one in (name, *maybe.get(name, ())) if one in self._added]
            if all(shown) and shown and (order := _positions(chains, shown[0])):
                found[name] = order
        return found

    def apart(self, view: GraphView, unsure: Collection[str]) -> frozenset[str]:
        """Twins among these sums that every step which showed one of them had side by side, so that a copy is to have them so."""
        maybe = twins.of(view).maybe
        steps = {name: [shown for shown in self._shown if not shown.isdisjoint(maybe[name])] for name in unsure if name in maybe}
        return frozenset(name for name, some in steps.items() if some and all(shown.issuperset(maybe[name]) for shown in some))

    def lacking(self, view: GraphView, step: StepKind, ends: Iterable[str], unsure: Collection[str]) -> str:
        """A sum of a step that has not been seen, and no other one with that sum either; else "". Where twins go into a sum other
        steps, in which one of them is left out, say nothing of this one."""
        if not unsure or step in self.seen:
            return ""
        needed, maybe = view.ancestors(ends), twins.of(view).maybe
        return next((name for name in unsure if name in needed and (name in maybe or name not in self._added)), "")

    def differing(self, view: GraphView, ends: Iterable[str], unsure: Collection[str]) -> str:
        """A sum of twins, among those of a step, that some steps add up in one order and others in another; else ""."""
        found = [name for name in unsure if self._added.get(name, ()) is None and name in twins.of(view).maybe]
        needed = view.ancestors(ends) if found else ()
        return next((name for name in found if name in needed), "")


def _positions(chains: Sequence[Chain], added: Sequence[str]) -> tuple[int, ...]:
    """Which input each op of `added` stands for; empty where that cannot be told. Inputs that hand on one value are as good as each
    other."""
    candidates = [[i for i, chain in enumerate(chains) if name in chain] for name in added]
    if sum(not each for each in candidates) == 1:  # the one that is left, whatever Grappler calls it
        candidates = [each or list(range(len(chains))) for each in candidates]
    found: dict[int, int] = {}
    for rank in sorted(range(len(added)), key=lambda rank: len(candidates[rank])):
        free = [i for i in candidates[rank] if i not in found.values()]
        if not free:
            return ()
        found[rank] = free[0]
    return tuple(found[rank] for rank in range(len(added))) if len(added) == len(chains) else ()


def kept_apart(node: node_def_pb2.NodeDef, of: str) -> None:
    """Have Grappler make one of this copy and of equal ones only if they are kept apart as being `of` the same (a name, a device):
    ops of other attributes are not the same."""
    node.attr[APART].s = of.encode()


def carried(
    view: GraphView,
    made: Mapping[str, node_def_pb2.NodeDef],
    orders: Orders,
    apart: Collection[str],
    mark: str,
    device: Callable[[str], str],
) -> list[node_def_pb2.NodeDef]:
    """Have the copies `made` (user's name -> copy, changed in place) of the sums in `orders` read their terms in that order.
    `apart`: those that have carriers of their own, if twins have the same.

    Returns what stands between: ops on the sum's `device` that hand on the very buffer.
    """
    new: list[node_def_pb2.NodeDef] = []
    for name, order in orders.items():
        node = made.get(name)
        if node is None:
            continue
        for rank, position in enumerate(order):
            casts = any(view.nodes[one].op == "Cast" for one in _chain(view, view.nodes[name].inputs[position][0]))
            carrier_name, dtype = f"{copy_name(name, mark)}-t{rank:05}", node.attr["T"].type
            carrier = handing_on(carrier_name, node.input[position], dtype, device(name), behind_cast=casts)
            if name in apart:
                kept_apart(carrier, name)
            node.input[position] = carrier_name
            new.append(carrier)
    return new


def handed_over(
    view: GraphView, made: Mapping[str, node_def_pb2.NodeDef], mark: str, device: Callable[[str], str]
) -> list[node_def_pb2.NodeDef]:
    """Have the copies `made` read sums of another process, or kind of device, through ops beside the sums; returns those.

    What is sent there lies in memory that the network, or the device, can reach. A sum that is sent itself could only begin with a
    term that has come from there, and of these with whichever was there first.
    """
    new: dict[tuple[str, str], node_def_pb2.NodeDef] = {}
    for name, node in made.items():
        for position, (source, index) in enumerate(view.nodes[name].inputs):
            if index < 0 or not sums.sums(view.nodes[source].op) or not _goes_far(view, name, device(source), device):
                continue
            if sums.adds_many(view, view.nodes[source]):
                key = (source, node.input[position])
                if key not in new:
                    dtype = view.nodes[source].proto.attr["T"].type
                    new[key] = handing_on(f"{copy_name(source, mark)}-sent{len(new)}", key[1], dtype, device(source))
                node.input[position] = new[key].name
    return list(new.values())


def _goes_far(view: GraphView, reader: str, home: str, device: Callable[[str], str]) -> bool:
    """Is what `reader` takes at `home` sent far away? Grappler may take an op that only hands it on out, and send it from there."""
    if not near(home, device(reader)):
        return True
    return view.nodes[reader].op in sums.PASSING and any(_goes_far(view, user, home, device) for user in takers(view, reader))


def to_fetch(
    view: GraphView, names: Collection[str], mark: str, device: Callable[[str], str], devices: Sequence[str]
) -> dict[str, node_def_pb2.NodeDef]:
    """What to fetch in place of those of the copied ops `names` that are sums, where the session has devices of another process or
    kind: what is fetched may be sent there, and the sum would begin elsewhere (`handed_over`)."""
    nodes = {name: view.nodes[name] for name in names}
    found = [name for name, node in nodes.items() if sums.adds_many(view, node) and node.proto.attr["T"].type in _FLOATS]
    apart = [name for name in found if not all(near(device(name), other) for other in devices)]
    copies = {name: copy_name(name, mark) for name in apart}
    types = {name: nodes[name].proto.attr["T"].type for name in copies}
    return {name: handing_on(f"{copy}-fetched", copy, types[name], device(name)) for name, copy in copies.items()}
