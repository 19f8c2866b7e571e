"""TensorFlow leaves graphs of fewer than four ops as they are: so do steps under the hook, and nobody switches them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stepd.hook.engine.settings import Chaos

tf = pytest.importorskip("tensorflow.compat.v1")


def values(config: Any, grow: bool) -> list[bytes]:
    """log(softmax(x)), of which Grappler would make one op; `grow`: the graph has more ops from the third step on."""
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [6, 7])
        made, found = tf.log(tf.nn.softmax(x)), []
        with tf.Session(config=config) as session:
            for k in range(8):
                found.append(session.run(made, {x: np.random.RandomState(k).randn(6, 7)}).tobytes())
                if grow and k == 2:
                    tf.exp(made)
    return found


def optimized(config: Any) -> list[bytes]:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [6, 7])
        made = tf.log(tf.nn.softmax(x))
        tf.exp(made)
        with tf.Session(config=config) as session:
            return [session.run(made, {x: np.random.RandomState(k).randn(6, 7)}).tobytes() for k in range(8)]


@pytest.mark.parametrize("way", ["in-session", "restart"])
@pytest.mark.parametrize("grow", [False, True])
def test_steps_of_few_ops_stay_as_they_are(grow: bool, way: Any, hooked: Any, two_devices: Any) -> None:
    expected = values(two_devices, grow)
    assert expected != optimized(two_devices)  # or this shows nothing
    listener = hooked(chaos=Chaos(1, way, seed=1, devices=2))
    assert values(two_devices, grow) == expected
    assert not any(switch.ok for switch in listener.switches)


def test_a_graph_that_computes_nothing_yet_is_switched_when_it_has_grown(hooked: Any, two_devices: Any) -> None:
    listener = hooked(chaos=Chaos(1, "in-session", seed=1, devices=2))
    with tf.Graph().as_default(), tf.Session(config=two_devices) as session:
        x = tf.constant([1.0, 2.0])
        session.run(x)
        for _ in range(4):
            x = tf.tanh(x) + tf.sin(x)
        for _ in range(6):
            session.run(x)
    assert any(switch.ok and not switch.rollback for switch in listener.switches)


@pytest.mark.parametrize("way", ["in-session", "restart"])
def test_the_program_says_how_few_ops_stay_as_they_are(way: Any, hooked: Any, two_devices: Any) -> None:
    def steps(least: int) -> list[bytes]:
        config = type(two_devices)()
        config.CopyFrom(two_devices)
        config.graph_options.rewrite_options.min_graph_nodes = least
        with tf.Graph().as_default() as graph:
            x = made = tf.placeholder(tf.float32, [None, 6])
            for k in range(3):
                weights = np.random.RandomState(k).randn(6, 6).astype("f")
                made = tf.tanh(tf.matmul(made, weights) * 0.7 * 0.3 + 0.1) + made
            assert len(graph.get_operations()) < 40
            with tf.Session(config=config) as session:
                return [session.run(made, {x: np.random.RandomState(k).randn(4, 6)}).tobytes() for k in range(8)]

    as_they_are, rewritten = steps(40), steps(0)
    assert as_they_are != rewritten  # or this shows nothing
    listener = hooked(chaos=Chaos(1, way, seed=1, devices=2))
    assert steps(40) == as_they_are
    assert not any(switch.ok for switch in listener.switches)
    assert steps(0) == rewritten
    assert any(switch.ok for switch in listener.switches)
