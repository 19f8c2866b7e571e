"""What may fail in a loop of the first generation: the loop waits for what is to come before."""

from __future__ import annotations

from typing import Any

import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

from stepd.hook.engine.failing import updates_first  # noqa: E402
from stepd.hook.engine.graphview import GraphView  # noqa: E402
from stepd.hook.engine.kinds import step_kind  # noqa: E402
from stepd.hook.rewrite.shapes import static_shapes  # noqa: E402

pytestmark = pytest.mark.usefixtures("first_generation")


def waiting(train: Any, *beside: Any, feeds: tuple[Any, ...] = ()) -> set[str]:
    """Which ops of a step wait for its training, by name."""
    graph = tf.get_default_graph()
    view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    step = step_kind([feed.name for feed in feeds], [], [train.name, *(each.op.name for each in beside)])
    return {
        end
        for update, end in updates_first(view, step, shapes=static_shapes(graph))
        if view.nodes[update].op == "ResourceApplyGradientDescent"
    }


def trained(x: Any) -> Any:
    w = tf.get_variable("w", [3], initializer=tf.ones_initializer(), use_resource=True)
    return tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.square(x * w)))


def checked(limit: Any) -> Any:
    """Rounds that are checked: the last number."""

    def body(i: Any) -> Any:
        with tf.control_dependencies([tf.raw_ops.Assert(condition=i < limit, data=[i])]):
            return i + 1

    return tf.while_loop(lambda i: i < 5, body, [0], name="rounds")


def test_a_loop_is_entered_after_the_training_beside_it() -> None:
    with tf.Graph().as_default():
        train, limit = trained(tf.placeholder(tf.float32, [3])), tf.placeholder(tf.int32, [])
        assert waiting(train, checked(limit)) == {"rounds/Enter"}
        assert waiting(train, tf.while_loop(lambda i: i < 5, lambda i: i + 1, [0])) == set()


def test_sizes_in_a_loop_may_not_fit() -> None:
    with tf.Graph().as_default():
        train, free, rows = (trained(tf.ones([3])), tf.placeholder(tf.float32, [None, None]), tf.placeholder(tf.float32, [None, 4]))
        for given, ends in ((free, {"multiplied/Enter"}), (rows, set[str]())):
            product = tf.while_loop(
                lambda i, _: i < 3,
                lambda i, s, y=given: (i + 1, s + tf.reduce_sum(tf.matmul(y, tf.ones([4, 2])))),
                (0, 0.0),
                name="multiplied",
            )[1]
            assert waiting(train, product, feeds=(given,)) == ends


def test_of_loops_in_loops_the_outermost_waits() -> None:
    with tf.Graph().as_default():
        train, limit = trained(tf.placeholder(tf.float32, [3])), tf.placeholder(tf.int32, [])
        outer = tf.while_loop(lambda i: i < 3, lambda i: i + checked(limit), [0], name="outer")
        assert waiting(train, outer) == {"outer/Enter"}


def test_no_loop_waits_for_what_needs_it_or_is_not_sure_to_come() -> None:
    with tf.Graph().as_default():
        limit, taken = tf.placeholder(tf.int32, []), tf.placeholder(tf.bool, [])
        last = checked(limit)
        assert waiting(trained(tf.cast(tf.fill([3], last), tf.float32)), last) == set()
    with tf.Graph().as_default():
        limit, taken = tf.placeholder(tf.int32, []), tf.placeholder(tf.bool, [])
        train = trained(tf.placeholder(tf.float32, [3]))
        within = tf.cond(taken, lambda: checked(limit), lambda: 0)
        assert waiting(train, within) == {"cond/rounds/Enter"}  # the training is sure to come where the loop is
    with tf.Graph().as_default():
        limit, taken = tf.placeholder(tf.int32, []), tf.placeholder(tf.bool, [])
        w = tf.get_variable("w", [3], initializer=tf.ones_initializer(), use_resource=True)
        added = tf.cond(taken, lambda: tf.raw_ops.ResourceApplyGradientDescent(var=w.handle, alpha=0.1, delta=w * 2.0), tf.no_op)
        assert waiting(added, checked(limit)) == set()
