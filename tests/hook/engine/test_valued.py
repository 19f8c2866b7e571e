"""Steps that read variables without a value run on the program's own placement, so that what they do beside is not lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stepd.hook.engine import requests
from stepd.hook.model import LiveStrategy

tf = pytest.importorskip("tensorflow.compat.v1")

pytestmark = pytest.mark.usefixtures("first_generation")


def switch(engine: Any, **placement: str) -> Any:
    with engine.lock:
        return requests.switch_now(engine, engine.switcher(), LiveStrategy("away", placement), engine.kinds.all())


@pytest.mark.parametrize("resource", [True, False])
def test_a_step_that_reads_an_empty_variable_runs_at_home_until_it_has_a_value(
    hooked: Callable[..., Any], two_devices: Any, resource: bool
) -> None:
    listener = hooked()
    v, count, late = (
        tf.get_variable(name, [3], initializer=tf.ones_initializer(), use_resource=resource) for name in ("v", "count", "late")
    )
    total = tf.tanh(v, name="total")
    step = [late, tf.assign_add(count, total)]
    with tf.Session(config=two_devices) as session:
        session.run([v.initializer, count.initializer])
        session.run(total)
        (engine,) = listener.engines
        away = engine.devices()[1].name
        assert switch(engine, total=away).ok and engine.strategy_id == "away"
        with pytest.raises(tf.errors.FailedPreconditionError, match="late"):
            session.run(step)
        assert engine.strategy_id == "" and [id_ for id_, why in listener.failed if "variable late has no value" in why] == ["away"]
        assert switch(engine, total=away).ok, "steps that fail of it are not prepared for"
        session.run(late.initializer)
        session.run(step)
        assert engine.strategy_id == "away" and len(listener.failed) == 1


def test_runs_that_ended_well_show_which_variables_have_values(hooked: Callable[..., Any], two_devices: Any) -> None:
    """Nothing is added to the session to find out."""
    listener = hooked()
    v, w = (tf.get_variable(name, [3], initializer=tf.ones_initializer(), use_resource=True) for name in ("v", "w"))
    total, other = tf.tanh(v, name="total"), tf.reduce_sum(v * w, name="other")
    with tf.Session(config=two_devices) as session:
        session.run(tf.global_variables_initializer())
        session.run(total)
        (engine,) = listener.engines
        assert switch(engine, total=engine.devices()[1].name).ok
        engine.switcher().homes.with_values = None  # not to be asked
        assert session.run(other) == 3.0 and engine.strategy_id == "away"


def test_a_variable_of_which_nothing_is_known_is_asked_for(hooked: Callable[..., Any], two_devices: Any) -> None:
    """Another session of the same worker has given it its value."""
    listener, server = hooked(), tf.distribute.Server.create_local_server(two_devices)
    v, w = (tf.get_variable(name, [3], initializer=tf.ones_initializer(), use_resource=True) for name in ("v", "w"))
    total, other = tf.tanh(v, name="total"), tf.reduce_sum(v * w, name="other")
    with tf.Session(server.target) as chief:
        chief.run(tf.global_variables_initializer())
        with tf.Session(server.target) as session:
            session.run(total)
            engine = listener.engines[1]
            assert switch(engine, total=engine.devices()[1].name).ok
            assert session.run(other) == 3.0 and engine.strategy_id == "away"
            empty = tf.get_variable("empty", [3], initializer=tf.ones_initializer(), use_resource=True)
            with pytest.raises(tf.errors.FailedPreconditionError, match="empty"):
                session.run(empty.read_value())
            assert engine.strategy_id == ""
