"""Splits in a live session: values, what is visible of them, feeds and fetches of split ops, and the way back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tensorflow.core.framework import graph_pb2

from stepd.hook.engine import copies
from stepd.hook.engine.settings import Chaos
from stepd.hook.engine.splitting import Splitting
from stepd.hook.model import LiveStrategy, Order, Split, Way

tf = pytest.importorskip("tensorflow.compat.v1")


def network() -> tuple[Any, Any, Any]:
    """(x, loss, train) of a small network in double precision; the batch is known at run time only."""
    random = np.random.RandomState(0)
    x = tf.placeholder(tf.float64, [None, 6], name="x")
    v, w = (tf.get_variable(n, initializer=random.randn(*s), use_resource=True) for n, s in (("v", (6, 8)), ("w", (8, 3))))
    hidden = tf.nn.relu(tf.matmul(x, v, name="first"), name="hidden")
    loss = tf.reduce_mean(tf.square(tf.matmul(hidden, w, name="second")), name="loss")
    return x, loss, tf.train.MomentumOptimizer(0.001, 0.9).minimize(loss, name="train")


def batches(steps: int) -> list[Any]:
    random = np.random.RandomState(1)
    return [random.randn(5 if k % 3 else 1, 6) for k in range(steps)]  # one row for two parts, too


def train(session: Any, x: Any, loss: Any, step: Any, fed: list[Any]) -> list[float]:
    return [float(session.run([loss, step], {x: batch})[0]) for batch in fed]


def plain(steps: int, model: Any = network) -> list[float]:
    with tf.Graph().as_default(), tf.Session() as session:
        x, loss, step = model()
        session.run(tf.global_variables_initializer())
        return train(session, x, loss, step, batches(steps))


def switch(engine: Any, strategy: LiveStrategy, reply: Any, run: Any) -> Any:
    """Switch while `run` goes on, as a training loop does; returns the outcome."""
    engine.request_switch(strategy, Way.IN_SESSION, reply)
    while not reply.came():
        run()
    return reply.wait()


@pytest.mark.parametrize("replicate", [True, False])
def test_a_split_session_learns_the_same_and_goes_back(hooked: Any, reply: Any, two_devices: Any, replicate: bool) -> None:
    expected = plain(9)
    listener = hooked()
    x, loss, step = network()
    with tf.Session(config=two_devices) as session:
        session.run(tf.global_variables_initializer())
        fed = batches(9)
        got = train(session, x, loss, step, fed[:3])
        (engine,) = listener.engines
        names = tuple(device.name for device in engine.devices())
        if replicate:
            strategy = LiveStrategy("copies", {}, replicate=True)
        else:
            # Columns of the first layer, then rows of the second, unequal and on two devices.
            parts = [("first", "1"), ("hidden", "1"), ("second", "inner")]
            strategy = LiveStrategy("parts", {}, splits=tuple(Split(op, axis, 2, names, (1, 3)) for op, axis in parts))
        outcome = switch(engine, strategy, reply, lambda: session.run(loss, {x: fed[0]}))
        assert outcome.ok and outcome.not_honoured == () and outcome.honoured > 0
        assert outcome.splits_in_force == (3 if not replicate else len(engine.switcher().live.plan.splits)) > 2
        got += train(session, x, loss, step, fed[3:6])
        metadata = tf.RunMetadata()
        session.run(loss, {x: fed[0]}, tf.RunOptions(output_partition_graphs=True), metadata)
        places = {node.device for graph in metadata.partition_graphs for node in graph.node if node.op == "MatMul"}
        assert places == set(names), "the parts of a product are on both devices"
        back = type(reply)()
        engine.request_rollback("test", back)
        assert back.wait().ok and engine.switcher().live is None
        got += train(session, x, loss, step, fed[6:])
    assert np.allclose(got, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("into", [(0, 1, 0, 1), (0, 0, 0, 0, 1, 1, 1, 1)])
def test_sums_are_added_up_where_a_strategy_says_and_go_back(
    hooked: Any, reply: Any, two_devices: Any, into: tuple[int, ...]
) -> None:
    expected = plain(6)
    listener = hooked()
    x, loss, step = network()
    with tf.Session(config=two_devices) as session:
        session.run(tf.global_variables_initializer())
        fed = batches(6)
        (engine,) = listener.engines
        one, other = (device.name for device in engine.devices())
        own = (one, other, other, one)
        parts = tuple(Split(op, axis, 4, own) for op, axis in (("first", "1"), ("hidden", "1")))
        strategy = LiveStrategy("sums", {}, splits=(*parts, Split("second", "inner", 4, own, (), into)))
        got = train(session, x, loss, step, fed[:2])
        outcome = switch(engine, strategy, reply, lambda: session.run(loss, {x: fed[0]}))
        assert outcome.ok and outcome.not_honoured == () and outcome.splits_in_force == 3, outcome
        got += train(session, x, loss, step, fed[2:4])
        metadata = tf.RunMetadata()
        session.run(loss, {x: fed[0]}, tf.RunOptions(output_partition_graphs=True), metadata)
        sums = [
            node.device for graph in metadata.partition_graphs for node in graph.node if node.op == "AddN" and "second" in node.name
        ]
        assert set(sums) == {one, other}, "a sum on each device"
        back = type(reply)()
        engine.request_rollback("test", back)
        assert back.wait().ok and engine.switcher().live is None
        got += train(session, x, loss, step, fed[4:])
    assert np.allclose(got, expected, rtol=1e-12, atol=0)


def branches() -> tuple[Any, Any, Any]:
    """As `network`, with branches between which an order can choose."""
    random = np.random.RandomState(0)
    x = tf.placeholder(tf.float64, [None, 6], name="x")
    weights = [tf.get_variable(f"w{k}", initializer=random.randn(6, 4), use_resource=True) for k in range(6)]
    loss = tf.reduce_mean(tf.square(tf.concat([tf.tanh(tf.matmul(x, w)) for w in weights], 1)), name="loss")
    return x, loss, tf.train.MomentumOptimizer(0.001, 0.9).minimize(loss, name="train")


def test_parts_run_in_an_order_and_the_operator_is_told(hooked: Any, reply: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = plain(6, branches)
    listener = hooked()
    made: dict[str, list[str]] = {}
    importing = copies.capi.import_graph_def

    def noted(graph: Any, data: bytes, *others: Any) -> Any:
        made.update((node.name, list(node.input)) for node in graph_pb2.GraphDef.FromString(data).node)
        return importing(graph, data, *others)

    monkeypatch.setattr(copies.capi, "import_graph_def", noted)
    x, loss, step = branches()
    two_places = tf.ConfigProto(device_count={"CPU": 2}, inter_op_parallelism_threads=2)
    with tf.Session(config=two_places) as session:
        session.run(tf.global_variables_initializer())
        fed = batches(6)
        got = train(session, x, loss, step, fed[:3])
        (engine,) = listener.engines
        pinned = engine.describe().pinned
        names = [op.name for op in engine.mirror.user_graph.get_operations() if op.name not in pinned]
        priority = {name: len(names) - k for k, name in enumerate(names)}
        strategy = LiveStrategy("ordered", {}, priority, replicate=True, order=Order.CONTROL)
        outcome = switch(engine, strategy, reply, lambda: session.run(loss, {x: fed[0]}))
        assert outcome.ok and outcome.splits_in_force > 2 and outcome.order_in_force.startswith("control: ")
        edges = engine.switcher().live.plan.order.edges
        tied = [edge for edge in edges if max(edge.parts) >= 0]
        assert tied, "no part waits for another"
        waits = [(part(name), part(text[1:])) for name, inputs in made.items() for text in inputs if text.startswith("^")]
        assert {(held, signal) for held, signal in waits} >= {(end(edge, 1), end(edge, 0)) for edge in tied}
        got += train(session, x, loss, step, fed[3:])
        back = type(reply)()
        engine.request_rollback("test", back)
        assert back.wait().ok and engine.switcher().live is None
    assert np.allclose(got, expected, rtol=1e-12, atol=0)


def part(name: str) -> tuple[str, int]:
    """(user's op, part) of a node of a copy; -1 for a whole op."""
    op, _, rest = name.partition("-stepd_")
    _, found, number = rest.partition("-part")
    return op, int(number) if found and number.isdigit() else -1


def end(edge: Any, which: int) -> tuple[str, int]:
    """The signal (0) or the held op (1) of an edge, as `part` says it."""
    return (edge.tie.signal, edge.tie.held)[which], edge.parts[which]


def test_what_is_split_can_be_fetched_fed_and_named_in_errors(hooked: Any, reply: Any, two_devices: Any) -> None:
    listener = hooked()
    x, loss, _ = network()
    graph = tf.get_default_graph()
    first, hidden = graph.get_tensor_by_name("first:0"), graph.get_tensor_by_name("hidden:0")
    wrong = tf.add(tf.linalg.inv(tf.reshape(x, [-1, 2, 2]), name="inverse"), 1.0)
    with tf.Session(config=two_devices) as session:
        session.run(tf.global_variables_initializer())
        rows = batches(2)[1]
        before = session.run([first, hidden, loss], {x: rows})
        (engine,) = listener.engines
        splits = (*(Split(op, "0", 2) for op in ("first", "hidden", "second")), Split("inverse", "0", 2), Split("v", "0", 2))
        session.run(wrong, {x: np.random.RandomState(2).randn(2, 6)})
        outcome = switch(engine, LiveStrategy("s", {}, splits=splits), reply, lambda: session.run(loss, {x: rows}))
        assert outcome.splits_in_force == 4
        assert [(miss.op, "whole" in miss.got) for miss in outcome.not_honoured] == [("v", True)]
        after = session.run([first, hidden, loss], {x: rows})
        assert all(np.allclose(a, b, rtol=1e-12, atol=1e-12) for a, b in zip(before, after, strict=True))
        # Feeding what is split: those that read it must see what is fed.
        assert session.run(loss, {hidden: np.ones((4, 8))}) > 0
        assert np.array_equal(session.run(hidden, {first: -np.ones((2, 8))}), np.zeros((2, 8)))
        with pytest.raises(tf.errors.InvalidArgumentError, match="inverse") as caught:
            session.run(wrong, {x: np.zeros((2, 6))})
        assert "stepd" not in caught.value.message and caught.value.op.name == "inverse"
        # Ops added later read what is split.
        assert np.allclose(session.run(tf.reduce_sum(hidden, name="late"), {x: rows}), before[1].sum())


def test_chaos_with_splits_trains_the_same(hooked: Any) -> None:
    expected = plain(12)
    listener = hooked(chaos=Chaos(2, "in-session", seed=5, devices=3, splits=True))
    x, loss, step = network()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        got = train(session, x, loss, step, batches(12))
    assert np.allclose(got, expected, rtol=1e-12, atol=0)
    assert sum(outcome.splits_in_force > 0 for outcome in listener.switches) >= 2


def test_what_is_cut_can_be_fed_on_another_device(
    hooked: Any, reply: Any, two_devices: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on local workers, where it is fed in the training process."""
    expected = plain(9)
    listener = hooked()
    x, loss, step = network()
    batch = tf.shape(x, name="batch")[0]
    fed = batches(9)
    with tf.Session(config=two_devices) as session:
        session.run(tf.global_variables_initializer())
        got = train(session, x, loss, step, fed[:3])
        (engine,) = listener.engines
        one, other = (device.name for device in engine.devices())

        def apart(self: Any, chosen: Any, view: Any, classes: Any) -> dict[str, str]:
            return dict.fromkeys(("x", "batch"), other)

        monkeypatch.setattr(Splitting, "fed_apart", apart)
        strategy = LiveStrategy("copies", {}, splits=(Split("first", "0", 2, (one, other)),))
        outcome = switch(engine, strategy, reply, lambda: session.run(loss, {x: fed[0]}))
        assert outcome.ok and outcome.not_honoured == () and outcome.splits_in_force == 1
        got += train(session, x, loss, step, fed[3:6])
        metadata = tf.RunMetadata()
        session.run(loss, {x: fed[0]}, tf.RunOptions(output_partition_graphs=True), metadata)
        cuts = {n.device for graph in metadata.partition_graphs for n in graph.node if n.op == "SplitV"}
        assert cuts == {other}, "cut where it is fed"
        assert session.run(batch, {x: fed[1]}) == len(fed[1])
        with pytest.raises(tf.errors.InvalidArgumentError, match="'x' with dtype double") as caught:
            session.run(loss)
        assert "stepd" not in caught.value.message
        # Readers that come later, callables and partial runs feed the same.
        assert np.array_equal(session.run(x * 2.0, {x: fed[0]}), fed[0] * 2.0)
        assert np.isfinite(session.make_callable(loss, [x])(fed[0]))
        handle = session.partial_run_setup([loss], [x])
        assert np.isfinite(session.partial_run(handle, loss, {x: fed[0]}))
        back = type(reply)()
        engine.request_rollback("test", back)
        assert back.wait().ok and engine.switcher().live is None
        got += train(session, x, loss, step, fed[6:])
    assert np.allclose(got, expected, rtol=1e-12, atol=0)


def test_what_is_fed_elsewhere_only_later_contradicts_what_was_copied(
    hooked: Any, reply: Any, two_devices: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = hooked()
    x, loss, _ = network()
    rows = batches(1)[0]
    with tf.Session(config=two_devices) as session:
        session.run(tf.global_variables_initializer())
        before = session.run(loss, {x: rows})
        (engine,) = listener.engines
        one, other = (device.name for device in engine.devices())
        strategy = LiveStrategy("copies", {}, splits=(Split("first", "0", 2, (one, other)),))
        assert switch(engine, strategy, reply, lambda: session.run(loss, {x: rows})).ok
        monkeypatch.setattr(Splitting, "fed_apart", lambda *_: {"x": other})
        assert np.array_equal(session.run(x * 2.0, {x: rows}), rows * 2.0)  # the graph grows
        assert session.run(loss, {x: rows}) == pytest.approx(before, rel=1e-12)
