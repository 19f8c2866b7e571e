"""What is read and written without order: found, told, and left where it is when it is small."""

from __future__ import annotations

import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

from stepd.hook.engine.graphview import GraphView  # noqa: E402
from stepd.hook.engine.kinds import step_kind  # noqa: E402
from stepd.hook.engine.races import notes, races, to_keep  # noqa: E402


def view_of(graph: object) -> GraphView:
    return GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)  # type: ignore[attr-defined]


@pytest.mark.parametrize("use_resource", [False, True])
def test_a_read_beside_a_write(use_resource: bool) -> None:
    with tf.Graph().as_default() as graph:
        v = tf.get_variable("v", [], initializer=tf.zeros_initializer(), use_resource=use_resource)
        other = tf.get_variable("other", [], initializer=tf.ones_initializer(), use_resource=use_resource)
        write = tf.assign_add(v, tf.tanh(other, name="tanh")).op
        read = tf.add(v, 0.0, name="read")
        big = tf.get_variable("big", [1000], initializer=tf.zeros_initializer(), use_resource=use_resource)
        write_big = tf.assign_add(big, tf.ones([1000])).op
        read_big = tf.add(big, 0.0, name="read_big")
        view = view_of(graph)
    kind = step_kind([], [read.name, read_big.name], [write.name, write_big.name])
    found = races(view, kind)
    assert {race.variable for race in found} == {"v", "big"}
    assert {race.writer for race in found} == {write.name, write_big.name}
    kept = to_keep(view, found)
    assert "v" in kept and not {"big", "tanh", write.name} & kept.keys()
    assert len(notes(view, [kind])) == 2


@pytest.mark.parametrize("use_resource", [False, True])
def test_a_training_step(use_resource: bool) -> None:
    """A resource variable is read as a whole before its update; a reference may be updated while the loss works on it."""
    with tf.Graph().as_default() as graph:
        v = tf.get_variable("v", [2], initializer=tf.ones_initializer(), use_resource=use_resource)
        loss = tf.reduce_sum(tf.square(v))
        train = tf.train.AdamOptimizer(0.1).minimize(loss)
        with tf.control_dependencies([train]):
            after = tf.identity(v.read_value(), name="after")
        view = view_of(graph)
    found = races(view, step_kind([], [loss.name, after.name], [train.name]))
    assert [race.reader for race in found] == ([] if use_resource else ["Square"])


def test_a_write_in_another_step_is_none() -> None:
    with tf.Graph().as_default() as graph:
        v = tf.get_variable("v", [], initializer=tf.zeros_initializer())
        tf.assign_add(v, 1.0, name="write")
        read = tf.add(v, 0.0, name="read")
        view = view_of(graph)
    assert races(view, step_kind([], [read.name], [])) == []
