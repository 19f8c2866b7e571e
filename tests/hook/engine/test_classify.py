"""What of a graph may move, and why the rest stays."""

from __future__ import annotations

import pytest

from stepd.hook.engine.classify import classify
from stepd.hook.engine.graphview import GraphView

tf = pytest.importorskip("tensorflow.compat.v1")
from tensorflow.python.compiler.xla import jit  # noqa: E402


@pytest.mark.parametrize("use_resource", [True, False])
def test_what_xla_compiles_together_stays_together(use_resource: bool) -> None:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [2, 3], name="x")
        with jit.experimental_jit_scope():
            w = tf.get_variable("w", [3, 4], use_resource=use_resource)
            inside = tf.tanh(tf.matmul(x, w, name="product") * 2.0, name="inside")
            with jit.experimental_jit_scope(compile_ops=False):
                free = tf.sin(x, name="free")
        handed = tf.identity(inside, name="handed")
        tf.add(tf.reduce_max(tf.add_n([handed, handed * 2.0], name="given"), name="outside"), tf.reduce_sum(free), name="sum")
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    pinned = classify(view).pinned
    assert {"w", "product", "inside", "handed", "given"} <= pinned.keys()
    assert "XLA" in pinned["inside"]
    assert not {"free", "outside", "sum"} & pinned.keys()
