"""Reads of variables that come before a write of the same step: found, tied into copies, and dragged into no step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

from tensorflow.core.framework import graph_pb2  # noqa: E402

from stepd.hook.engine import capi, requests  # noqa: E402
from stepd.hook.engine.classify import classify  # noqa: E402
from stepd.hook.engine.graphview import GraphView  # noqa: E402
from stepd.hook.engine.kinds import Kind, step_kind  # noqa: E402
from stepd.hook.engine.races import races, to_keep  # noqa: E402
from stepd.hook.engine.reads import First, Unordered, common, first_reads, serves  # noqa: E402
from stepd.hook.model import LiveStrategy  # noqa: E402
from stepd.hook.order.steps import executed  # noqa: E402


def view_of(graph: Any) -> GraphView:
    return GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)


def other() -> Any:
    return tf.get_variable("other", [], initializer=tf.ones_initializer(), use_resource=True)


def late(value: Any, ops: int = 12) -> Any:
    for _ in range(ops):
        value = tf.tanh(value)
    return value


@pytest.mark.parametrize("use_resource", [False, True])
def test_a_short_read_comes_before_a_long_write(use_resource: bool) -> None:
    with tf.Graph().as_default() as graph:
        step = tf.get_variable("step", [], tf.int64, tf.zeros_initializer(), use_resource=use_resource)
        write = tf.assign_add(step, tf.cast(tf.abs(late(other())), tf.int64)).op
        read = tf.add(step, 0, name="read")
    view = view_of(graph)
    kind = step_kind([], [read.name], [write.name])
    reader = "read/ReadVariableOp" if use_resource else "read"
    assert first_reads(view, kind).reads == {First(reader, write.name)}
    alone = step_kind([], [], [write.name])
    assert first_reads(view, alone).reads == frozenset()
    assert common(view, {kind: first_reads(view, kind).reads}) == first_reads(view, kind).reads
    assert common(view, {kind: first_reads(view, kind).reads, alone: frozenset()}) == frozenset()
    assert serves(first_reads(view, kind).reads, frozenset(), executed(view, kind))
    assert not serves(first_reads(view, kind).reads, frozenset(), executed(view, alone))
    assert not serves(frozenset(), first_reads(view, kind).reads, executed(view, kind))


def test_what_is_made_of_a_reference_variable_for_another_is_written_before_the_variable() -> None:
    with tf.Graph().as_default() as graph:
        velocity, place = (tf.get_variable(name, initializer=tf.zeros([3]), use_resource=False) for name in ("velocity", "place"))
        moved = tf.scatter_update(place, [0], velocity[:1] + 0.5 * velocity[1:2]).op
        grown = tf.assign(velocity, 0.9 * velocity + late(other())).op
        reset = tf.assign_add(velocity, tf.ones([3])).op
    view = view_of(graph)
    both = first_reads(view, step_kind([], [], [moved.name, grown.name]))
    assert both.reads == {First(moved.name, grown.name)} and both.all  # no float op, which may be fused, is waited for
    assert first_reads(view, step_kind([], [], [reset.name, grown.name])).reads == frozenset()  # of two writes neither is first


def test_what_may_wait_or_is_as_late_as_the_write_is_left_alone() -> None:
    with tf.Graph().as_default() as graph:
        v = tf.get_variable("v", [], initializer=tf.zeros_initializer(), use_resource=True)
        write = tf.assign_add(v, late(other())).op
        with tf.control_dependencies([tf.FIFOQueue(1, tf.float32).dequeue()]):
            behind_a_queue = tf.identity(v.read_value(), name="behind_a_queue")
        with tf.control_dependencies([late(tf.constant(0.25), 40)]):
            later = tf.identity(v.read_value(), name="later")
        in_a_branch = tf.cond(tf.less(tf.placeholder(tf.float32, [], "x"), 0.0), lambda: v.read_value(), lambda: 0.0)
        after = tf.identity(v.read_value(), name="after")
        quick = tf.assign_add(v, 1.0, name="quick").op
    view = view_of(graph)
    for fetch in (behind_a_queue, later, in_a_branch):
        assert first_reads(view, step_kind(["x:0"], [fetch.name], [write.name])).reads == frozenset(), fetch.name
    assert {pair.write for pair in first_reads(view, step_kind([], [after.name], [write.name])).reads} == {write.name}
    assert first_reads(view, step_kind([], [later.name], [quick.name])).reads == frozenset()


@pytest.mark.parametrize("use_resource", [False, True])
def test_the_next_step_of_a_reference_variable_and_a_rate_that_are_made_of_a_step_stay_in_no_order(use_resource: bool) -> None:
    """As in BERT's optimizer. Plainly the write may come first; copies once had the read first, and other values each time."""
    with tf.Graph().as_default() as graph:
        step = tf.get_variable("step", [], tf.int64, tf.zeros_initializer(), use_resource=use_resource)
        trained = other()
        rate = tf.train.polynomial_decay(0.1, step, 100) * tf.cast(tf.cast(step, tf.int32) + 1, tf.float32)
        train = tf.assign_sub(trained, rate * late(trained))
        count = tf.assign(step, step + 1, name="count").op
        with tf.control_dependencies([train]):
            behind = tf.assign(step, step + 1, name="behind").op
    view = view_of(graph)
    settled = first_reads(view, step_kind([], [], [train.op.name, count.name]))
    if use_resource:
        assert settled.all and {pair.write for pair in settled.reads} == {count.name}
        assert {view.nodes[pair.read].op for pair in settled.reads} == {"ReadVariableOp"}
    else:
        assert settled.reads == frozenset() and not settled.all
    found = races(view, step_kind([], [], [train.op.name, count.name]), every=True)
    kept = to_keep(view, found)
    assert found and {end for race in found for end in (race.reader, race.writer)} <= kept.keys()
    assert count.inputs[-1].op.name in kept, "the sum that the write waits for"
    assert rate.op.name not in kept and train.op.name not in kept
    assert first_reads(view, step_kind([], [], [behind.name])).all, "what waits for the training step is in order"


@pytest.mark.parametrize("use_resource", [False, True])
def test_what_adds_a_constant_waits_for_a_rate_that_is_made_of_the_counter(use_resource: bool) -> None:
    """As in Keras 2.3.1's Adam: the write is as short as the read, or shorter, but its constant comes late."""
    with tf.Graph().as_default() as graph:
        count = tf.get_variable("count", [], tf.int64, tf.zeros_initializer(), use_resource=use_resource)
        trained = other()
        write = tf.assign_add(count, 1).op
        rate = 0.1 / (tf.cast(tf.identity(count), tf.float32, name="read") + 1.0)
        train = tf.assign_sub(trained, rate * late(trained)).op
    view = view_of(graph)
    settled = first_reads(view, step_kind([], [], [train.name, write.name]))
    assert settled.all and {pair.write for pair in settled.reads} == {write.name}
    (pair,) = settled.reads
    assert view.nodes[pair.read].op == ("ReadVariableOp" if use_resource else "Cast")
    assert to_keep(view, races(view, step_kind([], [], [train.name, write.name]), every=True)).keys() >= {write.name}


def test_a_read_in_a_branch_tells_behind_it(first_generation: None) -> None:
    """As the step that summaries are saved by, which is read if it is initialized."""
    with tf.Graph().as_default() as graph:
        v = tf.get_variable("v", [], initializer=tf.zeros_initializer(), use_resource=True)
        write = tf.assign_add(v, late(other(), 20)).op
        value = tf.cond(tf.is_variable_initialized(v), v.read_value, lambda: 0.0)
        behind = tf.cast(value, tf.int64, name="behind")
    view = view_of(graph)
    assert first_reads(view, step_kind([], [behind.name], [write.name])).reads == {First("behind", write.name)}
    assert first_reads(view, step_kind([], [value.name], [write.name])).reads == frozenset()


def test_in_a_copy_the_write_waits_for_the_read_and_nothing_is_dragged(hooked: Callable[..., Any], two_devices: Any) -> None:
    listener = hooked()
    with tf.Graph().as_default():
        x = tf.random_uniform([4, 4], seed=3)
        v = tf.get_variable("v", [], initializer=tf.zeros_initializer(), use_resource=True)
        w = tf.get_variable("w", [4, 4], initializer=tf.ones_initializer(), use_resource=True)
        train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(late(tf.matmul(x, w), 3)), v)
        read = tf.identity(v, name="read")
        reader, writer = read.op.inputs[0].op.name, train.name
        with tf.Session(config=two_devices) as session:
            session.run(tf.global_variables_initializer())
            first, engine = session.run([read, train])[0], listener.engines[0]
            session.run(train)
            switcher, (beside, alone) = engine.switcher(), engine.kinds.all()[-2:]
            placement = {name: devices[-1] for members, devices in switcher.units() for name in members if devices}
            with engine.lock:
                assert requests.switch_now(engine, switcher, LiveStrategy("moved", placement), [beside, alone]).ok
            found = [float(session.run([read, train])[0]) for _ in range(8)]
            session.run(train)
            nodes = {n.name: n for n in graph_pb2.GraphDef.FromString(capi.graph_handle_bytes(switcher.mirror.graph.handle)).node}
            copies = {kind: switcher.live.serving(kind, switcher.view()) for kind in (beside, alone)}
            waits = {kind: f"^{copy.ops.name_of(reader)}" in nodes[copy.ops.name_of(writer)].input for kind, copy in copies.items()}
            last = float(session.run(v))
    assert float(first) in (0.0, 1.0) and found == [2.0 + i for i in range(8)] and last == 11.0
    assert waits == {beside: True, alone: False}
    assert copies[alone].ops.name_of(writer) != writer


@pytest.mark.parametrize("seed", [None, 3])
def test_updates_stay_beside_a_check_that_a_seeded_draw_needs(seed: int | None) -> None:
    """The draw is the program's own op in every copy, and so is the check, which cannot be made to wait for them."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [None, 3], name="x")
        checked = tf.debugging.check_numerics(x, "x", name="check")
        noise = tf.random_uniform(tf.shape(checked), seed=seed, name="noise") + checked
        kept = tf.get_variable("kept", [3], initializer=tf.zeros_initializer(), use_resource=True)
        mean = tf.reduce_mean(x, 0, name="mean")
        update = kept.assign_add(mean).op
    view, unordered = view_of(graph), Unordered(lambda view, name: "", lambda *_: None)
    kind = Kind(step_kind(["x:0"], [noise.name], [update.name]), ((), (), ()))
    unordered.learn(view, [kind])
    held = classify(view).held
    staying = unordered.stay_beside(view, held)
    assert (staying.keys() >= {update.name, "mean", "kept"}) == (seed is not None)
    assert (First(update.name, "check") in unordered.first(kind, held)) == (seed is None)
    assert unordered.stay_beside(view, held) == {} and unordered.kept.keys() >= staying.keys()
