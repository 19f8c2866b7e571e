"""The engine's thread at the program's end."""

from __future__ import annotations

from typing import Any

import pytest

from stepd.hook.engine.refusals import SwitchRefusedError
from stepd.hook.engine.worker import worker
from stepd.hook.model import LiveStrategy

tf = pytest.importorskip("tensorflow.compat.v1")


def test_nothing_more_is_prepared_at_the_programs_end(hooked: Any, two_devices: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which waits for the thread: it would come back from TensorFlow into an interpreter that goes."""
    listener = hooked()
    x = tf.placeholder(tf.float32, [], name="x")
    y = tf.tanh(tf.exp(x, name="inner") + x, name="y")
    with tf.Session(config=two_devices) as session:
        session.run(y, {x: 1.0})
        (engine,) = listener.engines
        strategy = LiveStrategy("moved", {"y": engine.devices()[1].name})
        monkeypatch.setattr(worker, "_stopped", True)
        with pytest.raises(SwitchRefusedError, match="the program ends"):
            engine.switcher().prepare(engine.raw, strategy, engine.kinds.all(), engine.calm)
        monkeypatch.setattr(worker, "_stopped", False)
        copy = engine.switcher().prepare(engine.raw, strategy, engine.kinds.all(), engine.calm)
        assert copy.plan.device_of.items() >= strategy.placement.items()  # what would be joined with it goes along
