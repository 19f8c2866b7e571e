"""Which splits are offered to planners, with the bytes that are cut and joined. Pure.

On the axis "batch", all ops of the regions that can be split on it; on axes of their own, the ops whose work is worth it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tensorflow.python.framework import dtypes

from stepd.hook.engine import op_defs
from stepd.hook.model import SplitOffer
from stepd.hook.rewrite import table
from stepd.hook.rewrite.chosen import BATCH
from stepd.hook.rewrite.facts import Facts
from stepd.hook.rewrite.replicate import Regions
from stepd.hook.rewrite.slots import Way

_MANY = 64
_UNKNOWN = 1


def offers(facts: Facts, regions: Regions, excluded: Collection[str]) -> Iterator[SplitOffer]:
    """Every offer of a graph. `excluded`: ops that must stay whole."""
    for name in facts.order:
        batch = regions.ways.get(name)
        if batch is not None:
            way, grain = batch
            yield _offer(facts, name, BATCH, way, way.units * way.least_grain // grain)
        if name in excluded or facts.view.nodes[name].op not in table.HEAVY:
            continue
        for axis, way in facts.ways(name).items():
            alone = not any(slot.kind in ("partial", "opaque") for slot in way.inputs)
            if way.usable and alone and way.units != 1 and (batch is None or way != batch[0]):
                yield _offer(facts, name, axis, way, way.units)


def _offer(facts: Facts, name: str, axis: str, way: Way, units: int) -> SplitOffer:
    cut: dict[tuple[str, int], int] = {}
    for slot, tensor in zip(way.inputs, facts.data_inputs(name), strict=True):
        if slot.kind == "partial":
            cut[tensor] = -1
        elif slot.kind == "whole":
            cut.setdefault(tensor, 0)
        else:
            cut[tensor] = tensor_bytes(facts, *tensor)
    joined = tuple(tensor_bytes(facts, name, index) for index in range(len(way.outputs)))
    return SplitOffer(name, axis, min(units or _MANY, _MANY), tuple(cut.values()), joined, way.adds)


def tensor_bytes(facts: Facts, name: str, index: int) -> int:
    """Bytes of a tensor; 1 when a dimension is not known."""
    dims = facts.dims(name, index)
    types = op_defs.output_types(facts.view.nodes[name].proto)
    if dims is None or index >= len(types):
        return _UNKNOWN
    size = max(1, dtypes.as_dtype(types[index] % 100).size)
    for dim in dims:
        if not isinstance(dim, int):
            return _UNKNOWN
        size *= dim
    return max(_UNKNOWN, size)
