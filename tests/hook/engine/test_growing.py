"""What a program adds to its graph uses what is in force, whatever happened since: variables that are away are written there."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stepd.hook.engine import capi, growth, requests, switcher
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
        switcher.making.most = switcher.making.made  # the session is full
        session._extend_graph()  # as before any run
        with engine.lock:
            refused = requests.switch_now(engine, switcher, LiveStrategy("other", {"total": away}), kinds)
        assert not refused.ok and "copies of the graph" in refused.error, "it has looked at the graph by now"
        session.run(later.op)
        assert session.run(total) == pytest.approx(3 * np.tanh(5.0))
        assert session.run(v).tolist() == [5.0, 5.0, 5.0]


def test_new_steps_run_beside_one_that_does_not_end_and_keeps_variables_where_they_are(
    hooked: Callable[..., Any], two_devices: Any
) -> None:
    """A thread waits for room in a queue with a value of a variable that is away; the program adds a step that would have it stay
    at home, since it reads and writes it without order."""
    listener = hooked(gate_seconds=0.05)
    with tf.Graph().as_default(), tf.Session(config=two_devices) as session:
        v = tf.get_variable("v", [3], initializer=tf.ones_initializer(), use_resource=True)
        queue = tf.FIFOQueue(1, tf.float32, [[3]])
        put, total = queue.enqueue(v.read_value()), tf.reduce_sum(tf.tanh(v), name="total")
        session.run(v.initializer)
        session.run(put)
        session.run(total)
        (engine,) = listener.engines
        with engine.lock:
            away = LiveStrategy("away", {"v": engine.devices()[1].name})
            assert requests.switch_now(engine, engine.switcher(), away, engine.kinds.all()).ok
        assert session.run(total) == pytest.approx(3 * np.tanh(1.0))
        blocked = threading.Thread(target=lambda: session.run(put))
        blocked.start()
        while not engine.gate.counts():
            blocked.join(0.01)
        changed, unsure = v.assign_add([1.0, 1.0, 1.0]), tf.square(v)
        session.run([changed.op, unsure])
        assert "v" in engine.switcher().homes.at and not listener.failed
        assert session.run(total) == pytest.approx(3 * np.tanh(2.0))
        assert session.run(queue.dequeue()).tolist() == [1.0, 1.0, 1.0]
        blocked.join()
        assert session.run([v, queue.size()])[1] == 1 and session.run(v).tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(("seconds", "given_up"), [(0.2, False), (3.0, True)])
def test_a_strategy_that_costs_more_to_fit_to_what_is_added_than_it_can_gain_is_given_up(
    hooked: Callable[..., Any], two_devices: Any, monkeypatch: pytest.MonkeyPatch, seconds: float, given_up: bool
) -> None:
    """A training loop makes ops; each time the graph is looked at anew takes `seconds`, of ten."""
    now = [100.0]
    monkeypatch.setattr(growth, "clocks", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(switcher, "clocks", SimpleNamespace(monotonic=lambda: now[0]))
    listener, adopt = hooked(), switcher.Making.adopt

    def slowly(*args: Any) -> None:
        adopt(*args)
        now[0] += seconds

    monkeypatch.setattr(switcher.Making, "adopt", slowly)
    with tf.Graph().as_default(), tf.Session(config=two_devices) as session:
        v = tf.get_variable("v", [3], initializer=tf.ones_initializer(), use_resource=True)
        total = tf.reduce_sum(tf.tanh(v), name="total")
        session.run(v.initializer)
        session.run(total)
        (engine,) = listener.engines
        with engine.lock:
            away = LiveStrategy("away", {"total": engine.devices()[1].name})
            assert requests.switch_now(engine, engine.switcher(), away, engine.kinds.all()).ok
        for k in range(4):
            session.run(v.assign([float(k)] * 3))
            assert session.run(total) == pytest.approx(3 * np.tanh(float(k)))
            now[0] += 10.0 - seconds
        assert (engine.strategy_id, len(listener.failed)) == (("", 1) if given_up else ("away", 0))
        assert not given_up or "has added ops to its graph 1 times since, and steps waited 3.0 s" in listener.failed[0][1]


def test_a_run_waits_until_the_session_has_what_another_thread_is_sending_it(
    hooked: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    hooked()
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.random.normal([4, 3], seed=1)
        session.run(tf.reduce_sum(x))
        fetches = [tf.reduce_sum(tf.tanh(x) - tf.square(x)) for _ in range(4)]
        found, send = list[Any](), capi.extend_session
        other = threading.Thread(target=lambda: found.append(session.run(fetches[1])))

        def slowly(raw: Any) -> None:
            monkeypatch.undo()
            other.start()
            other.join(0.3)  # it would have ended by now, with what TensorFlow says of a session without a graph
            send(raw)

        monkeypatch.setattr(capi, "extend_session", slowly)
        found.append(session.run(fetches[0]))
        other.join()
    assert len(found) == 2


def test_an_interrupt_as_a_session_takes_in_new_ops_leaves_it_whole(hooked: Callable[..., Any], monkeypatch: Any) -> None:
    """Later steps failed: what had been taken in was taken in once more."""
    hooked()
    handler, import_ops = signal.getsignal(signal.SIGUSR1), capi.import_graph_def
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.get_variable("v", [3], initializer=tf.ones_initializer(), use_resource=True)
        session.run(v.initializer)
        total = tf.reduce_sum(v, name="total")
        nested: list[float] = []

        def interrupted(*args: Any) -> Any:
            made = import_ops(*args)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
            return made

        def saves(number: int, frame: Any) -> None:
            monkeypatch.setattr(capi, "import_graph_def", import_ops)
            nested.append(float(session.run(total)))
            raise TimeoutError

        signal.signal(signal.SIGUSR1, saves)
        try:
            monkeypatch.setattr(capi, "import_graph_def", interrupted)
            with pytest.raises(TimeoutError):
                session.run(total)
        finally:
            signal.signal(signal.SIGUSR1, handler)
        assert nested == [3.0] and session.run(total) == 3.0
        assert session.run(tf.square(total)) == 9.0


def test_an_interrupt_in_a_partial_run_does_not_end_it(hooked: Callable[..., Any], two_devices: Any, monkeypatch: Any) -> None:
    listener, run = hooked(), capi.prun_session
    with tf.Graph().as_default(), tf.Session(config=two_devices) as session:
        a, b = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
        one = tf.add(a, 1.0, name="one")
        other = one * b
        session.run(other, {a: 1.0, b: 1.0})
        (engine,) = listener.engines
        with engine.lock:
            away = LiveStrategy("away", {"one": engine.devices()[1].name})
            assert requests.switch_now(engine, engine.switcher(), away, engine.kinds.all()).ok
        handle = session.partial_run_setup([one, other], [a, b])

        def interrupted(*args: Any) -> Any:
            monkeypatch.setattr(capi, "prun_session", run)
            run(*args)
            raise KeyboardInterrupt

        monkeypatch.setattr(capi, "prun_session", interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.partial_run(handle, one, {a: 2.0})
        assert session.partial_run(handle, other, {b: 5.0}) == 15.0
