"""State of a session that a restart carries over: what there is, what cannot be carried, and the ops that save and restore it.

Pure: GraphView in, NodeDefs out. The checkpoint is TensorFlow's own format (SaveV2), so that any TensorFlow can read it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensorflow.core.framework import graph_pb2, node_def_pb2, types_pb2
from tensorflow.python.framework import dtypes, tensor_shape

from stepd.hook.engine import graphview, op_defs, owned, queues, remaking, rules
from stepd.hook.engine.classify import shared_reason, state_inside
from stepd.hook.engine.draws import History, replayable
from stepd.hook.engine.graphview import GraphView
from stepd.hook.order.steps import executed

MUTABLE_TABLES = frozenset({"MutableHashTableV2", "MutableHashTableOfTensorsV2", "MutableDenseHashTableV2"})
_EMPTIES = frozenset({"LookupTableRemoveV2", "LookupTableImportV2"})
_TELLING = frozenset({"AsString", "Print", "PrintV2", "StringFormat"})
_STATELESS_SOURCES = frozenset({"Placeholder", "PlaceholderV2", "PlaceholderWithDefault"})
_IN_PROCESS = frozenset({"PyFunc", "EagerPyFunc", "PyFuncStateless", "GeneratorDataset"})
# Data sets that write files as they go. Where they are in those goes with the old session, or becomes other files in the new one.
_CACHES = frozenset({"CacheDataset", "CacheDatasetV2"})  # into a file where they name one, else into memory
# They leave out a line where they go on from, or take the first for a record, as in TensorFlow's own savers. Input 3: is there any?
_WITH_HEADERS = frozenset({"CSVDataset", "CSVDatasetV2", "ExperimentalCSVDataset"})
_WRITERS = frozenset({"SnapshotDataset", "SnapshotDatasetV2", "SaveDataset", "SaveDatasetV2"})


@dataclass(frozen=True)
class Inventory:
    """User ops that own state, by kind; `obstacles`: why the session cannot be restarted (empty: it can).

    `iterators`: iterator -> the MakeIterator op that made it, None for one-shot ones.
    `draws`: random ops, and how often a new session must run them for their streams to be where they were.
    """

    variables: tuple[str, ...]
    tables: tuple[str, ...]
    iterators: Mapping[str, str | None]
    queues: tuple[str, ...]
    obstacles: tuple[str, ...]
    draws: Mapping[str, int]


def inventory(view: GraphView, history: History | None = None) -> Inventory:
    """What a restart would have to carry, of a session that has run `history`. An op that never ran has no state."""
    draws = replayable(view, history)
    ran = None if history is None else may_have_run(view, history)
    variables, tables, carried, obstacles = [], [], [], []
    iterators: dict[str, str | None] = {}
    for node in view.nodes.values():
        if ran is not None and node.name not in ran:
            continue
        if node.op in rules.VARIABLES:
            variables.append(node.name)
            if node.proto.attr["dtype"].type in (types_pb2.DT_VARIANT, types_pb2.DT_RESOURCE):
                obstacles.append(f"{node.name} holds handles")
        elif node.op in remaking.TABLES or node.op in MUTABLE_TABLES:
            tables.append(node.name)
            obstacles += _table_obstacles(view, node, ran)
        elif node.op in remaking.ITERATORS:
            makers = _makers(view, node.name, ran)
            iterators[node.name] = makers[0] if makers else None
            obstacles += _iterator_obstacles(view, node.name, makers, history)
        elif queues.carriable(node):
            carried.append(node.name)
        elif node.op == "IteratorToStringHandle":  # in another session a one-shot iterator has another name
            obstacles.append(f"{node.name} has told the program by which name the session knows an iterator")
        elif "Dataset" in node.op:
            obstacles += _dataset_obstacles(view, node)
        elif node.op not in _STATELESS_SOURCES and node.name not in draws and (why := shared_reason(view, node)):
            obstacles.append(f"{node.name} ({node.op}): {why}")
    for name in (*variables, *tables, *iterators, *carried):
        if view.nodes[name].inputs and (other := remaking.needs(view, name)):
            obstacles.append(f"{name} ({view.nodes[name].op}) is made after {other}, which runs whenever its state is looked at")
    obstacles += [why for name in (*tables, *iterators, *carried) if (why := _number_told(view, name))]
    calls = owned.variables_in_functions(view, variables, ran)
    obstacles += [f"{name} calls a function with a variable that is nowhere else" for name in calls]
    return Inventory(tuple(variables), tuple(tables), iterators, tuple(carried), tuple(obstacles), draws)


def may_have_run(view: GraphView, history: History) -> set[str]:
    """Every op that may have run."""
    ran: set[str] = set()
    for kind in history.runs:
        ran |= executed(view, kind)
    ends = {graphview.split_input(n)[0] for kind in history.uncertain for n in (*kind.fetches, *kind.targets)}
    return ran | view.ancestors(ends & view.nodes.keys())


def _number_told(view: GraphView, name: str) -> str:
    """A handle as text has the number of what bears no name; another session would have another one."""
    bears_none = graphview.name_of_state(view.nodes[name].proto)[1].startswith(graphview.UNNAMED)
    if bears_none and any(view.nodes[use.by].op in _TELLING for use in owned.uses(view, name)):
        return f"the program may be told by which number the session knows {name}"
    return ""


def _iterator_obstacles(view: GraphView, name: str, makers: Sequence[str], history: History | None) -> list[str]:
    if len(makers) > 1:
        return [f"iterator {name} can be made from {len(makers)} data sets, and which one it has is not known"]
    if any(view.nodes[maker].op != "MakeIterator" or maker not in view.consumers[name] for maker in makers):
        return [
            f"iterator {name} is made in a condition or a function, or by another op of its name: of which data set is not known"
        ]
    kinds = () if history is None else (*history.runs, *history.uncertain)
    fed = {graphview.split_input(feed)[0] for kind in kinds for feed in kind.feeds}
    given = remaking.made_otherwise(view, name, makers, fed)
    if given:
        return [f"iterator {name} was made with what {given} was then, which is not known any more"]
    return _dataset_obstacles(view, view.nodes[name])


def _table_obstacles(view: GraphView, node: graphview.Node, ran: Collection[str] | None) -> list[str]:
    """A table that never changes hashes by a number of its own. One that does keeps the buckets that it had when it was larger."""
    done, may_do = ({use.op for use in owned.uses(view, node.name, among)} for among in (ran, None))
    if node.op in MUTABLE_TABLES:  # whether it has been read or not: where it is read later counts as well
        if done.isdisjoint(_EMPTIES) or "LookupTableExportV2" not in may_do:
            return []
    elif "LookupTableExportV2" not in done:
        return []
    return [f"the program reads the pairs of table {node.name} in an order that another session's would not have"]


def _makers(view: GraphView, iterator: str, ran: Collection[str] | None) -> list[str]:
    return list(dict.fromkeys(use.by for use in owned.uses(view, iterator, ran) if use.op == "MakeIterator"))


def _dataset_obstacles(view: GraphView, node: graphview.Node) -> list[str]:
    if node.op in _IN_PROCESS:
        return [f"{node.name} ({node.op}) holds a Python generator"]
    if _writes(node.proto, lambda name: view.nodes[name].proto):
        return [f"{node.name} ({node.op}) writes files"]
    if _has_header(node.proto, lambda name: view.nodes[name].proto):
        return [f"{node.name} ({node.op}) skips headers, and would not go on from where it was"]
    if read := remaking.parts_made_otherwise(view, node):
        return [f"{node.name} ({node.op}) may make the part of a data set that it is in again, with what {read} is then"]
    for body in view.bodies(node.proto):
        inners = {inner.name: inner for inner in body.node_def}
        for inner in body.node_def:
            if _writes(inner, inners.get):
                return [f"{node.name} calls {inner.op}, which writes files"]
            if _has_header(inner, inners.get):
                return [f"{node.name} calls {inner.op}, which skips headers, and would not go on from where it was"]
            seeded = "seed" in inner.attr and op_defs.is_stateful(inner.op)
            if inner.op in _IN_PROCESS or seeded:
                return [f"{node.name} calls {inner.op}, whose state is not known"]
            known = op_defs.op_def(inner.op) is not None and not op_defs.function_attrs(inner.op)
            if known and inner.op not in rules.VARIABLES and (why := state_inside(inner)):
                return [f"{node.name} calls {inner.op}: {why}"]
    return []


def _has_header(node: Any, find: Callable[[str], Any]) -> bool:
    """May this data set skip the first line of each file? `find` as below."""
    if node.op not in _WITH_HEADERS:
        return False
    given = find(node.input[3].partition(":")[0])
    return given is None or given.op != "Const" or any(given.attr["value"].tensor.bool_val)


def _writes(node: Any, find: Callable[[str], Any]) -> bool:
    """Does this data set write files? `find` gives the node of a name where it is known."""
    if node.op not in _CACHES:
        return node.op in _WRITERS
    name = find(node.input[1].partition(":")[0])
    return name is None or name.op != "Const" or any(name.attr["value"].tensor.string_val)


QUANTIZED = {
    types_pb2.DT_QINT8: types_pb2.DT_INT8,
    types_pb2.DT_QUINT8: types_pb2.DT_UINT8,
    types_pb2.DT_QINT16: types_pb2.DT_INT16,
    types_pb2.DT_QUINT16: types_pb2.DT_UINT16,
    types_pb2.DT_QINT32: types_pb2.DT_INT32,
}
"""Types whose values a run returns as those of another type, as which alone it is fed them."""


class Carrier:
    """Builds the ops that take state out of one session and put it into another. `here`: node of a user op in the mirror."""

    def __init__(self, prefix: str) -> None:
        self.graph = graph_pb2.GraphDef()
        self._prefix = prefix

    def node(self, name: str, op: str, inputs: list[str], **types: Any) -> node_def_pb2.NodeDef:
        made = self.graph.node.add()
        made.name, made.op = f"{self._prefix}/{name}", op
        made.input.extend(inputs)
        for key, value in types.items():
            if isinstance(value, list):
                made.attr[key].list.type.extend(value)
            else:
                made.attr[key].type = value
        return made

    def seen_as(self, name: str, tensor: str, dtype: int, seen: int) -> str:
        """The same bytes as values of type `seen`."""
        return tensor if seen == dtype else str(self.node(name, "Bitcast", [tensor], T=dtype, type=seen).name)

    def strings(self, name: str, values: list[str]) -> str:
        made = self.node(name, "Const", [], dtype=types_pb2.DT_STRING)
        tensor = made.attr["value"].tensor
        tensor.dtype = types_pb2.DT_STRING
        tensor.tensor_shape.dim.add().size = len(values)
        tensor.string_val.extend(v.encode() for v in values)
        return str(made.name)

    def scalar(self, name: str, value: str) -> str:
        made = self.node(name, "Const", [], dtype=types_pb2.DT_STRING)
        made.attr["value"].tensor.dtype = types_pb2.DT_STRING
        made.attr["value"].tensor.tensor_shape.SetInParent()
        made.attr["value"].tensor.string_val.append(value.encode())
        return str(made.name)


def value_type(node: graphview.Node) -> int:
    return int(node.proto.attr["dtype"].type)


def item_size(node: graphview.Node) -> int:
    """Bytes of one item of a variable; strings count as one."""
    return max(1, int(dtypes.as_dtype(value_type(node)).size or 1))


def variable_bytes(node: graphview.Node) -> int:
    """The size of a variable, as far as its declaration says; 64 MiB where it does not say."""
    shape = tensor_shape.TensorShape(node.proto.attr["shape"].shape)
    return item_size(node) * (shape.num_elements() or 1) if shape.is_fully_defined() else 64 << 20
