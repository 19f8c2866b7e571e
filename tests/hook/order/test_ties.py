"""No node of an order goes between ops that Grappler rewrites across devices, or where it puts functions that it hoists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stepd.hook.engine.classify import classify
from stepd.hook.engine.graphview import GraphView
from stepd.hook.order.ties import Tie, tie

tf = pytest.importorskip("tensorflow.compat.v1")


def tied(build: Callable[[Any], None], before: str, after: str) -> Tie | None:
    """How `after` is made to wait for `before` in the graph that `build` makes of its input."""
    with tf.Graph().as_default() as graph:
        build(tf.placeholder(tf.float32, [4, 4], name="x"))
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    return tie(view, classify(view), before, after, frozenset(view.nodes), lambda signal, held: True)


def sizes(x: Any) -> None:
    """Two values are divided by a square root, the first one by way of a name; its group is the sum's behind it."""
    root = tf.sqrt(tf.add(tf.reduce_sum(x, 1, keepdims=True), tf.exp(x), name="sum"), name="root")
    tf.divide(x, tf.identity(root), name="share")
    tf.raw_ops.RealDiv(x=tf.sin(x), y=root, name="other")
    tf.raw_ops.SqrtGrad(y=root, dy=tf.cos(x), name="back")
    tf.linalg.diag_part(x, name="last")


def test_nothing_goes_between_a_root_and_who_divides_by_it() -> None:
    found = tied(sizes, "root", "last")
    assert found is not None and found.tap == ("back", 0)


def transposed(x: Any) -> None:
    product = tf.matmul(tf.transpose(tf.sin(x), name="turned"), tf.cos(x), name="product")
    tf.nn.relu(product, name="out")
    tf.linalg.diag_part(x, name="first")


def test_a_product_is_held_on_what_is_not_transposed_for_it() -> None:
    found = tied(transposed, "first", "out")
    assert found is not None and (found.held, found.gate) == ("product", 1)


def test_a_transposition_is_not_held_for_the_product_that_does_it() -> None:
    assert tied(transposed, "first", "turned") is None


def gated(x: Any) -> None:
    value = tf.nn.bias_add(tf.matmul(tf.sin(x), tf.cos(x), name="product"), tf.ones([4]), name="biased")
    left, right = tf.split(value, 2, 1, name="split")
    tf.sigmoid(left, name="left")
    tf.sigmoid(right, name="right")
    tf.linalg.diag_part(x, name="first")


def test_a_split_is_not_held_where_a_function_of_its_parts_comes_to_lie() -> None:
    assert tied(gated, "first", "left") is None


def joined(x: Any) -> None:
    both = tf.concat([tf.tanh(x, name="left"), tf.tanh(tf.sin(x), name="right")], 1, name="both")
    tf.reduce_sum(both, name="total")
    tf.linalg.diag_part(x, name="last")


def test_what_comes_of_a_concatenation_does_not_pass_an_op_of_ours() -> None:
    assert tied(joined, "left", "last") is None


def normalized(x: Any) -> None:
    """Frozen, as oneDNN has one kernel for: the moments take the same as the rest."""
    value = tf.nn.relu(tf.sin(x), name="value")
    mean, variance = tf.nn.moments(value, [1], keepdims=True)
    tf.nn.batch_normalization(value, mean, variance, tf.ones([4]), tf.ones([4]), 1e-3)
    tf.linalg.diag_part(x, name="apart")


@pytest.mark.parametrize(("before", "after"), [("apart", "moments/SquaredDifference"), ("value", "apart")])
def test_nothing_goes_on_one_of_the_inputs_by_which_a_group_is_known(before: str, after: str) -> None:
    found = tied(normalized, before, after)
    assert found is None or (found.tap is None and found.gate < 0), found


def alike(x: Any) -> None:
    """Two of one kind, made one of where they take the same."""
    for name in ("one", "two"):
        tf.reduce_sum(tf.sin(x), 1, name=name)
    tf.linalg.diag_part(x, name="apart")


def test_nothing_goes_before_a_twin() -> None:
    assert tied(alike, "apart", "two") is None
    assert tied(alike, "Sin", "apart") is None
