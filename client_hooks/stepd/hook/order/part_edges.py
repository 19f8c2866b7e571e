"""The control edges of a strategy that runs ops in parts: between parts and whole ops of one device. Pure.

Chosen as in `edges`: by a list schedule, now of the pieces that a step runs. As parts round as they like, an edge is a plain
control input; it only leaves neighbours alone that Grappler may join into one kernel. That no cycle can come of the edges is
proven on the whole ops, of whose graph the parts' graph is a refinement.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from stepd.hook.engine.classify import Classes
from stepd.hook.engine.graphview import GraphView
from stepd.hook.order.conditions import conditions
from stepd.hook.order.edges import Edge, Wanted, behind, is_acyclic, may_end, seconds_of, worth_an_order
from stepd.hook.order.finder import Finder
from stepd.hook.order.pieces import Pieces, piece, pieces_of
from stepd.hook.order.rounds import may_need
from stepd.hook.order.schedule import Pool, schedule
from stepd.hook.order.steps import executed, memberships
from stepd.hook.order.ties import Tie
from stepd.hook.order.waits import may_block, waits_of
from stepd.hook.order.walk import sorted_by_needs
from stepd.hook.ports import StepKind
from stepd.hook.rewrite.chosen import Chosen

_FARTHEST = 16  # ops that an edge is moved along, to the border of what may become one kernel
_PARTS = 64  # more than an op can have


def part_edges(
    view: GraphView,
    classes: Classes,
    kinds: Sequence[StepKind],
    wanted: Wanted,
    chosen: Mapping[str, Chosen],
    device_of: Mapping[str, str],
    pool_of_device: Mapping[str, Pool],
) -> tuple[Edge, ...]:
    """The edges for steps of `kinds` in which the ops of `chosen` are in parts. `device_of`: of whole ops and of joins."""
    steps = [executed(view, kind) for kind in kinds]
    members = memberships(steps)
    needed = may_need(view, view.nodes.keys())
    found: list[Edge] = []
    for step in sorted(steps, key=lambda step: -sum(wanted.seconds.get(name, 0.0) for name in step)):
        done = {(edge.after, edge.parts[1]) for edge in found}
        more = [edge for edge in _of_step(view, classes, step, members, wanted, chosen, device_of, pool_of_device)
                if (edge.after, edge.parts[1]) not in done]  # fmt: skip
        found += more if is_acyclic(needed, [*found, *more]) else _harmless(needed, found, more)
    return tuple(found)


def _harmless(needed: Mapping[str, Collection[str]], before: Sequence[Edge], more: Iterable[Edge]) -> list[Edge]:
    """Those of `more`, taken in turn, that close no cycle."""
    users: dict[str, set[str]] = {name: set() for name in needed}
    for name, sources in needed.items():
        for source in sources:
            users[source].add(name)
    for edge in before:
        users[edge.tie.signal].add(edge.tie.held)
    kept = []
    for edge in more:
        seen, stack = {edge.tie.held}, [edge.tie.held]
        while stack and edge.tie.signal not in seen:
            fresh = users[stack.pop()] - seen
            seen |= fresh
            stack += fresh
        if edge.tie.signal not in seen:
            users[edge.tie.signal].add(edge.tie.held)
            kept.append(edge)
    return kept


def _of_step(
    view: GraphView,
    classes: Classes,
    step: frozenset[str],
    members: Mapping[str, int],
    wanted: Wanted,
    chosen: Mapping[str, Chosen],
    device_of: Mapping[str, str],
    pool_of_device: Mapping[str, Pool],
) -> list[Edge]:
    pieces = pieces_of(view, step, chosen, device_of)
    order, whole_order = sorted_by_needs(pieces.needed), sorted_by_needs(may_need(view, step))
    if order is None or whole_order is None:
        return []
    pool_of = {name: pool for name in order if (pool := pool_of_device.get(pieces.device_of[name])) is not None}
    work = {name: pieces.share[name] * seconds_of(view, pieces.origin[name][0], wanted) for name in pool_of}
    seconds = worth_an_order(work, pieces.device_of, wanted)
    priority = {name: wanted.priority[op] * _PARTS + part for name, (op, part) in pieces.origin.items() if op in wanted.priority}
    plan = schedule(pieces.needed, pool_of, seconds, priority)
    held = conditions(view, whole_order)
    ends = [n for n in seconds if n in priority and may_end(view, classes, pieces.origin[n][0], held)]
    by_start = sorted(ends, key=lambda name: (plan.start[name], priority[name]))
    ties = _Ties(view, classes, pieces)
    numbered = {name: k for k, name in enumerate(dict.fromkeys([*by_start, *(ties.first(name) for name in ends)]))}
    waiting = waits_of(order, pieces.needed, pieces.device_of, lambda name: may_block(view, pieces.origin[name][0]))
    above = behind(order, pieces.needed, numbered)
    finder = Finder(
        lambda name: pieces.origin[name][0], members, held, pieces.device_of, waiting, above, numbered, frozenset(ends), priority
    )

    def tied(before: str, after: str) -> Edge | None:
        signal, waits = ties.last(before), ties.first(after)
        if not finder.may(signal, waits):
            return None
        (told, one), (holds, other) = pieces.origin[signal], pieces.origin[waits]
        return Edge(pieces.origin[before][0], pieces.origin[after][0], Tie(told, None, holds, -1), (one, other))

    return [edge for after in by_start for edge in finder.edges_to(after, plan, tied)]


@dataclass(frozen=True)
class _Ties:
    """Ends of edges are moved out of what Grappler may make one kernel of: to its first op, or its last."""

    view: GraphView
    classes: Classes
    pieces: Pieces

    def first(self, name: str) -> str:
        return self._moved(name, lambda op: [s for s, k in self.view.nodes[op].inputs if k >= 0])

    def last(self, name: str) -> str:
        return self._moved(name, lambda op: self.view.consumers[op])

    def _moved(self, name: str, further: Callable[[str], Iterable[str]]) -> str:
        op, part = self.pieces.origin[name]
        group = self.classes.group_of.get(op)
        for _ in range(_FARTHEST if group is not None else 0):
            near = {n for n in further(op) if self.classes.group_of.get(n) == group and piece(n, part) in self.pieces.needed}
            if len(near) != 1:
                break
            op = near.pop()
        return piece(op, part)
