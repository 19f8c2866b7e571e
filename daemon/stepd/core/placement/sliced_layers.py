"""Layers with large weights cut along the weight instead of the batch, in an otherwise replicated step (tensor parallelism).

A dense layer is three products over a weight W[i, j]: Y = X W, dX = dY W' and dW = X' dY. Cut along j, Y and dW are put together
from pieces and dX is added up; along i, dX and dW are put together and Y is added up. Every device needs its piece of the weight
alone and makes that piece of its gradient, and no device handles all of the weight, whatever the batch. Which dimension an op's
axis is shows in what it cuts. It knows no costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stepd.core.placement.split_problem import Splittable
from stepd.core.placement.whole_layers import Layer
from stepd.core.problem import SplitChoice
from stepd.core.strategy import Split


def sliced(base: Splittable, layer: Layer, devices: tuple[int, ...], weights: tuple[float, ...]) -> Iterator[tuple[Split, ...]]:
    """The splits of all ops of a layer along its weight: along one dimension, then along the other, where they can be split so.

    devices, weights: of the parts, as in Split.
    """
    own: dict[int, list[SplitChoice]] = {op: [] for op in layer.ops}
    for (op, _), choice in base.choices.items():
        if op in own and choice.max_parts >= len(devices):
            own[op].append(choice)
    products = {op: _others(base, op, layer.weight) for op in layer.ops if layer.weight in base.inputs[op]}
    after = _after(base, layer, products)
    for adds_after in (True, False):
        axes = {op: _of_product(base, own[op], layer.weight, adds=(op in after) == adds_after) for op in products}
        added = {value for op, values in products.items() if (op in after) == adds_after for value in values}
        axes |= {op: _of_gradient(base, own[op], added) for op in layer.ops - products.keys()}
        found = {op: axis for op, axis in axes.items() if axis is not None}
        if len(found) == len(layer.ops):
            yield tuple(Split(op, axis, len(devices), devices, weights) for op, axis in sorted(found.items()))


def _others(base: Splittable, op: int, weight: int) -> frozenset[int]:
    return frozenset(base.inputs[op]) - {weight}


def _after(base: Splittable, layer: Layer, products: Mapping[int, frozenset[int]]) -> frozenset[int]:
    """The products on the way back, dX: of the two that a gradient shares its inputs with, the later one."""
    position = {int(op): k for k, op in enumerate(base.prepared.tables.topological)}
    found = set[int]()
    for gradient in layer.ops - products.keys():
        sharing = [op for op, values in products.items() if values & set(base.inputs[gradient])]
        if len(sharing) > 1:
            found.add(max(sharing, key=position.__getitem__))
    return frozenset(found)


def _of_product(base: Splittable, choices: list[SplitChoice], weight: int, adds: bool) -> str | None:
    """The axis on which a product cuts its weight: with all else, and adds up; or the weight alone."""
    for choice in choices:
        cut = dict(zip(base.inputs[choice.op], choice.cut_bytes, strict=False))
        alone = all(not nbytes for o, nbytes in cut.items() if o != weight)
        if cut.get(weight, 0) > 0 and choice.adds == adds and alone != adds:
            return choice.axis
    return None


def _of_gradient(base: Splittable, choices: list[SplitChoice], values: set[int]) -> str | None:
    """The axis on which a gradient cuts those of its inputs that are among `values`, and no other."""
    for choice in choices:
        cut = {o for o, nbytes in zip(base.inputs[choice.op], choice.cut_bytes, strict=False) if nbytes}
        if cut and cut <= values and not choice.adds:
            return choice.axis
    return None
