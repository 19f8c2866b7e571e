"""Conditions whose outcome is known hold those together that Grappler joins when it takes them out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stepd.hook.engine.classify import classify
from stepd.hook.engine.graphview import GraphView

tf = pytest.importorskip("tensorflow.compat.v1")


def pinned(predicate: Callable[[Any], Any], v2: bool) -> set[str]:
    """What stays of a sum before a condition, in it and behind it, and a free op far away."""
    before = tf.control_flow_v2_enabled()
    (tf.enable_control_flow_v2 if v2 else tf.disable_control_flow_v2)()
    try:
        with tf.Graph().as_default() as graph:
            x = tf.placeholder(tf.float32, [3], name="x")
            start = tf.add(tf.sin(x), tf.cos(x), name="start")
            handed = tf.identity(start, name="handed")
            yes = predicate(x)
            inner = tf.cond(yes, lambda: tf.cond(x[0] > 1.0, lambda: handed + 1.0, lambda: handed * 2.0), lambda: handed * 3.0)
            tf.reduce_max(tf.add(tf.identity(inner), tf.exp(x), name="behind"), name="far")
            view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    finally:
        (tf.enable_control_flow_v2 if before else tf.disable_control_flow_v2)()
    return {name for name in ("start", "handed", "behind", "far") if name in classify(view).pinned}


@pytest.mark.parametrize("v2", [False, True])
def test_what_grappler_joins_when_it_takes_a_condition_out_stays(v2: bool) -> None:
    assert pinned(lambda x: tf.logical_not(tf.constant(False)), v2) == {"start", "handed", "behind"}


def test_a_condition_that_a_step_decides_holds_nothing() -> None:
    assert pinned(lambda x: x[0] > 0.0, v2=False) == set()
    assert pinned(lambda x: tf.placeholder_with_default(True, []), v2=False) == set()


@pytest.mark.parametrize("settled", [True, False])
def test_what_undoes_broadcasting_behind_a_settled_condition_moves_with_it(settled: bool) -> None:
    """Whether Grappler finds the branch's sum read by a shape, too, depends on the devices of all that comes of that shape."""
    before = tf.control_flow_v2_enabled()
    tf.enable_control_flow_v2()
    try:
        with tf.Graph().as_default() as graph:
            x = tf.placeholder(tf.float32, [None, 3], name="x")
            out = tf.cond(tf.constant(True) if settled else x[0, 0] > 0.0, lambda: x + tf.sin(x), lambda: x * 2.0)
            loss = tf.reduce_sum(tf.square(tf.add(out, tf.exp(x), name="behind")))
            tf.gradients(loss, x, name="back")
            view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    finally:
        (tf.enable_control_flow_v2 if before else tf.disable_control_flow_v2)()
    classes = classify(view)
    apart = [name for name in view.nodes if "behind_grad" in name and view.nodes[name].op in ("NoOp", "BroadcastGradientArgs")]
    assert apart, "the gradient of the sum has a tuple"
    assert all((classes.group_of.get(name) == classes.group_of["behind"]) is settled for name in apart)
