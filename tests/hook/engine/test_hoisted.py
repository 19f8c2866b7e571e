"""Functions that Grappler takes out of parts, or from under a largest value, move with what it takes them to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

from stepd.hook.engine.classify import classify  # noqa: E402
from stepd.hook.engine.graphview import GraphView  # noqa: E402


def split(x: Any) -> list[Any]:
    return list(tf.split(x, 2, 1))


def other() -> Any:
    return tf.placeholder(tf.float32, [4, 6])


def nothing(x: Any) -> Any:
    return tf.raw_ops.IdentityN(input=[x])[0]


def together(make: Callable[[Any], Any]) -> set[str]:
    """Types of ops that move with others, of what is made of rows [4, 6]."""
    with tf.Graph().as_default() as graph:
        make(tf.placeholder(tf.float32, [4, 6]))
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    return {view.nodes[name].op for group in classify(view).groups for name in group}


@pytest.mark.parametrize(
    ("make", "ops"),
    [
        (lambda x: tf.concat([tf.exp(x), tf.exp(other())], 1), "Exp ConcatV2"),
        (lambda x: tf.concat([tf.nn.relu(tf.exp(x)), tf.nn.relu(tf.exp(other()))], 1), "Exp Relu ConcatV2"),
        (lambda x: tf.concat([tf.reshape(tf.exp(x), [-1]), tf.reshape(tf.exp(other()), [-1])], 0), "Exp Reshape ConcatV2"),
        (lambda x: tf.concat([nothing(tf.exp(x)), tf.exp(nothing(other()))], 1), "Exp IdentityN ConcatV2"),
        (lambda x: tf.concat([tf.exp(x), tf.sin(x)], 1), ""),
        (lambda x: tf.concat([tf.nn.relu(x), tf.nn.relu(other())], 1), ""),
        (lambda x: [tf.sigmoid(part) for part in split(x)], "Split Sigmoid"),
        (lambda x: [tf.sigmoid(tf.reshape(part, [-1])) for part in split(x)], "Split Reshape Sigmoid"),
        (lambda x: [f(part) for f, part in zip((tf.sigmoid, tf.tanh), split(x), strict=True)], ""),
        (lambda x: tf.argmax(tf.identity(-x), 1), "Neg Identity ArgMax"),
        (lambda x: tf.reduce_max(tf.sigmoid(x), 1), "Sigmoid Max"),
        (lambda x: tf.reduce_max(tf.nn.relu(x), 1), ""),
    ],
)
def test_functions_move_with_what_grappler_takes_them_to(make: Callable[[Any], Any], ops: str) -> None:
    assert together(make) == set(ops.split())
