"""A copy of part of the graph under a strategy: what is in it, how it grows, how a step kind is routed through it.

It must not know when or why one switches.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from tensorflow.core.framework import graph_pb2

from stepd.hook.engine import ballast, capi, graphview, terms
from stepd.hook.engine.classify import Classes
from stepd.hook.engine.copied_ops import CopiedOps
from stepd.hook.engine.copy import copied_nodes
from stepd.hook.engine.devices import Devices
from stepd.hook.engine.graphview import GraphView, split_input
from stepd.hook.engine.home import home
from stepd.hook.engine.homes import Homes
from stepd.hook.engine.kinds import Kind, Route
from stepd.hook.engine.mirror import Mirror
from stepd.hook.engine.plan import Plan, lifting, ordered, reading, sharing, with_changed
from stepd.hook.engine.reads import NOTHING, First, Reads, possible, serves
from stepd.hook.model import Order
from stepd.hook.order import barriers, control, priorities, rounds
from stepd.hook.order.native import library
from stepd.hook.order.native.library import Tables
from stepd.hook.order.planning import NO_ORDER, still_possible
from stepd.hook.order.steps import executed
from stepd.hook.ports import StepKind
from stepd.hook.rewrite import shared_reads
from stepd.hook.rewrite.chosen import Chosen, within
from stepd.hook.rewrite.facts import Facts


class Copy:
    """Representations of the changed ops of one plan. Grows as step kinds need more of it; the caller holds the engine's lock."""

    def __init__(
        self,
        plan: Plan,
        mirror: Mirror,
        homes: Homes,
        new_prefix: Callable[[], str],
        devices: Devices | None = None,
        facts: Callable[[GraphView], Facts] | None = None,
        first: Reads = lambda kind: NOTHING,
        settled: Callable[[Kind], bool] = lambda kind: True,
        tables: Tables = library,
    ) -> None:
        """`first`: the reads that are to come first in steps of a kind. `settled`: has what it reads and writes an order else?
        `tables`: where the native executor finds priorities.
        """
        self.plan = plan
        self._version = mirror.version  # of the program's graph that the plan is for
        self._mirror = mirror
        self._homes = homes
        self._new_prefix = new_prefix
        self._devices = devices
        self._facts = facts
        self._first = first
        self._settled = settled
        self._tables = tables
        # For step kinds that feed what is split: the same in one piece.
        self._unsplit: Copy | None = None
        # For step kinds that the edges of an order would drag ops into, or that would execute less without a barrier: the same
        # without an order, and with all barriers.
        self._unordered: Copy | None = None
        # For step kinds in which other reads come first: the same with those.
        self._reading: dict[frozenset[First], Copy] = {}
        self._possible: dict[frozenset[First], frozenset[First]] = {}
        self._table = 0
        self.ops = CopiedOps(mirror)
        self._weights: dict[StepKind, int] = {}  # of the ballast that a step is asked for
        self.unlike: dict[StepKind, str] = {}  # step that was compared -> an op that computes something else than plainly, or ""
        # Of kinds that were prepared for.
        self.routes: dict[Kind, Route] = {}

    def _others(self) -> list[Copy]:
        return [other for other in (self._unordered, self._unsplit, *self._reading.values()) if other is not None]

    def _other(self, plan: Plan, facts: Callable[[GraphView], Facts] | None = None) -> Copy:
        seeing = facts, self._first, self._settled
        return Copy(plan, self._mirror, self._homes, self._new_prefix, self._devices, *seeing, self._tables)

    def serving(self, kind: Kind, view: GraphView) -> Copy:
        """Where a step of `kind` runs: on this copy; on one without the order where that would change what it executes; on one
        without the splits where it feeds what is split; on one where other reads come first."""
        if any(split_input(name)[0] in self.plan.splits for name in kind.step.feeds):
            if self._unsplit is None:
                self._unsplit = self._other(ordered(replace(self.plan, splits={}), NO_ORDER, view))
            return self._unsplit.serving(kind, view)
        edges, wanted = self.plan.order.edges, self._first(kind)
        eased = bool(self.plan.lifts or self.plan.shares)
        if not edges and not eased and not self.plan.reads and not wanted:
            return self
        run = executed(view, kind.step)
        if (edges or eased) and (kind.in_parts or not control.serves(edges, run) or not self._ease_serves(kind, view, run)):
            if self._unordered is None:
                plainer = sharing(lifting(self.plan, barriers.NOTHING, view), shared_reads.NOTHING)
                self._unordered = self._other(ordered(plainer, NO_ORDER, view))
            return self._unordered.serving(kind, view)
        if wanted not in self._possible:  # many steps want the same
            self._possible[wanted] = possible(self.plan.seen(view), wanted, self.plan.splits, edges)
        wanted = self._possible[wanted]
        if serves(self.plan.reads, wanted, run):
            return self
        if wanted not in self._reading:
            self._reading[wanted] = self._other(reading(self.plan, wanted, view), self._facts)
        return self._reading[wanted]

    def _ease_serves(self, kind: Kind, view: GraphView, run: Collection[str]) -> bool:
        lifts = [lift for lift in self.plan.lifts if lift.op in run]
        serves = barriers.serves(view, lifts, kind.step, run) and shared_reads.serve(self.plan.shares, kind.step, run)
        return serves and (not (lifts or any(share.op in run for share in self.plan.shares)) or self._settled(kind))

    def names_of(self, op: str) -> list[str]:
        """All names that a user op has under this copy, whatever step runs it."""
        return [copy.ops.name_of(op) for copy in (self, *self._others())]

    def is_stale(self) -> bool:
        """Has the graph grown since the plan was made or adopted? Then `adopt` comes before anything else."""
        return self._version != self._mirror.version

    def adopt(self, plan: Plan, view: GraphView, classes: Classes) -> bool:
        """Go on under the plan as it is for an extended graph; False when what was copied contradicts it. The order is kept."""
        if self._unordered is not None and not self._unordered.adopt(plan, view, classes):
            return False
        if self._unsplit is not None and not self._unsplit.adopt(replace(plan, splits={}), view, classes):
            return False
        if not all(other.adopt(plan, view, classes) for other in self._reading.values()):
            return False
        self._possible.clear()
        reads = frozenset(pair for pair in self.plan.reads if pair.write not in classes.held)
        if not (self.plan.lifts <= plan.lifts and self.plan.shares <= plan.shares):
            return False
        plan = sharing(lifting(plan, self.plan.lifts, view), self.plan.shares)
        plan = reading(ordered(plan, still_possible(self.plan.order, classes), view), reads, view)
        for name in self.ops.operations:
            if plan.splits.get(name) != self.plan.splits.get(name) or plan.sums.get(name) != self.plan.sums.get(name):
                return False
            if (name in plan.apart) != (name in self.plan.apart):
                return False
            if name not in plan.changed or plan.device_of.get(name) != self.plan.device_of.get(name):
                return False
            if any(source in plan.changed and source not in self.ops.operations for source, _ in view.nodes[name].inputs):
                return False  # what is to be fed elsewhere now was not when this was copied
        if plan.variables != self.plan.variables:
            return False
        self.plan, self._version = plan, self._mirror.version
        return True

    def keep_on(self, view: GraphView) -> None:
        """Go on under the plan that there is for an extended graph: what was added is copied where it needs what is."""
        for copy in (self, *self._others()):
            copy.plan, copy._version = with_changed(copy.plan, view), self._mirror.version
            copy._possible.clear()

    def grow(self, view: GraphView, kinds: Collection[Kind]) -> list[Any]:
        """Copy what is changed of what `kinds` need and not copied yet; returns what the session must be extended by."""
        made = self._copied(view, view.ancestors(name for kind in kinds for name in kind.ops()))
        for kind in kinds:
            if kind.step not in self._weights:
                self._weights[kind.step] = ballast.weight(view, kind.step, self.made(view)) if self.plan.device_of else 0
                made += self._mirror.ballast.make(self._weights[kind.step], self._mirror.user_graph.graph_def_versions)
        return made

    def made(self, view: GraphView) -> ballast.Made:
        """What it is made of, and where that lies."""
        device, plain = functools.partial(self._device, view), functools.partial(self._home, view)
        return ballast.Made(self.ops.nodes, self.ops.names(), self.ops.fetched_names(), self.plan.device_of, device, plain)

    def _copied(self, view: GraphView, needed: set[str]) -> list[Any]:
        needed = needed | {share.by for share in self.plan.shares if share.op in needed}
        missing = [n for n in view.nodes if n in needed and n in self.plan.changed and n not in self.ops.operations]
        for name in missing:
            if name in self.plan.variables:
                handle = self._homes.handle(name, self.plan.variables[name])
                self.ops.add(name, handle.name, handle.operation)
        missing = [name for name in missing if name not in self.plan.variables]
        if not missing:
            return []
        edges, device = self.plan.order.edges, functools.partial(self._device, view)
        plan = self.plan
        where = plan.device_of, edges, device, *self._splits(view, missing)
        adds = plan.reads, plan.sums, plan.apart, plan.lifts, plan.shares
        mark = self._new_prefix()
        mixed = self._devices is not None and self._devices.mixed
        nodes = copied_nodes(view, missing, self.ops.names(), mark, *where, *adds, functools.partial(self._home, view), mixed)
        if rounds.never_ends(nodes):
            raise ValueError("ops of the copy would wait for each other through a loop: no step of it would end")
        if self.plan.order.way is Order.NATIVE:
            self._tables.add(self._own_table(), priorities.with_table(nodes, missing, self.plan.order.priority, self._own_table()))
        devices = [known.name for known in self._devices.all] if self._devices is not None else []
        whole = [name for name in missing if name not in plan.splits]
        to_fetch = terms.to_fetch(view, whole, mark, device, devices)
        nodes += to_fetch.values()
        graph = graph_pb2.GraphDef(node=nodes)
        graph.versions.CopyFrom(self._mirror.user_graph.graph_def_versions)
        tensors, controls = self._outside(view, missing, nodes)
        wanted = [node.name for node in nodes]
        made = capi.import_graph_def(self._mirror.graph, graph.SerializeToString(), tensors, controls, wanted)
        for name, here, operation in zip(missing, wanted, made, strict=False):  # what ties an order comes behind the copies
            self.ops.add(name, here, operation)
        self.ops.nodes |= {node.name: graphview.made(node) for node in nodes}
        last = zip(to_fetch, wanted[len(wanted) - len(to_fetch) :], made[len(made) - len(to_fetch) :], strict=True)
        for name, here, operation in last:
            self.ops.fetch_by(name, here, operation)
        return made

    def _splits(self, view: GraphView, names: Sequence[str]) -> tuple[dict[str, Chosen], Facts | None]:
        """What of a batch is split, and the facts for it."""
        if not self.plan.splits or self._facts is None:
            return {}, None
        facts = self._facts(view)
        return within(facts, self.plan.splits, names), facts

    def _own_table(self) -> int:
        if not self._table:
            self._table = self._tables.new_table()
            weakref.finalize(self, self._tables.drop, self._table)
        return self._table

    def _device(self, view: GraphView, name: str) -> str:
        found = self.plan.device_of.get(name)
        return found if found or self._devices is None else home(view, self._devices, view.nodes[name])

    def _home(self, view: GraphView, name: str) -> str:
        return "" if self._devices is None else home(view, self._devices, view.nodes[name])

    def _outside(
        self, view: GraphView, inside: Iterable[str], nodes: Iterable[Any]
    ) -> tuple[dict[tuple[str, int], Any], dict[str, Any]]:
        """Input mappings of a batch, which becomes `nodes`: inputs that are in the mirror already, by the names they have there."""
        batch = set(inside)
        given = {name for node in nodes for name in node.input}
        names = self.ops.names()
        tensors: dict[tuple[str, int], Any] = {}
        controls: dict[str, Any] = {}
        seen = self.plan.seen(view)
        needed = [needed for name in batch for needed in seen.nodes[name].inputs]
        needed += [(pair.read, -1) for pair in self.plan.reads if pair.write in batch]
        for source, index in needed:
            if source in batch:
                continue
            operation = self.ops.operation_of(source)
            here = names.get(source, source)
            if index < 0:
                controls[here] = operation
                if here in given:  # a stand-in reads it
                    tensors[here, 0] = capi.output(operation, 0)
            elif (here, index) not in tensors:
                tensors[here, index] = capi.output(operation, index)
        return tensors, controls

    def route(self, kind: Kind) -> Route:
        """The kind's handles in the mirror."""
        fetches = [self.ops.fetch(t) for t in kind.fetches]
        targets = [self.ops.operation(op) for op in kind.targets]
        targets += [self.ops.operations[name] for name in self.ops.sums_of(capi.op_name(t.oper) for t in kind.fetches)]
        targets += self.besides(kind, (capi.op_name(t.oper) for t in kind.fetches), map(capi.op_name, kind.targets))
        feeds = {t: self.ops.output(t) for t in kind.feeds}
        return Route(feeds, fetches, targets)

    def serves(self, kind: Kind) -> bool:
        """Is anything copied of what a run of `kind` asks for?"""
        return self.ops.any_of(kind.ops())

    def besides(self, kind: Kind, *ops: Iterable[str]) -> list[Any]:
        """What else of the mirror a run of `kind`, which asks for the user's `ops`, is asked for. One that asks for none that is
        copied stays just as it is, and is not built anew: what Grappler once took for a constant (a pattern's files, say) may have
        changed."""
        if not any(map(self.ops.any_of, ops)):
            return []
        found = self._mirror.lowest, self._mirror.ballast.of(self._weights.get(kind.step, 0))
        return [operation for operation in found if operation is not None]
