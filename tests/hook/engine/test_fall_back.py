"""A graph that cannot be mirrored: the session runs on it as if there were no hook."""

from __future__ import annotations

import threading
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow.compat.v1")
from tensorflow.core.framework import attr_value_pb2  # noqa: E402

from stepd.hook.engine import capi  # noqa: E402
from stepd.hook.engine.settings import Chaos  # noqa: E402


def error_of_a_product_whose_shapes_do_not_fit() -> str:
    """The program has changed an op so that it can no longer be computed, nor imported: TensorFlow says so when it runs."""
    with tf.Graph().as_default():
        x = tf.ones([3, 4], name="x")
        product = tf.matmul(x, x, transpose_b=True, name="product")
        product.op._set_attr("transpose_b", attr_value_pb2.AttrValue(b=False))
        with tf.Session() as session:
            with pytest.raises(tf.errors.InvalidArgumentError) as refused:
                session.run(product)
            assert session.run(x).shape == (3, 4)
    return str(refused.value.message).partition("Node: ")[2].partition("Original stack trace")[0]


def test_what_cannot_be_mirrored_runs_and_fails_as_it_does_plainly(hooked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = error_of_a_product_whose_shapes_do_not_fit()
    listener, opened = hooked(), list[Any]()
    monkeypatch.setattr(listener, "session_opened", lambda engine: (opened.append(engine), listener.engines.append(engine)))
    assert error_of_a_product_whose_shapes_do_not_fit() == plain
    assert "size-incompatible" in plain and len(opened) == 1 and not opened[0].ran


def error_of_a_callable_whose_session_is_closed() -> BaseException:
    """Keras holds such callables. This one has not run since the last switch."""
    with tf.Graph().as_default():
        v = tf.get_variable("v", initializer=[1.0, 2.0], use_resource=True)
        read, train = tf.square(v), tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.tanh(v)))
        with tf.Session() as session:
            session.run(v.initializer)
            call = session.make_callable(read)
            for _ in range(4):
                session.run(train)
        with pytest.raises(tf.errors.CancelledError) as refused:
            call()
    return refused.value


@pytest.mark.parametrize("seed", range(3))
def test_a_callable_of_a_closed_session_says_so_as_it_does_plainly(hooked: Any, seed: int) -> None:
    plain = error_of_a_callable_whose_session_is_closed()
    listener = hooked(chaos=Chaos(2, "in-session", seed=seed, devices=2))
    error = error_of_a_callable_whose_session_is_closed()
    assert any(outcome.ok for outcome in listener.switches)
    assert str(error) == str(plain) and error.__context__ is None and not listener.failed


def test_of_two_threads_that_find_a_graph_that_cannot_be_mirrored_one_replaces_the_session(
    hooked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooked()
    with tf.Graph().as_default(), tf.Session() as session:
        first = tf.identity(tf.constant(1.0))
        first.op._update_input(0, tf.add(tf.identity(first), 1.0))  # a cycle
        fine, errors = tf.constant(3.0) * 2.0, list[str]()

        def run() -> None:
            with pytest.raises(tf.errors.InvalidArgumentError) as refused:
                session.run(fine)
            errors.append(str(refused.value))

        other, make = threading.Thread(target=run), capi.new_session

        def beside_another(*args: Any) -> Any:
            monkeypatch.undo()
            other.start()
            other.join(0.3)
            return make(*args)

        monkeypatch.setattr(capi, "new_session", beside_another)
        run()
        other.join()
    assert len(errors) == 2 and all("contains a cycle" in error for error in errors)
