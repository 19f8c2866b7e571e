"""Where variables live. Moves them between devices inside their session: a new handle, one run that assigns, the old one freed.

Knows neither strategies nor steps; the caller keeps runs away that touch a variable while it moves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tensorflow.core.framework import graph_pb2, node_def_pb2
from tensorflow.python.framework import errors

from stepd.hook.engine import capi
from stepd.hook.engine.ahead import Ahead
from stepd.hook.engine.copy import keep_resource_name
from stepd.hook.engine.graphview import GraphView, Node
from stepd.hook.engine.mirror import Mirror
from stepd.hook.log import logger as log


class Handle:
    """A node in the mirror that stands for a user's variable on one device, and the helper ops that work on it."""

    def __init__(self, name: str, device: str, is_ref: bool) -> None:
        self.name = name
        self.device = device
        self.is_ref = is_ref
        self.operation: Any = None
        self.ops: dict[str, Any] = {}


class Homes:
    """The variables' handles by device; the user's own node is the handle on the home device, key ""."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._handles: dict[tuple[str, str], Handle] = {}
        self._moves: dict[tuple[str, str, str], Any] = {}
        self.at: dict[str, str] = {}  # moved variables only
        self._full: set[str] = set()  # variables that had values when that was last looked at
        # What has the value of a variable on a device, for those that a restart has brought here.
        self.readers: dict[tuple[str, str], Any] = {}

    def handle(self, variable: str, device: str) -> Handle:
        return self._handles[variable, device]

    def current(self, variable: str) -> Handle | None:
        """Where the variable is, when it is away from home."""
        device = self.at.get(variable)
        return None if device is None else self._handles[variable, device]

    def to_move(self, wanted: Mapping[str, str]) -> dict[str, str]:
        """What has to move so that exactly the variables of `wanted` are away from home: variable -> device ("": home)."""
        moves = {v: device for v, device in wanted.items() if self.at.get(v, "") != device}
        return moves | {v: "" for v in self.at if v not in wanted}

    def prepare(self, view: GraphView, moves: Mapping[str, str], prefix: str) -> list[Any]:
        """Add to the mirror the handles and helper ops that `moves` needs, and those for the way home from there; returns what the
        session must be extended by."""
        graph = graph_pb2.GraphDef()
        graph.versions.CopyFrom(self._mirror.user_graph.graph_def_versions)
        new: list[tuple[Handle, dict[str, str]]] = []
        tensors: dict[tuple[str, int], Any] = {}
        for variable, device in moves.items():
            for where in dict.fromkeys((self.at.get(variable, ""), device, "")):
                if (variable, where) not in self._handles:
                    handle = self._new_handle(view.nodes[variable], where, prefix, graph, tensors)
                    new.append((handle, _helpers(handle, view.nodes[variable], prefix, graph)))
        for variable, device in moves.items():
            here, there = self._handles[variable, self.at.get(variable, "")], self._handles[variable, device]
            for source, target in ((here, there), (there, self._handles[variable, ""])):
                key = (variable, source.device, target.device)
                if source is not target and key not in self._moves:
                    self._moves[key] = _assignment(source, target, view.nodes[variable], f"{prefix}/m", graph)
                    for handle in (source, target):
                        if handle.operation is not None:
                            tensors[handle.name, 0] = capi.output(handle.operation, 0)
        return self._import(graph, tensors, new)

    def _new_handle(self, node: Node, device: str, prefix: str, graph: Any, tensors: dict[tuple[str, int], Any]) -> Handle:
        is_ref = node.op != "VarHandleOp"
        if device == "":
            handle = Handle(self._mirror.name_here(node.name), "", is_ref)
            handle.operation = self._mirror.operation(node.name)
            tensors[handle.name, 0] = capi.output(handle.operation, 0)
        else:
            handle = Handle(f"{prefix}/{node.name}", device, is_ref)
            made = graph.node.add()
            made.CopyFrom(node.proto)
            made.name, made.device = handle.name, device
            made.attr.pop("_class", None)
            keep_resource_name(made, node.name)
        self._handles[node.name, device] = handle
        return handle

    def _import(self, graph: Any, tensors: dict[tuple[str, int], Any], new: list[tuple[Handle, dict[str, str]]]) -> list[Any]:
        wanted = [n.name for n in graph.node]
        if not wanted:
            return []
        made = dict(zip(wanted, capi.import_graph_def(
            self._mirror.graph, graph.SerializeToString(), tensors, {}, wanted), strict=True))  # fmt: skip
        for handle, helpers in new:
            if handle.operation is None:
                handle.operation = made[handle.name]
            handle.ops = {role: made[name] for role, name in helpers.items()}
        for key, name in self._moves.items():
            if isinstance(name, str):
                self._moves[key] = made[name]
        return list(made.values())

    def build(self, ahead: Ahead, moves: Mapping[str, str]) -> None:
        """Have built what carries `moves` over, and what carries home all that is away then, of variables that have values now."""
        there = {v: device for v, device in {**self.at, **moves}.items() if device}
        affected = list({**there, **moves})
        flags = ahead.run(_tests(self._handles[v, self.at.get(v, "")] for v in affected))
        self._full |= {v for v, yes in zip(affected, flags, strict=True) if yes}
        self._build(ahead, self._pairs(moves))
        self.build_return(ahead, there, ())

    def build_return(self, ahead: Ahead, there: Mapping[str, str], full: Collection[str]) -> None:
        """Have built what carries variables home from `there`, of which those in `full` have values."""
        self._full |= set(full)
        self._build(ahead, [_Move(v, self._handles[v, device], self._handles[v, ""]) for v, device in there.items()])

    def _build(self, ahead: Ahead, moves: Sequence[_Move]) -> None:
        full, others = self._known_full(moves)
        ahead.build(fetches=_tests(move.source for move in others), targets=self._assigns(full))
        ahead.build(targets=_frees(full))

    def move(self, ahead: Ahead, moves: Mapping[str, str]) -> list[Any]:
        """Carry the values over. Returns what `free` is to be given; on an error the variables are where they were."""
        pairs = self._pairs(moves)
        full, others = self._known_full(pairs)
        try:
            flags = ahead.run(_tests(move.source for move in others), self._assigns(full))
        except errors.FailedPreconditionError:  # one of them has lost its value since
            self._full -= {move.variable for move in pairs}
            full, others = [], pairs
            flags = ahead.run(_tests(move.source for move in others))
        late = [move for move, yes in zip(others, flags, strict=True) if yes]
        ahead.run(targets=self._assigns(late))
        self._full |= {move.variable for move in late}
        for variable, device in moves.items():
            if device:
                self.at[variable] = device
            else:
                del self.at[variable]
        return _frees([*full, *late])

    def free(self, ahead: Ahead, left: Sequence[Any]) -> None:
        """Free the places that variables have left. An error is no more than a place that is not free."""
        try:
            ahead.run(targets=left)
        except errors.OpError as e:
            log.info("the old places of variables could not be freed: %s", e)

    def with_values(self, ahead: Ahead, view: GraphView, variables: Iterable[str], prefix: str) -> set[str]:
        """Those of `variables` that have a value now. Raises TensorFlow's errors."""
        where = {variable: self.at.get(variable, "") for variable in variables}
        if self.prepare(view, where, prefix):
            capi.extend_session(ahead.session)
        flags = ahead.run(_tests(self._handles[variable, device] for variable, device in where.items()))
        return {variable for variable, yes in zip(where, flags, strict=True) if yes}

    def empty(self, ahead: Ahead, view: GraphView, variables: Iterable[str], prefix: str) -> None:
        """Free the values of `variables` in a session that nobody uses any more. Raises TensorFlow's errors."""
        where = {variable: self.at.get(variable, "") for variable in variables}
        if self.prepare(view, where, prefix):
            capi.extend_session(ahead.session)
        ahead.run(targets=[self._handles[variable, device].ops["free"] for variable, device in where.items()])

    def _pairs(self, moves: Mapping[str, str]) -> list[_Move]:
        return [_Move(v, self._handles[v, self.at.get(v, "")], self._handles[v, device]) for v, device in moves.items()]

    def _known_full(self, moves: Sequence[_Move]) -> tuple[list[_Move], list[_Move]]:
        """(moves of variables that had values when that was last looked at, the others)"""
        full = [move for move in moves if move.variable in self._full]
        return full, [move for move in moves if move.variable not in self._full]

    def _assigns(self, moves: Iterable[_Move]) -> list[Any]:
        return [self._moves[move.variable, move.source.device, move.target.device] for move in moves]


class _Move(NamedTuple):
    variable: str
    source: Handle
    target: Handle


def _tests(handles: Iterable[Handle]) -> list[Any]:
    """What says of each handle whether there is a value."""
    return [capi.output(handle.ops["initialized"], 0) for handle in handles]


def _frees(moves: Iterable[_Move]) -> list[Any]:
    return [move.source.ops["free"] for move in moves]


def _helpers(handle: Handle, node: Node, prefix: str, graph: Any) -> dict[str, str]:
    """Ops "initialized" (is there a value?) and "free" of a handle; role -> name."""
    base = f"{prefix}/h{len(graph.node)}"
    dtype = node.proto.attr["dtype"].type
    initialized = _node(graph, f"{base}/initialized", "IsVariableInitialized" if handle.is_ref else "VarIsInitializedOp",
                        [handle.name], handle.device)  # fmt: skip
    if not handle.is_ref:
        _node(graph, f"{base}/free", "DestroyResourceOp", [handle.name], handle.device)
        return {"initialized": f"{base}/initialized", "free": f"{base}/free"}
    initialized.attr["dtype"].type = dtype
    empty = _node(graph, f"{base}/empty", "Const", [], handle.device)
    empty.attr["dtype"].type = dtype
    empty.attr["value"].tensor.dtype = dtype
    empty.attr["value"].tensor.tensor_shape.dim.add().size = 0
    _assign(graph, f"{base}/free", handle, f"{base}/empty", dtype)
    return {"initialized": f"{base}/initialized", "free": f"{base}/free"}


def _assignment(source: Handle, target: Handle, node: Node, base: str, graph: Any) -> str:
    dtype = node.proto.attr["dtype"].type
    name = f"{base}{len(graph.node)}"
    if source.is_ref:
        _assign(graph, name, target, source.name, dtype)
        return name
    read = _node(graph, f"{name}/read", "ReadVariableOp", [source.name], source.device)
    read.attr["dtype"].type = dtype
    assign = _node(graph, name, "AssignVariableOp", [target.name, f"{name}/read"], target.device)
    assign.attr["dtype"].type = dtype
    return name


def _assign(graph: Any, name: str, target: Handle, value: str, dtype: int) -> None:
    made = _node(graph, name, "Assign", [target.name, value], target.device)
    made.attr["T"].type = dtype
    made.attr["validate_shape"].b = False
    made.attr["use_locking"].b = True


def _node(graph: Any, name: str, op: str, inputs: list[str], device: str) -> node_def_pb2.NodeDef:
    made = graph.node.add()
    made.name, made.op, made.device = name, op, device
    made.input.extend(inputs)
    return made
