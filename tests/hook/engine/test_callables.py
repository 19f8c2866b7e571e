"""Steps that a program runs by callables, as Keras does: they are kinds, traced and switched like any other."""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow.compat.v1")
from tensorflow.core.protobuf import config_pb2  # noqa: E402

from stepd.hook.engine import capi, requests  # noqa: E402
from stepd.hook.model import LiveStrategy, Way  # noqa: E402
from stepd.hook.ports import Notes  # noqa: E402


def step() -> config_pb2.CallableOptions:
    """Two losses and an update of a small net, with a mask that is drawn."""
    x = tf.placeholder(tf.float32, [2, 2], name="x")
    w = tf.get_variable("w", [2, 2], initializer=tf.ones_initializer(), use_resource=True)
    y = tf.nn.tanh(tf.matmul(x, w), name="y")
    kept = tf.nn.dropout(y, rate=0.5, seed=11, name="kept")
    with tf.control_dependencies([y, kept]):
        train = tf.assign_sub(w, tf.gradients(kept, w)[0], name="train")
    return config_pb2.CallableOptions(feed=["x:0"], fetch=["y:0", tf.reduce_sum(kept).name], target=[train.op.name])


def test_steps_by_callable_are_traced(hooked: Any) -> None:
    listener = hooked()
    seen: list[list[Any]] = []
    for wanted in (False, True):
        with tf.Graph().as_default(), tf.Session() as session:
            listener.trace = False
            call = session._make_callable_from_options(step())
            session.run(tf.global_variables_initializer())
            listener.trace, before = wanted, len(listener.records)
            seen.append([[value.tobytes() for value in call(np.full((2, 2), k, "f"))] for k in range(4)])
            records = listener.records[before:]
            assert [record.traced for record in records] == [wanted] * 4
            assert all(b"MatMul" in record.metadata for record in records if wanted)
            assert records[0].kind in listener.engines[-1].kinds.steps(), "the step is one that the graph is described with"
    assert seen[0] == seen[1], "a traced step draws from the same stream, and returns the same"


def test_what_has_executors_of_its_own_is_not_traced_by_others(hooked: Any) -> None:
    """A function that is not inlined keeps its place in a random stream with the executors that call it."""
    from tensorflow.python.framework import function

    @function.Defun(tf.float32, noinline=True)
    def noise(x: Any) -> Any:
        return x + tf.random_uniform([2], seed=3)

    listener, values = hooked(), []
    for wanted in (False, True):
        listener.trace = False
        with tf.Graph().as_default(), tf.Session() as session:
            result = noise(tf.placeholder(tf.float32, [2], name="x"))
            call = session._make_callable_from_options(config_pb2.CallableOptions(feed=["x:0"], fetch=[result.name]))
            call(np.zeros(2, "f"))
            with listener.engines[-1].lock:
                listener.engines[-1].switcher().classes()  # the graph was looked at, as to describe it
            listener.trace = wanted
            values.append([call(np.zeros(2, "f"))[0].tobytes() for _ in range(4)])
    assert values[0] == values[1]


def test_what_is_read_when_a_step_is_built_is_not_read_for_a_trace(hooked: Any, tmp_path: Path) -> None:
    listener, path = hooked(), tmp_path / "words"
    path.write_text("one")
    listener.trace = True
    words = tf.io.read_file(str(path))
    told = tf.strings.join([words, tf.as_string(tf.placeholder(tf.float32, [], name="x") * 2.0)])
    with tf.Session() as session:
        call = session._make_callable_from_options(config_pb2.CallableOptions(feed=["x:0"], fetch=[told.name]))
        value = np.array(1, "f")
        first = call(value)
        path.write_text("two")
        assert [call(value) for _ in range(3)] == [first] * 3


def test_a_switch_is_done_when_only_callables_run(hooked: Any, reply: Any, two_devices: Any) -> None:
    """Whoever asked hears of it after the first step, with what the partition graphs of that show."""
    listener = hooked()
    options = step()
    with tf.Session(config=two_devices) as session:
        session.run(tf.global_variables_initializer())
        call = session._make_callable_from_options(options)
        for _ in range(3):
            call(np.ones((2, 2), "f"))
        engine = listener.engines[0]
        device = engine.devices()[1].name
        engine.request_switch(LiveStrategy("s", {"y": device, "MatMul": device}), Way.IN_SESSION, reply)
        while not reply.came():
            call(np.ones((2, 2), "f"))
            reply.pause()
        outcome = reply.wait()
        assert outcome.ok and outcome.honoured == 2 and not outcome.not_honoured


def test_the_step_after_a_switch_builds_nothing(
    hooked: Any, replies: Any, two_devices: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the callable needs there, and on the way back, is at hand when the program calls."""
    listener, made = hooked(), []
    options = step()
    with tf.Session(config=two_devices) as session:
        session.run(tf.global_variables_initializer())
        call = session._make_callable_from_options(options)
        for _ in range(3):
            call(np.ones((2, 2), "f"))
        engine = listener.engines[0]
        make = capi.make_callable
        monkeypatch.setattr(capi, "make_callable", lambda *given: made.append(threading.current_thread()) or make(*given))
        device = engine.devices()[1].name
        for strategy in (LiveStrategy("s", {"y": device, "MatMul": device}), None, LiveStrategy("t", {"y": device})):
            reply = replies()
            if strategy is None:
                engine.request_rollback("of this test", reply)
            else:
                engine.request_switch(strategy, Way.IN_SESSION, reply)
            while not reply.came():
                call(np.ones((2, 2), "f"))
                reply.pause()
            assert reply.wait().ok
            assert engine.strategy_id == (strategy.id if strategy else "")
    assert len(made) == 2 and threading.main_thread() not in made


def everything_on(device: str) -> LiveStrategy:
    return LiveStrategy("s", {operation.name: device for operation in tf.get_default_graph().get_operations()})


def test_a_switch_while_a_callable_is_looked_up_is_followed(hooked: Any, two_devices: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that another thread puts in force has not got the step yet; the step must not be taken for the program's own ops,
    whose variable has moved."""
    listener, seen = hooked(), []
    options = step()
    for switched in (False, True):
        with tf.Session(config=two_devices) as session:
            session.run(tf.global_variables_initializer())
            call = session._make_callable_from_options(options)
            engine = listener.engines[-1]
            device = engine.devices()[1].name
            call(np.ones((2, 2), "f"))
            with engine.lock:
                assert requests.switch_now(engine, engine.switcher(), LiveStrategy("first", {"y": device}), []).ok
            find, due = engine.callables.current, [switched]

            def finding(*given: Any, engine: Any = engine, find: Any = find, due: Any = due, device: str = device) -> Any:
                if due.pop() if due else False:
                    with engine.lock:
                        assert requests.switch_now(engine, engine.switcher(), everything_on(device), []).ok
                return find(*given)

            monkeypatch.setattr(engine.callables, "current", finding)
            seen.append([[value.tobytes() for value in call(np.full((2, 2), k, "f"))] for k in range(4)])
            assert engine.strategy_id == ("s" if switched else "first")
    assert seen[0] == seen[1]


def test_a_run_that_is_let_in_waits_for_nobody_who_waits_for_it(hooked: Any, two_devices: Any) -> None:
    """A restart holds the engine's lock until all runs have ended."""
    listener = hooked()
    options = step()
    with tf.Session(config=two_devices) as session:
        session.run(tf.global_variables_initializer())
        call = session._make_callable_from_options(options)
        engine = listener.engines[0]
        with engine.lock:
            assert requests.switch_now(engine, engine.switcher(), everything_on(engine.devices()[1].name), []).ok
        call(np.ones((2, 2), "f"))
        ended = threading.Event()
        thread = threading.Thread(target=lambda: (call(np.ones((2, 2), "f")), ended.set()))
        with engine.lock:
            thread.start()
            assert ended.wait(60.0)
        thread.join()


def test_a_callable_that_is_made_while_the_session_restarts_is_found_by_the_restart(
    hooked: Any, two_devices: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its handle is the old session's; in the new one the number may be another callable's."""
    listener = hooked()
    options = step()
    with tf.Session(config=two_devices) as session:
        session.run(tf.global_variables_initializer())
        engine, make = listener.engines[0], capi.make_callable
        held: list[bool] = []
        monkeypatch.setattr(capi, "make_callable", lambda *given: held.append(engine.lock._is_owned()) or make(*given))

        class Registered(dict):  # type: ignore[type-arg]
            def __setitem__(self, key: Any, value: Any) -> None:
                held.append(engine.lock._is_owned())
                super().__setitem__(key, value)

        monkeypatch.setattr(engine.callables, "_by_handle", Registered())
        session._make_callable_from_options(options)(np.ones((2, 2), "f"))
    assert held == [True, True]


def test_a_callable_that_is_called_wrongly_says_so(hooked: Any) -> None:
    listener = hooked()
    options = step()
    words = []
    for wanted in (False, True):
        with tf.Session() as session:
            listener.trace = wanted
            session.run(tf.global_variables_initializer())
            call = session._make_callable_from_options(options)
            for wrong in ((), (np.ones((2, 2), "d"),), (np.ones((3, 3), "f"),), (np.ones((2, 2), "f"), np.ones(1, "f"))):
                with pytest.raises((tf.errors.OpError, RuntimeError, ValueError, TypeError)) as raised:
                    call(*wrong)
                words.append((wanted, type(raised.value), str(raised.value)))
    assert [word[1:] for word in words if word[0]] == [word[1:] for word in words if not word[0]]


def test_runs_by_callable_are_noted_as_others_are(hooked: Any, two_devices: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An observer hears of what is new about one; the rest are noted, also on a strategy."""
    listener, notes = hooked(), Notes(deque())
    notes.open = True
    heard = listener.run_finished
    monkeypatch.setattr(listener, "run_finished", lambda *told: heard(*told) or notes)
    options = step()
    with tf.Session(config=two_devices) as session:
        session.run(tf.global_variables_initializer())
        call = session._make_callable_from_options(options)
        engine = listener.engines[0]

        def run() -> list[int]:
            told, noted = len(listener.records), len(notes.ended)
            for k in range(4):
                call(np.full((2, 2), k, "f"))
            return [len(listener.records) - told, len(notes.ended) - noted]

        assert run() == [2, 2]  # the first shows how sums add up, the second is the first that asks for nothing
        with engine.lock:
            assert requests.switch_now(engine, engine.switcher(), everything_on(engine.devices()[1].name), []).ok
        assert run() == [1, 3]
        with pytest.raises(tf.errors.OpError, match=r"Matrix size-incompatible|must be"):
            call(np.ones((3, 3), "f"))
        assert listener.records[-1].error == "InvalidArgumentError"
