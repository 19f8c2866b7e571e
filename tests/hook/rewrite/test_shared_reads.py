"""Reads that copies make once for many updates: which they are and which they are not."""

from __future__ import annotations

from typing import Any

import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

from tensorflow.core.framework import attr_value_pb2  # noqa: E402

from stepd.hook.engine.classify import classify  # noqa: E402
from stepd.hook.engine.graphview import GraphView  # noqa: E402
from stepd.hook.engine.kinds import step_kind  # noqa: E402
from stepd.hook.order.steps import executed  # noqa: E402
from stepd.hook.rewrite import shared_reads  # noqa: E402

LAYERS = 4


def net() -> tuple[Any, Any, Any]:
    """(input, loss, Adam's step for all weights)."""
    x = tf.placeholder(tf.float32, [8, 6], name="x")
    h = x
    for k in range(LAYERS):
        w = tf.get_variable(f"w{k}", [6, 6], initializer=tf.orthogonal_initializer(seed=k), use_resource=True)
        h = tf.tanh(tf.matmul(h, w))
    loss = tf.reduce_mean(tf.square(h))
    return x, loss, tf.train.AdamOptimizer(0.01).minimize(loss)


def shares_of(graph: Any) -> tuple[GraphView, dict[str, str]]:
    view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    return view, {share.op: share.by for share in shared_reads.shareable(view, classify(view))}


def powers_read(view: GraphView, update: str) -> tuple[str, str]:
    return view.nodes[update].inputs[3][0], view.nodes[update].inputs[4][0]


def test_updates_share_the_reads_of_the_powers() -> None:
    with tf.Graph().as_default() as graph:
        x, loss, train = net()
        view, shared = shares_of(graph)
    updates = [f"Adam/update_w{k}/ResourceApplyAdam" for k in range(LAYERS)]
    first = powers_read(view, updates[0])
    assert {read: by for update in updates[1:] for read, by in zip(powers_read(view, update), first, strict=True)} == shared
    seen = shared_reads.without(view, (shared_reads.Share(*pair) for pair in shared.items()))
    assert {powers_read(seen, update) for update in updates} == {first}
    for name in view.nodes.keys() - set(updates):
        assert seen.nodes[name] == view.nodes[name]
    run = executed(view, step_kind([x.name], [loss.name], [train.name]))
    shares = [shared_reads.Share(*pair) for pair in shared.items()]
    made_by_others = f"{next(iter(shared))}:0"
    for feed, fetch, served in (
        (x.name, loss.name, True),
        (f"{first[0]}:0", loss.name, False),
        (made_by_others, loss.name, False),
        (x.name, f"{first[0]}:0", True),
        (x.name, made_by_others, False),  # no update would wait for it
    ):
        assert shared_reads.serve(shares, step_kind([x.name, feed], [loss.name, fetch], [train.name]), run) is served


@pytest.mark.parametrize("spoilt", ["computed with", "later", "of a tensor", "compiled"])
def test_other_reads_are_made_as_they_were(spoilt: str) -> None:
    with tf.Graph().as_default() as graph:
        v, rate = (tf.get_variable(name, [], use_resource=True) for name in ("v", "rate"))
        handle = tf.identity(rate.handle) if spoilt == "of a tensor" else rate.handle
        first = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
        with tf.control_dependencies([tf.no_op()] if spoilt == "later" else []):
            second = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
        if spoilt == "compiled":
            second.op._set_attr("_XlaCompile", attr_value_pb2.AttrValue(b=True))
        if spoilt == "computed with":
            tf.add_n([second, 1.0])
        for read in (first, second):
            tf.raw_ops.ResourceApplyGradientDescent(var=v.handle, alpha=read, delta=1.0)
        assert not shares_of(graph)[1]
