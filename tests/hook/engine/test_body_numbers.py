"""Names in errors: bodies of loops and conditions are numbered as plainly, whatever else is in the session's graph."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

from stepd.hook.engine.body_numbers import BodyNumbers  # noqa: E402

pytestmark = pytest.mark.usefixtures("second_generation")


def summed(y: Any, value: Any) -> Any:
    return value + tf.reduce_sum(tf.matmul(y, tf.ones([4, 2])))


def looped(y: Any) -> Any:
    """A condition in a loop."""
    chosen = lambda value: tf.cond(value > 9.0, lambda: value, lambda: summed(y, value))  # noqa: E731
    return tf.while_loop(lambda i, _: i < 3, lambda i, value: (i + 1, chosen(value)), [0, 0.0])[1]


def failed(sess: Any, step: Any, y: Any) -> str:
    with pytest.raises(tf.errors.InvalidArgumentError) as told:
        sess.run(step, {y: np.ones([2, 5])})
    return str(told.value)


def other(text: str) -> str:
    """With numbers of another graph."""
    return re.sub(r"(?<=/_)\d+", lambda number: str(int(number[0]) + 1000), text)


def test_bodies_have_the_numbers_that_a_session_gives_them() -> None:
    with tf.Graph().as_default() as graph:
        y = tf.placeholder(tf.float32, [None, None])
        outer = [looped(y), tf.cond(tf.size(y) > 0, lambda: summed(y, 1.0), lambda: 0.0)]
        size = len(graph.get_operations())
        numbers = BodyNumbers()
        with tf.Session() as sess:
            for step in outer:
                text = failed(sess, step, y)
                assert re.search(r"\{\{node \w+/(body|then)/_\d+/\S*MatMul", text)
                assert numbers.plain_text(other(text), graph, size) == text
            before = failed(sess, outer[0], y)
            looped(y)  # the graph grows: who has been built keeps his numbers
            assert failed(sess, outer[0], y) == before == numbers.plain_text(other(before), graph, size)
            grown = failed(sess, [outer[0], tf.constant(1)], y)
            assert grown == numbers.plain_text(other(before), graph, len(graph.get_operations()))
            assert grown != before


def test_what_is_not_known_stays_as_it_is(tmp_path: Any) -> None:
    with tf.Graph().as_default() as graph:
        written = tf.write_file(str(tmp_path / "never"), "x", name="mine/_5/written")
        looped(tf.placeholder(tf.float32, [None, None]))
        size = len(graph.get_operations())
        for name in ("mine/_5/written", "none/body/_7/MatMul", "while/nowhere/_7/MatMul"):
            text = f"it failed\n\t [[{{{{node {name}}}}}]] and while/body/_9/MatMul"
            assert BodyNumbers().plain_text(text, graph, size) == text
        assert written.name in {op.name for op in graph.get_operations()}
        assert not list(tmp_path.iterdir())
