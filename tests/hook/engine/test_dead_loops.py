"""Loops that are given a value that never comes to life: a device that were sent what is behind them would wait for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext

import pytest
import tensorflow.compat.v1 as tf

from stepd.hook.engine.classify import classify
from stepd.hook.engine.graphview import GraphView


@pytest.fixture(autouse=True)
def first_generation() -> Iterator[None]:
    before = tf.control_flow_v2_enabled()
    tf.disable_control_flow_v2()
    yield
    (tf.enable_control_flow_v2 if before else tf.disable_control_flow_v2)()


def loop(x: tf.Tensor) -> tf.Tensor:
    return tf.while_loop(lambda at, _: at < 3, lambda at, a: (at + 1, tf.tanh(a) * 0.9), [0, x])[1]


def one(x: tf.Tensor) -> tf.Tensor:
    return tf.square(loop(x))


def two(x: tf.Tensor) -> tf.Tensor:
    return tf.square(loop(tf.sin(loop(x))))


def scanned(x: tf.Tensor) -> tf.Tensor:
    start = tf.zeros([3])
    return tf.scan(lambda a, e: tf.tanh(a + e), tf.scan(lambda a, e: tf.tanh(a + e), x, start), start)


@pytest.mark.parametrize(
    ("model", "waits", "comes", "stops"),
    [(two, True, False, True), (two, False, True, False), (one, True, False, False), (scanned, True, True, False)],
    ids=["two-waiting", "two", "one-waiting", "scans-waiting"],
)
def test_only_where_a_loop_is_given_what_never_comes_a_step_keeps_to_its_ops(
    model: Callable[[tf.Tensor], tf.Tensor], waits: bool, comes: bool, stops: bool
) -> None:
    """In 9 of 24 nets with the train op elsewhere the first step never ended, in plain TensorFlow too: those that this finds."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4, 3], name="x")
        w = tf.get_variable("w", [3, 3], use_resource=True)
        loss = tf.reduce_mean(model(tf.matmul(x, w)))
        with tf.control_dependencies([tf.constant(1.0)] if waits else []):
            ((gradient, _),) = tf.train.GradientDescentOptimizer(0.1).compute_gradients(loss, [w])
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            # TensorFlow itself says that there is no such value where it is asked for it, and nothing where it is not.
            with nullcontext() if comes else pytest.raises(tf.errors.InvalidArgumentError, match="does not have value"):
                sess.run(gradient, {x: [[0.1] * 3] * 4})
    assert ("never leaves another one" in classify(view).apart) == stops
