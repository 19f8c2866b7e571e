"""How the nodes of a copy are made: pure functions from a GraphView and a plan to NodeDefs.

Everything that rewrites a copy (placement, splits, order) works on the list of NodeDefs that `copied_nodes`
returns; it must not know sessions, and nothing here touches the original nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from tensorflow.core.framework import node_def_pb2

from stepd.hook.engine import stand_ins, terms
from stepd.hook.engine.graphview import GraphView, Node
from stepd.hook.engine.names import COLOCATION, LEFT, copy_name
from stepd.hook.engine.reads import First
from stepd.hook.order import barriers, control
from stepd.hook.order.edges import Edge
from stepd.hook.rewrite import shared_reads
from stepd.hook.rewrite.chosen import Chosen
from stepd.hook.rewrite.emit import split_nodes
from stepd.hook.rewrite.facts import Facts


def copied_nodes(
    view: GraphView,
    names: Collection[str],
    here: Mapping[str, str],
    mark: str,
    device_of: Mapping[str, str],
    edges: Iterable[Edge] = (),
    device: Callable[[str], str] = str,
    splits: Mapping[str, Chosen] | None = None,
    facts: Facts | None = None,
    reads: Iterable[First] = (),
    sums: terms.Orders | None = None,
    apart: Collection[str] = (),
    lifts: barriers.Lifts = barriers.NOTHING,
    shares: shared_reads.Shares = shared_reads.NOTHING,
    home: Callable[[str], str] = str,
    mixed: bool = False,
) -> list[node_def_pb2.NodeDef]:
    """NodeDefs of a copy of `names`, named by `mark`, in their order; behind them those that tie the `edges` of an order.

    `here` names the mirror's node for user ops that are not copied now (missing: the op's own name). `device_of` gives the device
    of ops that the strategy moves; the others keep the device that the user asked for. `device` gives the device of any op.
    `splits`, with the `facts` of the view: ops that run in parts; the parts come last. `reads`: those that come before a write.
    `sums`: those that add up in a given order; where ops run in parts they add up as they come. `apart`: twins that are not to be
    made one. `lifts`: waits that the copies do without. `shares`: reads that others make as well. `home`: where an op is
    plainly. `mixed`: are there devices of several types?
    """
    inside = set(names)

    def represented(name: str) -> str:
        return copy_name(name, mark) if name in inside else here.get(name, name)

    order = list(names)
    shared = shared_reads.without(view, shares)
    nodes = [_copied(shared.nodes[name], represented, device_of, home if mixed else None) for name in order]
    _kept_from_others(view, dict(zip(order, nodes, strict=True)), device_of, home)
    opened = control.with_open_barriers(dict(zip(order, nodes, strict=True)), lifts, represented, mark, device)
    if splits and facts is not None:
        nodes = split_nodes(facts, dict(zip(order, nodes, strict=True)), splits, mark, device)
        control.with_part_edges(nodes, order, edges)
    else:
        made = dict(zip(order, nodes, strict=True))
        nodes = control.with_edges(nodes, order, view, edges, device, mark)
        nodes += terms.handed_over(view, made, mark, device)
        nodes += terms.carried(view, made, sums or {}, apart, mark, device)
        for name in apart:
            if name in made:
                terms.kept_apart(made[name], name)
        nodes += stand_ins.put(view, made, represented, mark, device, home)
    nodes += opened
    writes = {copy_name(name, mark): name for name in order}
    for node in nodes:
        node.input.extend(f"^{represented(read)}" for read, write in sorted(reads) if write == writes.get(node.name))
    return nodes


def _copied(node: Node, represented: Any, moved: Mapping[str, str], home: Callable[[str], str] | None) -> node_def_pb2.NodeDef:
    """`home` is asked where an op is that does not move with its company, which alone said so."""
    device = moved.get(node.name)
    made = node_def_pb2.NodeDef()
    made.CopyFrom(node.proto)
    made.name = represented(node.name)
    del made.input[:]
    for source, index in node.inputs:
        name = represented(source)
        made.input.append(f"^{name}" if index < 0 else f"{name}:{index}" if index else name)
    keep_resource_name(made, node.name)
    if device is not None:
        made.device = device
        _leave_group(made, ())
    elif COLOCATION in made.attr:
        _follow_group(made, represented, moved)
        if home is not None and not made.device and COLOCATION not in made.attr:
            made.device = home(node.name)
    return made


def _kept_from_others(
    view: GraphView, made: Mapping[str, node_def_pb2.NodeDef], device_of: Mapping[str, str], home: Callable[[str], str]
) -> None:
    """Where the program has ops on several devices, a copy that moves is not to be made one with an equal op that it finds where it
    comes to (the towers of a network compute some things each): on how many read a value, and on its name, hang last bits."""
    if len({home(name) for name in made if view.nodes[name].requested}) < 2:
        return
    for name, node in made.items():
        if name in device_of and home(name) != device_of[name]:
            terms.kept_apart(node, home(name))


def _follow_group(made: node_def_pb2.NodeDef, represented: Any, moved: Mapping[str, str]) -> None:
    """Colocate with the copies of those that the original was colocated with, unless they move and it does not."""
    sign = "loc:@"
    groups = [group.decode() for group in made.attr[COLOCATION].list.s]
    followed = [g.removeprefix(sign) for g in groups if g.removeprefix(sign) not in moved]
    if len(followed) < len(groups):
        _leave_group(made, followed)
    if followed:
        made.attr[COLOCATION].list.s[:] = [(sign + represented(name)).encode() for name in followed]


def _leave_group(made: node_def_pb2.NodeDef, followed: Collection[str]) -> None:
    """The copy lies with those in `followed` alone. It still differs from ops that the program has not put with the same ones, of
    which Grappler would make one with it: equal ops are equal in all attributes."""
    if COLOCATION in made.attr:
        made.attr[LEFT].CopyFrom(made.attr[COLOCATION])
        if not followed:
            made.attr.pop(COLOCATION)


def keep_resource_name(made: node_def_pb2.NodeDef, name: str) -> None:
    """An op that finds its resource by its node's name goes on finding it under the user's name."""
    attr = "var_name" if made.op == "TemporaryVariable" else "shared_name"
    if made.op != "VarHandleOp" and attr in made.attr and not made.attr[attr].s:  # a handle without a name has the name ""
        made.attr[attr].s = name.encode()
