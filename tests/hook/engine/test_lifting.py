"""Sessions under a strategy do without waits for barriers: same bits, and steps to which it would make a difference keep them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

from tensorflow.core.framework import graph_pb2  # noqa: E402

from stepd.hook.engine import capi, requests  # noqa: E402
from stepd.hook.engine.splitting import Splitting  # noqa: E402
from stepd.hook.model import LiveStrategy, Order  # noqa: E402

STEPS = 6


def net() -> tuple[Any, Any, Any, Any]:
    """(x, loss, train, the gradient that the first layer's barrier hands on)."""
    tf.set_random_seed(3)
    x = tf.placeholder(tf.float32, [8, 6], name="x")
    h = x
    for k in range(3):
        w = tf.get_variable(f"w{k}", [6, 6], initializer=tf.orthogonal_initializer(seed=k), use_resource=True)
        b = tf.get_variable(f"b{k}", [6], initializer=tf.zeros_initializer(), use_resource=True)
        h = tf.tanh(tf.nn.bias_add(tf.matmul(h, w, name=f"dense{k}"), b, name=f"biased{k}"))
    loss = tf.reduce_mean(tf.square(h), name="loss")
    train = tf.train.AdamOptimizer(0.01).minimize(loss, name="train")
    passed_on = tf.get_default_graph().get_operation_by_name("gradients/biased0_grad/tuple/control_dependency").outputs[0]
    return x, loss, train, passed_on


def run(session: Any, x: Any, what: Any) -> list[bytes]:
    return [session.run(what, {x: np.random.RandomState(k).randn(8, 6)})[0].tobytes() for k in range(STEPS)]


@pytest.mark.parametrize("order", [Order.AUTO, Order.NONE])
def test_copies_do_without_the_waits_where_that_makes_no_difference(
    hooked: Callable[..., Any], two_devices: Any, order: Order
) -> None:
    with tf.Graph().as_default(), tf.Session(config=two_devices) as session:
        x, loss, train, passed_on = net()
        session.run(tf.global_variables_initializer())
        plain = run(session, x, [loss, train]) + run(session, x, [loss, train]) + run(session, x, [passed_on])
    listener = hooked(order=order)
    with tf.Graph().as_default(), tf.Session(config=two_devices) as session:
        x, loss, train, passed_on = net()
        session.run(tf.global_variables_initializer())
        engine = listener.engines[0]
        losses = run(session, x, [loss, train])
        switcher, kinds = engine.switcher(), engine.kinds.all()[-2:]
        told = engine.describe().lifted
        devices = [device.name for device in engine.devices()]
        placement = {n: devices["MatMul_1" in n] for members, _ in switcher.units() for n in members}
        with engine.lock:
            assert requests.switch_now(engine, switcher, LiveStrategy("moved", placement), kinds).ok
        losses += run(session, x, [loss, train])
        gradients = run(session, x, [passed_on])
        nodes = {n.name: n for n in graph_pb2.GraphDef.FromString(capi.graph_handle_bytes(switcher.mirror.graph.handle)).node}
        live, view = switcher.live, switcher.view()
        alone = live.serving(engine.kinds.all()[-1], view)
    member, barrier = passed_on.op.name, passed_on.op.name.replace("control_dependency", "group_deps")
    assert losses + gradients == plain
    assert live.plan.order_said.endswith("; 10 reads shared")  # of Adam's two powers, for all updates but the first
    assert f"; {len(told)} waits lifted; " in live.plan.order_said if told else "lifted" not in live.plan.order_said
    assert (member in told) == (order is Order.AUTO) and told.get(member, barrier) == barrier
    waits = {
        name: [i for i in nodes[copy.ops.name_of(member)].input if i.startswith("^")] for name, copy in {1: live, 2: alone}.items()
    }
    assert waits[2] == [f"^{alone.ops.name_of(barrier)}"]
    assert (alone is live) == (order is Order.NONE)
    if order is Order.AUTO:
        (opened,) = waits[1]
        assert opened.endswith("-open") and nodes[opened[1:]].op == "PlaceholderWithDefault"
        kept = live.ops.name_of(member + "_1")
        assert f"^{live.ops.name_of(barrier)}" in nodes[kept].input


def test_a_step_that_reads_and_writes_in_no_order_keeps_all_waits(hooked: Callable[..., Any], two_devices: Any) -> None:
    listener = hooked()
    with tf.Graph().as_default(), tf.Session(config=two_devices) as session:
        x, loss, train, passed_on = net()
        w = tf.get_default_graph().get_tensor_by_name("w2:0")
        value = tf.raw_ops.ReadVariableOp(resource=w, dtype=tf.float32)
        last = passed_on
        for _ in range(12):
            last = tf.tanh(last)
        with tf.control_dependencies([last]):  # as late as the write
            late = tf.raw_ops.ReadVariableOp(resource=w, dtype=tf.float32)
        session.run(tf.global_variables_initializer())
        feed = {x: np.zeros((8, 6))}
        switcher = listener.engines[0].switcher()
        lifted = {}
        for name, read in (("none", loss), ("first", value), ("late", late)):
            session.run([loss, train, read], feed)
            lifted[name] = switcher.making.lifts([listener.engines[0].kinds.all()[-1].step])
    assert lifted["none"] and lifted["first"] == lifted["none"] and not lifted["late"]


@pytest.mark.parametrize("in_parts", [False, True])
def test_a_copy_without_waits_is_used_again_and_stays_when_the_graph_grows(
    hooked: Callable[..., Any], two_devices: Any, monkeypatch: pytest.MonkeyPatch, in_parts: bool
) -> None:
    listener = hooked()
    with tf.Graph().as_default(), tf.Session(config=two_devices) as session:
        x, loss, train, _ = net()
        session.run(tf.global_variables_initializer())
        run(session, x, [loss, train])
        engine = listener.engines[0]
        switcher, kinds = engine.switcher(), engine.kinds.all()[-1:]
        other = engine.devices()[1].name
        if in_parts:  # as on local workers, where what is cut is fed in the training process
            monkeypatch.setattr(Splitting, "fed_apart", lambda *_: {"x": other})
        strategy = LiveStrategy("again", {} if in_parts else {"dense1": other}, replicate=in_parts)
        for wanted in (strategy, None, strategy):
            with engine.lock:
                assert requests.switch_now(engine, switcher, wanted, kinds).ok
        assert switcher.live.plan.lifts and switcher.making.made == 1
        twice = tf.multiply(loss, 2.0)
        run(session, x, [twice, train])
        assert (engine.strategy_id, switcher.making.made) == (strategy.id, 1) and not listener.failed
