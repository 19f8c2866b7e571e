"""The hook's own graph: the user's graph under the same names, kept up to date as the user adds to it.

The user's graph is only read. A node is copied at the moment at which plain TensorFlow would send it to the session, so that
later changes to it have as little effect as they would have there. The mirror must not know strategies or runs.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from tensorflow.core.framework import graph_pb2, node_def_pb2, types_pb2

from stepd.hook.engine import capi, edits, names, rules
from stepd.hook.engine.ballast import Ballast
from stepd.hook.engine.cluster import WorkerPlacer
from stepd.hook.engine.copy import keep_resource_name
from stepd.hook.engine.graphview import split_input, with_node

# Grappler leaves graphs of fewer ops as they are, if its config does not say otherwise (`min_graph_nodes`).
SMALLEST = 4
_SOURCES = frozenset({"Const", "Identity", "NoOp", "Placeholder"})
_RARE = 0x73746570  # a value that no constant of a program is likely to have


def scopes_of(name: str) -> Iterable[str]:
    """Every enclosing scope of a node name: "a/b/c" gives "a", "a/b"."""
    at = name.find("/")
    while at >= 0:
        yield name[:at]
        at = name.find("/", at + 1)


class Mirror:
    """One session's copy of the user's graph. Not thread-safe: call it under the graph's session lock."""

    def __init__(self, user_graph: Any, placer: WorkerPlacer | None = None, lowest_on: str = "", smallest: int = SMALLEST) -> None:
        """`lowest_on`: the device of the constant, and of the ballast, that runs of copies ask for; "" for none. `smallest`: of
        so many ops TensorFlow rewrites a graph."""
        # Weakly: the session holds its graph, and both go when the program lets go of them.
        self._user_graph = weakref.ref(user_graph)
        self.placer = placer
        self.graph = capi.Graph()
        self.version = 0
        self.taken = 0  # so many of the user's ops the session has
        # A constant for runs of copies to ask for. TensorFlow's dependency optimizer takes ops from a stack until one is still
        # there, without looking whether there is any: where the lowest was gone when others were, the process died (2.12 to 2.21,
        # a graph with conditions). What a run asks for stays, and of that the first by name lies lowest.
        self.lowest: Any = None
        self._lowest_on = lowest_on
        self._smallest = smallest
        self.ballast = Ballast(self.graph, lowest_on)
        # User ops whose name could not be used in the mirror: user name -> (name here, operation here).
        self.aliases: dict[str, tuple[str, Any]] = {}
        self._count = 0
        self._functions: tuple[int, str] = (0, "")
        self.keeps_in_executors = False  # is there an op whose executors keep something from run to run?
        self.has_branches = False
        self._scopes: set[str] | None = None
        self._names: set[str] = set()

    @property
    def user_graph(self) -> Any:
        """The program's graph. Raises RuntimeError when the program has dropped it."""
        graph = self._user_graph()
        if graph is None:
            raise RuntimeError("the program has dropped the session's graph")
        return graph

    def may_build_otherwise(self) -> bool:
        """Is there a function, or an op that may run once, when a step is built, or writes into what the step keeps?"""
        return self._functions[0] > 0 or self.keeps_in_executors

    def is_left_as_it_is(self) -> bool:
        """Is the graph so small that Grappler does nothing to what it computes? With nodes of the hook's own it would."""
        if not 0 < self._count < self._smallest:
            return False
        return any(operation.type not in _SOURCES for operation in self.user_graph.get_operations()[: self._count])

    def stale(self) -> bool:
        """Has the user added ops since the last `sync`?"""
        return bool(self.user_graph.version != self.version)

    def sync(self) -> None:
        """Copy what the user added. Raises what TensorFlow raises on import; the mirror is then as before."""
        version = self.user_graph.version
        operations = self.user_graph.get_operations()
        for operation in operations[self._count :]:
            names.avoid(operation.name)
            self.keeps_in_executors |= operation.type in rules.KEPT_BY_EXECUTORS
            self.has_branches |= operation.type in rules.SWITCHES
        if self._lowest_on and self.lowest is None and len(operations) >= self._smallest:
            self._begin(self.user_graph.graph_def_versions)
        if self._count == 0 and not any(names.is_taken(operation.name) for operation in operations):
            capi.import_graph_def(self.graph, self._placed(capi.graph_bytes(self.user_graph)))
            self._names.update(operation.name for operation in operations)
        else:
            self._import_new(operations[self._count :])
        self._functions = capi.function_names(self.user_graph)
        self._count = len(operations)
        self.version = version

    def were_taken(self) -> None:
        """The session has all that is here."""
        self.taken = self._count

    def renew(self) -> None:
        """Have ops that the session has refused as the program has them by now: it may have changed devices, attributes, inputs."""
        operations = self.user_graph.get_operations()[self.taken : self._count]
        nodes = graph_pb2.GraphDef()
        if self.placer is not None:
            nodes.library.CopyFrom(graph_pb2.GraphDef.FromString(capi.graph_handle_bytes(self.graph.handle)).library)
        nodes.node.extend(node_def_pb2.NodeDef.FromString(capi.node_def_bytes(operation._c_op)) for operation in operations)
        wanted = graph_pb2.GraphDef.FromString(self._placed(nodes.SerializeToString()))
        here = {capi.op_name(operation): operation for operation in edits.operations(self.graph)}
        for node in wanted.node:
            mine = here[self.name_here(node.name)]
            known = node_def_pb2.NodeDef.FromString(capi.node_def_bytes(mine))
            self._reconnect(mine, known, node, here)
            if known.device != node.device:
                edits.set_device(self.graph, mine, node.device)
            for name in known.attr:
                if name.startswith("_") and name not in node.attr:
                    edits.clear_attr(self.graph, mine, name)
            for name, value in node.attr.items():
                if known.attr[name] != value and not (name == "shared_name" and node.name in self.aliases):
                    edits.set_attr(self.graph, mine, name, value.SerializeToString())

    def _reconnect(self, mine: Any, known: node_def_pb2.NodeDef, node: node_def_pb2.NodeDef, here: Mapping[str, Any]) -> None:
        """Give the op `mine`, which is as `known` says, the inputs of the user's `node`."""
        wanted = [(self.name_here(source), index) for source, index in map(split_input, node.input)]
        present = [split_input(name) for name in known.input]
        values = [source for source in wanted if source[1] >= 0]
        for k, (source, before) in enumerate(zip(values, present, strict=False)):
            if source != before:
                edits.update_input(self.graph, mine, k, capi.output(here[source[0]], source[1]))
        controls = [name for name, index in wanted if index < 0]
        if sorted(controls) != sorted(name for name, index in present if index < 0):
            edits.set_control_inputs(self.graph, mine, [here[name] for name in controls])

    def compacted(self, is_own: Callable[[str], bool]) -> Mirror:
        """A new mirror of what this one has of the user's graph, without the nodes of the hook's own."""
        whole = graph_pb2.GraphDef.FromString(capi.graph_handle_bytes(self.graph.handle))
        user_names = {here: name for name, (here, _) in self.aliases.items()}
        made = Mirror(self.user_graph, self.placer, self._lowest_on, self._smallest)
        graph = graph_pb2.GraphDef(versions=whole.versions, library=whole.library)
        for node in whole.node:
            if is_own(node.name):
                continue
            node.name = user_names.get(node.name, node.name)
            for i, name in enumerate(node.input):
                source, _ = split_input(name)
                if source in user_names:
                    node.input[i] = with_node(name, user_names[source])
            graph.node.append(node)
        if self._lowest_on:
            made._begin(whole.versions)
        renamed = made._rename(graph, {node.name for node in graph.node if names.is_taken(node.name)})
        made._add(graph, {}, {}, renamed)
        made.version, made._count, made._functions = self.version, self._count, self._functions
        made.taken = self.taken
        made.keeps_in_executors, made.has_branches = self.keeps_in_executors, self.has_branches
        made._names = set(self._names)
        return made

    def _begin(self, versions: Any) -> None:
        """Begin with the lowest constant, of which Grappler makes one with no constant of the program's (see `ballast`)."""
        graph = graph_pb2.GraphDef(versions=versions)
        node = graph.node.add(name=names.LOWEST, op="Const", device=self._lowest_on)
        node.attr["dtype"].type = types_pb2.DT_INT32
        tensor = node.attr["value"].tensor
        tensor.dtype = types_pb2.DT_INT32
        tensor.tensor_shape.SetInParent()
        tensor.int_val.append(_RARE)
        (self.lowest,) = capi.import_graph_def(self.graph, graph.SerializeToString(), None, None, [node.name])

    def _placed(self, graph_def: bytes) -> bytes:
        if self.placer is None:
            return graph_def
        whole = graph_pb2.GraphDef.FromString(graph_def)
        self.placer.place(whole.node, {f.signature.name: f for f in whole.library.function})
        return bytes(whole.SerializeToString())

    def _import_new(self, operations: list[Any]) -> None:
        delta = graph_pb2.GraphDef()
        delta.versions.CopyFrom(self.user_graph.graph_def_versions)
        if capi.function_names(self.user_graph) != self._functions:
            whole = graph_pb2.GraphDef.FromString(capi.graph_bytes(self.user_graph))
            delta.library.CopyFrom(whole.library)
        for operation in operations:
            delta.node.append(node_def_pb2.NodeDef.FromString(capi.node_def_bytes(operation._c_op)))
        if self.placer is not None:
            library = delta.library if delta.library.function else graph_pb2.GraphDef.FromString(
                capi.graph_handle_bytes(self.graph.handle)).library  # fmt: skip
            self.placer.place(delta.node, {f.signature.name: f for f in library.function})
        renamed = self._avoid_collisions(delta)
        tensors, controls = self._outside_inputs(delta)
        self._add(delta, tensors, controls, renamed)
        self._names.update(operation.name for operation in operations)
        if self._scopes is not None:
            for operation in operations:
                self._scopes.update(scopes_of(operation.name))

    def _add(self, graph: graph_pb2.GraphDef, tensors: Any, controls: Any, renamed: dict[str, str]) -> None:
        made = capi.import_graph_def(self.graph, graph.SerializeToString(), tensors, controls, list(renamed.values()))
        for (name, here), operation in zip(renamed.items(), made, strict=True):
            self.aliases[name] = (here, operation)

    def _avoid_collisions(self, delta: graph_pb2.GraphDef) -> dict[str, str]:
        """Rename new nodes named like an existing scope (the importer refuses "v" after "v/part_0"), or like one of our own."""
        if self._scopes is None:
            self._scopes = {scope for name in self._names for scope in scopes_of(name)}
        return self._rename(delta, {n.name for n in delta.node if n.name in self._scopes or names.is_taken(n.name)})

    def _rename(self, graph: graph_pb2.GraphDef, unwanted: Collection[str]) -> dict[str, str]:
        """Give nodes other names; returns the user's name -> the name here."""
        first = len(self.aliases)
        renamed = {name: names.alias(first + k) for k, name in enumerate(n.name for n in graph.node if n.name in unwanted)}
        for node in graph.node if renamed else ():
            for i, name in enumerate(node.input):
                source, _ = split_input(name)
                if source in renamed:
                    node.input[i] = with_node(name, renamed[source])
            if node.name in renamed:
                keep_resource_name(node, node.name)
                node.name = renamed[node.name]
        return renamed

    def _outside_inputs(self, delta: graph_pb2.GraphDef) -> tuple[dict[tuple[str, int], Any], dict[str, Any]]:
        """Input mappings for inputs that the mirror has already. Handles of the user's graph serve: only names count."""
        inside = {node.name for node in delta.node}
        tensors: dict[tuple[str, int], Any] = {}
        controls: dict[str, Any] = {}
        for node in delta.node:
            for name in node.input:
                source, index = split_input(name)
                if source in inside:
                    continue
                if index < 0:
                    controls[source] = self.operation(source)
                else:
                    tensors[source, index] = capi.output(self.operation(source), index)
        return tensors, controls

    def operation(self, name: str) -> Any:
        """A TF_Operation that names the user's op `name` in the mirror."""
        alias = self.aliases.get(name)
        return alias[1] if alias else self.user_graph.get_operation_by_name(name)._c_op

    def name_here(self, name: str) -> str:
        alias = self.aliases.get(name)
        return alias[0] if alias else name
