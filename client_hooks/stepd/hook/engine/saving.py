"""The old session's half of a restart: what its state is. Variables are read some at a time, tables and iterators go to the disk.

Where all state is variables that ops of the program read, no op is made for it: an op that is added to a session makes TensorFlow
place its whole graph again, and no run can begin meanwhile.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import errors

from stepd.hook.engine import capi, epochs, mixtures, state
from stepd.hook.engine.checkpoints import Checkpoint, Item
from stepd.hook.engine.graphview import GraphView, split_input
from stepd.hook.engine.homes import Homes
from stepd.hook.engine.refusals import NotQuietError
from stepd.hook.engine.side import Side, StateChangedError
from stepd.hook.engine.state import Carrier, Inventory

# How many bytes of variables are handed over at once, and in how many parts at most: about so much more memory is needed than the
# two sessions have.
_AT_ONCE, _PARTS = 64 << 20, 16
# How many variables are looked at in one run, but for the parts' sake. A run is built under TensorFlow's lock: 40 ms at 10k ops and
# 0.35 ms for each variable (measured), for which a step waits.
_MOST = 128


class Saving:
    """`variables`: those that have a value, in parts that are read at once; `checkpoint`: all else that is carried.

    Raises TensorFlow's errors and OSError.
    """

    def __init__(self, side: Side, owned: Inventory, homes: Homes, directory: Path) -> None:
        self._side = side
        self._flags: list[Sequence[Any]] = []
        self._initialized: list[list[Any]] = []
        self._absent: dict[str, Any] = {}  # tables and iterators without a value, and the ops that would read them
        self._save: list[Any] = []
        self._shuffles, self._mixes = 0, False
        self.checkpoint = Checkpoint(directory, [])
        self._readers = _own_readers(side, owned, homes)
        self.variables = self._parts()
        if not self.variables or not self._all_have_values():
            self._make_readers(owned, homes, directory)
            self.variables = self._parts()
        for names in self.variables:
            side.build(self._outputs(names))

    def _parts(self) -> list[list[str]]:
        return _in_parts({name: state.variable_bytes(self._side.view.nodes[name]) for name in self._readers})

    def _all_have_values(self) -> bool:
        """Whether every variable can be read. A direct session hands out its very memory, and what reads it is built then; from a
        master the values would have to travel."""
        side = self._side
        try:
            for names in self.variables:
                outputs = self._outputs(names)
                if side.ahead.direct:
                    side.run(outputs)
                else:
                    side.run(targets=[output.oper for output in outputs])
        except errors.FailedPreconditionError:
            return False
        return True

    def _outputs(self, names: Collection[str]) -> list[Any]:
        return [self._readers[name] for name in names]

    def _make_readers(self, owned: Inventory, homes: Homes, directory: Path) -> None:
        side, carrier = self._side, Carrier(self._side.prefix)
        variables, probes = self._variable_readers(carrier, owned.variables, homes)
        others = self._other_readers(carrier, owned)
        made = side.take_in(carrier)
        self._flags = _batches([capi.output(made[probe], 0) for probe in probes])
        self._initialized = [side.run(flags) for flags in self._flags]
        has_value = dict(zip(owned.variables, itertools.chain(*self._initialized), strict=True))
        self._readers = {name: capi.output(made[reader], 0) for name, reader in variables.items() if has_value[name]}
        operations = {name: made[split_input(tensor)[0]] for name, (tensor, _) in others.items()}
        there = self._there(operations)
        self._absent = {name: operation for name, operation in operations.items() if name not in there}
        self.checkpoint = Checkpoint(directory, [Item(name, dtype) for name, (_, dtype) in others.items() if name in there])
        makers = {f"iterator/{name}": (name, maker) for name, maker in owned.iterators.items()}
        self._shuffles = sum(epochs.shuffles(side.view, *makers[name]) for name in there & makers.keys())
        self._mixes = bool(there & makers.keys()) and mixtures.mixes(side.view)
        self._save = self._saver({name: others[name][0] for name in others if name in there}, made)
        side.build(targets=self._save)

    def _variable_readers(self, carrier: Carrier, names: Collection[str], homes: Homes) -> tuple[dict[str, str], list[str]]:
        """Variable -> the op that has its value; the ops that say whether there is one."""
        side = self._side
        readers, probes = {}, []
        for i, name in enumerate(names):
            node = side.view.nodes[name]
            handle = homes.current(name)
            here = side.add(handle.name, handle.operation) if handle else side.user(name)
            dtype = state.value_type(node)
            if node.op == "VarHandleOp":
                read = carrier.node(f"v{i}", "ReadVariableOp", [here], dtype=dtype)
                probe = carrier.node(f"v{i}/is", "VarIsInitializedOp", [here])
            else:
                read = carrier.node(f"v{i}", "Identity", [here], T=dtype)
                probe = carrier.node(f"v{i}/is", "IsVariableInitialized", [here], dtype=dtype)
            readers[name] = carrier.seen_as(f"v{i}/plain", str(read.name), dtype, state.QUANTIZED.get(dtype, dtype))
            probes.append(str(probe.name))
        return readers, probes

    def _other_readers(self, carrier: Carrier, owned: Inventory) -> dict[str, tuple[str, int]]:
        """Name in the checkpoint -> (tensor, type), of tables and iterators."""
        side, prefix = self._side, self._side.prefix
        tensors: dict[str, tuple[str, int]] = {}
        for i, name in enumerate(owned.tables):
            attr = side.view.nodes[name].proto.attr
            key, value = attr["key_dtype"].type, attr["value_dtype"].type
            carrier.node(f"t{i}", "LookupTableExportV2", [side.user(name)], Tkeys=key, Tvalues=value)
            tensors[f"table/{name}/keys"] = (f"{prefix}/t{i}", key)
            tensors[f"table/{name}/values"] = (f"{prefix}/t{i}:1", value)
        for i, name in enumerate(owned.iterators):
            carrier.node(f"i{i}", "SerializeIterator", [side.user(name)])
            tensors[f"iterator/{name}"] = (f"{prefix}/i{i}", types_pb2.DT_VARIANT)
        return tensors

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

    def _there(self, others: Mapping[str, Any]) -> set[str]:
        """Which of the tables and iterators are initialized: the others cannot be read."""
        found = set()
        for name, operation in others.items():
            # An uninitialized static table says Aborted.
            with contextlib.suppress(errors.FailedPreconditionError, errors.AbortedError):
                self._side.run(targets=[operation])
                found.add(name)
        return found

    def save(self) -> None:
        """Write the checkpoint; from here on nothing may run in the session. Raises StateChangedError, and NotQuietError at a
        moment at which not all can be written."""
        if [self._side.run(flags) for flags in self._flags] != self._initialized or self._there(self._absent):
            raise StateChangedError("variables were initialized while the restart was prepared")
        if self._save:
            self.checkpoint.begin()
            self._side.run(targets=self._save)
            if self._shuffles and epochs.told(self.checkpoint.partial) < self._shuffles:
                self.checkpoint.remove()
                raise NotQuietError("an iterator is between two epochs, and how it will shuffle the next cannot be carried over")
            if self._mixes and mixtures.some_used_up(self.checkpoint.partial):
                self.checkpoint.remove()
                raise NotQuietError("an iterator mixes data sets, and one that is used up would be waited for after a restart")
            self.checkpoint.complete()

    def read(self, names: Sequence[str]) -> list[Any]:
        """The values of a part of the variables. Raises StateChangedError."""
        try:
            return self._side.run(self._outputs(names))
        except errors.FailedPreconditionError as e:
            raise StateChangedError("a variable lost its value while the restart was prepared") from e


def _in_parts(sizes: Mapping[str, int]) -> list[list[str]]:
    """Variables in few parts, each of a bounded size and number."""
    most = max(_AT_ONCE, sum(sizes.values()) // _PARTS)
    number = _batch(len(sizes))
    parts: list[list[str]] = []
    room = -1
    for name, size in sizes.items():
        if size > room or len(parts[-1]) == number:
            parts.append([])
            room = most
        room -= size
        parts[-1].append(name)
    return parts


def _batches(things: Sequence[Any]) -> list[Sequence[Any]]:
    number = _batch(len(things))
    return [things[i : i + number] for i in range(0, len(things), number)]


def _batch(things: int) -> int:
    return max(_MOST, things // _PARTS)


def _own_readers(side: Side, owned: Inventory, homes: Homes) -> dict[str, Any]:
    """An output that has the value, for every variable; empty when there is other state, or a variable without such an op."""
    if not owned.variables or owned.tables or owned.iterators or owned.queues:
        return {}
    if any(state.value_type(side.view.nodes[name]) in state.QUANTIZED for name in owned.variables):
        return {}
    found = {name: homes.readers.get((name, homes.at.get(name, ""))) or _reader(side, homes, name) for name in owned.variables}
    return found if all(output is not None for output in found.values()) else {}


def _reader(side: Side, homes: Homes, variable: str) -> Any:
    """The program's own op that does nothing but read the variable, while that is where the program has it."""
    if variable in homes.at:
        return None
    view: GraphView = side.view
    node = view.nodes[variable]
    op = "ReadVariableOp" if node.op == "VarHandleOp" else "Identity"
    alone = (view.nodes[name] for name in view.consumers[variable])
    fitting = (user for user in alone if user.op == op and user.inputs == ((variable, 0),))
    for user in itertools.islice(fitting, 1):
        return capi.output(side.mirror.operation(user.name), 0)
    return None
