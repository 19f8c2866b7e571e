"""A session that is full of copies: restarted where that is possible, told about where not; and what steps wait for meanwhile."""

from __future__ import annotations

import contextlib
import gc
import itertools
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from stepd.hook.engine import ways
from stepd.hook.engine.gate import Gate
from stepd.hook.model import LiveStrategy, Way

tf = pytest.importorskip("tensorflow.compat.v1")


@contextlib.contextmanager
def without_cycles_found() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def noisy_training(generator: bool = False) -> tuple[Any, Any]:
    """(values, products): a step with dropout and Adam, and the ops that may move."""
    x = tf.ones([4, 6])
    if generator:
        data = tf.data.Dataset.from_generator(lambda: itertools.repeat(np.ones([4, 6], np.float32)), tf.float32, [4, 6])
        x = tf.data.make_one_shot_iterator(data).get_next()
    w = tf.get_variable("w", [6, 3], initializer=tf.random_normal_initializer(seed=1), use_resource=True)
    hidden = tf.nn.dropout(tf.matmul(x, w), rate=0.5, seed=2)
    loss = tf.reduce_sum(tf.square(hidden))
    train = tf.train.AdamOptimizer(0.1).minimize(loss)
    with tf.control_dependencies([train]):  # read beside the write, either could come first, plainly too
        after = w.read_value()
    return [loss, after, train], [op.name for op in tf.get_default_graph().get_operations() if op.type == "MatMul"]


def step(session: Any, values: Any) -> list[bytes]:
    return [value.tobytes() for value in session.run(values)[:2]]


def switch(engine: Any, session: Any, values: Any, reply: Any, strategy: LiveStrategy, seen: list[list[bytes]]) -> Any:
    """Step until the switch is made, or refused; the outcome."""
    engine.request_switch(strategy, Way.AUTO, reply)
    while not reply.came():
        seen.append(step(session, values))
    return reply.wait()


def test_a_full_session_is_restarted_and_its_random_streams_go_on(
    hooked: Any, reply: Any, two_devices: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ways, "_SHORT_WAIT_SECONDS", 1e9)  # a first step that took long is no reason for a restart here
    listener = hooked(copies=2, state_dir=tmp_path)
    values, products = noisy_training()
    seen: list[list[bytes]] = []
    with without_cycles_found(), tf.Session(config=two_devices) as session:
        session.run(tf.global_variables_initializer())
        seen += [step(session, values) for _ in range(20)]  # more draws than can be made one by one
        (engine,) = listener.engines
        other = engine.devices()[1].name
        chosen = []
        first = weakref.ref(engine.mirror)
        for k in range(3):
            outcome = switch(engine, session, values, type(reply)(), LiveStrategy(f"s{k}", dict.fromkeys(products, other)), seen)
            assert outcome.ok, outcome.error
            chosen.append((outcome.way, outcome.why_this_way))
        assert [way for way, _ in chosen] == [Way.IN_SESSION, Way.IN_SESSION, Way.RESTART]
        assert "full of copies" in chosen[2][1]
        assert len(engine.switcher().making.kept) == 1 and engine.strategy_id == "s2"
        assert first() is None, "it holds a graph of TensorFlow's, and may not wait until Python looks for cycles"
        seen += [step(session, values) for _ in range(3)]
    with tf.Graph().as_default(), tf.Session() as session:
        values, _ = noisy_training()
        session.run(tf.global_variables_initializer())
        assert [step(session, values) for _ in seen] == seen


def test_a_full_session_is_compacted_on_what_is_in_force(hooked: Any, replies: Any, two_devices: Any, tmp_path: Any) -> None:
    listener = hooked(copies=2, way=Way.IN_SESSION, state_dir=tmp_path)
    values, products = noisy_training()
    seen: list[list[bytes]] = []
    with tf.Session(config=two_devices) as session:
        session.run(tf.global_variables_initializer())
        seen += [step(session, values) for _ in range(4)]
        (engine,) = listener.engines
        wanted = dict.fromkeys(products, engine.devices()[1].name)
        early, late = replies(), replies()
        assert switch(engine, session, values, replies(), LiveStrategy("s0", wanted), seen).ok
        engine.request_compaction(early)  # there is room for one more
        assert switch(engine, session, values, replies(), LiveStrategy("s1", wanted), seen).ok and not early.came()
        raw, made = engine.raw, engine.switcher().making.made
        engine.request_compaction(late)
        while not late.came():
            seen.append(step(session, values))
        assert late.wait().ok and late.wait().way is Way.RESTART and engine.raw is not raw, late.wait().error
        assert (made, engine.switcher().making.made, engine.strategy_id) == (2, 1, "s1")
        seen += [step(session, values) for _ in range(3)]
    with tf.Graph().as_default(), tf.Session() as session:
        values, _ = noisy_training()
        session.run(tf.global_variables_initializer())
        assert [step(session, values) for _ in seen] == seen


def test_a_full_session_that_cannot_be_restarted_says_so_and_goes_on(hooked: Any, reply: Any, two_devices: Any) -> None:
    listener = hooked(copies=1)
    values, products = noisy_training(generator=True)
    seen: list[list[bytes]] = []
    with tf.Session(config=two_devices) as session:
        session.run(tf.global_variables_initializer())
        seen += [step(session, values) for _ in range(3)]
        (engine,) = listener.engines
        other = engine.devices()[1].name
        wanted = dict.fromkeys(products, other)
        assert switch(engine, session, values, reply, LiveStrategy("one", wanted), seen).ok
        outcome = switch(engine, session, values, type(reply)(), LiveStrategy("two", wanted), seen)
        assert not outcome.ok and engine.strategy_id == "one"
        assert "1 copies" in outcome.error and "STEPD_MAX_COPIES=1" in outcome.error and "GeneratorDataset" in outcome.error
        assert switch(engine, session, values, type(reply)(), LiveStrategy("one", wanted), seen).ok


def test_steps_do_not_wait_for_the_engines_lock(hooked: Any, reply: Any, two_devices: Any) -> None:
    listener = hooked()
    values, products = noisy_training()
    with tf.Session(config=two_devices) as session:
        session.run(tf.global_variables_initializer())
        for _ in range(3):
            step(session, values)
        (engine,) = listener.engines
        strategy = LiveStrategy("s", dict.fromkeys(products, engine.devices()[1].name))
        taken, free = threading.Event(), threading.Event()

        def hold() -> None:
            with engine.lock:
                taken.set()
                free.wait(60)

        engine.switcher()
        for _ in range(2):  # on the program's own placement, then on a copy that was prepared
            holder = threading.Thread(target=hold)
            holder.start()
            assert taken.wait(60)
            done = threading.Thread(target=step, args=(session, values), daemon=True)
            done.start()
            done.join(60)
            assert not done.is_alive(), "a step waits for the lock"
            free.set()
            holder.join(60)
            taken.clear(), free.clear()
            if not engine.strategy_id:
                assert switch(engine, session, values, reply, strategy, []).ok and engine.strategy_id == "s"


def test_the_gate_tells_of_a_run_that_begins() -> None:
    gate: Gate[str] = Gate()
    assert not gate.await_begin(lambda kind: True, 0.0)
    came: list[bool] = []
    waits = threading.Thread(target=lambda: came.append(gate.await_begin(lambda kind: kind == "long", 60)))
    waits.start()
    while waits.is_alive():
        for kind in ("short", "long"):
            gate.enter(kind)
            gate.leave(kind)
    assert came == [True]


@pytest.mark.parametrize("shape", [[], [3], [7, 11]])
@pytest.mark.parametrize("draw", ["uniform", "normal", "truncated", "ints"])
def test_many_draws_are_made_in_one(draw: str, shape: list[int]) -> None:
    from stepd.hook.engine.graphview import GraphView
    from stepd.hook.engine.mirror import Mirror
    from stepd.hook.engine.replay import Replay

    make = {
        "uniform": lambda: tf.random_uniform(shape, seed=3),
        "normal": lambda: tf.random_normal(shape, seed=3),
        "truncated": lambda: tf.truncated_normal(shape, seed=3),
        "ints": lambda: tf.random_uniform(shape, 0, 1000, tf.int32, seed=3),
    }[draw]
    with tf.Graph().as_default() as graph, tf.Session() as one, tf.Session() as other:
        value = make()
        (op,) = [op for op in graph.get_operations() if op.type.startswith(("Random", "Truncated"))]
        expected = [one.run(value) for _ in range(40)][-1]
        other.run(tf.no_op())
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
        replay = Replay(other._session, Mirror(graph), view)
        replay.advance({op.name: 20})
        replay.advance({op.name: 39})
        assert np.array_equal(other.run(value), expected)
