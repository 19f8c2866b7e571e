"""Runs that are only noted: which they are, and what of a run an observer still hears of."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

from stepd.hook.engine import requests  # noqa: E402
from stepd.hook.engine.gate import Gate  # noqa: E402
from stepd.hook.model import LiveStrategy  # noqa: E402
from stepd.hook.ports import MOST_NOTES, Notes  # noqa: E402


@pytest.fixture
def noting(hooked: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Notes]:
    """A listener that takes notes of all kinds in one place, and that place."""
    listener, notes = hooked(), Notes(deque())
    notes.open = True
    heard = listener.run_finished

    def run_finished(engine: Any, record: Any) -> Notes:
        heard(engine, record)
        return notes

    monkeypatch.setattr(listener, "run_finished", run_finished)
    return listener, notes


def test_an_observer_hears_of_what_is_new_and_the_rest_is_noted(noting: tuple[Any, Notes], two_devices: Any) -> None:
    listener, notes = noting
    with tf.Graph().as_default(), tf.Session(config=two_devices) as session:
        x = tf.placeholder(tf.float32, [None])
        twice = tf.multiply(x, 2.0, name="twice")
        row = tf.reshape(twice, [2])
        engine = listener.engines[0]

        def run(*runs: Any) -> tuple[int, int]:
            """How many of these runs were told, and how many noted."""
            told, noted = len(listener.records), len(notes.ended)
            for one in runs:
                one()
            return len(listener.records) - told, len(notes.ended) - noted

        def plain() -> None:
            assert session.run(row, {x: [1.0, 2.0]}).tolist() == [2.0, 4.0]

        def broken() -> None:
            with pytest.raises(tf.errors.InvalidArgumentError, match="reshape"):
                session.run(row, {x: [1.0]})

        def monitored() -> None:
            session.run(row, {x: [1.0, 2.0]}, tf.RunOptions(), tf.RunMetadata())

        def limited() -> None:
            session.run(row, {x: [1.0, 2.0]}, tf.RunOptions(timeout_in_ms=60_000))

        def asked() -> None:
            session.run(row, {x: [1.0, 2.0]}, tf.RunOptions(output_partition_graphs=True), tf.RunMetadata())

        plain()  # builds executors, and shows how it adds up
        plain()
        assert run(plain, plain, plain) == (0, 3)
        assert run(broken) == (1, 0) and listener.records[-1].error == "InvalidArgumentError"
        assert run(monitored, limited) == (0, 2)
        assert run(asked) == (1, 0)
        kinds = engine.kinds.all()[-1:]
        for strategy in (LiveStrategy("moved", {"twice": engine.devices()[1].name}), None):
            with engine.lock:
                assert requests.switch_now(engine, engine.switcher(), strategy, kinds).ok
            assert run(plain, plain, plain) == (1, 2)
            assert listener.records[-1].first_on_strategy
            assert (listener.records[-1].strategy_id == "moved") == (strategy is not None)
        listener.trace = True
        notes.open = False
        assert run(plain) == (1, 0) and listener.records[-1].traced
        listener.trace, notes.open = False, True
        notes.ended.extend([notes.ended[-1]] * (MOST_NOTES - len(notes.ended)))
        assert run(plain) == (1, 0)
        assert kinds[0].runs == engine.kinds.history().runs[kinds[0].step] == 17
        assert {thread for *_, thread in notes.ended} == {threading.get_ident()}
        assert engine.gate.counts() == {}


def test_no_run_slips_in_where_runs_are_held_back_or_awaited() -> None:
    gate: Gate[str] = Gate()
    assert gate.slip_in("a") and gate.counts() == {"a": 1}
    gate.leave("a")
    with gate.hold(lambda kind: kind == "b", 1.0):
        assert not gate.slip_in("a") and gate.counts() == {}
    came = []
    waiter = threading.Thread(target=lambda: came.append(gate.await_begin(lambda kind: True, 30.0)))
    waiter.start()
    while gate.slip_in("a"):  # until the other thread waits
        gate.leave("a")
    gate.enter("a")
    waiter.join()
    assert came == [True] and gate.counts() == {"a": 1}


def test_runs_of_a_monitored_session_are_traced_and_their_metadata_stays_empty(hooked: Any) -> None:
    """Such a session runs every step with RunOptions and RunMetadata, whether one of its hooks asks for something or not."""
    listener = hooked()
    listener.trace = True
    seen: list[tuple[bytes, bytes]] = []

    class Looks(tf.train.SessionRunHook):  # type: ignore[misc,unused-ignore]
        def after_run(self, run_context: Any, run_values: Any) -> None:
            seen.append((run_values.options.SerializeToString(), run_values.run_metadata.SerializeToString()))

    count = tf.train.get_or_create_global_step()
    doubled = tf.multiply(tf.placeholder(tf.float32, [2], name="x"), 2.0, name="doubled")
    step = [tf.assign_add(count, 1), doubled]
    with tf.train.MonitoredSession(hooks=[Looks()]) as session:
        before = len(listener.records)
        for _ in range(3):
            session.run(step, {"x:0": [1.0, 2.0]})
    records = listener.records[before:]
    assert [record.traced for record in records] == [True] * 3
    assert all(b"doubled" in record.metadata for record in records)
    assert seen == [(b"", b"")] * 3


def test_runs_with_a_time_limit_are_traced_and_keep_it(hooked: Any) -> None:
    listener = hooked()
    listener.trace = True
    doubled, element = tf.multiply(tf.constant([1.0, 2.0]) + 0.0, 2.0, name="doubled"), tf.FIFOQueue(1, tf.float32).dequeue()
    with tf.Session() as session:
        metadata = tf.RunMetadata()
        assert session.run(doubled, options=tf.RunOptions(timeout_in_ms=60_000), run_metadata=metadata).tolist() == [2.0, 4.0]
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(element, options=tf.RunOptions(timeout_in_ms=50))
    assert [record.traced for record in listener.records] == [True, True]
    assert b"doubled" in listener.records[0].metadata and metadata == tf.RunMetadata()


def test_what_the_program_traces_itself_the_observer_hears_too(hooked: Any) -> None:
    listener = hooked()
    doubled = tf.multiply(tf.constant([1.0, 2.0]) + 0.0, 2.0, name="doubled")
    with tf.Session() as session:
        for wanted in (True, False):
            listener.trace = wanted
            metadata = tf.RunMetadata()
            session.run(doubled, options=tf.RunOptions(trace_level=tf.RunOptions.SOFTWARE_TRACE), run_metadata=metadata)
            record = listener.records[-1]
            assert metadata.step_stats.dev_stats and record.traced == wanted
            assert (record.metadata == metadata.SerializeToString()) if wanted else record.metadata is None


def test_of_two_threads_whose_runs_are_watched_both_run_the_programs_own_ops(
    hooked: Callable[..., Any], two_devices: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second found that the session was to go home, and ran before it was there."""
    listener, switch = hooked(), requests.switch_now
    watching = tf.RunOptions()
    watching.debug_options.debug_tensor_watch_opts.add(
        node_name="twice", debug_ops=["DebugIdentity"], debug_urls=["file:///dev/null"]
    )
    with tf.Graph().as_default(), tf.Session(config=two_devices) as session:
        session.run(tf.multiply(tf.random.normal([2]), 2.0, name="twice"))
        (engine,) = listener.engines
        with engine.lock:
            away = LiveStrategy("away", {"twice": engine.devices()[1].name})
            assert switch(engine, engine.switcher(), away, engine.kinds.all()).ok
        live = [engine.switcher().live]

        def watch() -> None:
            engine.routing.mind_options(watching)
            live.append(engine.routing.known_switcher().live)

        def slowly(*args: Any) -> Any:
            monkeypatch.setattr(requests, "switch_now", switch)
            other.start()
            other.join(0.3)
            return switch(*args)

        other = threading.Thread(target=watch)
        monkeypatch.setattr(requests, "switch_now", slowly)
        watch()
        other.join()
        assert live[0] is not None and live[1:] == [None, None] and len(listener.failed) == 1
