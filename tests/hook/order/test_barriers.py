"""Waits for barriers of tuples that copies do without: which they are, which they are not, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

from stepd.hook.engine.classify import classify  # noqa: E402
from stepd.hook.engine.graphview import GraphView  # noqa: E402
from stepd.hook.engine.kinds import step_kind  # noqa: E402
from stepd.hook.order import barriers  # noqa: E402
from stepd.hook.order.steps import executed  # noqa: E402

LAYERS = 4


def net(weight: Callable[[Any], Any] = tf.identity, use_resource: bool = True) -> tuple[Any, Any, Any]:
    """(input, loss, train): dense layers with biases; `weight` is applied to each layer's weights."""
    x = tf.placeholder(tf.float32, [8, 6], name="x")
    h = x
    for k in range(LAYERS):
        w = tf.get_variable(f"w{k}", [6, 6], initializer=tf.orthogonal_initializer(seed=k), use_resource=use_resource)
        b = tf.get_variable(f"b{k}", [6], initializer=tf.zeros_initializer(), use_resource=use_resource)
        h = tf.tanh(tf.nn.bias_add(tf.matmul(h, weight(w), name=f"dense{k}"), b, name=f"biased{k}"))
    loss = tf.reduce_mean(tf.square(h), name="loss")
    return x, loss, tf.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")


def lifts_of(graph: Any) -> tuple[GraphView, barriers.Lifts]:
    view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    return view, barriers.liftable(view, classify(view))


def layers(lifts: barriers.Lifts) -> set[str]:
    return {lift.op.removeprefix("gradients/").partition("_grad/")[0] for lift in lifts}


@pytest.mark.parametrize("use_resource", [True, False])
def test_the_chain_of_gradients_does_not_wait_for_those_of_weights(use_resource: bool) -> None:
    with tf.Graph().as_default() as graph:
        x, loss, train = net(use_resource=use_resource)
        view, lifts = lifts_of(graph)
    # The first layer's product leads nowhere, every other op with weights leads on.
    assert layers(lifts) == {f"{name}{k}" for name in ("dense", "biased") for k in range(LAYERS)} - {"dense0"}
    weights = {"dense2": "MatMul_1", "biased2": "BiasAddGrad"}
    without = barriers.without(view, lifts)
    for lift in lifts:
        waited = weights.get(next(iter(layers(frozenset([lift])))))
        if waited is not None:
            gradient = lift.barrier.removesuffix("tuple/group_deps") + waited
            assert gradient in view.ancestors([lift.op]) and gradient not in without.ancestors([lift.op])
    step = step_kind([x.name], [loss.name], [train.name])
    assert barriers.serves(view, lifts, step, executed(view, step))
    assert executed(without, step) == executed(view, step)


@pytest.mark.parametrize(
    ("other", "lifted"),
    [
        (lambda x: tf.matmul(x, x), True),
        (lambda x: tf.check_numerics(tf.matmul(x, x), "no number"), False),
        (lambda x: tf.linalg.inv(x), False),
        (lambda x: tf.gather(x, tf.cast(x[0], tf.int32)), False),
        (lambda x: tf.matmul(x, tf.random_uniform([4, 4], seed=1)), False),
        (lambda x: tf.matmul(x, tf.placeholder(tf.float32, [4, 4])), False),
        (lambda x: tf.py_func(np.tanh, [x], tf.float32), False),
        (lambda x: tf.matmul(x, tf.get_variable("other", [4, 4], use_resource=True)), False),
    ],
    ids=["product", "check", "inverse", "indices", "random", "fed", "python", "variable"],
)
def test_what_could_refuse_its_input_or_has_state_is_waited_for(other: Callable[[Any], Any], lifted: bool) -> None:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4, 4], name="x")
        passed_on, _ = tf.tuple([tf.tanh(x), other(x)], name="mine")
        w = tf.get_variable("w", [4, 4], use_resource=True)
        u, v = (tf.get_variable(name, [4, 4], use_resource=True) for name in "uv")
        loss = tf.reduce_sum(tf.matmul(tf.tanh(tf.matmul(tf.tanh(tf.matmul(passed_on, w)), u)), v))
        tf.train.GradientDescentOptimizer(0.1).minimize(loss)
        barriers_lifted = {lift.barrier for lift in lifts_of(graph)[1]}
    assert ("mine/group_deps" in barriers_lifted) == lifted
    assert any(barrier.startswith("gradients/") for barrier in barriers_lifted)


def test_a_step_that_computes_weights_gradients_for_the_barrier_alone_keeps_it() -> None:
    with tf.Graph().as_default() as graph:
        x, loss, train = net()
        view, lifts = lifts_of(graph)
        passed_on = graph.get_operation_by_name("gradients/biased0_grad/tuple/control_dependency").outputs[0]
    alone = step_kind([x.name], [passed_on.name], [])
    assert not barriers.serves(view, lifts, alone, executed(view, alone))
    assert executed(barriers.without(view, lifts), alone) < executed(view, alone)
    both = [step_kind([x.name], [loss.name], [train.name]), alone]
    assert barriers.common(view, lifts, both) == frozenset()
    assert barriers.common(view, lifts, both[:1]) == lifts


@pytest.mark.parametrize("use_resource", [True, False])
def test_a_step_that_is_fed_something_in_between_keeps_the_waits_behind_it(use_resource: bool) -> None:
    """The gradient of the next layer's weights needs a product that reads this layer's weights, which nothing else would."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder_with_default(np.zeros((8, 6), "f"), [8, 6], name="x")
        h = x
        for k in range(LAYERS):
            w = tf.get_variable(f"w{k}", [6, 6], initializer=tf.orthogonal_initializer(seed=k), use_resource=use_resource)
            h = tf.matmul(h, w, name=f"dense{k}")
        train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(tf.square(h)), name="train")
        view, lifts = lifts_of(graph)
    assert layers(lifts) == {"dense1", "dense2", "dense3"}
    product, write = "dense1", next(name for name in view.nodes if name.startswith("train/update_w1/"))
    assert product in view.ancestors([write]) and product in barriers.without(view, lifts).ancestors([write])
    fed = step_kind(["dense2:0"], [], [train.name])
    assert {product, write} <= executed(view, fed)
    assert barriers.common(view, lifts, [fed]) == frozenset()
    assert barriers.common(view, lifts, [step_kind([x.name], [], [train.name])]) == lifts


def test_a_term_that_others_read_goes_on_waiting() -> None:
    """A sum of three begins with a term whose buffer nobody else holds."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4, 4])
        y = tf.tanh(x)
        w = tf.get_variable("w", [4, 4], use_resource=True)
        for name, shared, make in (("shared", True, tf.tanh), ("alone", False, tf.sigmoid)):
            passed = make(y)
            weights = tf.matmul(passed if shared else x, x)
            led, _ = tf.tuple([passed, weights], name=name)
            hidden = tf.tanh(tf.matmul(tf.add_n([led, tf.sin(x), tf.cos(x)]), w))
            tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.matmul(hidden, w)))
        lifted = {lift.barrier.partition("/")[0] for lift in lifts_of(graph)[1]}
    assert "alone" in lifted and "shared" not in lifted


@pytest.mark.parametrize("used_in_both", [True, False])
def test_a_read_that_one_branch_needs_is_not_waited_for_behind_the_merge(used_in_both: bool) -> None:
    """`passed` needs the value of a condition, the other gradient the read itself: with the wait, the read has always run."""
    second = tf.control_flow_v2_enabled()
    tf.disable_control_flow_v2()
    try:
        with tf.Graph().as_default() as graph:
            x = tf.placeholder(tf.float32, [4, 4], name="x")
            read = tf.get_variable("read", [4, 4], use_resource=True).read_value()
            p = tf.placeholder(tf.bool, [])
            chosen = tf.cond(p, lambda: tf.tanh(x), lambda: tf.matmul(x, read))
            passed = tf.add(chosen, read) if used_in_both else tf.tanh(chosen)
            led, _ = tf.tuple([passed, tf.matmul(read, chosen)], name="mine")
            w = tf.get_variable("w", [4, 4], use_resource=True)
            hidden = tf.tanh(tf.matmul(tf.tanh(tf.matmul(led, w)), w))
            tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(hidden))
            lifted = {lift.barrier for lift in lifts_of(graph)[1]}
    finally:
        if second:
            tf.enable_control_flow_v2()
    assert ("mine/group_deps" in lifted) == used_in_both
