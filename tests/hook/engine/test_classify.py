"""What of a graph may move, and why the rest stays."""

from __future__ import annotations

import pytest

from stepd.hook.engine.classify import classify
from stepd.hook.engine.graphview import GraphView

tf = pytest.importorskip("tensorflow.compat.v1")
from tensorflow.python.compiler.xla import jit  # noqa: E402
from tensorflow.python.framework import function  # noqa: E402


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


@pytest.mark.parametrize(("noinline", "seed", "apart"), [(True, 3, True), (False, 3, False), (True, None, False)])
def test_a_function_that_runs_as_one_and_draws_keeps_every_step_where_it_is(noinline: bool, seed: int | None, apart: bool) -> None:
    with tf.Graph().as_default() as graph:

        @function.Defun(tf.float32, noinline=noinline, func_name="StackedNoise")
        def noise(x):  # type: ignore[no-untyped-def]
            return x + (tf.random_uniform([2], seed=seed) if seed else tf.ones([2]))

        @function.Defun(tf.float32)
        def outer(x):  # type: ignore[no-untyped-def]
            return noise(x) * 2.0

        outer(tf.placeholder(tf.float32, [2]))
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    assert ("StackedNoise" in classify(view).apart) == apart
    held = [name for name, why in classify(view).held.items() if "draws" in why]
    assert bool(held) == (seed is not None)  # whatever the function is named like
