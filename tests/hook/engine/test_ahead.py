"""Runs that are built ahead: on local devices the steps on what is new go by callables, and the program cannot tell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from stepd.hook.engine import capi
from stepd.hook.engine.ahead import Ahead, aligned
from stepd.hook.local_devices import device_name
from stepd.hook.model import LiveStrategy, Way

tf = pytest.importorskip("tensorflow.compat.v1")


@pytest.mark.parametrize("dtype", [np.float32, np.bool_, np.complex128, tf.bfloat16.as_numpy_dtype, tf.qint8.as_numpy_dtype])
@pytest.mark.parametrize("shape", [(), (3,), (2, 5), (0, 4)])
def test_what_is_fed_is_the_same_and_lies_where_tensorflow_takes_it(dtype: Any, shape: tuple[int, ...]) -> None:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    room = np.arange(size + 65, dtype=np.uint8)
    begin = -room.ctypes.data % 64 + 1
    given = room[begin : begin + size].view(dtype).reshape(shape)
    made = aligned(given)
    assert (made.dtype, made.shape, made.tobytes()) == (given.dtype, given.shape, given.tobytes())
    assert made.ctypes.data % 64 == 0 or not size
    assert aligned(made) is made


def test_texts_are_fed_as_they_are() -> None:
    given = np.array([b"a", b"b"], dtype=object)
    assert aligned(given) is given
    assert np.asarray(aligned(np.float32(2.0))).ctypes.data % 64 == 0


@pytest.fixture
def by_callable(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The handles of callables that were run, from here on."""
    ran: list[int] = []
    run = capi.run_callable

    def noted(session: Any, handle: int, values: Any, metadata: Any) -> Any:
        ran.append(handle)
        return run(session, handle, values, metadata)

    monkeypatch.setattr(capi, "run_callable", noted)
    return ran


@pytest.fixture
def graph() -> Iterator[None]:
    with tf.Graph().as_default():
        yield


def training(iterator: bool) -> tuple[Any, list[Any], Any]:
    """(what a step fetches, ops that may move, what a bad step fetches): noise, Adam, a feed."""
    x = tf.placeholder(tf.float32, [2, 6] if iterator else [None, 6], name="x")
    y = tf.data.make_one_shot_iterator(tf.data.Dataset.range(99).shuffle(9, seed=3).repeat()).get_next() if iterator else 1
    w = tf.get_variable("w", [6, 3], initializer=tf.random_normal_initializer(seed=1), use_resource=True)
    b = tf.get_variable("b", [3], initializer=tf.zeros_initializer(), use_resource=False)
    hidden = tf.matmul(x + tf.random.uniform([1, 6], seed=2), w) + b
    loss = tf.reduce_sum(tf.square(hidden)) + tf.cast(y, tf.float32)
    train = tf.train.AdamOptimizer(0.1).minimize(loss)
    bad = tf.reshape(tf.matmul(x, w), tf.placeholder_with_default([9], [1]), name="bad")
    moving = [
        op.name for op in tf.get_default_graph().get_operations() if op.type in ("MatMul", "Reshape") or op.name in ("w", "b")
    ]
    return [loss, train], moving, bad


def step(session: Any, fetched: Any, batch: int) -> Any:
    feed = {"x:0": np.linspace(-1, 1, 6 * batch, dtype=np.float32).reshape(batch, 6)}
    return session.run(fetched, feed)[0].tobytes()


def error(session: Any, bad: Any) -> tuple[str, str]:
    with pytest.raises(tf.errors.OpError) as raised:
        session.run(bad, {"x:0": np.ones([2, 6], np.float32)})
    # The kernel's own words. Around them plain TensorFlow tells where the op was made once or twice, as its threads happen to meet.
    said = re.search(r"Input to reshape[^\n]*\n\t \[\[\{\{node bad\}\}\]\]", raised.value.message)
    assert said, raised.value.message
    return type(raised.value).__name__, said[0]


def seen_plainly(iterator: bool, count: int) -> tuple[list[bytes], tuple[str, str]]:
    with tf.Graph().as_default(), tf.Session() as session:
        fetched, _, bad = training(iterator)
        session.run(tf.global_variables_initializer())
        return [step(session, fetched, 2 if iterator else 1 + k % 2) for k in range(count)], error(session, bad)


class Steps:
    """The program: goes on stepping, and writes down what it saw."""

    def __init__(self, session: Any, fetched: Any, same: bool = False) -> None:
        self._session, self._fetched, self._same = session, fetched, same
        self.seen: list[bytes] = []

    def __call__(self, count: int) -> None:
        for _ in range(count):
            self.seen.append(step(self._session, self._fetched, 2 if self._same else 1 + len(self.seen) % 2))

    def until(self, reply: Any) -> Any:
        while not reply.came():
            self(1)
        return reply.wait()


def test_switches_in_session_are_built_ahead(hooked: Any, replies: Any, cluster: Any, by_callable: list[int]) -> None:
    listener = hooked(local_cluster=lambda: cluster[0])
    fetched, moving, bad = training(iterator=False)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        steps = Steps(session, fetched)
        steps(3)
        for _ in range(2):
            error(session, bad)
        (engine,) = listener.engines
        for k in range(2):
            reply, back = replies(), replies()
            engine.request_switch(LiveStrategy(f"s{k}", dict.fromkeys(moving[k:], device_name(1))), Way.IN_SESSION, reply)
            outcome = steps.until(reply)
            assert outcome.ok and not outcome.not_honoured and outcome.honoured, outcome
            assert by_callable, "neither the move nor the first step was built ahead"
            wrong = error(session, bad)
            steps(3)
            by_callable.clear()
            engine.request_rollback("the test is over", back)
            assert steps.until(back).ok and by_callable, "the way home was not built ahead"
            by_callable.clear()
        steps(2)
    plain, plainly_wrong = seen_plainly(iterator=False, count=len(steps.seen))
    assert steps.seen == plain and wrong == plainly_wrong


def test_restarts_leave_no_step_waiting_for_an_old_iterator(
    hooked: Any, replies: Any, cluster: Any, by_callable: list[int], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted: list[Any] = []
    monkeypatch.setattr(capi, "delete_session", deleted.append)
    listener = hooked(local_cluster=lambda: cluster[0], state_dir=tmp_path)
    fetched, moving, _ = training(iterator=True)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        steps = Steps(session, fetched, same=True)
        steps(3)
        (engine,) = listener.engines
        reply, back = replies(), replies()
        engine.request_switch(LiveStrategy("s", dict.fromkeys(moving, device_name(1))), Way.RESTART, reply)
        outcome = steps.until(reply)
        assert outcome.ok and outcome.way is Way.RESTART and by_callable, outcome
        steps(3)
        engine.request_rollback("the test is over", back)
        assert steps.until(back).ok
        steps(2)
        assert engine.left_behind == 1 and not deleted
    assert steps.seen == seen_plainly(iterator=True, count=len(steps.seen))[0]


@pytest.mark.usefixtures("graph")
class TestAhead:
    def test_values_come_in_the_order_asked_for_also_twice(self, cluster: Any) -> None:
        x, y = tf.placeholder(tf.float32, [], name="x"), tf.placeholder(tf.float32, [], name="y")
        difference, total = tf.subtract(x, y, name="z_first"), tf.add(x, y, name="a_last")
        with tf.Session(cluster[0].target) as session:
            session.run(tf.no_op())
            ahead = Ahead(session._session, direct=False, limited=False)
            fed, fetched = [t._as_tf_output() for t in (y, x)], [t._as_tf_output() for t in (difference, total, difference)]
            built = ahead.build(fed, fetched, [])
            assert built is not None
            assert built.run(session._session, dict(zip(fed, (np.float32(1), np.float32(3)), strict=True))) == [2.0, 4.0, 2.0]

    def test_what_cannot_be_built_runs_plainly(self, cluster: Any) -> None:
        x = tf.placeholder(tf.float32, [], name="x")
        with tf.Session(cluster[0].target) as session:
            session.run(tf.no_op())
            ahead = Ahead(session._session, direct=False, limited=False)
            assert ahead.build([x._as_tf_output()], [x._as_tf_output()], []) is None  # fed and fetched

    def test_after_a_plain_run_plain_runs_serve(self, cluster: Any, by_callable: list[int]) -> None:
        total = tf.constant(1.0) + 2.0
        with tf.Session(cluster[0].target) as session:
            session.run(tf.no_op())
            ahead = Ahead(session._session, direct=False, limited=False)
            built = ahead.build([], [total._as_tf_output()], [])
            assert built is not None and built.run(session._session, {}) == [3.0] and len(by_callable) == 1
            built.retire()
            assert built.run(session._session, {}) is None
            assert ahead.run([total._as_tf_output()]) == [3.0] and len(by_callable) == 1
