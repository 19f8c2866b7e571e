"""What TensorFlow prints for `log_device_placement` is of the program's own ops, as often as it would be plainly."""

from __future__ import annotations

import ctypes
from collections import Counter
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

from tensorflow.core.protobuf import config_pb2  # noqa: E402

from stepd.hook.engine.settings import Chaos  # noqa: E402


def printed(capfd: Any, **options: Any) -> Counter[str]:
    """What a session prints that is run, and extended, under a graph of its own."""
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [2], name="x")
        y = tf.tanh(tf.sin(tf.cos(x, name="v"), name="w"), name="y")
        with tf.Session(config=tf.ConfigProto(log_device_placement=True, **options)) as session:
            for _ in range(4):
                session.run(y, {x: np.ones(2)})
            z = tf.multiply(y, 2.0, name="z")
            for _ in range(4):
                session.run(z, {x: np.ones(2)})
    ctypes.CDLL(None).fflush(None)
    return Counter(line.partition(":")[0] for line in capfd.readouterr().out.splitlines())


def test_copies_are_not_printed(hooked: Any, capfd: Any) -> None:
    plain = printed(capfd)
    assert plain == {"x": 2, "v": 2, "w": 2, "y": 2, "z": 1, "z/y": 1}
    listener = hooked(chaos=Chaos(2, "in-session", seed=1, devices=2))
    assert printed(capfd) == plain
    assert any(switch.ok and not switch.rollback for switch in listener.switches)


def test_a_session_that_bears_a_name_is_not_the_second_of_that_name(hooked: Any, capfd: Any) -> None:
    named = tf.ConfigProto.Experimental(session_metadata=config_pb2.SessionMetadata(name="m", version=1))
    plain = printed(capfd, experimental=named)
    listener = hooked(chaos=Chaos(2, "both", seed=1, devices=2))
    assert printed(capfd, experimental=named) == plain
    assert any(switch.ok and not switch.rollback for switch in listener.switches)
    assert all(switch.ok or "bears a name" in switch.error for switch in listener.switches), listener.switches


def test_a_pruned_graph_is_printed_by_its_own_session(hooked: Any, capfd: Any) -> None:
    pruned = tf.GraphOptions(place_pruned_graph=True)
    plain = printed(capfd, graph_options=pruned)
    hooked()
    assert printed(capfd, graph_options=pruned) == plain
