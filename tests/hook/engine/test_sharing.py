"""Sessions under a strategy read a variable once for many updates: same bits, also where a step asks for one read alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

from stepd.hook.engine import requests  # noqa: E402
from stepd.hook.model import LiveStrategy  # noqa: E402

LAYERS = 4


def net() -> tuple[Any, Any, Any]:
    """(input, loss, Adam's step for all weights)."""
    x = tf.placeholder(tf.float32, [8, 6], name="x")
    h = x
    for k in range(LAYERS):
        w = tf.get_variable(f"w{k}", [6, 6], initializer=tf.orthogonal_initializer(seed=k), use_resource=True)
        h = tf.tanh(tf.matmul(h, w))
    loss = tf.reduce_mean(tf.square(h))
    return x, loss, tf.train.AdamOptimizer(0.01).minimize(loss)


def test_steps_under_a_strategy_cannot_tell(hooked: Callable[..., Any], two_devices: Any) -> None:
    def steps(session: Any, x: Any, loss: Any, train: Any, update: Any, read: Any) -> list[bytes]:
        found = []
        for k in range(4):
            feed = {x: np.random.RandomState(k).randn(8, 6)}
            found.append(session.run([loss, train], feed)[0].tobytes())
            session.run(update, feed)  # another's read is not of this step
            found.append(session.run([loss, train], {**feed, read: 0.5})[0].tobytes())
            found.append(session.run([read, train], feed)[0].tobytes())  # before the power is written
        return found

    def reads(session: Any, x: Any, loss: Any, train: Any) -> int:
        metadata = tf.RunMetadata()
        session.run([loss, train], {x: np.zeros((8, 6))}, tf.RunOptions(output_partition_graphs=True), metadata)
        return sum(node.op == "ReadVariableOp" for graph in metadata.partition_graphs for node in graph.node)

    def make() -> tuple[Any, ...]:
        x, loss, train = net()
        update = tf.get_default_graph().get_operation_by_name("Adam/update_w2/ResourceApplyAdam")
        return x, loss, train, update, update.inputs[3]

    with tf.Graph().as_default(), tf.Session(config=two_devices) as session:
        made = make()
        session.run(tf.global_variables_initializer())
        plain = [*steps(session, *made), *steps(session, *made)]
        plain_reads = reads(session, *made[:3])
    listener = hooked()
    with tf.Graph().as_default(), tf.Session(config=two_devices) as session:
        made = make()
        session.run(tf.global_variables_initializer())
        engine = listener.engines[0]
        losses = steps(session, *made)
        switcher, kinds = engine.switcher(), engine.kinds.all()[-4:]
        devices = [device.name for device in engine.devices()]
        away = ("beta1_power", "w3")  # where the powers go, updates of others wait for transfers
        placement = {n: devices[any(m.startswith(away) for m in members)] for members, _ in switcher.units() for n in members}
        with engine.lock:
            assert requests.switch_now(engine, switcher, LiveStrategy("moved", placement), kinds[:1]).ok
        losses += steps(session, *made)
        assert plain_reads - reads(session, *made[:3]) == 2 * (LAYERS - 1)
        shared = engine.describe().shared
        assert len(shared) == 2 * (LAYERS - 1) - 1 and made[-1].op.name not in shared  # one step feeds it
    assert losses == plain
