"""The old session's half of a restart when all its state is variables: read by ops that it has already, written by the new session.

An op that is added to a session makes TensorFlow place its whole graph again, and no run can begin meanwhile; here none is added.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorflow.python.framework import errors

from stepd.hook.engine import capi, state
from stepd.hook.engine.checkpoints import Checkpoint, Item
from stepd.hook.engine.graphview import GraphView
from stepd.hook.engine.homes import Homes
from stepd.hook.engine.restart import Side, StateChangedError
from stepd.hook.engine.state import Carrier, Inventory


class DirectSaving:
    """Saves variables without a new op in their session. `old` has them; `new` writes them to the disk."""

    def __init__(self, old: Side, new: Side, readers: Mapping[str, Any], directory: Path) -> None:
        """`readers`: variable -> the output in the old session that has its value."""
        self._old = old
        self._new = new
        self._names = list(readers)
        self._fetches = list(readers.values())
        types = [state.value_type(old.view.nodes[name]) for name in readers]
        self.checkpoint = Checkpoint(directory, [Item(f"variable/{n}", t) for n, t in zip(readers, types, strict=True)])
        carrier = Carrier(f"{new.prefix}/w")
        values = [carrier.node(f"p{i}", "Placeholder", [], dtype=dtype) for i, dtype in enumerate(types)]
        inputs = [carrier.scalar("file", str(self.checkpoint.partial / "state"))]
        inputs.append(carrier.strings("names", [item.name for item in self.checkpoint.items]))
        inputs.append(carrier.strings("slices", [""] * len(values)))
        carrier.node("save", "SaveV2", [*inputs, *(str(node.name) for node in values)], dtypes=types)
        made = new.take_in(carrier)
        self._feeds = [capi.output(made[str(node.name)], 0) for node in values]
        self._save = [made[f"{new.prefix}/w/save"]]
        new.build(targets=self._save, feeds=self._feeds)

    def save(self) -> dict[str, Any]:
        """Write the state; nothing may run in the old session meanwhile. Returns the values, by variable. Raises
        StateChangedError."""
        try:
            values = self._old.run(self._fetches)
        except errors.FailedPreconditionError as e:
            raise StateChangedError("a variable lost its value while the restart was prepared") from e
        self.checkpoint.begin()
        self._new.run(targets=self._save, feeds=dict(zip(self._feeds, values, strict=True)))
        self.checkpoint.complete()
        return dict(zip(self._names, values, strict=True))


def readers_of(old: Side, owned: Inventory, homes: Homes) -> dict[str, Any]:
    """An output that has the value, for every variable; empty when there is other state, or not every variable has one."""
    if not owned.variables or owned.tables or owned.iterators or owned.queues:
        return {}
    found = {name: homes.readers.get((name, homes.at.get(name, ""))) or _reader(old, homes, name) for name in owned.variables}
    if any(output is None for output in found.values()):
        return {}
    try:
        old.run(list(found.values()))
    except errors.FailedPreconditionError:  # not all are initialized
        return {}
    return found


def _reader(old: Side, homes: Homes, variable: str) -> Any:
    """The program's own op that does nothing but read the variable, while that is where the program has it."""
    if variable in homes.at:
        return None
    view: GraphView = old.view
    node = view.nodes[variable]
    op = "ReadVariableOp" if node.op == "VarHandleOp" else "Identity"
    alone = (view.nodes[name] for name in view.consumers[variable])
    fitting = (user for user in alone if user.op == op and user.inputs == ((variable, 0),))
    for user in itertools.islice(fitting, 1):
        return capi.output(old.mirror.operation(user.name), 0)
    return None
