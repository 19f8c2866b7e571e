"""What is split, resolved: from a strategy's words to one way, grain, share and device list for every split op.

Pure. It must not know how NodeDefs are made.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from stepd.hook.model import Split
from stepd.hook.rewrite.facts import Facts
from stepd.hook.rewrite.nodes import pieces
from stepd.hook.rewrite.slots import Held, UncuttableError, Way, is_multiple
from stepd.hook.rewrite.sums import slices_of

BATCH = "batch"
# Shares are turned into whole numbers of this many.
_SHARES = 10_000


@dataclass(frozen=True)
class Chosen:
    """One split op. `bounds`: parts + 1 whole numbers from 0; part k has bounds[k] to bounds[k + 1] of bounds[-1]. `devices`: one a
    part, or none for the op's own device. `into`: how terms of sums are added up, see Split."""

    way: Way
    grain: int
    bounds: tuple[int, ...]
    devices: tuple[str, ...] = ()
    into: tuple[int, ...] = ()

    @property
    def parts(self) -> int:
        return len(self.bounds) - 1

    def given(self, output: int) -> Held:
        """How the parts hold an output."""
        return self.way.outputs[output].held(self.grain)


def bounds_of(parts: int, weights: Sequence[float] = ()) -> tuple[int, ...]:
    """Where parts begin and end, as whole numbers; equal parts without weights."""
    if not weights:
        return tuple(range(parts + 1))
    total = sum(Fraction(w).limit_denominator(_SHARES) for w in weights)
    bounds, reached = [0], Fraction(0)
    for weight in weights:
        reached += Fraction(weight).limit_denominator(_SHARES)
        bounds.append(round(reached / total * _SHARES))
    bounds[-1] = _SHARES
    return tuple(bounds)


def choose(
    facts: Facts, splits: Sequence[Split], batch: Mapping[str, tuple[Way, int]] | None = None
) -> tuple[dict[str, Chosen], dict[str, str]]:
    """(what is split, why not by op). `batch`: the way and grain that "batch" means for an op, where it means one.

    An op takes the grain of its first input that is cut as it needs it, so that regions stay in parts.
    """
    wanted = {split.op: split for split in splits}
    made: dict[str, Chosen] = {}
    refused: dict[str, str] = {name: "it is not in the graph" for name in wanted if name not in facts.view.nodes}
    for name in facts.order:
        split = wanted.get(name)
        if split is None:
            continue
        try:
            made[name] = _one(facts, split, batch or {}, made)
        except UncuttableError as error:
            refused[name] = str(error)
    _drop_opaque(facts, made, refused)
    return made, refused


def _one(facts: Facts, split: Split, batch: Mapping[str, tuple[Way, int]], made: Mapping[str, Chosen]) -> Chosen:
    node = facts.view.nodes[split.op]
    way, least = batch.get(split.op, (None, 1)) if split.axis == BATCH else (facts.ways(split.op).get(split.axis), 1)
    if way is None or not way.usable:
        offered = sorted(axis for axis, w in facts.ways(split.op).items() if w.usable)
        raise UncuttableError(f"{node.op} cannot be split on {split.axis!r}; its axes are {', '.join(offered) or 'none'}")
    if split.parts < 2 or (way.units and split.parts > way.units):
        raise UncuttableError(f"{node.op} can be split on {split.axis!r} into 2 to {way.units or 'any number of'} parts")
    if len(split.weights) not in (0, split.parts) or len(split.devices) not in (0, split.parts):
        raise UncuttableError(f"{split.parts} parts but {len(split.devices)} devices and {len(split.weights)} weights")
    if any(not w > 0 for w in split.weights):
        raise UncuttableError("every part needs a weight above 0")
    if way.units and min(pieces(way.units, bounds_of(split.parts, split.weights))) == 0:
        raise UncuttableError(f"{node.op} would have parts of nothing: {way.units} shared out by {split.weights or split.parts}")
    if split.into and not way.adds:
        raise UncuttableError(f"parts of {node.op} on {split.axis!r} are joined, not added up: it takes no `into`")
    slices_of(split.into, split.parts)
    chosen = Chosen(way, max(least, way.least_grain), bounds_of(split.parts, split.weights), split.devices, split.into)
    partial = False
    for slot, (source, index) in zip(way.inputs, facts.data_inputs(split.op), strict=True):
        maker = made.get(source)
        together = maker is not None and maker.bounds == chosen.bounds
        if slot.kind in ("partial", "opaque"):
            partial = True
            if maker is None or not together or maker.given(index).kind != slot.kind:
                raise UncuttableError(f"its input {source} is not there in parts")
        elif maker is not None and together and slot.kind != "whole" and not partial:
            grain = slot.grain_of(maker.given(index))
            if grain is not None and grain % way.least_grain == 0:
                most = way.units * way.least_grain // grain
                if not way.units or (most and min(pieces(most, chosen.bounds)) > 0):
                    chosen = replace(chosen, grain=grain)
                    break
    _check_cuts(facts, split, chosen, made)
    return chosen


def _check_cuts(facts: Facts, split: Split, chosen: Chosen, made: Mapping[str, Chosen]) -> None:
    """Refuse to cut a tensor between multiples of a grain that it may not be a multiple of; of its least grain it must be one."""
    if chosen.grain == chosen.way.least_grain:
        return
    for slot, (source, index) in zip(chosen.way.inputs, facts.data_inputs(split.op), strict=True):
        held = slot.held(chosen.grain)
        dims = facts.dims(source, index)
        maker = made.get(source)
        there = maker is not None and maker.bounds == chosen.bounds and maker.given(index) == held
        if held.kind == "cut" and not there and dims is not None and not is_multiple(dims[held.axis], held.grain):
            raise UncuttableError(f"its input {source} may not be a multiple of {held.grain} along axis {held.axis}")


def _drop_opaque(facts: Facts, made: dict[str, Chosen], refused: dict[str, str]) -> None:
    """What cannot be joined must be read by parts only, and what can only be read in parts must be made so."""
    dropped = True
    while dropped:
        dropped = False
        for name, chosen in list(made.items()):
            if "opaque" in {slot.kind for slot in chosen.way.outputs}:
                for reader in facts.view.consumers[name]:
                    for source, index in facts.view.nodes[reader].inputs:
                        sealed = source == name and index >= 0 and chosen.way.outputs[index].kind == "opaque"
                        if sealed and _leads_nowhere(facts, reader):
                            continue
                        if sealed and (reader not in made or made[reader].bounds != chosen.bounds):
                            refused[name] = f"{reader} reads what cannot be joined and is not split alike"
            for slot, (source, _) in zip(chosen.way.inputs, facts.data_inputs(name), strict=True):
                if slot.kind in ("partial", "opaque") and source not in made:
                    refused[name] = f"its input {source} is not there in parts"
            if name in refused:
                del made[name]
                dropped = True


def within(facts: Facts, chosen: Mapping[str, Chosen], names: Collection[str]) -> dict[str, Chosen]:
    """What of `chosen` can be split when only `names` are made anew."""
    made = {name: chosen[name] for name in names if name in chosen}
    _drop_opaque(facts, made, {})
    return made


def _leads_nowhere(facts: Facts, name: str) -> bool:
    """Zeros that the making of gradients leaves behind for outputs without a gradient, and nobody reads."""
    return facts.view.nodes[name].op == "ZerosLike" and not facts.view.consumers[name]
