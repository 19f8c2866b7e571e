"""Sessions whose strategy has an order, enforced by control edges: same bits, ops run in that order, and rollback takes it back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from stepd.hook.model import LiveStrategy, Order, Way

tf = pytest.importorskip("tensorflow.compat.v1")

from stepd.hook.engine.settings import Chaos  # noqa: E402
from stepd.hook.order.native import library  # noqa: E402

STEPS = 4


@pytest.fixture
def two_places() -> Any:
    """Two devices that share two threads."""
    return tf.ConfigProto(device_count={"CPU": 2}, inter_op_parallelism_threads=2)


def towers() -> tuple[Any, Any, Any]:
    """(x, loss, train): branches of convolutions and dense layers between which an order can choose, dropout, a sum, Adam."""
    tf.set_random_seed(3)
    x = tf.placeholder(tf.float32, [8, 12, 12, 3], name="x")
    branches = []
    for k in range(4):
        kernel = tf.get_variable(f"k{k}", initializer=np.random.RandomState(k).randn(3, 3, 3, 4).astype(np.float32) * 0.1)
        bias = tf.get_variable(f"b{k}", initializer=np.full(4, 0.1, np.float32))
        hidden = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, kernel, 1, "SAME"), bias), name=f"hidden{k}")
        dense = tf.get_variable(f"w{k}", initializer=np.random.RandomState(9 + k).randn(4, 5).astype(np.float32))
        branches.append(tf.tanh(tf.matmul(tf.reduce_mean(hidden, [1, 2]), dense), name=f"out{k}"))
    joined = tf.nn.dropout(tf.add_n(branches), rate=0.3, seed=7)
    loss = tf.reduce_mean(tf.square(tf.concat([joined, *branches], 1)), name="loss")
    return x, loss, tf.train.AdamOptimizer(0.01).minimize(loss, name="train")


def data(step: int) -> np.ndarray[Any, Any]:
    return np.random.RandomState(100 + step).randn(8, 12, 12, 3).astype(np.float32)


def train(session: Any, x: Any, loss: Any, step: Any, numbers: range) -> list[bytes]:
    return [session.run([loss, step], {x: data(n)})[0].tobytes() for n in numbers]


def plain_losses(config: Any, steps: int) -> list[bytes]:
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        x, loss, step = towers()
        session.run(tf.global_variables_initializer())
        return train(session, x, loss, step, range(steps))


def backwards(engine: Any, spread: bool = False, order: Order = Order.AUTO) -> LiveStrategy:
    """Priorities against the order of creation; with `spread` every other branch on the second device."""
    pinned = engine.describe().pinned
    names = [op.name for op in engine.mirror.user_graph.get_operations() if op.name not in pinned]
    devices = [device.name for device in engine.devices()]
    placement = {name: devices[1 if spread and ("0" in name or "2" in name) else 0] for name in names}
    return LiveStrategy("backwards", placement, {name: len(names) - i for i, name in enumerate(names)}, order=order)


def switch(engine: Any, strategy: LiveStrategy) -> Any:
    """Put a strategy in force at once; returns its order plan."""
    from stepd.hook.engine import requests

    with engine.lock:
        outcome = requests.switch_now(engine, engine.switcher(), strategy, [k for k in engine.kinds.all() if k.runs > 1])
    assert outcome.ok, outcome.error
    return engine.switcher().live.plan.order


def times(session: Any, fetches: Any, feed: Any) -> dict[str, tuple[int, int]]:
    """(start, end) in nanoseconds of the ops of one step, by the user's name."""
    options, metadata = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), tf.RunMetadata()
    session.run(fetches, feed, options=options, run_metadata=metadata)
    found: dict[str, tuple[int, int]] = {}
    for device in metadata.step_stats.dev_stats:
        for node in device.node_stats:
            if "PlaceholderWithDefault" not in node.timeline_label:
                begin = node.all_start_nanos + node.op_start_rel_nanos
                found[node.node_name] = begin, node.all_start_nanos + node.op_end_rel_nanos
    return found


def fused(name: str) -> str:
    """The name under which Grappler's fusion of a branch's convolution or dense layer runs."""
    for op, last in (("Conv2D", "hidden"), ("MatMul", "out")):
        if name == op or name.startswith(f"{op}_"):
            return last + (name.removeprefix(op).lstrip("_") or "0")
    return name


@pytest.mark.parametrize("spread", [False, True])
def test_an_order_changes_no_bit_and_is_kept_by_the_ops(hooked: Any, two_places: Any, spread: bool) -> None:
    expected = plain_losses(two_places, 3 * STEPS)
    listener = hooked(order=Order.CONTROL)
    x, loss, step = towers()
    with tf.Session(config=two_places) as session:
        session.run(tf.global_variables_initializer())
        got = train(session, x, loss, step, range(STEPS))
        (engine,) = listener.engines
        order = switch(engine, backwards(engine, spread))
        assert order.said.startswith(f"control: {len(order.edges)} edges in 1 step kinds")
        got += train(session, x, loss, step, range(STEPS, 2 * STEPS))
        ran = times(session, [loss, step], {x: data(2 * STEPS)})
        pairs = [(e.tie.signal, fused(e.after)) for e in order.edges]
        seen = [(a, b) for a, b in pairs if a in ran and b in ran]
        assert len(seen) >= 5 and all(ran[a][1] <= ran[b][0] for a, b in seen)
        got += train(session, x, loss, step, range(2 * STEPS, 2 * STEPS + 1))
    without_traced_step = expected[: 2 * STEPS]
    assert got[: 2 * STEPS] == without_traced_step


def test_a_rollback_takes_the_order_back(hooked: Any, two_places: Any, replies: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = plain_losses(two_places, 3 * STEPS)
    monkeypatch.setattr(library, "load_if_built", lambda _: "no compiler")
    listener = hooked()
    x, loss, step = towers()
    with tf.Session(config=two_places) as session:
        session.run(tf.global_variables_initializer())
        got = train(session, x, loss, step, range(STEPS))
        (engine,) = listener.engines
        there, back = replies(), replies()
        engine.request_switch(backwards(engine, order=Order.AUTO), Way.AUTO, there)
        while engine.told.awaited is None and not there.came():
            there.pause()
        got += train(session, x, loss, step, range(STEPS, 2 * STEPS))
        outcome = there.wait()
        assert outcome.ok and "; the native executor is not used: no compiler" in outcome.order_in_force
        assert outcome.order_in_force.startswith("control: ")
        engine.request_rollback("test", back)
        undone = back.wait()
        assert undone.ok and undone.order_in_force == "" and engine.switcher().live is None
        got += train(session, x, loss, step, range(2 * STEPS, 3 * STEPS))
    assert got == expected


def test_a_step_that_feeds_inside_runs_without_the_order(hooked: Any, two_places: Any) -> None:
    """With it, the step would need the placeholder that it does not feed."""
    listener = hooked(order=Order.CONTROL)
    x, loss, step = towers()
    graph = tf.get_default_graph()
    hidden = [graph.get_tensor_by_name(f"hidden{k}:0") for k in (0, 1)]
    outs = [graph.get_tensor_by_name(f"out{k}:0") for k in (0, 1)]
    value = np.random.RandomState(5).randn(8, 12, 12, 4).astype(np.float32)
    with tf.Session(config=two_places) as session:
        session.run(tf.global_variables_initializer())
        train(session, x, loss, step, range(2))
        expected = session.run(outs, dict.fromkeys(hidden, value))
        order = switch(listener.engines[0], backwards(listener.engines[0]))
        assert order.edges
        train(session, x, loss, step, range(2, 3))
        strategy_before = listener.engines[0].strategy_id
        again = session.run(outs, dict.fromkeys(hidden, value))
        for one in (0, 1):
            assert session.run(outs[one], {hidden[one]: value}).shape == (8, 5)
        assert listener.engines[0].strategy_id == strategy_before == "backwards"
        call = session.make_callable([outs[0]], feed_list=[hidden[0]])
        assert call(value)[0].shape == (8, 5)
    assert [e.shape for e in expected] == [a.shape for a in again]


def test_partial_runs_and_callables_go_on_under_an_order(hooked: Any) -> None:
    listener = hooked(order=Order.CONTROL)
    a, b = tf.placeholder(tf.float32, [4, 4], name="a"), tf.placeholder(tf.float32, [4, 4], name="b")
    one, two = tf.linalg.inv(a, name="one"), tf.linalg.inv(b, name="two")
    eye = np.eye(4, dtype=np.float32)
    with tf.Session(config=tf.ConfigProto(inter_op_parallelism_threads=1)) as session:
        for _ in range(2):
            session.run([one, two], {a: eye, b: eye})
        call = session.make_callable([one, two], [a, b])
        call(eye, eye)
        (engine,) = listener.engines
        order = switch(engine, LiveStrategy("two-first", {}, {"two": 0, "one": 1}))
        assert [(e.before, e.after) for e in order.edges] == [("two", "one")]
        handle = session.partial_run_setup([one, two], [a, b])
        first = session.partial_run(handle, one, {a: eye * 2})  # `two` has not even been fed
        second = session.partial_run(handle, two, {b: eye * 4})
        assert first[0, 0] == 0.5 and second[0, 0] == 0.25
        assert np.array_equal(call(eye, eye)[1], eye)
        assert np.array_equal(session.run(one, {a: eye}), eye)  # nobody feeds b


@pytest.fixture
def v1_control_flow() -> Iterator[None]:
    enabled = tf.control_flow_v2_enabled()
    tf.disable_control_flow_v2()
    yield
    if enabled:
        tf.enable_control_flow_v2()


@pytest.mark.usefixtures("v1_control_flow")
def test_branches_and_loops_keep_their_values_under_an_order(hooked: Any) -> None:
    listener = hooked(order=Order.CONTROL)
    x = tf.placeholder(tf.float32, [6, 6], name="x")
    which = tf.placeholder(tf.bool, [], name="which")
    branch = tf.cond(which, lambda: tf.linalg.inv(x + 9.0, name="yes"), lambda: tf.linalg.det(x) * x)
    _, looped = tf.while_loop(lambda i, _: i < 3, lambda i, v: (i + 1, tf.linalg.inv(v + tf.eye(6) * 5.0)), [0, x])
    after = [tf.linalg.inv(v + tf.eye(6) * 7.0, name=f"after{k}") for k, v in enumerate((branch, looped, x, branch * 2.0))]
    value = np.random.RandomState(0).randn(6, 6).astype(np.float32)
    with tf.Session(config=tf.ConfigProto(inter_op_parallelism_threads=1)) as session:
        runs = [session.run([branch, looped, *after], {x: value, which: w}) for w in (True, False, True)]
        (engine,) = listener.engines
        order = switch(engine, backwards(engine))
        edges = {(e.before, e.after) for e in order.edges}
        assert edges and not any("while" in a + b or "yes" in a + b for a, b in edges)
        again = [session.run([branch, looped, *after], {x: value, which: w}) for w in (True, False, True)]
    for before, now in zip(runs, again, strict=True):
        assert [v.tobytes() for v in before] == [v.tobytes() for v in now]


def test_a_graph_that_grows_keeps_its_order(hooked: Any, two_places: Any) -> None:
    listener = hooked(order=Order.CONTROL)
    x, loss, step = towers()
    with tf.Session(config=two_places) as session:
        session.run(tf.global_variables_initializer())
        train(session, x, loss, step, range(2))
        edges = switch(listener.engines[0], backwards(listener.engines[0])).edges
        train(session, x, loss, step, range(2, 3))
        more = tf.linalg.norm(tf.get_default_graph().get_tensor_by_name("out1:0"), name="more")
        assert session.run(more, {x: data(3)}) > 0
        train(session, x, loss, step, range(3, 4))
        assert listener.engines[0].switcher().live.plan.order.edges == edges
        assert listener.engines[0].strategy_id == "backwards"


@pytest.mark.parametrize(
    ("setting", "asked", "begins"),
    [
        (Order.NONE, Order.CONTROL, "none: STEPD_ORDER=none"),
        (Order.AUTO, Order.NONE, "none: the strategy asks for none"),
        (Order.CONTROL, Order.NONE, "control: "),
        (Order.NATIVE, Order.CONTROL, "control: "),
    ],
)
def test_the_setting_goes_before_the_strategy(
    hooked: Any, two_places: Any, setting: Any, asked: Any, begins: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "load_if_built", lambda _: "no compiler")
    listener = hooked(order=setting)
    x, loss, step = towers()
    with tf.Session(config=two_places) as session:
        session.run(tf.global_variables_initializer())
        train(session, x, loss, step, range(2))
        order = switch(listener.engines[0], backwards(listener.engines[0], order=asked))
        assert order.said.startswith(begins)
        assert bool(order.edges) == begins.startswith("control")


@pytest.mark.parametrize("way", ["in-session", "both"])
def test_random_switches_with_orders_change_no_bit(hooked: Any, way: Any, tmp_path: Any) -> None:
    expected = plain_losses(tf.ConfigProto(device_count={"CPU": 3}), 12)
    listener = hooked(order=Order.CONTROL, chaos=Chaos(2, way, seed=5, devices=3, order=True), state_dir=tmp_path)
    x, loss, step = towers()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert train(session, x, loss, step, range(12)) == expected
        assert any(copy.plan.order.edges for copy in listener.engines[0].switcher().making.kept.values())
