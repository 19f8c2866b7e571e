"""Which ops must share a device because of what TensorFlow makes of them on processors that it runs oneDNN's kernels on.

There neighbours become one kernel, or find each other's memory, that elsewhere stay two, and round otherwise then: a
convolution's filter gradient with that of its bias, overlapping max pooling with its gradient, and activations that are written out
(swish, mish, gelu, leaky ReLU as a maximum) with the layer that they are for. Whether a processor is such a one is not asked: what
is learned on one machine holds on the next, and these are neighbours anyway. (`mkl_layout_pass.cc` and `remapper.cc` of TensorFlow
say what it joins.) Pure: it looks at a graph and must not know what moves.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from stepd.hook.engine import rules, unchanged
from stepd.hook.engine.graphview import GraphView, Node

# The gradient's input that must come from the pooling itself: oneDNN's remembers where the maxima were.
_REMEMBERS = {"MaxPoolGrad": ("MaxPool", 1), "MaxPool3DGrad": ("MaxPool3D", 1), "LRNGrad": ("LRN", 2)}
_NAMES = frozenset({"Identity", "StopGradient", "Cast"})  # whatever they wait for
_SAME_SHAPE = frozenset({"Reshape", "Squeeze", "BroadcastTo"})  # only where it happens to be: taken for a change here
_BIASED = frozenset({"BiasAdd", "BiasAddV1", "Add", "AddV2"})
# Of what a gelu or a normalization is made.
_PIECES = frozenset({"Mul", "RealDiv", "Div", "Add", "AddV2", "Sub", "Pow", "Square", "Neg", "Cast", "Identity"})
_MOST_PIECES = 16
_SCALES = frozenset({"Mul", "RealDiv", "Div", "Sub"})  # between a normalization's moments and its last sum

_held: weakref.WeakKeyDictionary[GraphView, dict[str, bool]] = weakref.WeakKeyDictionary()


def together(view: GraphView) -> Iterator[tuple[str, ...]]:
    """Ops that TensorFlow may make one of where they share a device, or that work otherwise where they do not."""
    for bias, name in bias_gradients(view):
        # Of one that waits for the other no kernel is made; else what hands the gradient on must be taken out.
        handing = () if _gated(view, name, bias) else (*_up_to_maker(view, bias, 0), *_up_to_maker(view, name, 2))
        waited_for = (source for each in handing for source, k in view.nodes[each].inputs if k < 0)
        yield bias, name, *handing, *(source for source in waited_for if view.nodes[source].op == "NoOp")
    for node in view.nodes.values():
        if node.op in _REMEMBERS:
            op, k = _REMEMBERS[node.op]
            maker = _source(view, node, k)
            if maker is not None and maker.op == op:
                yield maker.name, node.name
        rule = _ACTIVATIONS.get(node.op)
        if rule is not None:
            yield from (_with_between(view, names) for names in rule(view, node))


def _with_between(view: GraphView, names: Sequence[str]) -> tuple[str, ...]:
    """`names`, and what hands on a value of one to another: on another device it would not be taken out."""
    found = dict.fromkeys(names)
    for name in names:
        for source, k in view.nodes[name].inputs:
            for maker, between in unchanged.behind_names(view, source, k) if k >= 0 else ():
                if maker.name in found:
                    found.update(dict.fromkeys(between))
    return tuple(found)


def bias_gradients(view: GraphView) -> Iterator[tuple[str, str]]:
    """(BiasAddGrad, Conv2DBackpropFilter) of one layer: they take the same gradient, and become one where neither waits for the
    other."""
    filters: dict[tuple[str, int], list[str]] = {}
    for node in view.nodes.values():
        if node.op == "Conv2DBackpropFilter" and (taken := _value(view, node, 2)) is not None:
            filters.setdefault(taken, []).append(node.name)
    for node in view.nodes.values() if filters else ():
        if node.op == "BiasAddGrad" and (taken := _value(view, node, 0)) is not None:
            yield from ((node.name, name) for name in filters.get(taken, ()))


def _up_to_maker(view: GraphView, name: str, k: int) -> Iterator[str]:
    """Who makes the value that an op takes as its input `k`, and what hands it on."""
    behind: tuple[str, int] | None = [each for each in view.nodes[name].inputs if each[1] >= 0][k]
    while behind is not None:
        yield behind[0]
        behind = _handed_on(view, view.nodes[behind[0]], behind[1])


def filter_gradients(view: GraphView) -> Mapping[str, bool]:
    """Conv2DBackpropFilter of such a pair -> whether a tuple's barrier stands between the two, so that they stay two kernels.

    What keeps them two is that only one of them waits for something. So where they are two, only a wait of its own may hold the
    filter's (held on an input, it could come after the other by way of a third op, TensorFlow would take out the wait that says
    so, make one of both, and the step would wait for itself); and where they are one, nothing may hold either.
    """
    found = _held.get(view)
    if found is None:
        found = _held[view] = {name: _gated(view, name, bias) for bias, name in bias_gradients(view)}
    return found


def _gated(view: GraphView, name: str, bias: str) -> bool:
    """Does a barrier wait for the bias's gradient and for what both take? It does so too where a copy lifts the wait."""
    handing = {(each, -1) for each in _up_to_maker(view, name, 2)}
    barriers = [view.nodes[user] for user in view.consumers[bias] if view.nodes[user].op == "NoOp"]
    return len(handing) > 1 and any((bias, -1) in barrier.inputs and not handing.isdisjoint(barrier.inputs) for barrier in barriers)


def _swish(view: GraphView, node: Node) -> Iterator[tuple[str, ...]]:
    """x * sigmoid(x), or x * sigmoid(1 * x) as TensorFlow's own swish writes it"""
    given = _value(view, node, 0)
    handed = None if given is None else unchanged.neutral(view, view.nodes[given[0]])
    taken = {given, None if handed is None else _behind(view, *handed)} - {None}
    for product in _readers(view, node, {"Mul"}):
        if taken & set(_values(view, product)):
            yield node.name, product.name, *(() if given is None or handed is None else (given[0], handed[0]))


def _mish(view: GraphView, node: Node) -> Iterator[tuple[str, ...]]:
    """x * tanh(softplus(x))"""
    for tanh in _readers(view, node, {"Tanh"}):
        for product in _readers(view, tanh, {"Mul"}):
            if _value(view, node, 0) in _values(view, product):
                yield node.name, tanh.name, product.name


def _leaky_relu(view: GraphView, node: Node) -> Iterator[tuple[str, ...]]:
    """maximum(x, x * 0.2)"""
    for product, other in itertools.permutations(_values(view, node), 2):
        if view.nodes[product[0]].op == "Mul" and other in _values(view, view.nodes[product[0]]):
            yield other[0], product[0], node.name


def _gelu(view: GraphView, node: Node) -> Iterator[tuple[str, ...]]:
    """x / 2 * (1 + erf(x / sqrt(2))), or by tanh, behind a layer with a bias"""
    before = _pieces(view, node, lambda name: [s for s, k in view.nodes[name].inputs if k >= 0])
    layers = {
        s for name in before for s, k in view.nodes[name].inputs if k >= 0 and view.nodes[s].op in _BIASED and s not in before
    }
    behind = [product.name for total in _readers(view, node, {"Add", "AddV2"}) for product in _made_of(view, total, {"Mul"})]
    sums = [total.name for total in _readers(view, node, {"Add", "AddV2"})]
    if layers and behind:
        halves = [s for name in behind for s, k in view.nodes[name].inputs if k >= 0 and view.nodes[s].op == "Mul"]
        yield node.name, *before, *layers, *sums, *behind, *halves


def _instance_norm(view: GraphView, node: Node) -> Iterator[tuple[str, ...]]:
    """Moments, and a scale and an offset that are constants: a graph that is frozen."""
    square = _source(view, node, 0)
    while square is not None and square.op in {"Add", "AddV2", "Mean"}:
        square = next((n for s, k in square.inputs if k >= 0 and (n := _made(view, s)).op != "Const"), None)
    if square is None or square.op != "SquaredDifference":
        return
    scales = [n for n in _readers(view, node, {"Mul"}) if any(_made(view, s).op == "Const" for s, k in n.inputs if k >= 0)]
    used = [n for scale in scales for n in _made_of(view, scale, {"Mul"})]
    offsets = [n for product in used for n in _readers(view, product, {"Sub", "Add", "AddV2"})]
    ends = [n for offset in offsets for n in _readers(view, offset, {"Add", "AddV2", "Relu", "LeakyRelu"})]
    last = [n for end in ends for n in _readers(view, end, {"Relu", "LeakyRelu"})]
    if scales:
        means = {s for s, k in square.inputs if k >= 0 and _made(view, s).op == "Mean"}
        means |= {_made(view, s).name for s in means}
        inner = _pieces(
            view, node, lambda name: [s for s, k in view.nodes[name].inputs if k >= 0], frozenset({"Mean", "Add", "AddV2"})
        )
        yield node.name, square.name, *means, *inner, *(n.name for n in (*scales, *used, *offsets, *ends, *last))


def _layer_norm(view: GraphView, node: Node) -> Iterator[tuple[str, ...]]:
    """(x - mean) / sqrt(variance + epsilon) * scale + offset along one axis, or x * factor + (offset - mean * factor). It
    becomes one kernel in evaluations; where gradients read its pieces it does not."""
    total = _source(view, node, 0)
    variance = None if total is None or total.op not in rules.SUMS_OF_TWO else _first(view, total, {"Mean"})
    square = None if variance is None else _source(view, variance, 0)
    if total is None or variance is None or square is None or not _is_along_one(view, variance):
        return
    inner = _first(view, square, {"Sub"}) if square.op == "Square" else square if square.op == "SquaredDifference" else None
    mean = None if inner is None else _first(view, inner, {"Mean"})
    if inner is None or mean is None or not _is_along_one(view, mean):
        return
    ends = [*_to_sums(view, node, 4), *_to_sums(view, mean, 4)]
    if ends:
        handed = [s for s, k in inner.inputs if k >= 0 and _made(view, s) is mean]
        yield node.name, total.name, variance.name, square.name, inner.name, mean.name, *handed, *ends


def _keras_norm(view: GraphView, node: Node) -> Iterator[tuple[str, ...]]:
    """The same as Keras writes it: a batch normalization of rows, with a scale and an offset that are filled in."""
    rows, *filled = (_source(view, node, k) for k in range(3))
    if rows is None or rows.op != "Reshape" or any(each is None or each.op != "Fill" for each in filled):
        return
    for back in _readers(view, node, {"Reshape"}):
        if ends := _to_sums(view, back, 2):
            yield node.name, rows.name, *(each.name for each in filled if each is not None), back.name, *ends


def _to_sums(view: GraphView, node: Node, most: int) -> list[str]:
    """What is made of `node` by products and differences, up to the sums that they end in; nothing of what ends in none."""
    found: list[str] = []
    for reader in _readers(view, node, _SCALES | rules.SUMS_OF_TWO) if most else ():
        behind = [] if reader.op in rules.SUMS_OF_TWO else _to_sums(view, reader, most - 1)
        if behind or (reader.op in rules.SUMS_OF_TWO and node.op in _SCALES):
            found += [reader.name, *behind]
    return found


def _first(view: GraphView, node: Node, ops: Collection[str]) -> Node | None:
    """The maker of `node`'s first input that one of `ops` makes."""
    makers = (view.nodes[name] for name, _ in _values(view, node))
    return next((maker for maker in makers if maker.op in ops), None)


def _is_along_one(view: GraphView, mean: Node) -> bool:
    """Is it a mean along one axis, which it keeps?"""
    axes = _source(view, mean, 1)
    if axes is None or axes.op != "Const" or not mean.proto.attr["keep_dims"].b:
        return False
    shape = axes.proto.attr["value"].tensor.tensor_shape
    return all(dim.size == 1 for dim in shape.dim)


def _norms(view: GraphView, node: Node) -> Iterator[tuple[str, ...]]:
    yield from _layer_norm(view, node)
    if node.op == "Rsqrt":
        yield from _instance_norm(view, node)


_ACTIVATIONS: Mapping[str, Callable[[GraphView, Node], Iterator[tuple[str, ...]]]] = {
    "Sigmoid": _swish,
    "Softplus": _mish,
    "Maximum": _leaky_relu,
    "Erf": _gelu,
    "Tanh": _gelu,
    "FusedBatchNormV3": _keras_norm,
    "Rsqrt": _norms,
    "Sqrt": _norms,
    "Pow": _norms,
}


def _pieces(view: GraphView, node: Node, given: Callable[[str], list[str]], ops: Collection[str] = _PIECES) -> list[str]:
    """What stands before `node`, up to anything that is not of `ops`, and up to a layer's bias; nothing when that is much."""
    found: list[str] = []
    stack = given(node.name)
    while stack and len(found) < _MOST_PIECES:
        name = stack.pop()
        node = view.nodes[name]
        if name not in found and (node.op in ops or _handed_on(view, node) is not None) and not _is_layer(view, node):
            found.append(name)
            stack += given(name)
    return found if len(found) < _MOST_PIECES else []


def _is_layer(view: GraphView, node: Node) -> bool:
    products = {"MatMul", "BatchMatMul", "BatchMatMulV2", "Conv2D", "Conv3D", "DepthwiseConv2dNative"}
    return node.op in _BIASED and any(k >= 0 and _made(view, s).op in products for s, k in node.inputs)


def _behind(view: GraphView, name: str, k: int) -> tuple[str, int]:
    """The value that `name` gives as its output `k`: (op, output), behind what only hands it on."""
    while (behind := _handed_on(view, view.nodes[name], k)) is not None:
        name, k = behind
    return name, k


def _handed_on(view: GraphView, node: Node, k: int = 0) -> tuple[str, int] | None:
    if node.op in _NAMES and node.inputs and node.inputs[0][1] >= 0:
        return node.inputs[0]
    behind = None if node.op in _SAME_SHAPE else unchanged.handed_on(view, node, k)
    return None if behind is None else behind[0]


def _made(view: GraphView, name: str, k: int = 0) -> Node:
    """Who makes a value, behind what only hands it on."""
    return view.nodes[_behind(view, name, k)[0]]


def _value(view: GraphView, node: Node, k: int) -> tuple[str, int] | None:
    """The value that `node` takes as its input `k`, behind what only hands it on."""
    taken = [each for each in node.inputs if each[1] >= 0]
    return _behind(view, *taken[k]) if k < len(taken) else None


def _values(view: GraphView, node: Node) -> list[tuple[str, int]]:
    count = sum(k >= 0 for _, k in node.inputs)
    return [value for k in range(count) if (value := _value(view, node, k)) is not None]


def _source(view: GraphView, node: Node, k: int) -> Node | None:
    value = _value(view, node, k)
    return None if value is None else view.nodes[value[0]]


def _readers(view: GraphView, node: Node, ops: Collection[str]) -> list[Node]:
    """Who of `ops` takes a value of `node`, behind what only hands it on too."""
    found, stack = [], [node.name]
    while stack:
        for name in dict.fromkeys(view.consumers[stack.pop()]):
            if view.nodes[name].op in ops:
                found.append(view.nodes[name])
            elif _handed_on(view, view.nodes[name]) is not None:
                stack.append(name)
    return found


def _made_of(view: GraphView, node: Node, ops: Collection[str]) -> list[Node]:
    """`_readers`, and their readers of `ops` in turn: 0.5 * x * (1 + ...) and x * (0.5 * (1 + ...))."""
    first = _readers(view, node, ops)
    return [*first, *(again for one in first for again in _readers(view, one, ops))]
