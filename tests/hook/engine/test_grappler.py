"""Grappler, asked from Python, makes of a part of a graph what a session makes of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from stepd.hook.engine.grappler import Grappler

tf = pytest.importorskip("tensorflow.compat.v1")

DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"


def arithmetic(nodes: Iterable[Any]) -> dict[str, tuple[str, ...]]:
    """The multiplications among `nodes`: name -> what they are given, of which a session has another name for `x`, which is fed."""
    return {
        node.name: tuple("x" if name.startswith("_arg_x") else name for name in node.input) for node in nodes if node.op == "Mul"
    }


@pytest.mark.parametrize("calls", [1, 2])
def test_constants_are_folded_through_calls_as_in_a_session(calls: int) -> None:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4, 6], name="x")
        w = tf.get_variable("w", initializer=np.linspace(-1, 1, 6).astype(np.float32), use_resource=True)

        @tf.function(autograph=False)
        def scaled(t: Any, by: Any) -> Any:
            return tf.tanh(tf.sin(t / 0.326 / 1.536) * by)

        made, by = x, tf.identity(w.read_value())
        for _ in range(calls):
            made = scaled(made, by)
        (slope,) = tf.gradients(tf.reduce_mean(tf.square(made - 0.3)), [x])
        with tf.Session() as session:
            session.run(w.initializer)
            metadata = tf.RunMetadata()
            session.run(slope, {x: np.ones((4, 6))}, tf.RunOptions(output_partition_graphs=True), metadata)
        definition = graph.as_graph_def()
        part = tf.graph_util.extract_sub_graph(definition, [slope.op.name])
        part.library.CopyFrom(definition.library)
        for node in part.node:
            node.device = DEVICE
        config = tf.ConfigProto()
        config.graph_options.rewrite_options.min_graph_nodes = -1
        left = Grappler(config, {DEVICE: "CPU"}).optimized(part, {slope.op.name, "x"})
    (session_made,) = metadata.partition_graphs
    assert arithmetic(left.node) == arithmetic(session_made.node) != {}
