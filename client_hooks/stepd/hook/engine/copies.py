"""A copy of part of the graph under a strategy: what is in it, how it grows, how a step kind is routed through it.

It must not know when or why one switches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tensorflow.core.framework import graph_pb2

from stepd.hook.engine import capi
from stepd.hook.engine.copy import copied_nodes
from stepd.hook.engine.graphview import GraphView
from stepd.hook.engine.homes import Homes
from stepd.hook.engine.kinds import Kind, Route
from stepd.hook.engine.mirror import Mirror
from stepd.hook.engine.plan import Plan


class Copy:
    """Representations of the changed ops of one plan. Grows as step kinds need more of it; the caller holds the engine's lock."""

    def __init__(self, plan: Plan, mirror: Mirror, homes: Homes, new_prefix: Callable[[], str]) -> None:
        self.plan = plan
        self._mirror = mirror
        self._homes = homes
        self._new_prefix = new_prefix
        self._operations: dict[str, Any] = {}
        self._here: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._operations)

    def name_of(self, op: str) -> str:
        """The mirror's name for a user op under this copy."""
        return self._here_names().get(op, op)

    def adopt(self, plan: Plan) -> bool:
        """Go on under the plan as it is for an extended graph; False when what was copied contradicts it."""
        for name in self._operations:
            if name not in plan.changed or plan.device_of.get(name) != self.plan.device_of.get(name):
                return False
        if plan.variables != self.plan.variables:
            return False
        self.plan = plan
        return True

    def grow(self, view: GraphView, needed: set[str]) -> list[Any]:
        """Copy what is changed among `needed` and not copied yet; returns what the session must be extended by."""
        missing = [n for n in view.nodes if n in needed and n in self.plan.changed and n not in self._operations]
        for name in missing:
            if name in self.plan.variables:
                handle = self._homes.handle(name, self.plan.variables[name])
                self._operations[name], self._here[name] = handle.operation, handle.name
        missing = [name for name in missing if name not in self.plan.variables]
        if not missing:
            return []
        nodes = copied_nodes(view, missing, self._here_names(), self._new_prefix(), self.plan.device_of)
        graph = graph_pb2.GraphDef(node=nodes)
        graph.versions.CopyFrom(self._mirror.user_graph.graph_def_versions)
        tensors, controls = self._outside(view, missing)
        wanted = [node.name for node in nodes]
        made = capi.import_graph_def(self._mirror.graph, graph.SerializeToString(), tensors, controls, wanted)
        for name, here, operation in zip(missing, wanted, made, strict=True):
            self._operations[name], self._here[name] = operation, here
        return made

    def _here_names(self) -> dict[str, str]:
        aliases = {name: here for name, (here, _) in self._mirror.aliases.items()}
        return aliases | self._here

    def _outside(self, view: GraphView, inside: Iterable[str]) -> tuple[dict[tuple[str, int], Any], dict[str, Any]]:
        """Input mappings of a batch: inputs that are in the mirror already, by the names they have there."""
        batch = set(inside)
        names = self._here_names()
        tensors: dict[tuple[str, int], Any] = {}
        controls: dict[str, Any] = {}
        for name in batch:
            for source, index in view.nodes[name].inputs:
                if source in batch:
                    continue
                operation = self._operations.get(source) or self._mirror.operation(source)
                here = names.get(source, source)
                if index < 0:
                    controls[here] = operation
                elif (here, index) not in tensors:
                    tensors[here, index] = capi.output(operation, index)
        return tensors, controls

    def route(self, kind: Kind) -> Route:
        """The kind's handles in the mirror."""
        fetches = [self._output(t) for t in kind.fetches]
        targets = [self._operation(op) for op in kind.targets]
        feeds = {t: self._output(t) for t in kind.feeds}
        return Route(feeds, fetches, targets)

    def _output(self, out: Any) -> Any:
        operation = self._operation(out.oper)
        return out if operation is out.oper else capi.output(operation, out.index)

    def _operation(self, operation: Any) -> Any:
        name = capi.op_name(operation)
        found = self._operations.get(name)
        if found is not None:
            return found
        alias = self._mirror.aliases.get(name)
        return alias[1] if alias else operation
