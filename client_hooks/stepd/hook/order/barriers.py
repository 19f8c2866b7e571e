"""The barriers of tuples, and which of their waits a copy of the graph can do without. Pure.

Optimizers have `tf.gradients` hand on an op's gradients only when all of them are there (`GATE_OP`): an Identity a gradient, each
waiting for a NoOp that waits for every gradient of the op (`tf.tuple`). The next layer so waits for the gradient of this layer's
weights, which nothing but the optimizer needs, and two devices wait for each other at every layer. A wait is lifted where nothing
but the moment at which an op computes depends on it: what is waited for has neither state nor data that it could refuse.

A lifted Identity waits for a node of the hook's own that is there at once, so that Grappler, which treats ops differently that
have control inputs, does to the copy what it does to the original. It must not know strategies or how copies are made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from stepd.hook.engine import rules, sums, twins
from stepd.hook.engine.classify import Classes
from stepd.hook.engine.graphview import GraphView, split_input
from stepd.hook.engine.op_defs import is_ref
from stepd.hook.engine.races import HAND_ON
from stepd.hook.order.conditions import NONE, conditions
from stepd.hook.order.edges import behind
from stepd.hook.order.steps import executed
from stepd.hook.order.walk import needs, sorted_by_needs
from stepd.hook.ports import StepKind

# Ops that only compute, and whose kernels refuse nothing but shapes, which are the forward ops' own: a wait for them is seen by
# nobody. Not among them: what checks indices, divides integers, or may not find a solution.
_ONLY_COMPUTE = frozenset({
    "Const", "Identity", "NoOp", "StopGradient", "PreventGradient", "Snapshot", "Reshape", "Squeeze", "ExpandDims", "Transpose",
    "ConjugateTranspose", "Shape", "ShapeN", "Size", "Rank", "BroadcastGradientArgs", "ZerosLike", "OnesLike", "Fill", "Cast",
    "Pack", "Concat", "ConcatV2", "ConcatOffset", "Split", "SplitV", "Pad", "Tile", "InvertPermutation",
    "Add", "AddV2", "AddN", "Sub", "Mul", "MulNoNan", "DivNoNan", "Neg", "Square", "Sqrt", "Rsqrt", "Exp", "Log", "Log1p", "Tanh",
    "Sigmoid", "Softplus", "Softsign", "Erf", "Relu", "Relu6", "Elu", "Selu", "LeakyRelu", "Abs", "Sign", "Maximum", "Minimum",
    "Greater", "GreaterEqual", "Less", "LessEqual", "Equal", "NotEqual", "LogicalAnd", "LogicalOr", "LogicalNot", "Select",
    "SelectV2", "Sum", "Mean", "Max", "Min", "Prod", "Softmax", "LogSoftmax",
    "MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum",
    "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", "Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2",
    "DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter",
    "BiasAdd", "BiasAddGrad", "FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3",
    "MaxPoolGrad", "AvgPoolGrad", "LRNGrad", "ReluGrad", "Relu6Grad", "EluGrad", "SeluGrad", "LeakyReluGrad", "TanhGrad",
    "SigmoidGrad", "SoftplusGrad", "SoftsignGrad", "RsqrtGrad", "SqrtGrad", "ReciprocalGrad", "InvGrad",
})  # fmt: skip


class Lift(NamedTuple):
    """`op` does not wait for `barrier` any more; `kept`: members that still do, so that all of the tuple is computed as before."""

    op: str
    barrier: str
    kept: tuple[str, ...]


Lifts = frozenset[Lift]
NOTHING: Lifts = frozenset()


def liftable(view: GraphView, classes: Classes) -> Lifts:
    """The waits that a copy of the graph can do without, in steps of any kind that `serves` says yes to."""
    candidates = list(_candidates(view, classes))
    needed = needs(view, view.nodes.keys()) if candidates else {}
    order = sorted_by_needs(needed)
    if not candidates or order is None:
        return NOTHING
    held = conditions(view, order)
    left = [lift for lift in candidates if held[lift.op] == NONE]
    in_place = _on_references(view)
    seen = (name for name in order if name in in_place or not _only_computes(view, name))
    numbers = {name: number for number, name in enumerate(seen)}
    # A Merge goes on when one of its inputs is there: who waits for it does not wait for all that is above it.
    merges = frozenset(name for name in order if view.nodes[name].op in rules.MERGES)
    whole = behind(order, needed, numbers, merges)
    now, count = whole, -1
    while len(left) != count:  # what one lift takes away another may have relied upon
        count = len(left)
        # Of what the barrier waits for, all that has state or could refuse is waited for anyway, by what is handed on.
        left = [lift for lift in left if not whole[lift.barrier] & ~now[view.nodes[lift.op].inputs[0][0]]]
        lifted = without(view, left)
        now = behind(order, needs(lifted, lifted.nodes.keys()), numbers, merges)
    return frozenset(left)


def _on_references(view: GraphView) -> set[str]:
    """Ops that work on the memory of a reference variable: they read it when they run, before or after a write."""
    handing = [name for name in view.nodes if any(is_ref(dtype) for dtype in view.outputs(name))]
    found = set(handing)
    for name in handing:  # it grows
        for user in view.consumers[name]:
            if user not in found and any(source == name and index >= 0 for source, index in view.nodes[user].inputs):
                found.add(user)
                if view.nodes[user].op in HAND_ON:
                    handing.append(user)
    return found


def _only_computes(view: GraphView, name: str) -> bool:
    """Sums of many terms begin with one whose buffer nobody else holds, which others decide that read it."""
    node = view.nodes[name]
    return node.op in _ONLY_COMPUTE and not sums.adds_many(view, node)


def _candidates(view: GraphView, classes: Classes) -> Iterator[Lift]:
    """Members of tuples that lead to further tuples, of tuples of which another member does not."""
    tuples = {name: members for name in view.nodes if (members := _members(view, name))}
    leading, alike = view.ancestors(tuples), twins.of(view).members
    for barrier, members in tuples.items():
        kept = tuple(name for name in members if name not in leading)
        awaited = [source for source, _ in view.nodes[barrier].inputs]
        if not kept or any(name in classes.pinned or name in alike for name in (barrier, *awaited)):
            continue  # what stays, and what Grappler makes one of: its buffer has the readers of both
        for name in members:
            if name in leading and name not in classes.pinned and name not in alike and not _may_begin_a_sum(view, name):
                yield Lift(name, barrier, kept)


def _members(view: GraphView, name: str) -> tuple[str, ...]:
    """The Identities that wait for the barrier `name`; empty when it is none."""
    node = view.nodes[name]
    if node.op != "NoOp" or not node.inputs:
        return ()
    awaited = {source for source, _ in node.inputs}
    members = tuple(dict.fromkeys(view.consumers[name]))
    return members if all(_is_member(view, member, name, awaited) for member in members) else ()


def _is_member(view: GraphView, name: str, barrier: str, awaited: Collection[str]) -> bool:
    """Does this hand on something that the barrier waits for, when the barrier has it all?"""
    node = view.nodes[name]
    return node.op == "Identity" and len(node.inputs) == 2 and node.inputs[0][0] in awaited and node.inputs[1] == (barrier, -1)


def _may_begin_a_sum(view: GraphView, name: str) -> bool:
    """Is this a term of a sum while others read the same buffer? The sum begins with a term whose buffer nobody else holds at that
    moment, which the barrier decided (`engine/sums`)."""
    source, index = view.nodes[name].inputs[0]
    alone = sum((source, index) == read for user in dict.fromkeys(view.consumers[source]) for read in view.nodes[user].inputs) == 1
    if alone and view.nodes[source].op not in sums.VIEWS:
        return False
    stack = [name]
    while stack:
        for user in view.consumers[stack.pop()]:
            if sums.sums(view.nodes[user].op):
                return True
            if view.nodes[user].op in sums.VIEWS:
                stack.append(user)
    return False


def without(view: GraphView, lifts: Iterable[Lift]) -> GraphView:
    """The graph as a copy has it in which these waits are lifted."""
    nodes = dict(view.nodes)
    for lift in lifts:
        node = nodes[lift.op]
        nodes[lift.op] = node._replace(inputs=tuple(read for read in node.inputs if read != (lift.barrier, -1)))
    return GraphView(nodes, view.functions) if lifts else view


def common(view: GraphView, lifts: Lifts, steps: Iterable[StepKind]) -> Lifts:
    """Those of `lifts` that serve all these steps."""
    for step in steps:
        run, cut = executed(view, step), _behind_feeds(view, step)
        lifts = frozenset(lift for lift in lifts if _serves(view, lift, run, cut))
    return lifts


def serves(view: GraphView, lifts: Iterable[Lift], step: StepKind, run: Collection[str]) -> bool:
    """Whether a step, which executes the ops `run`, is the same without the waits."""
    cut = _behind_feeds(view, step)
    return all(_serves(view, lift, run, cut) for lift in lifts)


def _serves(view: GraphView, lift: Lift, run: Collection[str], cut: Collection[str]) -> bool:
    """Something else must ask for the barrier, and what is handed on must need all that it needs in the whole graph."""
    return lift.op not in run or (any(name in run for name in lift.kept) and view.nodes[lift.op].inputs[0][0] not in cut)


def _behind_feeds(view: GraphView, step: StepKind) -> Collection[str]:
    """What needs something that is fed in place of what the graph would compute, but for constants."""
    fed = {split_input(name)[0] for name in step.feeds}
    cut = [name for name in fed if name in view.nodes and any(view.nodes[n].op != "Const" for n in view.ancestors([name]) - {name})]
    return view.descendants(cut) if cut else ()
