"""Checkpoint and restart: the state of one session, written to disk and read into a new one.

All helper ops are made and built ahead, while the old session serves; what is left for the moment in which nothing runs is to run
them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import errors, tensor_shape
from tensorflow.python.training import py_checkpoint_reader

from stepd.hook.engine import capi, state, tables
from stepd.hook.engine.ahead import Ahead, as_fed
from stepd.hook.engine.checkpoints import Checkpoint, Item
from stepd.hook.engine.graphview import split_input
from stepd.hook.engine.homes import Homes
from stepd.hook.engine.mirror import Mirror
from stepd.hook.engine.state import Carrier, Inventory

_VARIANT = types_pb2.DT_VARIANT
# How much of the state is compared at once: so much more memory is needed than the two sessions have.
_COMPARED_AT_ONCE = 64 << 20


class StateChangedError(Exception):
    """Other things have a value than when the restart was prepared."""


class Side:
    """One of the two sessions, and its mirror."""

    def __init__(self, ahead: Ahead, mirror: Mirror, view: Any, prefix: str) -> None:
        self.ahead = ahead
        self.session = ahead.session
        self.mirror = mirror
        self.view = view
        self.prefix = prefix
        self._outside: dict[str, Any] = {}

    def user(self, name: str) -> str:
        """The mirror's name of a user's op that helpers use."""
        here = self.mirror.name_here(name)
        return self.add(here, self.mirror.operation(name))

    def add(self, here: str, operation: Any) -> str:
        """A node of the mirror that helpers use."""
        self._outside[here] = operation
        return here

    def take_in(self, carrier: Carrier) -> dict[str, Any]:
        """Add the helpers to the mirror and the session: name -> operation."""
        carrier.graph.versions.CopyFrom(self.mirror.user_graph.graph_def_versions)
        used: dict[tuple[str, int], Any] = {}
        for source, index in (split_input(name) for node in carrier.graph.node for name in node.input):
            if source in self._outside:
                used[source, index] = capi.output(self._outside[source], index)
        wanted = [node.name for node in carrier.graph.node]
        made = capi.import_graph_def(self.mirror.graph, carrier.graph.SerializeToString(), used, {}, wanted)
        capi.extend_session(self.session)
        return dict(zip(wanted, made, strict=True))

    def build(self, fetches: Sequence[Any] = (), targets: Sequence[Any] = (), feeds: Sequence[Any] = ()) -> None:
        """Have a run built, without running any of it."""
        if fetches or targets:
            self.ahead.build(feeds, fetches, targets)

    def run(self, fetches: Sequence[Any] = (), targets: Sequence[Any] = (), feeds: Mapping[Any, Any] | None = None) -> list[Any]:
        return self.ahead.run(fetches, targets, feeds)


class Saving:
    """The old session's half. Raises TensorFlow's errors and OSError."""

    def __init__(self, side: Side, owned: Inventory, homes: Homes, directory: Path) -> None:
        self._side = side
        carrier = Carrier(side.prefix)
        tensors, probes = self._readers(carrier, owned, homes)
        made = side.take_in(carrier)
        self._flags = [capi.output(made[probe], 0) for probe in probes.values()]
        self._others = {name: made[split_input(tensors[name][0])[0]] for name in tensors.keys() - probes.keys()}
        self._initialized = side.run(self._flags)
        present = {name for name, flag in zip(probes, self._initialized, strict=True) if flag} | self._there(self._others)
        self._absent = {name: op for name, op in self._others.items() if name not in present}
        self.checkpoint = Checkpoint(directory, [Item(name, dtype) for name, (_, dtype) in tensors.items() if name in present])
        self._save = self._saver({name: tensors[name][0] for name in tensors if name in present}, made)
        side.build(targets=self._save)

    def _readers(self, carrier: Carrier, owned: Inventory, homes: Homes) -> tuple[dict[str, tuple[str, int]], dict[str, str]]:
        """Name in the file -> (tensor, type); name in the file -> the op that says whether there is a value."""
        side, prefix = self._side, self._side.prefix
        tensors: dict[str, tuple[str, int]] = {}
        probes: dict[str, str] = {}
        for i, name in enumerate(owned.variables):
            node = side.view.nodes[name]
            handle = homes.current(name)
            here = side.add(handle.name, handle.operation) if handle else side.user(name)
            dtype = state.value_type(node)
            if node.op == "VarHandleOp":
                carrier.node(f"v{i}", "ReadVariableOp", [here], dtype=dtype)
                probe = carrier.node(f"v{i}/is", "VarIsInitializedOp", [here])
            else:
                carrier.node(f"v{i}", "Identity", [here], T=dtype)
                probe = carrier.node(f"v{i}/is", "IsVariableInitialized", [here], dtype=dtype)
            tensors[f"variable/{name}"] = (f"{prefix}/v{i}", dtype)
            probes[f"variable/{name}"] = str(probe.name)
        for i, name in enumerate(owned.tables):
            attr = side.view.nodes[name].proto.attr
            key, value = attr["key_dtype"].type, attr["value_dtype"].type
            carrier.node(f"t{i}", "LookupTableExportV2", [side.user(name)], Tkeys=key, Tvalues=value)
            tensors[f"table/{name}/keys"] = (f"{prefix}/t{i}", key)
            tensors[f"table/{name}/values"] = (f"{prefix}/t{i}:1", value)
        for i, name in enumerate(owned.iterators):
            carrier.node(f"i{i}", "SerializeIterator", [side.user(name)])
            tensors[f"iterator/{name}"] = (f"{prefix}/i{i}", _VARIANT)
        return tensors, probes

    def _saver(self, tensors: dict[str, str], made: dict[str, Any]) -> list[Any]:
        """The op that writes `tensors`; none when there is nothing to write."""
        if not tensors:
            return []
        side = self._side
        carrier = Carrier(f"{side.prefix}/w")
        for tensor in tensors.values():
            node = split_input(tensor)[0]
            side.add(node, made[node])
        inputs = [carrier.scalar("file", str(self.checkpoint.partial / "state")), carrier.strings("names", list(tensors))]
        inputs.append(carrier.strings("slices", [""] * len(tensors)))
        types = [item.dtype for item in self.checkpoint.items]
        carrier.node("save", "SaveV2", [*inputs, *tensors.values()], dtypes=types)
        return [side.take_in(carrier)[f"{side.prefix}/w/save"]]

    def _there(self, others: dict[str, Any]) -> set[str]:
        """Which of the tables and iterators are initialized: the others cannot be read."""
        found = set()
        for name, operation in others.items():
            # An uninitialized static table says Aborted.
            with contextlib.suppress(errors.FailedPreconditionError, errors.AbortedError):
                self._side.run(targets=[operation])
                found.add(name)
        return found

    def save(self) -> dict[str, Any]:
        """Write the state; nothing may run in the session meanwhile. Returns what it has of it at hand: nothing. Raises
        StateChangedError."""
        if self._side.run(self._flags) != self._initialized or self._there(self._absent):
            raise StateChangedError("variables were initialized while the restart was prepared")
        self.checkpoint.begin()
        self._side.run(targets=self._save)
        self.checkpoint.complete()
        return {}


class Loading:
    """The new session's half. Raises TensorFlow's errors."""

    def __init__(self, side: Side, owned: Inventory, checkpoint: Checkpoint, homes: Homes, moved: Mapping[str, str]) -> None:
        """`moved`: variable -> the device, of those that are to be away from home in this session; `homes` has their handles."""
        self._side = side
        self._handles = {name: homes.handle(name, device) for name, device in moved.items()}
        self._checkpoint = checkpoint
        self._makers: list[Any] = []
        self._loads: list[list[Any]] = []
        self._readers: list[tuple[list[str], list[Any]]] = []
        if not checkpoint.items:
            return
        carrier = Carrier(side.prefix)
        assigns, iterators = self._assigners(carrier, owned)
        readers = self._variable_readers(carrier)
        made = side.take_in(carrier)
        # Each iterator by itself: a run in which one of several cannot go on from its place never ends.
        self._loads = [[made[name] for name in names] for names in (assigns, *([name] for name in iterators)) if names]
        self._readers = [(names, [capi.output(made[f"{side.prefix}/{tensor}"], 0) for tensor in found]) for names, found in readers]
        for names, outputs in self._readers:
            homes.readers |= {(name, moved.get(name, "")): output for name, output in zip(names, outputs, strict=True)}
        side.build(targets=self._makers)
        for targets in self._loads:
            side.build(targets=targets)
        for _, fetches in self._readers:
            side.build(fetches)

    def _assigners(self, carrier: Carrier, owned: Inventory) -> tuple[list[str], list[str]]:
        """Ops that put the state into the session: variables and tables, and iterators."""
        side, items = self._side, self._checkpoint.items
        file = carrier.scalar("file", self._checkpoint.path)
        where = {}
        at_once = [item for item in items if not item.name.startswith("iterator/")]
        apart = [[item] for item in items if item.name.startswith("iterator/")]
        for k, some in enumerate([at_once, *apart] if at_once else apart):
            names, slices = [item.name for item in some], [""] * len(some)
            inputs = [file, carrier.strings(f"names{k}", names), carrier.strings(f"slices{k}", slices)]
            loaded = carrier.node(f"load{k}", "RestoreV2", inputs, dtypes=[item.dtype for item in some]).name
            where |= {item.name: f"{loaded}:{i}" if i else loaded for i, item in enumerate(some)}
        types = {item.name: item.dtype for item in items}
        assigns, iterators = [], []
        for i, (name, dtype) in enumerate(items):
            kind, _, rest = name.partition("/")
            if kind == "variable":
                here = self._variable(rest)
                if side.view.nodes[rest].op == "VarHandleOp":
                    made = carrier.node(f"a{i}", "AssignVariableOp", [here, where[name]], dtype=dtype)
                else:
                    made = carrier.node(f"a{i}", "Assign", [here, where[name]], T=dtype)
                    made.attr["validate_shape"].b = False
                assigns.append(str(made.name))
            elif kind == "iterator":
                made = carrier.node(f"a{i}", "DeserializeIterator", [side.user(rest), where[name]])
                maker = owned.iterators[rest]
                if maker is not None:
                    self._makers.append(side.mirror.operation(maker))
                iterators.append(str(made.name))
            elif rest.endswith("/keys"):
                table = rest.removesuffix("/keys")
                values = f"table/{table}/values"
                pairs, of = (where[name], where[values]), (dtype, types[values])
                assigns.append(tables.put(carrier, f"a{i}", side.view.nodes[table].op, side.user(table), pairs, of))
        return assigns, iterators

    def _variable_readers(self, carrier: Carrier) -> list[tuple[list[str], list[str]]]:
        """Variables and the tensors that read them, in groups of a bounded size."""
        side = self._side
        names = [item.name.removeprefix("variable/") for item in self._checkpoint.items if item.name.startswith("variable/")]
        groups: list[tuple[list[str], list[str]]] = []
        room = 0
        for i, name in enumerate(names):
            node = side.view.nodes[name]
            here, dtype = self._variable(name), state.value_type(node)
            op, key = ("ReadVariableOp", "dtype") if node.op == "VarHandleOp" else ("Identity", "T")
            carrier.node(f"r{i}", op, [here], **{key: dtype})
            size = _bytes(node)
            if size > room:
                groups.append(([], []))
                room = _COMPARED_AT_ONCE
            room -= size
            groups[-1][0].append(name)
            groups[-1][1].append(f"r{i}")
        return groups

    def _variable(self, name: str) -> str:
        handle = self._handles.get(name)
        return self._side.add(handle.name, handle.operation) if handle else self._side.user(name)

    def load(self) -> None:
        """Put the state of the checkpoint, which must be complete, into the session."""
        self._side.run(targets=self._makers)
        for targets in self._loads:
            self._side.run(targets=targets)

    def verify(self, saved: Mapping[str, Any]) -> None:
        """Raise RuntimeError unless every variable of the checkpoint is in the session, with the very bytes that it had. `saved`:
        values by variable; what is not there is read from the checkpoint."""
        if not self._readers:
            return
        reader = py_checkpoint_reader.NewCheckpointReader(self._checkpoint.path)
        for names, fetches in self._readers:
            for name, value in zip(names, self._side.run(fetches), strict=True):
                expected = saved[name] if name in saved else reader.get_tensor(f"variable/{name}")
                if not _same(as_fed(value), as_fed(expected)):
                    raise RuntimeError(f"variable {name} is not in the new session what it was in the old one")


def _bytes(node: Any) -> int:
    """The size of a variable, as far as its declaration says."""
    shape = tensor_shape.TensorShape(node.proto.attr["shape"].shape)
    size = state.item_size(node)
    return size * (shape.num_elements() or 1) if shape.is_fully_defined() else _COMPARED_AT_ONCE


def _same(one: Any, other: Any) -> bool:
    """Whether two values have the same shape, and the same bytes, or strings."""
    one, other = np.asarray(one), np.asarray(other)
    if one.dtype == object or other.dtype == object:
        return np.array_equal(one, other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    flat = [np.ascontiguousarray(value).reshape(-1).view(np.uint8) for value in (one, other)]
    whole = flat[0].size // 8 * 8  # most of it eight bytes at once: an eighth of the memory for the answers
    return np.array_equal(flat[0][whole:], flat[1][whole:]) and np.array_equal(*(v[:whole].view(np.uint64) for v in flat))


def state_bytes(view: Any, variables: Iterable[str]) -> int:
    """Bytes of the variables, by their declarations; one of unknown shape counts as much as is compared at once."""
    return sum(_bytes(view.nodes[name]) for name in variables)
