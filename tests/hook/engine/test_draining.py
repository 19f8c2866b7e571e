"""Restarts of sessions whose threads are blocked in queues: nothing is lost, repeated or turned round, and threads wait on."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stepd.hook.engine import loading, queues
from stepd.hook.engine.ahead import Ahead
from stepd.hook.model import LiveStrategy, Way

tf = pytest.importorskip("tensorflow.compat.v1")
SECONDS = 60


def blocked_in(engine: Any, count: int) -> None:
    """Wait until `count` runs are in flight, for ever as far as this thread can tell."""
    begun = threading.Event()
    while sum(engine.gate.counts().values()) < count:
        begun.wait(0.001)


def start(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def ended(*threads: threading.Thread) -> bool:
    for thread in threads:
        thread.join(SECONDS)
    return not any(thread.is_alive() for thread in threads)


def restarted(engine: Any, reply: Any, session: Any, other: Any) -> Any:
    """Have the session restarted on the engine's own thread; a run of `other`, which uses no queue, completes the switch."""
    engine.request_switch(LiveStrategy("s", {}), Way.RESTART, reply)
    while not reply.came():
        session.run(other)
        reply.pause()
    return reply.wait()


def test_a_producer_that_is_blocked_waits_on_in_the_new_session(hooked: Any, replies: Any) -> None:
    listener = hooked()
    queue = tf.FIFOQueue(3, [tf.int32, tf.string], shapes=[[], []])
    count = tf.get_variable("count", [], tf.int32, tf.zeros_initializer(), use_resource=True)
    next_one = count.assign_add(1)
    put, take, size = queue.enqueue([next_one, tf.as_string(next_one)]), queue.dequeue(), queue.size()
    other = tf.constant(1) + 1
    with tf.Session() as session:
        session.run(count.initializer)
        session.run(other)
        (engine,) = listener.engines
        returned: list[int] = []

        def produce() -> None:
            for k in range(12):
                session.run(put)
                returned.append(k)

        producer = start(produce)
        blocked_in(engine, 1)
        seen = []
        for _ in range(5):
            while session.run(size) < 3 or not engine.gate.counts():
                pass
            raw = engine.raw
            outcome = restarted(engine, replies(), session, other)
            assert outcome.ok and outcome.way is Way.RESTART and engine.raw is not raw, (outcome.error, outcome.why_this_way)
            assert session.run(size) == 3 and len(returned) == 3 + len(seen)
            seen.append(session.run(take))
        seen += [session.run(take) for _ in range(7)]
        assert ended(producer) and [int(value) for value, _ in seen] == list(range(1, 13))
        assert [int(text) for _, text in seen] == list(range(1, 13)) and session.run(count) == 12


def test_a_pipeline_of_queues_and_threads_that_put_many(hooked: Any, replies: Any) -> None:
    listener = hooked()
    source = tf.train.range_input_producer(40, num_epochs=2, shuffle=False, capacity=4)
    batch = tf.train.batch([tf.cast(source.dequeue(), tf.float32) * 2.0], 2, num_threads=1, capacity=3)
    other = tf.constant(1) + 1
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer(), other])
        (engine,) = listener.engines
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        seen, made = [], []
        for k in range(40):
            seen += session.run(batch).tolist()
            if k % 8 == 3:
                made.append(restarted(engine, replies(), session, other).ok)
        assert made == [True] * 5 and seen == [2.0 * (k % 40) for k in range(80)]
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(batch)
        coordinator.request_stop()
        coordinator.join(threads, stop_grace_period_secs=SECONDS)


def test_names_of_files_beyond_what_their_queue_holds(hooked: Any, replies: Any) -> None:
    """Strings without a shape of their own, many of them put at once by a run that is blocked."""
    listener = hooked()
    names = [b"file-%d\0" % k for k in range(10)]  # with a zero at the end, as serialized records may have
    given = tf.constant(np.array(names, dtype=object))
    take = tf.train.string_input_producer(given, num_epochs=2, shuffle=False, capacity=3).dequeue()
    other = tf.constant(1) + 1
    with tf.Session() as session:
        session.run([tf.local_variables_initializer(), other])
        (engine,) = listener.engines
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        seen, made = [], []
        for k in range(20):
            seen.append(session.run(take))
            if k % 6 == 1:
                made.append(restarted(engine, replies(), session, other).ok)
        assert made == [True] * 4 and seen == names + names
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(take)
        coordinator.request_stop()
        coordinator.join(threads, stop_grace_period_secs=SECONDS)


def test_two_stages_blocked_at_once(hooked: Any, replies: Any) -> None:
    """A worker that takes from one full queue and is blocked in the next; plain TensorFlow rewrites the product that it puts."""
    listener = hooked()
    small, result = tf.FIFOQueue(1, tf.int32, shapes=[[]]), tf.FIFOQueue(1, tf.int32, shapes=[[]])
    n = tf.placeholder(tf.int32, [])
    put, take = small.enqueue(n * 1), small.dequeue()
    square, get, other = result.enqueue(take * take), result.dequeue(), tf.constant(1) + 1
    sizes = [small.size(), result.size()]
    with tf.Session() as session:
        session.run(other)
        (engine,) = listener.engines
        threads = [
            start(lambda: [session.run(put, {n: k}) for k in range(12)] and None),
            start(lambda: [session.run(square) for _ in range(12)] and None),
        ]
        seen = []
        for _ in range(6):
            while len(engine.gate.counts()) < 2 or not all(session.run(sizes)):
                pass
            for _ in range(2):
                assert restarted(engine, replies(), session, other).way is Way.RESTART
            seen.append(int(session.run(get)))
        seen += [int(session.run(get)) for _ in range(6)]
        assert seen == [k * k for k in range(12)] and ended(*threads)


def test_several_producers_return_one_by_one(hooked: Any, reply: Any) -> None:
    """Each of three blocked threads returns when an element was taken, not before, and no thread waits for another one."""
    listener = hooked()
    queue = tf.FIFOQueue(1, tf.int32, shapes=[[]])
    n = tf.placeholder(tf.int32, [])
    put, take, other = queue.enqueue(n + 0), queue.dequeue(), tf.constant(1) + 1
    returned: list[int] = []
    ready = threading.Semaphore(0)
    with tf.Session() as session:
        session.run(put, {n: 0})
        session.run(other)
        (engine,) = listener.engines

        def produce(k: int) -> None:
            session.run(put, {n: k})
            returned.append(k)
            ready.release()

        threads = [start(lambda k=k: produce(k)) for k in (1, 2, 3)]
        blocked_in(engine, 3)
        assert restarted(engine, reply, session, other).ok
        assert returned == []
        seen = [int(session.run(take))]
        for left in (2, 1, 0):
            assert ready.acquire(timeout=SECONDS) and len(returned) == 3 - left
            seen.append(int(session.run(take)))
        assert ended(*threads) and seen[0] == 0 and sorted(seen) == [0, 1, 2, 3]


@pytest.mark.parametrize("where", ["loading", "filling"])
def test_a_restart_that_fails_half_way_leaves_the_queue_and_the_thread_as_they_were(
    where: str, hooked: Any, reply: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = hooked()
    queue = tf.FIFOQueue(2, tf.int32, shapes=[[]])
    n = tf.placeholder(tf.int32, [])
    put, take, size, other = queue.enqueue(n + 0), queue.dequeue(), queue.size(), tf.constant(1) + 1

    def fail(*args: Any) -> None:
        raise RuntimeError("spoiled")

    with tf.Session() as session:
        session.run(other)
        (engine,) = listener.engines
        producer = start(lambda: [session.run(put, {n: k}) for k in range(5)] and None)
        while session.run(size) < 2 or not engine.gate.counts():
            pass
        raw = engine.raw
        if where == "loading":
            monkeypatch.setattr(loading.Loading, "load", fail)
        else:
            monkeypatch.setattr(queues.Ops, "put", _failing_once(queues.Ops.put))
        outcome = restarted(engine, reply, session, other)
        assert "spoiled" in outcome.why_this_way and engine.raw is raw and session.run(size) == 2
        assert [int(session.run(take)) for _ in range(5)] == list(range(5)) and ended(producer)


def _failing_once(put: Callable[..., None]) -> Callable[..., None]:
    failed: list[bool] = []

    def attempt(*args: Any) -> None:
        if not failed:
            failed.append(True)
            raise RuntimeError("spoiled")
        put(*args)

    return attempt


def test_what_a_blocked_thread_hears_after_a_restart(hooked: Any, replies: Any) -> None:
    """A queue that is closed over a blocked run, and a time limit, end it as they would have ended it plainly."""
    listener = hooked()
    queue = tf.FIFOQueue(1, tf.int32, shapes=[[]], name="small")
    put, close, size = queue.enqueue(tf.constant(7), name="into"), queue.close(cancel_pending_enqueues=True), queue.size()
    other = tf.constant(1) + 1
    heard: list[Any] = []
    with tf.Session() as session:
        session.run([put, other])
        session.run(other)
        (engine,) = listener.engines

        def wait(milliseconds: int) -> None:
            try:
                session.run(put, options=tf.RunOptions(timeout_in_ms=milliseconds))
            except tf.errors.OpError as error:
                heard.append((type(error).__name__, error.op.name if error.op is not None else None))

        limited = start(lambda: wait(1500))
        blocked_in(engine, 1)
        assert restarted(engine, replies(), session, other).ok and ended(limited)
        assert session.run(size) == 1
        cancelled = start(lambda: wait(0))
        blocked_in(engine, 1)
        assert restarted(engine, replies(), session, other).ok and session.run(size) == 1
        blocked_in(engine, 1)
        session.run(close)
        assert ended(cancelled)
    assert heard == [("DeadlineExceededError", None), ("CancelledError", "into")]


def test_a_run_that_may_wait_for_something_else_is_not_drained(hooked: Any, reply: Any) -> None:
    listener = hooked(gate_seconds=0.5)
    queue = tf.FIFOQueue(1, tf.float32)
    free, entered = threading.Event(), threading.Event()

    def wait(x: np.float32) -> np.float32:
        entered.set()
        free.wait(SECONDS)
        return x

    put, size = queue.enqueue(tf.py_func(wait, [1.0], tf.float32)), queue.size()
    fill, other = queue.enqueue(0.0), tf.constant(1) + 1
    with tf.Session() as session:
        session.run(fill)
        session.run(other)
        (engine,) = listener.engines
        producer = start(lambda: session.run(put))
        assert entered.wait(SECONDS)
        outcome = restarted(engine, reply, session, other)
        assert "does not end" in outcome.why_this_way and session.run(size) == 1
        free.set()
        session.run(queue.dequeue())
        assert ended(producer)


def test_quantized_elements_stay_where_they_are(hooked: Any, reply: Any) -> None:
    """A run returns them as plain integers, which could not be put back."""
    listener = hooked()
    queue = tf.FIFOQueue(1, tf.qint8, shapes=[[]])
    given, other, limit = tf.placeholder(tf.int8, []), tf.constant(1) + 1, tf.RunOptions(timeout_in_ms=1000 * SECONDS)
    put, get = queue.enqueue(tf.bitcast(given, tf.qint8)), tf.bitcast(queue.dequeue(), tf.int8)
    with tf.Session() as session:
        session.run([other])
        session.run(put, {given: 1})
        (engine,) = listener.engines
        producer = start(lambda: [session.run(put, {given: k}) for k in (2, 3)] and None)
        blocked_in(engine, 1)
        raw = engine.raw
        restarted(engine, reply, session, other)
        assert engine.raw is raw and [int(session.run(get, options=limit)) for _ in range(3)] == [1, 2, 3]
        assert ended(producer)


def test_elements_are_put_back_before_the_others() -> None:
    from stepd.hook.engine.graphview import GraphView
    from stepd.hook.engine.mirror import Mirror

    with tf.Graph().as_default() as graph, tf.Session() as session:
        queue = tf.FIFOQueue(3, tf.int32, shapes=[[]])
        n = tf.placeholder(tf.int32, [])
        put, take = queue.enqueue(n), queue.dequeue()
        for k in range(3):
            session.run(put, {n: k})
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
        with session.graph.as_default():
            ops = queues.Ops(
                Ahead(session._session, True, False), _Mine(Mirror(graph), graph), view, [queue.queue_ref.op.name], "helpers"
            )
        (name,) = ops.queues
        taken = [ops.take(name), ops.take(name)]
        session.run(put, {n: 3}), session.run(put, {n: 4})
        assert [int(e[0]) for e in ops.give_back({name: taken})[name]] == [3, 4]
        assert [int(session.run(take)) for _ in range(3)] == [0, 1, 2]


class _Mine:
    """A mirror that is the program's own graph."""

    def __init__(self, mirror: Any, graph: Any) -> None:
        self.user_graph, self.name_here, self.operation = graph, mirror.name_here, mirror.operation
        with graph._c_graph.get() as handle:
            self.graph = type("Handle", (), {"handle": handle})()


def numbers_told(session: Any, queues: list[Any]) -> list[int]:
    """By which numbers errors call the queues."""
    numbers = []
    for queue in queues:
        with pytest.raises(tf.errors.OutOfRangeError) as raised:
            session.run(queue.dequeue())
        found = re.search(rf"'_(\d+)_{queue.name}' is closed", raised.value.message)
        assert found, raised.value.message
        numbers.append(int(found[1]))
    return numbers


def test_queues_are_called_in_errors_as_if_no_session_had_been_restarted(hooked: Any, replies: Any) -> None:
    listener = hooked()
    queues = [tf.FIFOQueue(3, [tf.int32], name="files/some"), tf.PaddingFIFOQueue(2, [tf.int32], [[]], name="more")]
    drawn = tf.RandomShuffleQueue(3, 1, [tf.int32], [[]], name="drawn")
    other = tf.constant(1) + 1
    with tf.Session() as session:
        session.run([queue.close() for queue in queues])
        session.run(other)
        first = numbers_told(session, queues)
        for _ in range(3):
            assert restarted(listener.engines[0], replies(), session, other).ok
        assert numbers_told(session, queues) == first
    with tf.Session() as session:
        session.run([queue.close() for queue in [*queues, drawn]])
        later = numbers_told(session, [*queues, drawn])
        assert sorted(later) == [max(first) + 1, max(first) + 2, max(first) + 3]
        session.run(other)
    with tf.Session() as session:  # nothing is restarted where a shuffling queue has run
        session.run([queue.close() for queue in queues])
        session.run(other)
        assert restarted(listener.engines[-1], replies(), session, other).ok
        assert sorted(numbers_told(session, queues)) == [max(later) + 1, max(later) + 2]


def test_what_a_step_put_before_it_failed_is_in_the_queue(hooked: Any, replies: Any) -> None:
    listener = hooked()
    x = tf.placeholder(tf.float32, [])
    queue = tf.FIFOQueue(2, tf.float32, shapes=[[]])
    put, take, size = queue.enqueue(x), queue.dequeue(), queue.size()
    with tf.control_dependencies([put]):
        fails = tf.reshape(x, [tf.cast(x * 0.0, tf.int32) + 7])
    other = tf.constant(1) + 1
    with tf.Session() as session:
        session.run(other)
        (engine,) = listener.engines
        for k in range(2):
            session.run(put, {x: k})
        errors: list[BaseException] = []

        def fail() -> None:
            try:
                session.run(fails, {x: 2.0})
            except tf.errors.InvalidArgumentError as error:
                errors.append(error)

        producer = start(fail)
        blocked_in(engine, 1)
        outcome = restarted(engine, replies(), session, other)
        assert outcome.ok, outcome.error
        assert not errors and session.run(size) == 2, "it waits for room, as it did"
        assert [session.run(take) for _ in range(3)] == [0.0, 1.0, 2.0] and ended(producer) and len(errors) == 1
