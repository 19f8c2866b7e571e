"""Reference variables are memory that many ops share: who works on it after a write must be where it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

from stepd.hook.engine import aliases, classify, names  # noqa: E402
from stepd.hook.engine.graphview import GraphView  # noqa: E402


def view_of(build: Callable[[], Any]) -> GraphView:
    with tf.Graph().as_default() as graph:
        build()
        return GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)


def ref(name: str, **options: Any) -> Any:
    return tf.get_variable(name, [2], initializer=tf.zeros_initializer(), use_resource=False, **options)


def test_what_reads_after_a_write_moves_with_the_variable() -> None:
    def build() -> None:
        v, x = ref("v"), tf.placeholder(tf.float32, [2], name="x")
        with tf.control_dependencies([tf.assign_add(v, x)]):
            late = tf.identity(v, name="late")  # of v/read, which waits for nothing
        tf.multiply(late, 2.0, name="later")
        tf.multiply(v, 3.0, name="beside")

    view = view_of(build)
    assert set(aliases.late_workers(view)) == {("late", "v/read"), ("v/read", "v")}
    (group,) = (set(group) for group in classify.classify(view).groups)
    assert {"v", "v/read", "late"} <= group
    assert group.isdisjoint({"later", "beside"}), "what is given a copy, or waits for no write, may go anywhere"


def test_averages_of_what_was_trained_are_of_its_memory() -> None:
    def build() -> None:
        v = ref("v")
        train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.square(v)))
        with tf.control_dependencies([train]):
            tf.train.ExponentialMovingAverage(0.9).apply([v])

    workers = {worker for worker, _ in aliases.late_workers(view_of(build))}
    assert any(worker.endswith("/sub_1") for worker in workers), workers


def test_an_optimizer_alone_ties_nothing() -> None:
    def build() -> None:
        v = ref("v")
        step = ref("step", trainable=False)
        rate = tf.reduce_sum(step) * 0.1
        train = tf.train.GradientDescentOptimizer(rate).minimize(tf.reduce_sum(tf.square(v)))
        with tf.control_dependencies([train]):
            tf.assign_add(step, [1.0, 1.0])

    assert not [pair for pair in aliases.late_workers(view_of(build)) if not pair[0].startswith(("Assign", "v", "step"))]


def test_what_was_read_after_the_write_is_as_good_anywhere() -> None:
    def build() -> None:
        v = ref("v")
        with tf.control_dependencies([tf.assign_add(v, [1.0, 1.0])]):
            read = tf.raw_ops.Snapshot(input=v)
        tf.negative(read, name="worker")

    assert "worker" not in {worker for worker, _ in aliases.late_workers(view_of(build))}


def test_what_a_reference_is_handed_through_goes_along() -> None:
    def build() -> None:
        v, x = ref("v"), tf.placeholder(tf.float32, [2], name="x")
        handed = tf.reshape(v, [1, 2], name="handed")
        with tf.control_dependencies([tf.assign(v, x)]):
            tf.negative(handed, name="worker")

    assert {("worker", "handed"), ("handed", "v/read"), ("v/read", "v")} <= set(aliases.late_workers(view_of(build)))


class Workers:
    """A cluster of local workers, for `repair_error`."""

    @staticmethod
    def plain_error_text(text: str) -> str:
        return text


@pytest.mark.parametrize(("sender", "cluster"), [("v/_7", None), ("v_S41", Workers), ("v-stepd_3-last", Workers)])
def test_what_sends_an_uninitialized_variable_is_not_named(sender: str, cluster: Any) -> None:
    told = "Attempting to use uninitialized value v\n\t [[{{node SENDER}}]]"
    error = tf.errors.FailedPreconditionError(None, None, told.replace("SENDER", sender))
    names.repair_error(error, {}, cluster)
    assert error.message == told.replace("SENDER", "_retval_v_0_0")
