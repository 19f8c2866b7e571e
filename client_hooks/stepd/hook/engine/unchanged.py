"""Which ops hand on what they are given: Grappler takes them out, and what stands before them meets what stands behind. Pure.

A convolution that is named (`tf.identity(conv, "initial_conv")`) becomes one kernel with the normalization behind the name; a
product with one (`swish` with its default `beta`) is gone before activations are looked for. It must not know what becomes of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tensorflow.python.framework import tensor_util

from stepd.hook.engine.graphview import GraphView, Node

NAMES = frozenset({"Identity", "StopGradient", "PreventGradient", "Snapshot"})
# What such an op takes, on either side or as the second only, without a change.
_NEUTRAL = {"Mul": (1, (0, 1)), "RealDiv": (1, (1,)), "Div": (1, (1,)), "Add": (0, (0, 1)), "AddV2": (0, (0, 1)), "Sub": (0, (1,))}
_LARGEST = 4096  # bytes of a constant that is looked at


def behind_names(view: GraphView, name: str) -> Iterator[tuple[Node, tuple[str, ...]]]:
    """`name`, and what makes its value behind each op that only gives it a name; with the ops in between. What waits for something
    else is no mere name."""
    between: tuple[str, ...] = ()
    while True:
        node = view.nodes[name]
        yield node, between
        if node.op not in NAMES or len(node.inputs) != 1:
            return
        between = (*between, name)
        name = node.inputs[0][0]


def neutral(view: GraphView, node: Node) -> tuple[str, int] | None:
    """The value that `node` hands on because the other one that it is given is a one, or a zero that is added."""
    if node.op not in _NEUTRAL:
        return None
    number, sides = _NEUTRAL[node.op]
    given = [each for each in node.inputs if each[1] >= 0]
    for side in sides:
        if len(given) == 2 and _is(view, given[side][0], number):
            return given[1 - side]
    return None


def _is(view: GraphView, name: str, number: int) -> bool:
    *_, (maker, _) = behind_names(view, name)
    if maker.op != "Const" or maker.proto.attr["value"].ByteSize() > _LARGEST:
        return False
    value = tensor_util.MakeNdarray(maker.proto.attr["value"].tensor)
    return value.dtype.kind in "fiuV" and value.size > 0 and bool(np.all(value == number))
