"""A copy of which Grappler would have something computed otherwise is refused, whatever the rules of groups have missed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stepd.hook.engine import groups, likeness
from stepd.hook.engine.refusals import SwitchRefusedError
from stepd.hook.engine.step_graph import step_graph
from stepd.hook.engine.value_numbers import numbered
from stepd.hook.model import LiveStrategy

tf = pytest.importorskip("tensorflow.compat.v1")


@pytest.fixture
def no_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nothing were known of what Grappler rewrites."""
    monkeypatch.setattr(groups, "_rewritten_together", lambda view: ())


def scaled() -> tuple[Any, Any, Any]:
    x = tf.placeholder(tf.float32, [4, 8], name="x")
    y = tf.multiply(tf.multiply(x, 0.3, name="first") * 0.7, 0.1, name="last")
    return x, y, tf.tanh(x, name="apart")


def moved(engine: Any, *ops: str) -> Any:
    """A copy with these on the second device, for all steps that have run."""
    there = engine.devices()[1].name
    with engine.lock:
        return engine.switcher().prepare(engine.raw, LiveStrategy("moved", dict.fromkeys(ops, there)), engine.kinds.all())


def test_what_grappler_would_compute_otherwise_is_refused_and_what_it_would_not_is_made(
    hooked: Any, two_devices: Any, no_rules: None
) -> None:
    listener = hooked()
    x, y, apart = scaled()
    fed = np.random.RandomState(0).randn(4, 8).astype(np.float32)
    with tf.Session(config=two_devices) as session:
        before = session.run([y, apart], {x: fed})
        (engine,) = listener.engines
        with pytest.raises(SwitchRefusedError, match=r"Grappler would have (first|mul|last) computed otherwise"):
            moved(engine, "first")
        copy = moved(engine, "apart")
        with engine.lock:
            engine.switcher().switch(engine.raw, copy, engine.gate, 1.0)
        after = session.run([y, apart], {x: fed})
        assert engine.strategy_id == "" and engine.switcher().live is copy
    assert [one.tobytes() for one in before] == [one.tobytes() for one in after]


def test_the_bits_are_others_where_nobody_compares(
    hooked: Any, two_devices: Any, no_rules: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the test before would show nothing."""
    monkeypatch.setattr(likeness.Likeness, "difference", lambda *_: "")
    listener = hooked()
    x, y, _ = scaled()
    fed = np.random.RandomState(0).randn(4, 8).astype(np.float32)
    with tf.Session(config=two_devices) as session:
        before = session.run(y, {x: fed})
        (engine,) = listener.engines
        with engine.lock:
            engine.switcher().switch(engine.raw, moved(engine, "first"), engine.gate, 1.0)
        assert session.run(y, {x: fed}).tobytes() != before.tobytes()


def test_a_step_that_comes_after_the_switch_is_compared_as_well(hooked: Any, two_devices: Any, no_rules: None) -> None:
    """The session goes back to the program's own ops, and the step runs on these."""
    listener = hooked()
    x, y, apart = scaled()
    fed = np.random.RandomState(0).randn(4, 8).astype(np.float32)
    with tf.Session(config=two_devices) as session:
        expected = session.run(apart, {x: fed}), session.run(tf.identity(y), {x: fed})
        (engine,) = listener.engines
        there = engine.devices()[1].name
        kinds = [kind for kind in engine.kinds.all() if "apart:0" in kind.step.fetches]
        with engine.lock:
            strategy = LiveStrategy("both", {"first": there, "apart": there})
            engine.switcher().switch(engine.raw, engine.switcher().prepare(engine.raw, strategy, kinds), engine.gate, 1.0)
        assert session.run(apart, {x: fed}).tobytes() == expected[0].tobytes()
        assert session.run(y, {x: fed}).tobytes() == expected[1].tobytes()


def test_a_step_of_what_is_copied_already_is_compared_as_well(hooked: Any, two_devices: Any, no_rules: None) -> None:
    """It may fetch less, so that Grappler may rewrite more."""
    listener = hooked()
    x, y, _ = scaled()
    whole = [tf.get_default_graph().get_tensor_by_name(name) for name in ("first:0", "mul:0", "last:0")]
    fed = np.random.RandomState(0).randn(4, 8).astype(np.float32)
    with tf.Session(config=two_devices) as session:
        expected = session.run(y, {x: fed})
    with tf.Session(config=two_devices) as session:
        session.run(whole, {x: fed})
        engine = listener.engines[-1]
        copy = moved(engine, "first")
        with engine.lock:
            engine.switcher().switch(engine.raw, copy, engine.gate, 1.0)
        session.run(whole, {x: fed})
        assert engine.switcher().live is copy
        assert session.run(y, {x: fed}).tobytes() == expected.tobytes()
        assert engine.switcher().live is None


def test_an_op_that_is_fed_computes_nothing(hooked: Any, two_devices: Any, no_rules: None) -> None:
    listener = hooked()
    _, y, apart = scaled()
    first = tf.get_default_graph().get_tensor_by_name("first:0")
    with tf.Session(config=two_devices) as session:
        session.run(y, {first: np.ones((4, 8))})
        session.run(apart, {apart: np.ones((4, 8))})
        (engine,) = listener.engines
        with pytest.raises(SwitchRefusedError, match=r"Grappler would have (mul|last) computed otherwise"):
            moved(engine, "last")


@pytest.mark.parametrize("fed", [0, 1])
def test_an_op_of_which_one_output_is_fed_computes_the_others(hooked: Any, two_devices: Any, no_rules: None, fed: int) -> None:
    """No call is put inline in a graph in which one of what is not computed is read."""
    listener = hooked()
    x = tf.placeholder(tf.float32, [4, 8], name="x")
    parts = tf.split(x, 2, name="parts")
    scale = tf.function(lambda value: value * 0.3 * 0.7, autograph=False)
    last = tf.multiply(scale(parts[1 - fed]), 0.1, name="last")
    feeds = {x: np.ones((4, 8)), parts[fed]: np.full((2, 8), 2.0)}
    with tf.Session(config=two_devices) as session:
        session.run(tf.add(last, parts[fed], name="sum"), feeds)
        (engine,) = listener.engines
        with pytest.raises(SwitchRefusedError, match=r"Grappler would have .* computed otherwise"):
            moved(engine, "last")


def test_where_grappler_cannot_be_asked_the_rules_are_trusted(
    hooked: Any, two_devices: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(*_: Any) -> Any:
        raise ValueError("no such optimizer")

    monkeypatch.setattr(likeness.Likeness, "_left", cannot)
    listener = hooked()
    x, y, apart = scaled()
    with tf.Session(config=two_devices) as session:
        session.run([y, apart], {x: np.zeros((4, 8))})
        (engine,) = listener.engines
        assert moved(engine, "apart").plan.device_of == {"apart": engine.devices()[1].name}


def test_where_grappler_stops_half_way_nothing_is_moved(hooked: Any, two_devices: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def stops(*_: Any) -> Any:
        raise tf.errors.InvalidArgumentError(None, None, "The graph couldn't be sorted in topological order.")

    monkeypatch.setattr(likeness.Likeness, "_left", stops)
    listener = hooked()
    x, y, apart = scaled()
    with tf.Session(config=two_devices) as session:
        session.run([y, apart], {x: np.zeros((4, 8))})
        (engine,) = listener.engines
        with pytest.raises(SwitchRefusedError, match=r"Grappler would have (last|apart) computed otherwise"):
            moved(engine, "apart")


@pytest.mark.parametrize("use_resource", [True, False])
def test_a_variable_that_is_fed_does_not_end_the_process(hooked: Any, two_devices: Any, use_resource: bool) -> None:
    """TensorFlow has no example of a reference, or of a resource, and aborts."""
    listener = hooked()
    x, _, apart = scaled()
    v = tf.get_variable("v", initializer=np.ones((4, 8), np.float32), use_resource=use_resource)
    added = tf.add(v, apart, name="added")
    with tf.Session(config=two_devices) as session:
        session.run(v.initializer)
        feeds = {x: np.ones((4, 8)), (v.value() if use_resource else v): np.full((4, 8), 2.0)}
        before = session.run(added, feeds)
        (engine,) = listener.engines
        copy = moved(engine, "apart")
        with engine.lock:
            engine.switcher().switch(engine.raw, copy, engine.gate, 1.0)
        assert session.run(added, feeds).tobytes() == before.tobytes()


def test_no_example_is_made_of_what_is_too_large_or_of_no_plain_type() -> None:
    for shape, dtype in (([1 << 20, 1 << 20], tf.float32), ([], tf.resource), ([], tf.variant)):
        with tf.Graph().as_default() as graph:
            name = tf.placeholder(dtype, shape).op.name
        with pytest.raises(ValueError, match="is a placeholder of type"):
            step_graph(graph.as_graph_def(), {(name, 0)}, (), {(name, 0)})


def test_gpus_are_asked_about_as_such_wherever_the_test_runs() -> None:
    """Grappler lays convolutions out otherwise on these, and multiplies constants where all lies on one."""
    of = "/job:localhost/replica:0/task:0/device:"
    asked = likeness.Likeness(None, {f"{of}CPU:0": "CPU", f"{of}GPU:0": "GPU", f"{of}GPU:1": "GPU"})
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [2, 8, 8, 3], name="x")
        made = tf.nn.conv2d(x, tf.get_variable("w", [3, 3, 3, 4], use_resource=True), 1, "SAME")
        y = tf.multiply(tf.multiply(made, 0.3, name="first") * 0.7, 0.1, name="last").op.name

    def value(first: str, others: str) -> bytes:
        part = step_graph(graph.as_graph_def(), {(y, 0)}, (), {("x", 0)})
        left = asked._left(part, lambda name: of + (first if name == "first" else others))
        assert any("LayoutOptimizer" in node.name for node in left.node)
        return numbered(left, str).value(y, 0)

    assert value("GPU:0", "GPU:0") == value("GPU:1", "GPU:1") != value("GPU:1", "GPU:0")


@pytest.mark.parametrize("prunes_first", [False, True])
def test_the_numbers_of_what_is_put_inline_count_where_only_a_step_is_numbered(prunes_first: bool) -> None:
    """A session numbers the calls of its whole graph, in which the program's own come first; or those that a step needs."""
    config = tf.ConfigProto(graph_options=tf.GraphOptions(place_pruned_graph=prunes_first))
    named = likeness.Likeness(config, {})._anywhere
    assert named("cond_8/then/_78/dropout/Uniform") == (
        "cond_8/then/_78/dropout/Uniform" if prunes_first else "cond_8/then/dropout/Uniform"
    )
    assert named("a/_b/c_1") == "a/_b/c_1"
