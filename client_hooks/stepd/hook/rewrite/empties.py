"""Parts of nothing, for op types that cannot bear them: a row of zeros in all that such a part cuts, and what comes of it dropped.

It must not know which op types these are, nor how parts are chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepd.hook.engine import op_defs
from stepd.hook.rewrite.nodes import Maker
from stepd.hook.rewrite.slots import Way


def can_be_padded(way: Way) -> bool:
    """Whether a row more in all that a way cuts is a row more in what it gives."""
    return all(slot.kind in ("whole", "cut", "sizes") and slot.scale == 1 for slot in way.inputs)


def guarded(part: Any, way: Way, taken: Sequence[int], given: Sequence[int], into: list[Any]) -> str:
    """The name of what `part` gives, with as many outputs. `taken` and `given`: the ranks of its inputs and outputs.

    Other parts pass without a copy. A term of a sum that comes of zeros is zero, and stays.
    """
    types, rows = op_defs.input_types(part), ""
    for index, slot in enumerate(way.inputs):
        if slot.kind == "cut":
            pad = Maker(f"{part.name}-{index}", part.device, into)
            part.input[index], found = pad.at_least_one_row(part.input[index], types[index], taken[index], slot.axis)
            rows = rows or found
        elif slot.kind == "sizes":
            pad = Maker(f"{part.name}-{index}", part.device, into)
            least = [part.input[index], pad.number("least", 1, types[index])]
            part.input[index] = pad.node("sizes", "Maximum", least, {"T": types[index]})
    made = []
    outputs = op_defs.output_types(part)
    for index, (slot, dtype) in enumerate(zip(way.outputs, outputs, strict=True)):
        text = f"{part.name}:{index}" if index else str(part.name)
        if slot.kind == "cut":
            text = Maker(f"{part.name}-out{index}", part.device, into).first_rows(text, dtype, rows, given[index], slot.axis)
        made.append(text)
    if len(made) == 1:
        return made[0]
    return Maker(part.name, part.device, into).node("outputs", "IdentityN", made, {"T": list(outputs)})
