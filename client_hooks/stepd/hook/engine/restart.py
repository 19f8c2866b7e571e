"""Checkpoint and restart: a new session on a new mirror, with the state of the old one. Also frees what switches have left behind.

The checkpoint lies in a folder of its own in the state directory, in TensorFlow's format, complete or not there at all (it is
written beside and renamed), until the new session has it; after a crash `tf.train.load_checkpoint(FOLDER/"state")` reads it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import errors
from tensorflow.python.training import py_checkpoint_reader

from stepd.hook.engine import capi, state
from stepd.hook.engine.homes import Homes
from stepd.hook.engine.mirror import Mirror
from stepd.hook.engine.state import Carrier, Inventory

_STRING, _INT64, _VARIANT = types_pb2.DT_STRING, types_pb2.DT_INT64, types_pb2.DT_VARIANT


class Checkpoint:
    """State on its way from one session to the next. `items`: (name in the file, DataType number)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.items: list[tuple[str, int]] = []

    @property
    def path(self) -> str:
        return str(self.folder / "state")

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def save(session: Any, mirror: Mirror, view: Any, owned: Inventory, homes: Homes, prefix: str, directory: Path) -> Checkpoint:
    """Write the state of `session`; nothing may run in it meanwhile. Raises TensorFlow's errors and OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    checkpoint = Checkpoint(directory / f"restart-{os.getpid()}-{os.urandom(4).hex()}")
    saver = Carrier(prefix)
    tensors: dict[str, tuple[str, int]] = {}  # name in the file -> (tensor in the mirror, type)
    outside = _Outside(mirror)
    probes: dict[str, str] = {}  # name in the file -> tensor whose run fails when there is nothing to save
    for i, name in enumerate(owned.variables):
        node = view.nodes[name]
        handle = homes.current(name)
        here, operation = (handle.name, handle.operation) if handle else (mirror.name_here(name), mirror.operation(name))
        outside.add(here, operation)
        dtype = state.value_type(node)
        if node.op == "VarHandleOp":
            saver.node(f"v{i}", "ReadVariableOp", [here], dtype=dtype)
            probe = saver.node(f"v{i}/is", "VarIsInitializedOp", [here])
        else:
            saver.node(f"v{i}", "Identity", [here], T=dtype)
            probe = saver.node(f"v{i}/is", "IsVariableInitialized", [here], dtype=dtype)
        tensors[f"variable/{name}"] = (f"{prefix}/v{i}", dtype)
        probes[f"variable/{name}"] = str(probe.name)
    for i, name in enumerate(owned.tables):
        here = outside.user(name)
        attr = view.nodes[name].proto.attr
        key, value = attr["key_dtype"].type, attr["value_dtype"].type
        saver.node(f"t{i}", "LookupTableExportV2", [here], Tkeys=key, Tvalues=value)
        tensors[f"table/{name}/keys"] = (f"{prefix}/t{i}", key)
        tensors[f"table/{name}/values"] = (f"{prefix}/t{i}:1", value)
    for i, name in enumerate(owned.iterators):
        saver.node(f"i{i}", "SerializeIterator", [outside.user(name)])
        tensors[f"iterator/{name}"] = (f"{prefix}/i{i}", _VARIANT)
    made = outside.import_into(mirror, saver, session)
    present = _present(session, made, tensors, probes)
    _write(session, mirror, {name: tensors[name] for name in present}, made, f"{prefix}/w", checkpoint)
    return checkpoint


def _present(session: Any, made: dict[str, Any], tensors: dict[str, tuple[str, int]], probes: dict[str, str]) -> list[str]:
    """What there is to save: variables, tables and iterators that were initialized."""
    names = list(probes)
    flags = capi.run_session(session, None, {}, [capi.output(made[probes[n]], 0) for n in names], [], None) if names else []
    present = [name for name, flag in zip(names, flags, strict=True) if flag]
    for name in tensors.keys() - probes.keys():
        with contextlib.suppress(errors.FailedPreconditionError):
            capi.run_session(session, None, {}, [], [made[tensors[name][0].partition(":")[0]]], None)
            present.append(name)
    return present


def _write(
    session: Any, mirror: Mirror, tensors: dict[str, tuple[str, int]], made: dict[str, Any], prefix: str, checkpoint: Checkpoint
) -> None:
    """Save into a folder beside the final one, flush it to the disk, rename."""
    checkpoint.items = [(name, dtype) for name, (_, dtype) in tensors.items()]
    partial = Path(tempfile.mkdtemp(prefix=checkpoint.folder.name + ".tmp-", dir=checkpoint.folder.parent))
    try:
        if tensors:
            saver, outside = Carrier(prefix), _Outside(mirror)
            for tensor, _ in tensors.values():
                node = tensor.partition(":")[0]
                outside.add(node, made[node])
            inputs = [saver.scalar("file", str(partial / "state")), saver.strings("names", list(tensors))]
            inputs.append(saver.strings("slices", [""] * len(tensors)))
            saver.node("save", "SaveV2", [*inputs, *(t for t, _ in tensors.values())], dtypes=[d for _, d in tensors.values()])
            new = outside.import_into(mirror, saver, session)
            capi.run_session(session, None, {}, [], [new[f"{prefix}/save"]], None)
        for path in [*partial.iterdir(), partial]:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        partial.rename(checkpoint.folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def restore(session: Any, mirror: Mirror, view: Any, checkpoint: Checkpoint, prefix: str) -> None:
    """Put the state into a new session. Raises TensorFlow's errors, RuntimeError when the session has not all of it afterwards."""
    if not checkpoint.items:
        return
    loader, outside = Carrier(prefix), _Outside(mirror)
    names = [name for name, _ in checkpoint.items]
    inputs = [loader.scalar("file", checkpoint.path), loader.strings("names", names), loader.strings("slices", [""] * len(names))]
    loader.node("load", "RestoreV2", inputs, dtypes=[dtype for _, dtype in checkpoint.items])
    where = {name: f"{prefix}/load:{i}" if i else f"{prefix}/load" for i, name in enumerate(names)}
    assigns, makers = [], []
    for i, (name, dtype) in enumerate(checkpoint.items):
        kind, _, rest = name.partition("/")
        if kind == "variable":
            here = outside.user(rest)
            if view.nodes[rest].op == "VarHandleOp":
                made = loader.node(f"a{i}", "AssignVariableOp", [here, where[name]], dtype=dtype)
            else:
                made = loader.node(f"a{i}", "Assign", [here, where[name]], T=dtype)
                made.attr["validate_shape"].b = False
        elif kind == "iterator":
            made = loader.node(f"a{i}", "DeserializeIterator", [outside.user(rest), where[name]])
            maker = state.maker(view, rest)
            if maker is not None:
                makers.append(mirror.operation(maker))
        elif rest.endswith("/keys"):
            table = rest.removesuffix("/keys")
            op = "LookupTableImportV2" if state.is_mutable_table(view.nodes[table]) else "InitializeTableV2"
            value = dict(checkpoint.items)[f"table/{table}/values"]
            types = {"Tin": dtype, "Tout": value} if op == "LookupTableImportV2" else {"Tkey": dtype, "Tval": value}
            made = loader.node(f"a{i}", op, [outside.user(table), where[name], where[f"table/{table}/values"]], **types)
        else:
            continue
        assigns.append(str(made.name))
    new = outside.import_into(mirror, loader, session)
    if makers:
        capi.run_session(session, None, {}, [], makers, None)
    capi.run_session(session, None, {}, [], [new[name] for name in assigns], None)


def draw_again(session: Any, mirror: Mirror, draws: Mapping[str, int]) -> None:
    """Bring the random streams of a new session to where those of the old one are."""
    for times in range(max(draws.values(), default=0)):
        left = [mirror.operation(name) for name, count in draws.items() if count > times]
        capi.run_session(session, None, {}, [], left, None)


def verify(session: Any, mirror: Mirror, view: Any, checkpoint: Checkpoint, prefix: str) -> None:
    """Raise RuntimeError unless every variable of the checkpoint is in `session`, with the checkpoint's very bytes."""
    names = [name.removeprefix("variable/") for name, _ in checkpoint.items if name.startswith("variable/")]
    if not names:
        return
    reader, outside = Carrier(prefix), _Outside(mirror)
    for i, name in enumerate(names):
        here, dtype = outside.user(name), state.value_type(view.nodes[name])
        if view.nodes[name].op == "VarHandleOp":
            reader.node(f"v{i}", "ReadVariableOp", [here], dtype=dtype)
        else:
            reader.node(f"v{i}", "Identity", [here], T=dtype)
    new = outside.import_into(mirror, reader, session)
    saved = py_checkpoint_reader.NewCheckpointReader(checkpoint.path)
    for i, name in enumerate(names):  # one at a time: two copies of one variable are in memory, not of all
        (value,) = capi.run_session(session, None, {}, [capi.output(new[f"{prefix}/v{i}"], 0)], [], None)
        expected = saved.get_tensor(f"variable/{name}")
        same = np.array_equal(value, expected) if value.dtype == object else value.tobytes() == np.asarray(expected).tobytes()
        if not same or value.shape != np.shape(expected):
            raise RuntimeError(f"variable {name} is not in the new session what it was in the old one")


class _Outside:
    """Nodes of the mirror that a batch of helper ops uses."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._operations: dict[str, Any] = {}

    def user(self, name: str) -> str:
        here = self._mirror.name_here(name)
        self._operations[here] = self._mirror.operation(name)
        return here

    def add(self, here: str, operation: Any) -> None:
        self._operations[here] = operation

    def import_into(self, mirror: Mirror, carrier: Carrier, session: Any) -> dict[str, Any]:
        """Add the ops to the mirror and the session: name -> operation."""
        carrier.graph.versions.CopyFrom(mirror.user_graph.graph_def_versions)
        tensors = {(n, k): capi.output(op, k) for n, op in self._operations.items() for k in _indices(carrier, n)}
        wanted = [node.name for node in carrier.graph.node]
        made = capi.import_graph_def(mirror.graph, carrier.graph.SerializeToString(), tensors, {}, wanted)
        capi.extend_session(session)
        return dict(zip(wanted, made, strict=True))


def _indices(carrier: Carrier, name: str) -> Iterable[int]:
    from stepd.hook.engine.graphview import split_input

    return {k for node in carrier.graph.node for source, k in map(split_input, node.input) if source == name}
