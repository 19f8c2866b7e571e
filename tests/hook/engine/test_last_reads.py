"""A fetched reference variable says what the step has written to it, on local workers as in a plain session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from stepd.hook.engine import last_reads
from stepd.hook.engine.graphview import GraphView
from stepd.hook.engine.kinds import step_kind
from stepd.hook.model import LiveStrategy, Way

tf = pytest.importorskip("tensorflow.compat.v1")
from tensorflow.core.protobuf import config_pb2  # noqa: E402
from tensorflow.python.ops import control_flow_util  # noqa: E402


@pytest.fixture(autouse=True)
def control_flow_of_references(monkeypatch: pytest.MonkeyPatch) -> None:
    """Branches of the second generation cannot write to a reference."""
    monkeypatch.setattr(control_flow_util, "ENABLE_CONTROL_FLOW_V2", False)


def program(session: Any, between: Callable[[Any], None] = lambda session: None) -> Iterator[Any]:
    """What a program that counts steps in a reference variable sees."""
    step = tf.get_variable("step", shape=[], initializer=tf.zeros_initializer(), use_resource=False)
    w = tf.get_variable("w", [3], initializer=tf.ones_initializer(), use_resource=False)
    x = tf.placeholder(tf.float32, [3], name="x")
    loss = tf.reduce_sum(tf.square(w * x - 2.0), name="loss")
    descend = tf.train.GradientDescentOptimizer(0.1).minimize(loss, step)
    before, flat = tf.identity(w.read_value()), tf.reshape(w, [3, 1])
    branch = tf.cond(x[0] > 0.0, lambda: tf.assign_add(step, 10.0), lambda: tf.identity(step))
    session.run(tf.global_variables_initializer())
    callable_ = session.make_callable([step, descend], [x])
    from_options = session._make_callable_from_options(  # the user's own way to one
        config_pb2.CallableOptions(feed=["x:0"], fetch=["step:0", "w:0"], target=[descend.name])
    )
    for turn in range(2):
        for k in range(3):
            feed = {x: np.array([1.0, 2.0, k], np.float32)}
            yield session.run([step, w, loss, descend, step], feed)[:3]
            yield session.run([descend, step], feed)[1]
            yield callable_(feed[x])[0]
            yield from_options(feed[x])
            yield session.run(tf.assign_add(step, 1.0) if k else step)
            yield session.run([step, branch], feed)[1]
            yield session.run([before, flat, descend, loss], feed)[:2]
        if not turn:
            between(session)


def plain(values: Any) -> list[Any]:
    return [str(value) for value in values]


def test_values_written_by_the_step_are_seen(hooked: Any, cluster: Any, reply: Any) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        expected = plain(program(session))
    listener = hooked(local_cluster=lambda: cluster[0])

    def switch(session: Any) -> None:
        away = LiveStrategy("away", dict.fromkeys(["step", "w", "loss"], "/job:localhost/replica:0/task:1/device:CPU:0"))
        listener.engines[0].request_switch(away, Way.IN_SESSION, reply)
        while not reply.came():
            session.run("w:0")
        assert reply.wait().ok

    with tf.Graph().as_default(), tf.Session() as session:
        assert plain(program(session, switch)) == expected


class TestReadLast:
    @pytest.fixture
    def view(self) -> Callable[[], GraphView]:
        return lambda: GraphView.parse(tf.get_default_graph().as_graph_def().SerializeToString(), lambda name: name)

    def test_waits_for_all_that_the_step_was_asked_for(self, view: Any) -> None:
        with tf.Graph().as_default():
            v = tf.get_variable("v", [], use_resource=False)
            add, other = tf.assign_add(v, 1.0, name="add"), tf.constant(1.0, name="other")
            kind = step_kind([], [v.op.outputs[0].name, other.name], [add.op.name])
            assert last_reads.read_last(view(), kind) == {"v:0": ("other", "add")}

    def test_waits_for_writes_to_memory_that_is_handed_on(self, view: Any) -> None:
        with tf.Graph().as_default():
            v = tf.get_variable("v", [2], use_resource=False)
            read = tf.reshape(tf.identity(v), [2, 1], name="read")
            with tf.control_dependencies([read]):
                add = tf.assign_add(v, [1.0, 1.0], name="add")
            product = tf.multiply(read, 2.0, name="product")
            found = last_reads.read_last(view(), step_kind([], [read.name, product.name], [add.op.name]))
            assert found == {"read:0": ("product", "add")}

    def test_leaves_what_is_written_before_it_is_fetched(self, view: Any) -> None:
        with tf.Graph().as_default():
            v = tf.get_variable("v", [], use_resource=False)
            add = tf.assign_add(v, 1.0, name="add")
            assert last_reads.read_last(view(), step_kind([], [add.name], [])) == {}
            assert last_reads.read_last(view(), step_kind([], ["v:0"], [])) == {}
            assert last_reads.read_last(view(), step_kind(["v:0"], ["v:0", add.name], [])) == {}

    def test_waits_for_nothing_that_may_not_run(self, view: Any) -> None:
        with tf.Graph().as_default():
            v = tf.get_variable("v", [], use_resource=False)
            flag = tf.placeholder(tf.bool, [], name="flag")
            inside: list[str] = []

            def branch() -> Any:
                add = tf.assign_add(v, 1.0)
                inside.append(add.op.name)
                return add

            whole = tf.cond(flag, branch, lambda: tf.constant(0.0))
            found = last_reads.read_last(view(), step_kind(["flag:0"], ["v:0", whole.name], inside))
            assert found == {"v:0": (whole.op.name,)}
