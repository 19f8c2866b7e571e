"""Sums of floats have the same bits on a copy as in the program's own graph, whatever of them is copied and wherever it runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stepd.hook.engine.graphview import GraphView
from stepd.hook.engine.settings import Chaos
from stepd.hook.engine.sums import first_terms
from stepd.hook.model import Order

tf = pytest.importorskip("tensorflow.compat.v1")


def sums() -> tuple[Any, list[Any]]:
    """A sum as one op, as trees of additions, and with a common factor, of terms that sort otherwise than they were made."""
    x = tf.placeholder(tf.float32, [8, 8], name="x")
    w = tf.get_variable("w", initializer=np.random.RandomState(7).randn(8, 8).astype(np.float32), use_resource=True)
    seen = tf.matmul(x, w)  # of what is fed Grappler does not know the shape, and then leaves trees alone
    parts = [tf.sin(seen * float(k + 1), name=f"part{'hcfabged'[k]}") * (0.1 + k) for k in range(8)]
    added = tf.add_n([tf.tanh(p) for p in parts])
    a, b, c, d, e, f, g, h = (tf.cos(p) for p in parts)  # read by nobody else: who is done when a sum begins is open plainly
    tree = ((a + b) + (c + d)) + ((e + f) + (g + h))
    chain = tf.exp(parts[0]) + (tf.exp(parts[1]) + (tf.exp(parts[2]) + (tf.exp(parts[3]) + tf.exp(parts[4]))))
    losses = [tf.reduce_sum(tf.nn.softplus(p)) * 0.01 for p in parts]
    loss = tf.add_n(losses[:3]) + tf.reduce_sum(tf.sinh(parts[3])) + tf.reduce_sum(tf.sinh(parts[4]))
    return x, [added, tree, chain, loss, x * w + x * tf.transpose(w) + x * tf.tanh(w)]


def values(steps: int) -> list[bytes]:
    x, fetches = sums()
    config = tf.ConfigProto(device_count={"CPU": 3})
    random = np.random.RandomState(1)
    with tf.Session(config=config) as session:
        session.run(tf.global_variables_initializer())
        called = session.make_callable(fetches, [x])
        runs = [lambda fed: session.run(fetches, {x: fed}), called]
        return [v.tobytes() for k in range(steps) for v in runs[k % 2](random.randn(8, 8))]


@pytest.mark.parametrize("workers", [False, True])
def test_sums_keep_their_bits_on_copies(hooked: Any, cluster: Any, workers: bool) -> None:
    """On workers also where a sum is fetched, and so sent, that has been sent some of its terms."""
    with tf.Graph().as_default():
        expected = values(14)
    chaos = Chaos(1, "in-session", seed=2, devices=0 if workers else 3)
    listener = hooked(chaos=chaos, local_cluster=(lambda: cluster[0]) if workers else None)
    assert values(14) == expected
    assert sum(s.ok and not s.rollback for s in listener.switches) >= 6


def test_a_sum_stays_with_the_term_that_it_begins_with(hooked: Any) -> None:
    listener = hooked()
    x = tf.placeholder(tf.float32, [4], name="x")
    later, shared, first = tf.sin(x, name="c"), tf.cos(x, name="a"), tf.tanh(x, name="b")
    total = tf.add_n([later, shared, first], name="total")
    with tf.Session() as session:
        session.run([total, tf.exp(shared)], {x: np.ones(4)})
        groups = listener.engines[0].switcher().classes().groups
        assert {"a", "b", "total"} in [set(group) for group in groups], "a may be held by exp; b is the sum's alone"


def test_who_reads_a_term_later_stays_with_the_sum(hooked: Any) -> None:
    """Elsewhere it would be sent the term at once, and the sum could begin in the term's buffer."""
    listener = hooked()
    x = tf.placeholder(tf.float32, [4], name="x")
    a = tf.sin(x, name="a")
    before = tf.cos(a, name="before")
    total = tf.add_n([a, before, tf.tanh(x, name="c")], name="total")
    after = tf.multiply(total, tf.reshape(a, [4], name="seen"), name="after")
    beyond = tf.exp(after, name="beyond")
    with tf.Session() as session:
        session.run(beyond, {x: np.ones(4)})
        groups = [set(group) for group in listener.engines[0].switcher().classes().groups]
    (group,) = (group for group in groups if "total" in group)
    assert group >= {"a", "after", "seen"}
    assert "beyond" not in group


def test_an_order_leaves_sums_of_sums_alone(hooked: Any) -> None:
    """What a control edge is tied to stands before the terms: Grappler makes one sum of two only where it knows their shapes."""

    def values() -> list[bytes]:
        x = tf.placeholder(tf.float32, [None, 8], name="x")
        hidden = x
        for k in range(4):
            given = [tf.get_variable(f"w{k}{n}", [8, 8], initializer=tf.random_normal_initializer(seed=k)) for n in "abc"]
            a, b, c = (tf.matmul(hidden, w) for w in given)
            hidden = tf.tanh(a) + tf.sigmoid(b) + tf.nn.softplus(c)
        train = tf.train.MomentumOptimizer(0.05, 0.9).minimize(tf.reduce_mean(hidden * hidden))
        with tf.Session(config=tf.ConfigProto(device_count={"CPU": 3})) as session:
            session.run(tf.global_variables_initializer())
            for k in range(12):
                session.run(train, {x: np.random.RandomState(k).randn(5, 8)})
            return [v.tobytes() for v in session.run(tf.global_variables())]

    with tf.Graph().as_default():
        expected = values()
    listener = hooked(chaos=Chaos(1, "in-session", seed=1, devices=3, order=True), order=Order.CONTROL)
    assert values() == expected
    assert sum(s.ok and not s.rollback for s in listener.switches) >= 3


def test_a_term_that_may_turn_out_to_be_another_ones_buffer_does_not_begin_a_sum() -> None:
    """Of a batch of unknown size gradients sum over what was broadcast: nothing, here, so that the twins behind are the terms."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [None, 5])
        size = tf.minimum(tf.abs(x), 1.5)
        tf.gradients(tf.cos(x) * (0.5 * (size * size) + tf.sin(x) * (x - size)), size)
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    (total,) = [node for node in view.nodes.values() if node.op == "AddN" and len(node.inputs) >= 3]
    first = first_terms(view, total)
    assert {"gradients/mul_grad/Mul", "gradients/mul_grad/Mul_1", "gradients/sub_grad/Neg"} <= first
    assert {name for name, _ in total.inputs} <= first
