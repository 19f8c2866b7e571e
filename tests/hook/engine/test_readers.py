"""Who reads a value decides what Grappler makes of it, and a step has some of the readers only: what may be joined in any of them
moves together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

from stepd.hook.engine import for_updates  # noqa: E402
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


def test_gradients_that_an_optimizers_last_noop_waits_for_are_for_updates_only() -> None:
    def make(x: Any) -> None:
        w = tf.get_variable("w", [6, 6], use_resource=True)
        optimizer = tf.train.GradientDescentOptimizer(0.1)
        pairs = optimizer.compute_gradients(tf.reduce_sum(tf.tanh(tf.matmul(x, w)), name="loss"))
        with tf.control_dependencies([gradient for gradient, _ in pairs]):
            optimizer.apply_gradients(pairs, name="train")

    view = view_of(make)
    assert any(source == "gradients/MatMul_grad/tuple/control_dependency_1" for source, _ in view.nodes["train"].inputs)
    only = for_updates.only(view)
    assert {"gradients/MatMul_grad/MatMul_1", "gradients/Tanh_grad/TanhGrad"} <= only and not {"loss", "MatMul", "Tanh"} & only


def test_a_loss_that_updates_wait_for_is_not_for_updates_only() -> None:
    def make(x: Any) -> None:
        w = tf.get_variable("w", [6, 6], use_resource=True)
        loss = tf.reduce_sum(tf.tanh(tf.matmul(x, w)), name="loss")
        pairs = tf.train.GradientDescentOptimizer(0.1).compute_gradients(loss)
        with tf.control_dependencies([loss]):
            tf.train.GradientDescentOptimizer(0.1).apply_gradients(pairs, name="train")

    assert not {"loss", "MatMul", "Tanh"} & for_updates.only(view_of(make))


def test_a_loss_that_is_handed_on_behind_the_step_is_not_for_updates_only() -> None:
    """As slim's train_op is; an evaluation fetches the loss itself."""

    def make(x: Any) -> None:
        w = tf.get_variable("w", [6, 6], use_resource=True)
        loss = tf.reduce_sum(tf.tanh(tf.matmul(x, w)), name="loss")
        with tf.control_dependencies([tf.train.GradientDescentOptimizer(0.1).minimize(loss)]):
            tf.identity(loss, "train_op")

    only = for_updates.only(view_of(make))
    assert "gradients/MatMul_grad/MatMul_1" in only and not {"loss", "MatMul", "Tanh"} & only


def test_a_loss_behind_a_forward_pass_that_writes_is_not_for_updates_only() -> None:
    """Spectral normalization's vectors are written on the way to the loss, which an evaluation fetches."""

    def make(x: Any) -> None:
        w, u = tf.get_variable("w", [6, 6], use_resource=True), tf.get_variable("u", [1, 6], use_resource=True, trainable=False)
        with tf.control_dependencies([u.assign(tf.nn.l2_normalize(tf.matmul(u, w)))]):
            norm = tf.norm(tf.identity(u))
        loss = tf.reduce_sum(tf.tanh(tf.matmul(x, w / norm)), name="loss")
        tf.train.GradientDescentOptimizer(0.1).minimize(loss, tf.train.get_or_create_global_step())

    only = for_updates.only(view_of(make))
    assert "gradients/MatMul_1_grad/MatMul_1" in only and not {"loss", "MatMul_1", "Tanh"} & only


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
