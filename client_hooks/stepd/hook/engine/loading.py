"""The new session's half of a restart: it takes over the values of variables from memory, tables and iterators from the checkpoint.

All helper ops are made and built ahead, while the old session serves; what is left for the moment in which nothing runs is to run
them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from stepd.hook.engine import capi, state, tables
from stepd.hook.engine.ahead import as_fed
from stepd.hook.engine.checkpoints import Checkpoint
from stepd.hook.engine.homes import Homes
from stepd.hook.engine.side import Side
from stepd.hook.engine.state import Carrier, Inventory

Read = Callable[[Sequence[str]], Sequence[Any]]
"""The values of some variables in the old session."""


class _Part(NamedTuple):
    """Variables that are handed over together: where their values are fed, what assigns them, what reads them afterwards."""

    names: Sequence[str]
    feeds: list[Any]
    assigns: list[Any]
    reads: list[Any]


class Loading:
    """Raises TensorFlow's errors."""

    def __init__(
        self,
        side: Side,
        owned: Inventory,
        variables: Sequence[Sequence[str]],
        checkpoint: Checkpoint,
        homes: Homes,
        moved: Mapping[str, str],
    ) -> None:
        """`variables`: those that have a value, in parts. `moved`: variable -> device, of those that are to be away from home here;
        `homes` has their handles."""
        self._side = side
        self._handles = {name: homes.handle(name, device) for name, device in moved.items()}
        self._makers: list[Any] = []
        self._loads: list[list[Any]] = []
        self._parts: list[_Part] = []
        carrier = Carrier(side.prefix)
        assigns, iterators = self._loaders(carrier, owned, checkpoint) if checkpoint.items else ([], [])
        ops = {name: self._handing(carrier, f"v{i}", name) for i, name in enumerate(itertools.chain(*variables))}
        made = side.take_in(carrier)
        # Each iterator by itself: a run in which one of several cannot go on from its place never ends.
        self._loads = [[made[name] for name in names] for names in (assigns, *([name] for name in iterators)) if names]
        side.build(targets=self._makers)
        for targets in self._loads:
            side.build(targets=targets)
        for names in variables:
            fed, put, read = ([made[name] for name in kind] for kind in zip(*(ops[name] for name in names), strict=True))
            part = _Part(names, [capi.output(op, 0) for op in fed], put, [capi.output(op, 0) for op in read])
            self._parts.append(part)
            homes.readers |= {(name, moved.get(name, "")): output for name, output in zip(names, part.reads, strict=True)}
            side.build(targets=put, feeds=part.feeds)
            side.build(part.reads)

    def _loaders(self, carrier: Carrier, owned: Inventory, checkpoint: Checkpoint) -> tuple[list[str], list[str]]:
        """Ops that put what is in the checkpoint into the session: into tables, and into iterators."""
        side, items = self._side, checkpoint.items
        file = carrier.scalar("file", checkpoint.path)
        where = {}
        at_once = [item for item in items if not item.name.startswith("iterator/")]
        apart = [[item] for item in items if item.name.startswith("iterator/")]
        for k, some in enumerate([at_once, *apart] if at_once else apart):
            names, slices = [item.name for item in some], [""] * len(some)
            inputs = [file, carrier.strings(f"names{k}", names), carrier.strings(f"slices{k}", slices)]
            loaded = carrier.node(f"load{k}", "RestoreV2", inputs, dtypes=[item.dtype for item in some]).name
            where |= {item.name: f"{loaded}:{i}" if i else loaded for i, item in enumerate(some)}
        types = {item.name: item.dtype for item in items}
        filled, iterators = [], []
        for i, (name, dtype) in enumerate(items):
            kind, _, rest = name.partition("/")
            if kind == "iterator":
                made = carrier.node(f"a{i}", "DeserializeIterator", [side.user(rest), where[name]])
                maker = owned.iterators[rest]
                if maker is not None:
                    self._makers.append(side.mirror.operation(maker))
                iterators.append(str(made.name))
            elif rest.endswith("/keys"):
                table = rest.removesuffix("/keys")
                values = f"table/{table}/values"
                pairs, of = (where[name], where[values]), (dtype, types[values])
                filled.append(tables.put(carrier, f"a{i}", side.view.nodes[table].op, side.user(table), pairs, of))
        return filled, iterators

    def _handing(self, carrier: Carrier, here: str, name: str) -> tuple[str, str, str]:
        """The ops to which a variable's value is fed, that assigns it, and that reads it."""
        side, handle = self._side, self._handles.get(name)
        variable = side.add(handle.name, handle.operation) if handle else side.user(name)
        node = side.view.nodes[name]
        dtype = state.value_type(node)
        plain = state.QUANTIZED.get(dtype, dtype)
        fed = carrier.node(f"{here}/value", "Placeholder", [], dtype=plain)
        value = carrier.seen_as(f"{here}/own", str(fed.name), plain, dtype)
        if node.op == "VarHandleOp":
            put = carrier.node(f"{here}/put", "AssignVariableOp", [variable, value], dtype=dtype)
            read = carrier.node(f"{here}/read", "ReadVariableOp", [variable], dtype=dtype)
        else:
            put = carrier.node(f"{here}/put", "Assign", [variable, value], T=dtype)
            put.attr["validate_shape"].b = False
            read = carrier.node(f"{here}/read", "Identity", [variable], T=dtype)
        return str(fed.name), str(put.name), carrier.seen_as(f"{here}/plain", str(read.name), dtype, plain)

    def load(self, read: Read) -> None:
        """Put the state of the checkpoint, which must be complete, and what `read` gives of the variables into the session.

        Raises RuntimeError unless every variable is in the session then, with the very bytes that it had.
        """
        self._side.run(targets=self._makers)
        for targets in self._loads:
            self._side.run(targets=targets)
        for part in self._parts:
            self._hand_over(part, read(part.names))

    def _hand_over(self, part: _Part, values: Sequence[Any]) -> None:
        self._side.run(targets=part.assigns, feeds=dict(zip(part.feeds, values, strict=True)))
        for name, value, found in zip(part.names, values, self._side.run(part.reads), strict=True):
            if not _same(as_fed(found), as_fed(value)):
                raise RuntimeError(f"variable {name} is not in the new session what it was in the old one")


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
