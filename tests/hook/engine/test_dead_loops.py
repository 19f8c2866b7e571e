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


def loop(x: tf.Tensor, most: tf.Tensor | int = 3, at_once: int = 10) -> tf.Tensor:
    return tf.while_loop(lambda at, _: at < most, lambda at, a: (at + 1, tf.tanh(a) * 0.9), [0, x], parallel_iterations=at_once)[1]


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
    assert ("may be dead" in classify(view).apart) == stops


def normalized_in_a_branch(behind: Callable[[tf.Tensor], tf.Tensor]) -> tf.Operation:
    """As tf.layers' normalization was used with a `training` that is fed."""
    training, x = tf.placeholder(tf.bool, [], name="training"), tf.placeholder(tf.float32, [4, 3], name="x")
    mean = tf.get_variable("mean", [3], use_resource=True, trainable=False)
    h = tf.matmul(x, tf.get_variable("w", [3, 3], use_resource=True))
    updates = []

    def updated() -> tf.Tensor:
        updates.append(tf.assign(mean, tf.reduce_mean(h, 0)))
        return h - tf.reduce_mean(h, 0)

    loss = tf.reduce_mean(behind(tf.cond(training, updated, lambda: h - mean)))
    with tf.control_dependencies(updates):
        return tf.train.GradientDescentOptimizer(0.1).minimize(loss)


def stepped(x: tf.Tensor, waits: bool = True, most: tf.Tensor | int = 3, at_once: int = 10) -> tf.Tensor:
    """A step along the gradient of a loop's value."""
    loss = tf.reduce_sum(tf.square(loop(x, most, at_once)))
    with tf.control_dependencies([loss] if waits else []):
        return x - 0.1 * tf.gradients(loss, x)[0]


def branch(model: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
    x = tf.placeholder(tf.float32, [4, 3])
    return tf.cond(tf.placeholder(tf.bool, []), lambda: model(x), lambda: x)


def trained_in_a_branch(model: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
    """Every so many steps."""
    v = tf.get_variable("v", [4, 3], use_resource=True)
    y = model(v)
    return branch(lambda x: x + tf.gradients(y, v)[0])


def rounds(model: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
    return tf.while_loop(lambda at, _: at < 2, lambda at, a: (at + 1, model(a)), [0, tf.placeholder(tf.float32, [4, 3])])[1]


def trained(model: Callable[[tf.Tensor], tf.Tensor]) -> list[tf.Tensor]:
    """Gradients of a loop with conditions in it, whose histories are told by ControlTriggers."""
    w = tf.get_variable("w", [3, 3], use_resource=True)
    return tf.gradients(rounds(lambda a: model(tf.matmul(a, w))), w)


def leaving(x: tf.Tensor) -> tf.Tensor:
    """What leaves a branch without a Merge."""
    kept = []
    tf.cond(tf.placeholder(tf.bool, []), lambda: kept.append(tf.sin(x)) or kept[0], lambda: x)
    return kept[0]


def steps_in_a_branch() -> tf.Tensor:
    """Steps of a training loop, of a variable that comes in by the condition: within the branch its gradient always comes."""
    v, x = tf.get_variable("v", [3], use_resource=False), tf.placeholder(tf.float32, [3])

    def step(at: tf.Tensor) -> tf.Tensor:
        (gradient,) = tf.gradients(tf.reduce_sum(tf.square(tf.tanh(v * x) - 0.5)), [v])
        with tf.control_dependencies([v.assign_sub(0.1 * gradient)]):
            return at + 1

    return tf.cond(tf.placeholder(tf.bool, ()), lambda: tf.while_loop(lambda at: at < 3, step, [0]), lambda: 0)


@pytest.mark.parametrize(
    ("build", "stops"),
    [
        (lambda: normalized_in_a_branch(two), "may be dead"),
        (lambda: normalized_in_a_branch(tf.square), ""),
        (lambda: loop(leaving(tf.placeholder(tf.float32, [4, 3]))), "may be dead"),
        (lambda: rounds(lambda a: a + tf.reduce_sum(leaving(a))), "may be dead"),
        (lambda: trained_in_a_branch(one), "may be dead"),
        (lambda: branch(stepped), "dead as a whole"),
        (lambda: rounds(stepped), "dead as a whole"),
        (lambda: stepped(tf.placeholder(tf.float32, [4, 3])), ""),
        (lambda: stepped(tf.placeholder(tf.float32, [4, 3]), at_once=4), ""),
        (lambda: stepped(tf.placeholder(tf.float32, [4, 3]), at_once=3), "at once"),
        (lambda: stepped(tf.placeholder(tf.float32, [4, 3]), most=tf.placeholder(tf.int32, [])), "at once"),
        (lambda: branch(lambda x: stepped(x, False)), ""),
        (lambda: rounds(lambda x: stepped(x, False)), ""),
        (steps_in_a_branch, ""),
        (lambda: trained(lambda x: tf.cond(tf.reduce_sum(x) > 0.0, lambda: tf.tanh(x) * x, lambda: x * 0.5)), ""),
        (lambda: trained(lambda x: tf.cond(tf.reduce_sum(x) > 0.0, lambda: loop(x), lambda: loop(tf.sin(x)))), ""),
    ],
    ids=[
        "normalized-before-loops", "normalized", "entering", "next-round", "gradient-in-branch", "late-in-branch",
        "late-in-rounds", "late-at-the-top", "late-with-few-rounds", "late-with-many", "late-with-a-fed-number", "in-branch",
        "in-rounds", "steps-in-branch", "condition-in-rounds", "loops-in-branches-in-rounds",
    ],
)  # fmt: skip
def test_a_loop_that_may_go_on_without_a_value_or_never_end_dead_keeps_to_its_ops(build: Callable[[], object], stops: str) -> None:
    """Found by placing such graphs at random in plain TensorFlow: with one product on another device these steps never end."""
    with tf.Graph().as_default() as graph:
        build()
    apart = classify(GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)).apart
    assert (stops in apart) if stops else apart == ""
