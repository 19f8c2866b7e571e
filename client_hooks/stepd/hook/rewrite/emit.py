"""The rewriting itself: nodes of a copy in which some ops are to be split -> nodes with parts, cuts and joins.

A split op becomes its parts and, under the op's own name, the join of what they give: whoever reads it, fetches it or waits for it
finds what was there before. Where a part needs what a part of another split op gives, it takes it, and neither join nor cut is
made. Joins and cuts that nobody needs are never run: TensorFlow prunes what no fetch depends on.

Pure. It must not know sessions or strategies; `chosen` says what is split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tensorflow.core.framework import node_def_pb2

from stepd.hook.engine import op_defs
from stepd.hook.rewrite import table
from stepd.hook.rewrite.chosen import Chosen
from stepd.hook.rewrite.empties import guarded
from stepd.hook.rewrite.facts import Facts
from stepd.hook.rewrite.nodes import Maker
from stepd.hook.rewrite.reads import Reads
from stepd.hook.rewrite.slots import Held
from stepd.hook.rewrite.sums import add_up

NodeDef = node_def_pb2.NodeDef
_LARGEST_CONSTANT = 1 << 16


def part_name(name: str, k: int) -> str:
    """The node that is part `k` of the op whose copy is called `name`."""
    return f"{name}-part{k}"


def part_of(name: str) -> str:
    """The copy that the node `name` is a part of; "" for other nodes."""
    whole, found, number = name.rpartition("-part")
    return whole if found and number.isdigit() else ""


def split_nodes(
    facts: Facts,
    copied: Mapping[str, Any],
    chosen: Mapping[str, Chosen],
    mark: str,
    device_of: Callable[[str], str] = lambda name: "",
) -> list[Any]:
    """NodeDefs in place of `copied` (user op -> its NodeDef in the copy), in which the ops of `chosen` are split.

    The nodes that stand for the ops come first, in their order. `mark`: of the copy, in the names of new nodes. `device_of`: where
    an op that is not among `copied` runs.
    """
    return _Rewriting(facts, copied, chosen, mark, device_of).nodes()


class _Rewriting:
    def __init__(
        self,
        facts: Facts,
        copied: Mapping[str, Any],
        chosen: Mapping[str, Chosen],
        mark: str,
        device_of: Callable[[str], str],
    ) -> None:
        self._facts = facts
        self._reads = Reads(facts.view)
        self._mark = mark
        self._copied = copied
        self._chosen = {name: c for name, c in chosen.items() if name in copied}
        self._device_of = device_of
        self._text: dict[tuple[str, int], str] = {}  # how the copy names tensors that it reads
        self._parts: dict[tuple[str, int, Held, tuple[int, ...]], tuple[str, ...]] = {}
        self._joined: dict[tuple[str, int], str] = {}
        self._constants: dict[tuple[str, str], str] = {}
        self._made: list[Any] = []
        self._user_names = {str(node.name): name for name, node in copied.items()}
        self._waiting: dict[tuple[str, int, int, str], str] = {}  # parts of NoOps

    def nodes(self) -> list[Any]:
        for name, node in self._copied.items():
            for (source, index), text in zip(self._facts.view.nodes[name].inputs, node.input, strict=True):
                if index >= 0:
                    self._text[source, index] = text
        for name in self._facts.order:
            if name in self._chosen:
                self._split(name)
        for name, node in self._copied.items():
            if name not in self._chosen:
                self._read_joined(name, node)
                self._made.append(node)
        by_name = {node.name: node for node in self._made}
        standing = [by_name.pop(node.name) for node in self._copied.values()]
        return [*standing, *by_name.values()]

    # -- one split op -------------------------------------------------------------------------------------------------

    def _split(self, name: str) -> None:
        chosen, node = self._chosen[name], self._copied[name]
        taken = [
            self._in_parts(name, source, index, slot.held(chosen.grain), chosen)
            for slot, (source, index) in zip(chosen.way.inputs, self._facts.data_inputs(name), strict=True)
        ]
        parts = []
        for k in range(chosen.parts):
            part = NodeDef()
            part.CopyFrom(node)
            part.name = part_name(node.name, k)
            part.device = self._device(name, k)
            part.attr.pop("_class", None)
            make = Maker(part.name, part.device, self._made)
            inputs = [texts[k] for texts in taken]
            for index, array in chosen.way.constants.items():
                inputs[index] = make.constant(f"input{index}", array)
            part.op = chosen.way.op or part.op
            for attr, numbers in chosen.way.lists.items():
                part.attr[attr].list.i[:] = numbers
            controls = self._waits_of_part(node, k, chosen.parts, part.device)
            part.input[:] = [*inputs, *controls]
            self._made.append(part)
            parts.append(self._guarded(name, part) if self._may_be_empty(name) else part.name)
        if chosen.way.mean:
            parts = self._divided(name, taken[0], parts)
        for index in range(len(op_defs.output_types(node))):
            held = chosen.given(index)
            self._parts[name, index, held, chosen.bounds] = tuple(p if index == 0 else f"{p}:{index}" for p in parts)
        self._represent(name, parts)

    def _may_be_empty(self, name: str) -> bool:
        way = self._chosen[name].way
        return way.units == 0 and self._copied[name].op in table.PADDED_WHEN_EMPTY

    def _guarded(self, name: str, part: Any) -> str:
        facts = self._facts
        taken = [len(facts.dims(*tensor) or ()) for tensor in facts.data_inputs(name)]
        given = [len(facts.dims(name, index) or ()) for index in range(len(op_defs.output_types(part)))]
        return guarded(part, self._chosen[name].way, taken, given, self._made)

    def _divided(self, name: str, values: Sequence[str], sums: Sequence[str]) -> list[str]:
        """Terms of a mean, from sums: divided by how many elements of the whole make one of the result."""
        chosen, node = self._chosen[name], self._copied[name]
        source, index = self._facts.data_inputs(name)[0]
        types = op_defs.output_types(node)
        whole = self._facts.dims(source, index) or ()
        axes = {a % len(whole) for a in (self._facts.value(*self._facts.data_inputs(name)[1]) or ()) if isinstance(a, int)}
        counted = [whole[a] for a in sorted(axes)]
        divided = []
        count = ""
        home = Maker(node.name, node.device, self._made)
        if not all(isinstance(d, int) for d in counted):
            count = home.count(values, sums[0], types[0], [self._device(name, k) for k in range(chosen.parts)])
        for k, part in enumerate(sums):
            make = Maker(part, self._device(name, k), self._made)
            number = 1
            for dim in counted:
                number *= dim if isinstance(dim, int) else 1
            divisor = count or make.number("count", number, types[0])
            divided.append(make.node("mean", "RealDiv", [part, divisor], {"T": types[0]}))
        return divided

    def _represent(self, name: str, parts: Sequence[str]) -> None:
        """Under the op's own name: the join of the only output, or all of them."""
        node = self._copied[name]
        types = op_defs.output_types(node)
        if len(types) == 1:
            self._join(name, 0, named=True)
            return
        for index in range(len(types)):
            self._join(name, index)
        make = Maker(node.name, node.device, self._made)
        make.all_of([self._joined[name, index] for index in range(len(types))], types)

    def _device(self, name: str, k: int) -> str:
        chosen = self._chosen[name]
        return chosen.devices[k] if chosen.devices else str(self._copied[name].device)

    # -- tensors ------------------------------------------------------------------------------------------------------

    def _in_parts(self, name: str, source: str, index: int, held: Held, chosen: Chosen) -> tuple[str, ...]:
        """The names of what each part of op `name` takes of a tensor."""
        maker = self._chosen.get(source)
        if held.kind == "whole" and maker is not None and maker.bounds == chosen.bounds and maker.given(index).kind == "first":
            held = maker.given(index)
        if held.kind == "whole":
            return tuple(self._whole_at(source, index, self._device(name, k)) for k in range(chosen.parts))
        key = (source, index, held, chosen.bounds)
        if key not in self._parts:
            self._parts[key] = self._cut(source, index, held, chosen)
        return self._parts[key]

    def _whole_at(self, source: str, index: int, device: str) -> str:
        """A whole tensor for a part; small constants are made where they are needed, equal reads of a variable sent once."""
        one = self._reads.one_for(source)
        if (one, index) in self._text:
            source = one
        node = self._facts.view.nodes[source]
        own = self._facts.constant(source) if node.op == "Const" else None
        if own is None or own.nbytes > _LARGEST_CONSTANT or not device or own.dtype.kind in "OSU":
            return self._whole(source, index)
        key = (source, device)
        if key not in self._constants:
            place = sum(s == source for s, _ in self._constants)
            made = NodeDef(name=f"{source}-{self._mark}-at{place}", op="Const", device=device)
            made.attr["dtype"].CopyFrom(node.proto.attr["dtype"])
            made.attr["value"].CopyFrom(node.proto.attr["value"])
            self._made.append(made)
            self._constants[key] = made.name
        return self._constants[key]

    def _whole(self, source: str, index: int) -> str:
        if source in self._chosen:
            return self._joined[source, index]
        return self._text[source, index]

    def _cut(self, source: str, index: int, held: Held, chosen: Chosen) -> tuple[str, ...]:
        """Cut a whole tensor where it is made."""
        dtype = op_defs.output_types(self._facts.view.nodes[source].proto)[index] % 100  # of a reference: what it refers to
        dims = self._facts.dims(source, index)
        text = self._whole(source, index)
        near = self._copied.get(source)
        device = near.device if near is not None else self._device_of(source)
        serial = sum(key[:2] == (source, index) for key in self._parts)
        make = Maker(f"{source}-{self._mark}-cut{index}x{serial}", device, self._made)
        if held.kind == "sizes":
            return make.cut_sizes(text, dtype, held, chosen.bounds, dims, self._facts.value(source, index))
        dim = dims[held.axis] if dims is not None and held.axis < len(dims) else None
        return make.cut(text, dtype, held, chosen.bounds, dim if isinstance(dim, int) else None)

    def _join(self, name: str, index: int, named: bool = False) -> None:
        """Make the whole of an output of a split op; under the op's own name when it is the only one."""
        chosen, node = self._chosen[name], self._copied[name]
        held = chosen.given(index)
        parts = self._parts[name, index, held, chosen.bounds]
        types = op_defs.output_types(node)
        make = Maker(f"{node.name}-join{index}", node.device, self._made)
        dims = self._facts.dims(name, index)
        final = node.name if named else f"{node.name}-join{index}"
        if held.kind == "partial":
            devices = [self._device(name, k) for k in range(chosen.parts)]
            add_up(make, final, parts, devices, chosen.into, types[index], dims)
        else:
            make.join(final, parts, types[index], held, len(dims) if dims is not None else None)
        self._joined[name, index] = final

    def _waits_of_part(self, node: Any, k: int, parts: int, device: str) -> list[str]:
        """Control inputs of part `k` of an op: of part k of what the op waits for, so that devices do not wait for each other.

        Split ops have no effects; whoever waits for all parts of this op still waits for all parts of the other.
        """
        waits = (w for text in node.input if text.startswith("^") for w in self._part_waits(text, k, parts, device))
        return list(dict.fromkeys(waits))

    def _part_waits(self, text: str, k: int, parts: int, device: str) -> list[str]:
        """What part `k` waits for in place of one control input. Gradients wait for groups of others: a NoOp has parts as well."""
        source = self._user_names.get(text[1:], "")
        if source in self._chosen:
            waits = self._waits(text)
            return waits[k : k + 1] if len(waits) == parts else waits
        node = self._copied.get(source)
        if node is None or node.op != "NoOp":
            return [text]
        key = (source, k, parts, device)
        if key not in self._waiting:
            inner = self._waits_of_part(node, k, parts, device)
            self._waiting[key] = text[1:]
            if inner != list(node.input):
                serial = len(self._waiting)
                made = NodeDef(name=f"{part_name(node.name, k)}x{serial}", op="NoOp", device=device, input=inner)
                self._made.append(made)
                self._waiting[key] = made.name
        return [f"^{self._waiting[key]}"]

    def _waits(self, text: str) -> list[str]:
        """Control inputs in place of one: of the parts, not of their join."""
        source = self._user_names.get(text[1:], "")
        if source not in self._chosen:
            return [text]
        return [f"^{part_name(text[1:], k)}" for k in range(self._chosen[source].parts)]

    def _read_joined(self, name: str, node: Any) -> None:
        """Give an op that is not split the joined outputs of those that are."""
        inputs: list[str] = []
        for (source, index), text in zip(self._facts.view.nodes[name].inputs, node.input, strict=True):
            if index < 0:
                inputs += self._waits(text)
            else:
                inputs.append(self._whole(source, index) if source in self._chosen else text)
        node.input[:] = inputs
