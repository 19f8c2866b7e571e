"""Data parallelism found in a graph: which ops have the batch in them, and how each is split on it (FastT, section 5.2).

The batch comes in with what is fed, dequeued or drawn from an iterator, or drawn at random for its rows, along axis 0. It is
followed from op to op by their rules; an op that keeps several inputs in parts at once is preferred; weight gradients become terms
of a sum, added once. Where no rule applies the region ends, and begins again behind it. Regions without an op that is worth its
cuts are left whole.

Pure. Nothing here decides whether splitting pays: that is the planner's business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from tensorflow.core.framework import types_pb2

from stepd.hook.engine import graphview, op_defs
from stepd.hook.rewrite import table
from stepd.hook.rewrite.facts import Facts
from stepd.hook.rewrite.slots import Held, Symbol, Way, is_multiple

Tensor = tuple[str, int]
_SOURCES = ("Placeholder", "IteratorGetNext", "QueueDequeue", "Unstage", "MapUnstage", "OrderedMapUnstage", "PyFunc", "EagerPyFunc")
_DRAWN = ("RandomStandardNormal", "RandomUniform", "RandomUniformInt", "TruncatedNormal")
_NO_DATA = (types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT, types_pb2.DT_STRING)


@dataclass
class Regions:
    """`ways`: how each op of a region is split, and with which grain; `region_of`: its region's number."""

    ways: dict[str, tuple[Way, int]] = field(default_factory=dict)
    region_of: dict[str, int] = field(default_factory=dict)


def batch_regions(facts: Facts, excluded: Collection[str] = ()) -> Regions:
    """The regions of a graph that can be split on the batch axis. `excluded`: ops that must stay whole."""
    following = _Following(facts, frozenset(excluded))
    for name in facts.order:
        following.visit(name)
    for name in reversed(facts.order):
        following.pull(name)
    return following.worthwhile()


class _Following:
    """Follows the batch through a graph, in topological order.

    `parts`: tensors that are there in parts. `along`: whole tensors that are known to hold the batch, and on which axis.
    """

    def __init__(self, facts: Facts, excluded: frozenset[str]) -> None:
        self._facts = facts
        self._excluded = excluded
        self._ways: dict[str, Way] = {}
        self._grains: dict[str, int] = {}
        self._joins = graphview.Union()
        self._parts: dict[Tensor, Held] = {}
        self._along: dict[Tensor, Held] = {}
        self._size = _batch_size(facts)

    def visit(self, name: str) -> None:
        facts, node = self._facts, self._facts.view.nodes[name]
        drawn = node.op in _DRAWN and self._is_drawn_by_row(name)
        if drawn or node.op.startswith(_SOURCES):
            for index, dtype in enumerate(op_defs.output_types(node.proto)):
                dims = facts.dims(name, index)
                if dims and dtype not in _NO_DATA and (isinstance(dims[0], Symbol) or dims[0] == self._size):
                    self._along[name, index] = Held("cut", 0, 1)
            return
        found = self._best(name)
        if found is None:
            self._pass_on(name)
            return
        way, grain = found
        outputs = [slot.held(grain) for slot in way.outputs]
        if not way.usable or name in self._excluded:
            for index, held in enumerate(outputs):
                if held.kind in ("cut", "sizes"):
                    self._along[name, index] = held
            return
        self._ways[name], self._grains[name] = way, grain
        self._joins.add(name)
        for index, held in enumerate(outputs):
            self._parts[name, index] = held
        for slot, tensor in zip(way.inputs, facts.data_inputs(name), strict=True):
            if slot.kind != "whole" and self._parts.get(tensor) == slot.held(grain):
                self._joins.join(tensor[0], name)

    def _is_drawn_by_row(self, name: str) -> bool:
        """Whether a random op makes something of several dimensions for every row of the batch, of a size that is known: noise that
        a generator begins with. Where the size comes with what is fed, the op's rule follows it."""
        dims = self._facts.dims(name, 0)
        return dims is not None and len(dims) > 1 and dims[0] == self._size > 0

    def _best(self, name: str) -> tuple[Way, int] | None:
        """The way that keeps most of the inputs that hold the batch in parts, and the grain that it has then."""
        inputs = self._facts.data_inputs(name)
        best: tuple[Way, int] | None = None
        most = (False, 0, 0)
        for way in self._facts.ways(name).values():
            grain, kept, cuts = self._fit(way, inputs)
            rank = (way.usable, kept, -cuts)
            if grain and kept and (best is None or rank > most):
                best, most = (way, grain), rank
        return best

    def _fit(self, way: Way, inputs: tuple[Tensor, ...]) -> tuple[int, int, int]:
        """(grain, inputs that the way takes as they are there, inputs that it has to cut); grain 0: it does not fit."""
        grain = kept = cuts = 0
        for slot, tensor in zip(way.inputs, inputs, strict=True):
            parts = self._parts.get(tensor)
            held = parts or self._along.get(tensor)
            if slot.kind == "whole":
                if parts is not None and parts.kind not in ("sizes", "first"):
                    return 0, 0, 0  # would have to be joined
                continue
            if held is None:
                if slot.kind in ("partial", "opaque"):
                    return 0, 0, 0
                cuts += 1
                continue
            own = slot.grain_of(held)
            if own is None or (grain and slot.kind in ("cut", "sizes") and own != grain) or own % way.least_grain:
                return 0, 0, 0
            if slot.kind in ("cut", "sizes"):
                grain = own
            kept += 1
        return grain or 1, kept, cuts

    def _pass_on(self, name: str) -> None:
        """An op without a rule that fits: outputs with the leading size of an input along the batch are taken to be so too."""
        facts = self._facts
        for tensor in facts.data_inputs(name):
            held = self._parts.get(tensor) or self._along.get(tensor)
            dims = facts.dims(*tensor)
            if held is None or held.kind != "cut" or dims is None:
                continue
            for index, dtype in enumerate(op_defs.output_types(facts.view.nodes[name].proto)):
                own = facts.dims(name, index)
                if own is None or dtype in _NO_DATA or held.axis >= min(len(own), len(dims)):
                    continue
                here, there = own[held.axis], dims[held.axis]
                if here == there or (isinstance(here, Symbol) and isinstance(there, Symbol)):
                    grain = held.grain if is_multiple(here, held.grain) else 1
                    self._along.setdefault((name, index), held._replace(grain=grain))

    def pull(self, name: str) -> None:
        """Take an op into the regions that read it, when they all cut what it makes: so that its inputs, often smaller, are cut."""
        facts = self._facts
        if name in self._ways or name in self._excluded or facts.view.nodes[name].op not in table.PULLED:
            return
        wanted = set()
        readers = [r for r in dict.fromkeys(facts.view.consumers[name]) if name in {s for s, _ in facts.data_inputs(r)}]
        for reader in readers:
            way = self._ways.get(reader)
            if way is None:
                return
            slots = [s for s, tensor in zip(way.inputs, facts.data_inputs(reader), strict=True) if tensor == (name, 0)]
            if any(slot.kind != "cut" for slot in slots):
                return
            wanted |= {slot.held(self._grains[reader]) for slot in slots}
        if len(wanted) != 1:
            return
        held = wanted.pop()
        for way in facts.ways(name).values():
            grain = way.outputs[0].grain_of(held)
            kept_whole = all(self._parts.get(t) is None for t in facts.data_inputs(name))
            if way.usable and grain and grain % way.least_grain == 0 and kept_whole:
                self._ways[name], self._grains[name] = way, grain
                self._parts[name, 0] = held
                for reader in readers:
                    self._joins.join(reader, name)
                return

    def worthwhile(self) -> Regions:
        """Regions that hold an op whose work is worth cutting for."""
        regions = Regions()
        for number, names in enumerate(self._joins.sets()):
            if any(self._facts.view.nodes[name].op in table.HEAVY for name in names):
                for name in names:
                    regions.ways[name] = self._ways[name], self._grains[name]
                    regions.region_of[name] = number
        return regions


def _batch_size(facts: Facts) -> int:
    """The leading size that most of what comes in has, where it is known before run time; 0 when it never is."""
    seen: Counter[int] = Counter()
    for name in facts.order:
        node = facts.view.nodes[name]
        if node.op.startswith(_SOURCES):
            for index in range(len(op_defs.output_types(node.proto))):
                dims = facts.dims(name, index)
                if dims and isinstance(dims[0], int) and dims[0] > 1:
                    seen[dims[0]] += 1
    return max(seen, key=lambda size: (seen[size], size), default=0)
