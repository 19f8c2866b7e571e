"""Where what a run feeds comes in when ops in parts cut it: where the program is, so that every device is sent its part only.

A session hands a feed to the device of its placeholder in one message, from which the parts of other devices would be sent on. Fed
in the training process it is cut there, and each part is sent once. Pure; it must not know sessions or copies.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from tensorflow.python.framework import dtypes

from stepd.hook.engine import op_defs
from stepd.hook.rewrite.chosen import Chosen
from stepd.hook.rewrite.facts import Facts

# Below this many bytes one more device in a step's beginning costs what is saved.
_WORTH = 1 << 15
# A dimension that is known at run time only is taken for so many.
_ROWS = 64
_FED = ("Placeholder", "PlaceholderV2")
_OF_SIZES = ("Shape", "Size", "Rank")


def fed_at(
    facts: Facts, chosen: Mapping[str, Chosen], trainer: str, held: Collection[str] = (), fixed: Collection[str] = ()
) -> dict[str, str]:
    """Placeholders that are to be at `trainer`, with ops that ask for their sizes alone; op -> `trainer`.

    Those that split ops cut and none needs whole. `held`: ops that no copy has, which need the program's own placeholder; `fixed`:
    ops that cannot be placed alone.
    """
    moved: dict[str, str] = {}
    for name, node in facts.view.nodes.items():
        if node.op not in _FED or node.requested or name in fixed or _bytes(facts, name) < _WORTH:
            continue
        readers = facts.view.consumers[name]
        if any(reader in held for reader in readers):
            continue
        kinds = {kind for reader in readers if reader in chosen for kind in _taken(facts, chosen[reader], reader, name)}
        if kinds == {"cut"}:
            sizes = (r for r in readers if facts.view.nodes[r].op in _OF_SIZES and r not in chosen and r not in fixed)
            moved |= dict.fromkeys([name, *sizes], trainer)
    return moved


def _taken(facts: Facts, chosen: Chosen, reader: str, source: str) -> set[str]:
    """The kinds of slots in which a split op takes a tensor; on its own device alone it counts as whole."""
    inputs = zip(chosen.way.inputs, facts.data_inputs(reader), strict=True)
    apart = len(set(chosen.devices)) > 1
    return {slot.kind if apart else "whole" for slot, tensor in inputs if tensor == (source, 0)}


def _bytes(facts: Facts, name: str) -> int:
    dims = facts.dims(name, 0)
    dtype = dtypes.as_dtype(op_defs.output_types(facts.view.nodes[name].proto)[0])
    if dims is None or not dtype.is_numpy_compatible or dtype == dtypes.string:
        return 0
    return int(dtype.size) * math.prod(d if isinstance(d, int) else _ROWS for d in dims)
