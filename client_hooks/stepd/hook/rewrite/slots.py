"""The words that split rules are written in: what a part takes of an input, what it gives of an output.

Pure data. A tensor inside a split op is in one of these kinds:

    whole     every part has all of it
    cut       part k has a contiguous piece along `axis`; joined by concatenation
    sizes     an integer vector of dimension sizes; element `axis` is the size of part k's piece; joined by a sum in that element
    partial   part k has a term of it; joined by a sum
    first     all parts have the same; joined by taking the first
    opaque    handed from part to part, never joined nor cut (a kernel's reserve space)

Pieces are cut between multiples of a *grain*: `[batch * time, units]` made of `[batch, time, units]` has a grain of `time`. Two
tensors that are cut alike have the same kind, axis and grain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Kind = Literal["whole", "cut", "sizes", "partial", "first", "opaque"]
Array = npt.NDArray[np.generic]


class Symbol(NamedTuple):
    """A dimension that is known at run time only: `factor` times the unknown `base`."""

    base: str
    factor: int = 1


Dim = int | Symbol


def is_multiple(dim: Dim, grain: int) -> bool:
    """Whether a dimension is a multiple of `grain` in every run."""
    return (dim.factor if isinstance(dim, Symbol) else dim) % grain == 0


class Held(NamedTuple):
    """How a tensor of a graph is held by the parts of a split op."""

    kind: Kind
    axis: int = 0
    grain: int = 1


@dataclass(frozen=True)
class Slot:
    """How a rule wants an input or gives an output. `scale`: its grain is the op's grain times this."""

    kind: Kind
    axis: int = 0
    scale: Fraction = Fraction(1)

    def held(self, grain: int) -> Held:
        """The state of a tensor in this slot of an op that is cut with `grain`."""
        if self.kind not in ("cut", "sizes"):
            return Held(self.kind)
        return Held(self.kind, self.axis, int(grain * self.scale))

    def grain_of(self, held: Held) -> int | None:
        """The op's grain when this slot's tensor is `held`; None when they do not fit."""
        if self.kind != held.kind:
            return None
        if self.kind not in ("cut", "sizes"):
            return 1
        grain = Fraction(held.grain) / self.scale
        return int(grain) if self.axis == held.axis and grain.denominator == 1 else None


WHOLE = Slot("whole")
PARTIAL = Slot("partial")
FIRST = Slot("first")
OPAQUE = Slot("opaque")


def cut(axis: int, scale: Fraction | int = 1) -> Slot:
    return Slot("cut", axis, Fraction(scale))


def sizes(index: int, scale: Fraction | int = 1) -> Slot:
    return Slot("sizes", index, Fraction(scale))


@dataclass(frozen=True)
class Way:
    """One way to split one op of a graph.

    `axis`: its name in strategies. `units`: the most parts that the cut dimension allows, 0 when it is known at run time only.
    `least_grain`: the op's grain is a multiple. `constants`: inputs that parts take from a constant instead. `lists`: attributes of
    parts that are lists of integers. `op`: the parts' op type when it is another. `mean`: parts are sums, and divided by the number
    of elements of the whole. `usable` False: the op must not be split so, but its inputs and outputs share the dimension.
    """

    axis: str
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    units: int = 0
    least_grain: int = 1
    constants: Mapping[int, Array] = field(default_factory=dict)
    lists: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    op: str = ""
    mean: bool = False
    usable: bool = True

    @property
    def adds(self) -> bool:
        """Whether a joined output is a sum."""
        return any(slot.kind == "partial" for slot in self.outputs)


class UncuttableError(ValueError):
    """A split that cannot be carried out; the message names the op and says why."""
