"""Which reads of variables are to come before which writes of the same step, where the graph leaves that open. Pure.

Plain TensorFlow practically always runs a read that waits for little before a write that waits for much: the global step that
a hook reads beside the training step. On several devices the two race. A copy therefore gets control edges from such reads to
such writes. Where the write waits for nothing but a reference variable itself (the next step, made of this one beside a rate) it
may come first, and no order is sure: a copy adds none. It must not know how copies are made.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from stepd.hook.engine import failing, rules
from stepd.hook.engine.fitting import Shapes
from stepd.hook.engine.graphview import GraphView, name_of_state
from stepd.hook.engine.kinds import Kind
from stepd.hook.engine.op_defs import input_types, is_pure, output_types
from stepd.hook.engine.races import SHORT_READ, Race, adds_a_constant, counts_alone, is_write, may_count_first, races, to_keep
from stepd.hook.order.conditions import conditions
from stepd.hook.order.edges import Edge
from stepd.hook.order.rounds import may_need
from stepd.hook.order.steps import executed
from stepd.hook.order.ties import FLOATS
from stepd.hook.order.walk import sorted_by_needs
from stepd.hook.ports import StepKind

# Grappler leaves these, and writes, as they are whatever hangs on them. What else computes with floats it may fuse while nothing
# hangs on it.
_PLAIN_READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "Identity", "Gather", "GatherV2"})


# So many ops behind a read are looked at.
_NEAR = 8
# What adds a constant comes late, in as few ops as it is: by so many.
_LATE = 3


class First(NamedTuple):
    """`read`, or what hands on what was read, runs before `write`."""

    read: str
    write: str


NOTHING: frozenset[First] = frozenset()


class Settled(NamedTuple):
    """The reads of a step that come first, and whether these are all that it reads and writes without order."""

    reads: frozenset[First]
    all: bool


def first_reads(view: GraphView, step: StepKind) -> Settled:
    """The reads of a step that come first. None of them can wait for anything but the feeds."""
    found = races(view, step, every=True)
    late = [race for race in found if not may_count_first(view, race)]
    late = [race for race in late if rules.works_on_variable(view.nodes[race.writer].op)]
    if not late:
        return Settled(NOTHING, not found)
    run = executed(view, step)
    needed = may_need(view, run)
    order = sorted_by_needs(needed)
    if order is None:
        return Settled(NOTHING, False)
    depth = _depths(order, needed)
    held = conditions(view, order)
    early: dict[str, bool] = {}
    counted = {race.writer for race in late if counts_alone(view, race) and adds_a_constant(view, race)}

    def may(signal: str, write: str) -> bool:
        least, most = held[signal], held[write]
        if least is None or most is None or not least <= most or not _may_signal(view, signal):
            return False
        if depth[signal] >= depth[write] + (_LATE if write in counted else 0):
            return False
        if signal not in early:
            early[signal] = _waits_for_little(view, signal, needed)
        return early[signal]

    first = [First(signal, race.writer) for race in late if (signal := _signal(view, run, race, may))]
    return Settled(frozenset(first), len(first) == len(found))


def _signal(view: GraphView, run: Collection[str], race: Race, may: Callable[[str, str], bool]) -> str:
    """The op that tells that the variable has been read: the reader or, when that is in a branch or may be fused, the nearest one
    behind it; else "". Of two writes neither comes first."""
    near = [race.reader]
    for name in near:  # it grows
        if may(name, race.writer) and not (is_write(view.nodes[name].op) and _is_written(view, name, race.variable)):
            return name
        if len(near) < _NEAR:
            near += [user for user in dict.fromkeys(view.consumers[name]) if user in run and user not in near]
    return ""


def _is_written(view: GraphView, write: str, variable: str) -> bool:
    """Does the op `write` write to this variable? True where that cannot be told."""
    name, seen = write, set[str]()
    while view.nodes[name].op not in rules.VARIABLES:
        if name in seen or not view.nodes[name].inputs:
            return True
        seen.add(name)
        name = view.nodes[name].inputs[0][0]
    return name_of_state(view.nodes[name].proto) == name_of_state(view.nodes[variable].proto)


def _may_signal(view: GraphView, name: str) -> bool:
    op = view.nodes[name].op
    if op in _PLAIN_READS or _writes(op):
        return True
    proto = view.nodes[name].proto
    floats = _floats(output_types(proto)) and (op != "Cast" or _floats(input_types(proto)))  # a step made a float stays just that
    return not floats and op not in rules.CONTROL_FLOW and is_pure(op)


def _writes(op: str) -> bool:
    return is_write(op) and rules.works_on_variable(op)


def _floats(types: Iterable[int]) -> bool:
    return any(dtype % 100 in FLOATS for dtype in types)


def _depths(order: Iterable[str], needed: Mapping[str, Collection[str]]) -> dict[str, int]:
    """The number of ops on the longest path to each op."""
    depth: dict[str, int] = {}
    for name in order:
        depth[name] = 1 + max((depth[source] for source in needed[name]), default=0)
    return depth


def _waits_for_little(view: GraphView, read: str, needed: Mapping[str, Collection[str]]) -> bool:
    """Does the read need few ops, of which none can block, fail for reasons of its own, or write? It may be a write to another
    variable of what was read of this one."""
    seen, stack = {read}, [read]
    while stack:
        name = stack.pop()
        op = view.nodes[name].op
        harmless = op in rules.VARIABLES or (rules.works_on_variable(op) and (name == read or not is_write(op)))
        if not harmless and (not is_pure(op) or op.startswith("Placeholder")):
            return False
        for source in needed[name]:
            if source not in seen:
                seen.add(source)
                stack.append(source)
        if len(seen) > SHORT_READ:
            return False
    return True


def serves(reads: Collection[First], wanted: Collection[First], run: Collection[str]) -> bool:
    """Whether a step that executes just the ops `run` and wants `wanted` can run where `reads` come first: they have all that it
    wants, and drag nothing into it."""
    return set(wanted) <= set(reads) and all(pair.write not in run or pair.read in run for pair in reads)


def common(view: GraphView, wanted: Mapping[StepKind, Collection[First]]) -> frozenset[First]:
    """Of what steps want, what one copy can do without dragging a read into any of them."""
    pairs = {pair for found in wanted.values() for pair in found}
    runs = [executed(view, step) for step in wanted] if pairs else []
    return frozenset(p for p in pairs if all(p.write not in run or p.read in run for run in runs))


def possible(view: GraphView, reads: Collection[First], split: Collection[str], edges: Iterable[Edge]) -> frozenset[First]:
    """Those of `reads` that a copy can have that runs `split` in parts: together with the `edges` of an order the whole graph can
    still be sorted."""
    left = frozenset(p for p in reads if p.write not in split and p.read not in split)
    if not left:
        return NOTHING
    ordered = [(edge.tie.signal, edge.tie.held) for edge in edges]
    return left if sorted_by_needs(may_need(view, view.nodes.keys()), [*ordered, *left]) is not None else NOTHING


class Unordered:
    """What the steps of one session read and write without order: which ops stay where they are for it, which reads come first."""

    def __init__(self, home: Callable[[GraphView, str], str], shapes: Shapes) -> None:
        """`home`: where an op is plainly; `shapes`: what is known of outputs."""
        self.kept: dict[str, str] = {}
        self._home, self._shapes = home, shapes
        self._learned: set[StepKind] = set()
        self._settled: dict[StepKind, Settled] = {}

    def copy(self) -> Unordered:
        other = Unordered(self._home, self._shapes)
        other.kept, other._learned, other._settled = dict(self.kept), set(self._learned), dict(self._settled)
        return other

    def learn(self, view: GraphView, kinds: Iterable[Kind]) -> dict[str, str]:
        """Take in steps that are new; returns what has to stay from now on, and why."""
        new: dict[str, str] = {}
        for step in dict.fromkeys(kind.step for kind in kinds if kind.step not in self._learned):
            self._learned.add(step)
            self.settled(view, step)
            new.update(to_keep(view, races(view, step, every=True)))
        more = {name: why for name, why in new.items() if name not in self.kept}
        self.kept |= more
        return more

    def stay_beside(self, view: GraphView, held: Collection[str]) -> dict[str, str]:
        """What should come before an op that copies share with the original, `held`, and cannot be made to: nothing is added to
        that one. It stays on its device with all that it needs, where it runs to its end, as plainly. Returns what is new, and
        why."""
        before = {pair.read: pair.write for known in self._settled.values() for pair in known.reads if pair.write in held}
        new: dict[str, str] = {}
        for read, write in before.items():
            stack = [read]
            while stack:
                name = stack.pop()
                if name not in new and name not in self.kept:  # what is kept is kept with all that it needs
                    new[name] = f"{read} comes before {write}, which stays"
                    stack += [source for source, _ in view.nodes[name].inputs]
        self.kept |= new
        return new

    def settled(self, view: GraphView, step: StepKind) -> bool:
        """Is all that the step reads and writes in some order, by the graph or because the read comes first?"""
        if step not in self._settled:
            reads, all_of_them = first_reads(view, step)
            updates = failing.updates_first(view, step, functools.partial(self._home, view), self._shapes)
            self._settled[step] = Settled(reads | {First(*pair) for pair in updates}, all_of_them)
        return self._settled[step].all

    def first(self, kind: Kind, held: Collection[str]) -> frozenset[First]:
        """What `kind` wants of a copy that shares `held` with the original; nothing for runs that are fed bit by bit."""
        if kind.in_parts or kind.step not in self._learned:
            return NOTHING
        return frozenset(pair for pair in self._settled[kind.step].reads if pair.write not in held)


Reads = Callable[[Kind], frozenset[First]]
