"""Who reads a value decides what Grappler makes of it, and a step has some of the readers only: what may be joined in any of them
moves together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

from stepd.hook.engine.classify import classify  # noqa: E402
from stepd.hook.engine.graphview import GraphView  # noqa: E402


def view_of(make: Callable[[Any], Any]) -> GraphView:
    with tf.Graph().as_default() as graph:
        make(tf.placeholder(tf.float32, [4, 6], name="x"))
        return GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)


def move_together(view: GraphView, *names: str) -> bool:
    group_of = classify(view).group_of
    return len({group_of.get(name, name) for name in names}) == 1


def read_twice(op: Callable[..., Any], other: Any) -> Callable[[Any], Any]:
    def make(x: Any) -> None:
        inner = op(tf.sin(x), tf.cos(x), name="inner")
        tf.nn.softsign(inner, name="beside")
        op(inner, other() if callable(other) else other, name="outer")

    return make


def leaf() -> Any:
    return tf.get_variable("g", [6], use_resource=True)


@pytest.mark.parametrize(
    ("op", "other", "tied"),
    [
        (tf.multiply, lambda: tf.placeholder(tf.float32, [4, 6]), True),
        (tf.add, leaf, True),
        (tf.add, lambda: tf.reduce_mean(tf.placeholder(tf.float32, [4, 6]), 1, keepdims=True), True),
        (tf.add, lambda: tf.placeholder(tf.float32, [4, 6]), False),  # residual nets: who else reads the inner sum counts
    ],
)
def test_what_some_step_may_put_in_another_order_moves_together(op: Callable[..., Any], other: Any, tied: bool) -> None:
    assert move_together(view_of(read_twice(op, other)), "inner", "outer") is tied


@pytest.mark.parametrize("batch", [4, None])
def test_products_of_gradients_move_with_what_a_step_of_other_gradients_leaves_out(batch: int | None) -> None:
    def make(_: Any) -> None:
        x = tf.placeholder(tf.float32, [batch, 6])
        w, a = (tf.get_variable(name, shape, use_resource=True) for name, shape in (("w", [6, 6]), ("a", [6])))
        h = tf.multiply(tf.multiply(tf.matmul(x, w), a, name="by_a"), 0.9, name="scaled")
        tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.tanh(h)))

    chain = [f"gradients/by_a_grad/{name}" for name in ("Mul", "Mul_1", "Sum", "Reshape", "tuple/group_deps")]
    assert move_together(view_of(make), "gradients/scaled_grad/Mul", *chain)


def test_products_of_gradients_meet_through_a_tuple_of_which_a_step_may_not_want_the_other_end() -> None:
    def make(x: Any) -> None:
        w, a = (tf.get_variable(name, shape, use_resource=True) for name, shape in (("w", [6, 6]), ("a", [6])))
        h = tf.matmul(x, w)
        gated = tf.multiply(tf.multiply(a, h, name="scaled"), tf.sigmoid(h), name="gated")
        tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.tanh(gated)))

    names = ("gated_grad/Mul", "gated_grad/Mul_1", "gated_grad/tuple/group_deps", "scaled_grad/Mul")
    assert move_together(view_of(make), *(f"gradients/{name}" for name in names))


def test_the_gradient_of_a_constant_that_nobody_learns_moves_with_what_it_reads() -> None:
    def make(x: Any) -> None:
        h = tf.tanh(tf.matmul(x, tf.get_variable("w", [6, 6], use_resource=True)))
        y = h * tf.nn.relu6(h + 3.0) * 0.16667
        tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.square(y)))

    unlearned = [f"gradients/mul_1_grad/{name}" for name in ("Mul_1", "Sum", "Reshape", "tuple/control_dependency_1")]
    assert move_together(view_of(make), "mul", "mul_1", *unlearned)


def test_what_computes_whether_something_was_broadcast_moves_with_the_sum_that_may_change_nothing() -> None:
    """A GELU on a batch of unknown size: the error function's gradient has a constant that goes down through such a sum."""
    with tf.Graph().as_default() as graph:
        t = tf.tanh(tf.placeholder(tf.float32, [None, 14]))
        tf.gradients(t * 0.5 * (1.0 + tf.erf(t / 1.4142135)), t)
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    assert move_together(view, *(f"gradients/mul_1_grad/{name}" for name in ("Sum_1", "BroadcastGradientArgs", "Shape", "Shape_1")))
