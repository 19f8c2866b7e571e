"""What a program adds to its graph uses what is in force, whatever happened since: variables that are away are written there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stepd.hook.engine import requests
from stepd.hook.model import LiveStrategy

tf = pytest.importorskip("tensorflow.compat.v1")


@pytest.mark.parametrize("resource", [True, False])
def test_ops_that_came_before_a_refused_switch_write_variables_where_they_are(
    hooked: Callable[..., Any], two_devices: Any, resource: bool
) -> None:
    listener = hooked()
    with tf.Graph().as_default(), tf.Session(config=two_devices) as session:
        v = tf.get_variable("v", [3], initializer=tf.ones_initializer(), use_resource=resource)
        total = tf.reduce_sum(tf.tanh(v), name="total")
        session.run(v.initializer)
        session.run(total)
        (engine,) = listener.engines
        switcher, kinds = engine.switcher(), engine.kinds.all()[-1:]
        away = engine.devices()[1].name
        with engine.lock:
            assert requests.switch_now(engine, switcher, LiveStrategy("away", {"v": away}), kinds).ok
        assert session.run(total) == pytest.approx(3 * np.tanh(1.0)) and "v" in switcher.homes.at
        later = tf.assign(v, [5.0, 5.0, 5.0])
        switcher._most_copies = switcher.made  # the session is full
        session._extend_graph()  # as before any run
        with engine.lock:
            refused = requests.switch_now(engine, switcher, LiveStrategy("other", {"total": away}), kinds)
        assert not refused.ok and "copies of the graph" in refused.error, "it has looked at the graph by now"
        session.run(later.op)
        assert session.run(total) == pytest.approx(3 * np.tanh(5.0))
        assert session.run(v).tolist() == [5.0, 5.0, 5.0]
