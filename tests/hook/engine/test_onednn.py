"""What oneDNN's layout pass and Grappler make one kernel of moves together; a wait that keeps two kernels apart is not lifted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

from stepd.hook.engine import onednn  # noqa: E402
from stepd.hook.engine.classify import classify  # noqa: E402
from stepd.hook.engine.graphview import GraphView  # noqa: E402
from stepd.hook.order import barriers, ties  # noqa: E402


def leaf(name: str, *shape: int) -> Any:
    return tf.get_variable(name, initializer=np.ones(shape, np.float32))


def dense(x: Any) -> Any:
    return tf.nn.bias_add(tf.matmul(x, leaf("kernel", 6, 6)), leaf("bias", 6), name="layer")


def convolution(x: Any) -> Any:
    return tf.nn.bias_add(tf.nn.conv2d(x, leaf("kernel", 3, 3, 2, 2), 1, "SAME"), leaf("bias", 2), name="layer")


def pooled(x: Any) -> Any:
    y = tf.nn.max_pool2d(x, 3, 2, "SAME", name="pool")
    return tf.gradients(tf.reduce_sum(y * y), x)[0]


def instance(x: Any) -> Any:
    mean, variance = tf.nn.moments(x, [1, 2], keepdims=True)
    return tf.nn.leaky_relu(tf.nn.batch_normalization(x, mean, variance, tf.constant([0.1, 0.2]), tf.constant([1.1, 1.2]), 1e-3))


def plain_norm(x: Any) -> Any:
    mean, variance = tf.nn.moments(x, [1], keepdims=True)
    return (x - mean) / tf.sqrt(variance + 1e-5) * leaf("scale", 6) + leaf("offset", 6)


def layer_norm(x: Any) -> Any:
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, leaf("offset", 6), leaf("scale", 6), 1e-5)


def keras_norm(x: Any) -> Any:
    rows = tf.reshape(x, [1, 4, 6, 1])
    unit = (tf.fill([4], 1.0), tf.fill([4], 0.0), tf.constant([], tf.float32), tf.constant([], tf.float32))
    y = tf.raw_ops.FusedBatchNormV3(x=rows, scale=unit[0], offset=unit[1], mean=unit[2], variance=unit[3], data_format="NCHW")
    return tf.reshape(y[0], [4, 6]) * leaf("scale", 6) + leaf("offset", 6)


def nothing(x: Any) -> Any:
    """What every `tf.custom_gradient` puts behind its function."""
    return tf.raw_ops.IdentityN(input=[x])[0]


ROWS, IMAGES = (4, 6), (2, 8, 8, 2)


@pytest.mark.parametrize(
    ("make", "shape", "joined"),
    [
        (lambda x: (lambda y: y * tf.sigmoid(y))(dense(x)), ROWS, "Sigmoid Mul"),
        (lambda x: tf.nn.relu(tf.identity(convolution(tf.identity(x)))), IMAGES, "Conv2D BiasAdd Identity Relu"),
        (
            lambda x: tf.nn.bias_add(tf.identity(tf.nn.conv2d(x, leaf("k", 3, 3, 2, 2), 1, "SAME")), leaf("b", 2)),
            IMAGES,
            "Conv2D Identity BiasAdd",
        ),
        (
            lambda x: tf.nn.tanh(tf.stop_gradient(tf.identity(tf.matmul(x, leaf("w", 6, 6)) + 0.5))),
            ROWS,
            "MatMul AddV2 Identity StopGradient Tanh",
        ),
        (lambda x: (lambda y: y * tf.tanh(tf.nn.softplus(y)))(convolution(x)), IMAGES, "Softplus Tanh Mul"),
        (lambda x: (lambda y: tf.maximum(0.2 * y, y))(convolution(x)), IMAGES, "BiasAdd Mul Maximum"),
        (lambda x: (lambda y: 0.5 * y * (1.0 + tf.erf(y / 1.4)))(dense(x)), ROWS, "BiasAdd Mul RealDiv Erf AddV2 Mul"),
        (
            lambda x: (lambda y: 0.5 * nothing(y) * (1.0 + nothing(tf.erf(nothing(y) / 1.4))))(dense(x)),
            ROWS,
            "BiasAdd IdentityN Mul IdentityN RealDiv Erf IdentityN AddV2 Mul",
        ),
        (lambda x: (lambda y: nothing(y) * tf.sigmoid(nothing(y)))(dense(x)), ROWS, "IdentityN IdentityN Sigmoid Mul"),
        (
            lambda x: (lambda y: y * (0.5 * (1.0 + tf.tanh(y + tf.pow(y, 3)))))(dense(x)),
            ROWS,
            "BiasAdd Pow AddV2 Tanh AddV2 Mul Mul",
        ),
        (pooled, IMAGES, "MaxPool MaxPoolGrad"),
        (instance, IMAGES, "Mean SquaredDifference Mean AddV2 Rsqrt Mul Mul Mul Sub AddV2 LeakyRelu"),
        (plain_norm, ROWS, "Mean StopGradient SquaredDifference Mean AddV2 Sqrt Sub RealDiv Mul AddV2"),
        (layer_norm, ROWS, "Mean StopGradient SquaredDifference Mean AddV2 Rsqrt Mul Mul Mul Sub AddV2"),
        (keras_norm, ROWS, "Reshape Fill Fill FusedBatchNormV3 Reshape Mul AddV2"),
    ],
)
def test_they_move_together(make: Callable[[Any], Any], shape: tuple[int, ...], joined: str) -> None:
    with tf.Graph().as_default() as graph:
        make(tf.placeholder(tf.float32, shape))
    view = GraphView.parse(graph.as_graph_def().SerializeToString(), str)
    groups = classify(view).groups
    assert any(not _lacking(joined.split(), [view.nodes[n].op for n in group]) for group in groups), groups


def _lacking(wanted: list[str], found: list[str]) -> list[str]:
    for op in found:
        if op in wanted:
            wanted.remove(op)
    return wanted


def test_what_a_product_with_one_hands_on_meets_who_reads_it() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, ROWS)
        tf.nn.swish(tf.add(tf.matmul(x, leaf("kernel", 6, 6)), leaf("bias", 6), name="layer"))
    view = GraphView.parse(graph.as_graph_def().SerializeToString(), str)
    assert any({"layer", "mul", "Sigmoid", "mul_1"} <= set(group) for group in classify(view).groups)


def test_what_waits_for_something_else_is_no_mere_name() -> None:
    with tf.Graph().as_default() as graph:
        product = tf.matmul(tf.placeholder(tf.float32, ROWS), leaf("w", 6, 6), name="product")
        with tf.control_dependencies([tf.no_op(name="other")]):
            named = tf.identity(product)
        tf.nn.relu(named, name="relu")
    view = GraphView.parse(graph.as_graph_def().SerializeToString(), str)
    assert not any({"product", "relu"} <= set(group) for group in classify(view).groups)


def test_a_product_of_another_value_is_free() -> None:
    with tf.Graph().as_default() as graph:
        x, other = tf.placeholder(tf.float32, [4]), tf.placeholder(tf.float32, [4])
        other * tf.sigmoid(x)
    assert not list(onednn.together(GraphView.parse(graph.as_graph_def().SerializeToString(), str)))


@pytest.mark.parametrize("gated", [True, False])
def test_gradients_of_a_kernel_and_its_bias_are_one_layers(gated: bool) -> None:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, IMAGES)
        loss = tf.reduce_sum(tf.nn.relu(convolution(tf.nn.relu(x * leaf("scale", 2)))))
        if gated:
            tf.train.GradientDescentOptimizer(0.1).minimize(loss)
        else:
            tf.gradients(loss, tf.trainable_variables())
    view = GraphView.parse(graph.as_graph_def().SerializeToString(), str)
    ((bias, kernel),) = onednn.bias_gradients(view)
    classes = classify(view)
    assert classes.group_of[bias] == classes.group_of[kernel]
    assert onednn.filter_gradients(view) == {kernel: gated}
    lifted = barriers.without(view, barriers.liftable(view, classes))
    assert (lifted is not view) == gated and onednn.filter_gradients(lifted) == {kernel: gated}, "no less when the wait is lifted"
    # An order: held on an input, the kernel's gradient could come after the bias's by way of a third op, and wait for itself then.
    (other,) = (name for name, node in view.nodes.items() if node.op == "ReluGrad" and name not in view.ancestors([kernel]))
    found = {name: ties.tie(view, classes, other, name, view.nodes.keys(), lambda *_: True) for name in (kernel, bias)}
    assert found[kernel] == (ties.Tie(other, None, kernel, -1) if gated else None)
    assert found[bias] == (ties.Tie(other, None, bias, 0) if gated else None)


def test_a_bias_and_the_filter_of_another_layer_lie_with_what_hands_their_gradient_on() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [2, 4, 4, 2])
        k, r, b = (
            tf.get_variable(name, shape, use_resource=True) for name, *shape in (("k", 2, 2, 2, 2), ("r", 2, 2, 2, 2), ("b", 2))
        )
        h = tf.nn.bias_add(tf.nn.conv2d(x, k, 1, "SAME"), b) + tf.nn.conv2d(tf.tanh(x), r, 1, "SAME")
        tf.train.GradientDescentOptimizer(0.1).compute_gradients(tf.reduce_sum(tf.tanh(h)), [k, r, b])
    view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    own, other = ((each, "gradients/BiasAdd_grad/BiasAddGrad") for each in ("Conv2D", "Conv2D_1"))
    groups = {names[1]: set(names[2:]) for names in onednn.together(view) if names[0] == other[1]}
    add = "gradients/add_grad/tuple"
    assert groups == {
        f"gradients/{own[0]}_grad/Conv2DBackpropFilter": set(),  # it waits for the bias's
        f"gradients/{other[0]}_grad/Conv2DBackpropFilter": {
            f"{add}/control_dependency", f"{add}/control_dependency_1", f"{add}/group_deps", "gradients/Tanh_1_grad/TanhGrad",
        },
    }  # fmt: skip
