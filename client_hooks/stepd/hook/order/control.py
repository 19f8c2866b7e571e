"""Puts order edges into the NodeDefs of a copy, and takes waits for barriers out. Pure; composed with whatever else rewrites a copy
(engine/copy.py).

It must not know how the edges were chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from tensorflow.core.framework import node_def_pb2

from stepd.hook.engine.graphview import GraphView, split_input
from stepd.hook.engine.handing import handing_on, nothing, waited_for
from stepd.hook.engine.names import copy_name
from stepd.hook.engine.op_defs import output_types
from stepd.hook.order.barriers import Lift
from stepd.hook.order.edges import Edge
from stepd.hook.rewrite.emit import part_name


def with_edges(
    nodes: Sequence[node_def_pb2.NodeDef],
    copied: Sequence[str],
    view: GraphView,
    edges: Iterable[Edge],
    device_of: Callable[[str], str],
    mark: str,
) -> list[node_def_pb2.NodeDef]:
    """`nodes`, the copies (named by `mark`) of the user's ops `copied`, changed in place; behind them the nodes that tie the edges.

    Edges of which not all ops are in this copy are left out. `device_of`: where a user's op runs.
    """
    made = dict(zip(copied, nodes, strict=True))
    here = [edge for edge in edges if edge.before in made and edge.after in made and _tied_ops(edge) <= made.keys()]
    new: list[node_def_pb2.NodeDef] = []
    tapped: dict[tuple[str, int], str] = {}
    for edge in here:  # first all taps: a gate may come behind one on the same input
        tap = edge.tie.tap
        if tap is not None and tap not in tapped:
            name = _unused(edge.tie.signal, mark, len(tapped), 0)
            new.append(_between(made[tap[0]], tap[1], name, view, edge.tie.signal, device_of(edge.tie.signal)))
            tapped[tap] = name
    gates: dict[tuple[str, int], node_def_pb2.NodeDef] = {}
    for edge in here:
        held, position = edge.tie.held, edge.tie.gate
        waiting = made[held]
        if position >= 0:
            if (held, position) not in gates:
                source = view.nodes[held].inputs[position][0]
                gate = _between(waiting, position, _unused(held, mark, len(gates), 1), view, source, device_of(held))
                gates[held, position] = gate
                new.append(gate)
            waiting = gates[held, position]
        signal = tapped[edge.tie.tap] if edge.tie.tap is not None else made[edge.tie.signal].name
        if f"^{signal}" not in waiting.input:
            waiting.input.append(f"^{signal}")
    return [*nodes, *new]


def with_part_edges(nodes: Sequence[node_def_pb2.NodeDef], copied: Sequence[str], edges: Iterable[Edge]) -> None:
    """As `with_edges`, where ops run in parts: `nodes` begin with the copies of the user's ops `copied`, and are changed in place.

    Edges of which an end is not in this copy are left out.
    """
    made = dict(zip(copied, nodes, strict=False))
    by_name = {node.name: node for node in nodes}

    def end(op: str, part: int) -> node_def_pb2.NodeDef | None:
        whole = made.get(op)
        return by_name.get(part_name(whole.name, part)) if whole is not None and part >= 0 else whole

    for edge in edges:
        signal, held = end(edge.tie.signal, edge.parts[0]), end(edge.tie.held, edge.parts[1])
        if signal is not None and held is not None and f"^{signal.name}" not in held.input:
            held.input.append(f"^{signal.name}")


def with_open_barriers(
    made: Mapping[str, node_def_pb2.NodeDef],
    lifts: Iterable[Lift],
    represented: Callable[[str], str],
    mark: str,
    device_of: Callable[[str], str],
) -> list[node_def_pb2.NodeDef]:
    """Have the copies `made` (user's op -> copy, changed in place) of the ops of `lifts` wait for something that is there at once.

    Returns that: for each a node that Grappler leaves alone, since it might be fed, and the constants that those hand on. Were it
    one for several, those that need others of them would wait for it anyway, and Grappler takes such waits out.
    `represented`: the copy's name for a user's op.
    """
    always: dict[str, node_def_pb2.NodeDef] = {}
    new: list[node_def_pb2.NodeDef] = []
    for lift in sorted(lift for lift in lifts if lift.op in made):
        node, device, name = made[lift.op], device_of(lift.op), copy_name(lift.op, mark)
        if device not in always:
            always[device] = nothing(f"{name}-always", device)
            new.append(always[device])
        new.append(waited_for(f"{name}-open", always[device]))
        waits = [f"^{name}-open" if read == f"^{represented(lift.barrier)}" else read for read in node.input]
        del node.input[:]
        node.input.extend(waits)
    return new


def _tied_ops(edge: Edge) -> set[str]:
    return {edge.tie.signal, edge.tie.held} | ({edge.tie.tap[0]} if edge.tie.tap is not None else set())


def _unused(name: str, mark: str, number: int, kind: int) -> str:
    """A name that reads as `name` where the hook's marks are taken out, beside which it also sorts."""
    return copy_name(copy_name(name, mark), f"stepd_{2 * number + kind}")


def _between(
    reader: node_def_pb2.NodeDef, position: int, name: str, view: GraphView, source: str, device: str
) -> node_def_pb2.NodeDef:
    """A new node on one input of `reader`, whose value comes from the user's op `source`, that hands it on unchanged."""
    _, index = split_input(reader.input[position])
    node = handing_on(name, reader.input[position], output_types(view.nodes[source].proto)[index], device)
    reader.input[position] = name
    return node


def serves(edges: Iterable[Edge], executed: Collection[str]) -> bool:
    """Whether a step that executes just these ops can run where `edges` lie: none may drag an op into it."""
    return all(edge.tie.held not in executed or (edge.before in executed and edge.tie.signal in executed) for edge in edges)
