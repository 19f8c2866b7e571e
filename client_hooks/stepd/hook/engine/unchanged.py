"""Which ops hand on what they are given: Grappler takes them out, and what stands before them meets what stands behind. Pure.

A convolution that is named (`tf.identity(conv, "initial_conv")`) becomes one kernel with the normalization behind the name; a
product with one (`swish` with its default `beta`) is gone before activations are looked for. It must not know what becomes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from stepd.hook.arrays import array_of
from stepd.hook.engine import folded
from stepd.hook.engine.graphview import GraphView, Node

NAMES = frozenset({"Identity", "StopGradient", "PreventGradient", "Snapshot"})
# What such an op takes, on either side or as the second only, without a change.
_NEUTRAL = {"Mul": (1, (0, 1)), "RealDiv": (1, (1,)), "Div": (1, (1,)), "Add": (0, (0, 1)), "AddV2": (0, (0, 1)), "Sub": (0, (1,))}
_LARGEST = 4096  # bytes of a constant that is looked at
# Nothing where the shape is the right one already, which is not asked here.
_MAYBE_NOTHING = frozenset({"Reshape", "Squeeze", "BroadcastTo"})
# What the constant that such an op is given says where nothing is changed.
_NOTHING_BY: dict[str, Callable[[np.ndarray], bool]] = {
    "Tile": lambda times: bool(np.all(times == 1)),
    "Transpose": lambda axes: bool(np.all(axes == np.arange(axes.size))),
    **dict.fromkeys(("Pad", "PadV2", "MirrorPad", "Slice", "Reverse"), lambda numbers: not numbers.any()),
    **dict.fromkeys(("ReverseV2", "Sum", "Mean", "Prod", "Max", "Min"), lambda axes: axes.size == 0),
}
# Of these it may also be computed before the graph runs. (The sums of gradients are told their axes so; others look at them.)
_MOVES = _NOTHING_BY.keys() - {"Sum", "Mean", "Prod", "Max", "Min"}
_UNDONE_BY_ITSELF = frozenset(
    {"Bitcast", "Neg", "Transpose", "ConjugateTranspose", "Reciprocal", "Inv", "Conj", "LogicalNot", "Invert"}
)
_ONE_OF_TWO = frozenset({"Select", "SelectV2"})
_OF_ONE = frozenset({"IdentityN", "Cast", "Split", "SplitV", "AddN"})
_MAY_HAND_ON = NAMES | _MAYBE_NOTHING | _NOTHING_BY.keys() | _ONE_OF_TWO | _OF_ONE | _UNDONE_BY_ITSELF


def behind_names(view: GraphView, name: str, index: int = 0) -> Iterator[tuple[Node, tuple[str, ...]]]:
    """`name`, and what makes its output `index` behind each op that only hands it on; with the ops in between."""
    between: tuple[str, ...] = ()
    while True:
        node = view.nodes[name]
        yield node, between
        behind = handed_on(view, node, index)
        if behind is None:
            return
        (name, index), taken_out = behind
        between = (*between, *taken_out)


def handed_on(view: GraphView, node: Node, index: int = 0, surely: bool = False) -> tuple[tuple[str, int], tuple[str, ...]] | None:
    """Whose value `node` may hand on as its output `index`, and the ops that Grappler takes out then; None if it makes one of its
    own. What waits for something else is no mere name. `surely`: None, too, where that hangs on what is not looked at."""
    if node.op not in _MAY_HAND_ON:
        return None
    given = [each for each in node.inputs if each[1] >= 0]
    if not given or len(given) < len(node.inputs):
        return None
    if node.op in NAMES or (not surely and node.op in _MAYBE_NOTHING) or _does_nothing(view, node, given, surely):
        return given[node.op == "Split"], (node.name,)
    if node.op == "IdentityN":
        return given[index], (node.name,)
    if node.op in _ONE_OF_TWO:
        chosen = _constant(view, given[0][0])
        if chosen is not None and chosen.size and (chosen.all() or not chosen.any()):
            return given[1 if chosen.all() else 2], (node.name,)
    if node.op in _UNDONE_BY_ITSELF:
        inner = view.nodes[given[0][0]]
        if inner.op == node.op and all(k >= 0 for _, k in inner.inputs):
            return inner.inputs[0], (node.name, inner.name)
    return None


def waited_for(node: Node) -> list[str]:
    """What a StopGradient or its like is given and waits for, where it waits. Unlike an Identity that waits it is taken out before
    neighbours are joined, if all of these share its device: its reader waits then, and is joined with nothing."""
    waits = node.op in ("StopGradient", "PreventGradient") and any(k < 0 for _, k in node.inputs)
    return [source for source, _ in node.inputs] if waits else []


def _does_nothing(view: GraphView, node: Node, given: Sequence[tuple[str, int]], surely: bool) -> bool:
    if node.op in _NOTHING_BY and len(given) > 1:
        value = _constant(view, given[1][0])
        computed = not surely and node.op in _MOVES and given[1][0] in folded.constants(view)
        return _NOTHING_BY[node.op](value) if value is not None else computed
    attr = node.proto.attr
    if node.op == "Cast":
        return bool(attr["SrcT"].type == attr["DstT"].type)
    return (node.op in ("Split", "SplitV") and attr["num_split"].i == 1) or (node.op == "AddN" and len(given) == 1)


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
    value = _constant(view, maker.name)
    return value is not None and value.dtype.kind in "fiuV" and value.size > 0 and bool(np.all(value == number))


def _constant(view: GraphView, name: str) -> np.ndarray | None:
    """The value of a constant that is not large."""
    node = view.nodes[name]
    if node.op != "Const" or node.proto.attr["value"].ByteSize() > _LARGEST:
        return None
    return array_of(node.proto.attr["value"].tensor)
