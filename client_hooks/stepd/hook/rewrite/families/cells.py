"""Whole cells and layers of recurrent networks as one op: split on the batch; gradients of weights add up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from stepd.hook.rewrite.families.elementwise import units
from stepd.hook.rewrite.slots import PARTIAL, WHOLE, Slot, Way, cut

if TYPE_CHECKING:
    from stepd.hook.rewrite.facts import OpFacts

# One letter an input, then one an output: "b" batch first, "t" time before batch, "w" whole (a term of a sum, for outputs).
_CELLS = {
    "LSTMBlockCell": ("bbbwwwww", "bbbbbbb"),
    "LSTMBlockCellGrad": ("bbbwwwwwbbbbbbbb", "bbwww"),
    "GRUBlockCell": ("bbwwww", "bbbb"),
    "GRUBlockCellGrad": ("bbwwwwbbbb", "bbbb"),
    "BlockLSTM": ("wtbbwwwww", "ttttttt"),
    "BlockLSTMV2": ("wtbbwwwww", "ttttttt"),
    "BlockLSTMGrad": ("wtbbwwwwwttttttttt", "tbbwwwww"),
    "BlockLSTMGradV2": ("wtbbwwwwwttttttttt", "tbbwwwww"),
}
NAMES = tuple(_CELLS)
_TAKEN: dict[str, Slot] = {"b": cut(0), "t": cut(1), "w": WHOLE}
_GIVEN: dict[str, Slot] = {"b": cut(0), "t": cut(1), "w": PARTIAL}


def cell(op: OpFacts) -> Iterator[Way]:
    """The batch of a cell or layer."""
    inputs, outputs = _CELLS[op.op]
    first = next(k for k, letter in enumerate(inputs) if letter in "bt")
    dims = op.dims(first)
    if dims is None or len(inputs) != len(op.inputs):
        return
    slots: Callable[[str], Slot] = _TAKEN.__getitem__
    axis = _TAKEN[inputs[first]].axis
    yield Way(str(axis), tuple(map(slots, inputs)), tuple(_GIVEN[letter] for letter in outputs), units(dims[axis]))
