"""Sessions whose strategy has an order, on the native executor: same bits, its own executors only for ordered copies, rollback."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepd.hook.model import LiveStrategy, Order

tf = pytest.importorskip("tensorflow.compat.v1")

from stepd.hook.engine import requests  # noqa: E402
from stepd.hook.engine.settings import Chaos  # noqa: E402
from stepd.hook.order.native import library  # noqa: E402


def model() -> tuple[Any, Any, Any]:
    tf.set_random_seed(4)
    x = tf.placeholder(tf.float32, [6, 10], name="x")
    outs = []
    for k in range(5):
        w = tf.get_variable(
            f"w{k}", initializer=np.random.RandomState(k).randn(10, 10).astype(np.float32), use_resource=bool(k % 2)
        )
        outs.append(tf.tanh(tf.matmul(tf.nn.relu(tf.matmul(x, w)), w), name=f"out{k}"))
    loss = tf.reduce_mean(tf.square(tf.nn.dropout(tf.concat(outs, 1), rate=0.2, seed=1)), name="loss")
    return x, loss, tf.train.AdamOptimizer(0.01).minimize(loss, name="train")


def losses(session: Any, x: Any, loss: Any, step: Any, numbers: range) -> list[bytes]:
    return [session.run([loss, step], {x: np.random.RandomState(n).randn(6, 10).astype(np.float32)})[0].tobytes() for n in numbers]


def plain(steps: int) -> list[bytes]:
    with tf.Graph().as_default(), tf.Session() as session:
        x, loss, step = model()
        session.run(tf.global_variables_initializer())
        return losses(session, x, loss, step, range(steps))


def reverse(engine: Any) -> LiveStrategy:
    """Every second movable op on the second device; priorities against the order of creation."""
    pinned = engine.describe().pinned
    names = [op.name for op in engine.mirror.user_graph.get_operations() if op.name not in pinned]
    devices = [device.name for device in engine.devices()]
    placement = {name: devices[i % 2] for i, name in enumerate(names)}
    return LiveStrategy("reverse", placement, {name: len(names) - i for i, name in enumerate(names)}, order=Order.AUTO)


def switch(engine: Any, strategy: LiveStrategy | None) -> None:
    kinds = [kind for kind in engine.kinds.all() if kind.runs > 1]
    with engine.lock:
        outcome = requests.switch_now(engine, engine.switcher(), strategy, kinds)
    assert outcome.ok, outcome.error


@pytest.mark.parametrize("setting", [Order.AUTO, Order.NATIVE])
def test_an_order_on_the_native_executor_changes_no_bit(hooked: Any, two_devices: Any, native: Path, setting: Order) -> None:
    expected = plain(12)
    listener = hooked(order=setting)
    x, loss, step = model()
    with tf.Session(config=two_devices) as session:
        assert two_devices.experimental.executor_type == ""  # the program's own object
        session.run(tf.global_variables_initializer())
        made = library.counts()[0]
        got = losses(session, x, loss, step, range(4))
        assert library.counts()[0] == made  # the program's own nodes run on TensorFlow's executor
        (engine,) = listener.engines
        switch(engine, reverse(engine))
        assert engine.switcher().live.plan.order.said.startswith("native: ")
        got += losses(session, x, loss, step, range(4, 8))
        assert library.counts()[0] > made
        switch(engine, None)
        made = library.counts()[0]
        got += losses(session, x, loss, step, range(8, 12))
        assert library.counts()[0] == made
    assert got == expected


def test_random_switches_on_the_native_executor_change_no_bit(hooked: Any, native: Path, tmp_path: Path) -> None:
    expected, made = plain(12), library.counts()[0]
    listener = hooked(order=Order.NATIVE, chaos=Chaos(2, "both", seed=5, devices=2, order=True), state_dir=tmp_path)
    x, loss, step = model()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert losses(session, x, loss, step, range(12)) == expected
    assert sum(outcome.ok for outcome in listener.switches) >= 4
    assert library.counts()[0] > made


def test_parts_run_on_the_native_executor(hooked: Any, two_devices: Any, native: Path) -> None:
    expected = np.array([np.frombuffer(value, np.float32)[0] for value in plain(8)])
    listener = hooked(order=Order.NATIVE)
    x, loss, step = model()
    with tf.Session(config=two_devices) as session:
        session.run(tf.global_variables_initializer())
        got = losses(session, x, loss, step, range(3))
        (engine,) = listener.engines
        made = library.counts()[0]
        switch(engine, replace(reverse(engine), id="parts", placement={}, replicate=True))
        plan = engine.switcher().live.plan
        assert plan.order.said.startswith("native: ") and len(plan.splits) > 20
        got += losses(session, x, loss, step, range(3, 6))
        assert library.counts()[0] > made
        switch(engine, None)
        got += losses(session, x, loss, step, range(6, 8))
    assert np.allclose([np.frombuffer(value, np.float32)[0] for value in got], expected, rtol=1e-5, atol=0)


def test_ops_too_short_for_an_order_are_left_to_tensorflow(hooked: Any, two_devices: Any, native: Path) -> None:
    listener = hooked(order=Order.NATIVE)
    x, loss, step = model()
    with tf.Session(config=two_devices) as session:
        session.run(tf.global_variables_initializer())
        expected = losses(session, x, loss, step, range(4))
        assert len(set(expected)) == 4
        (engine,) = listener.engines
        made = library.counts()[0]
        for worth, microseconds in ((False, 5.0), (True, 50.0)):
            strategy = reverse(engine)
            seconds = dict.fromkeys(strategy.priority, microseconds * 1e-6)
            switch(engine, replace(strategy, id=str(worth), seconds=seconds))
            said = engine.switcher().live.plan.order.said
            losses(session, x, loss, step, range(4))
            assert said.startswith("native: " if worth else "none: ") and (library.counts()[0] > made) is worth
