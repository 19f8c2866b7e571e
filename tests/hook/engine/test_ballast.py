"""On several devices Grappler finds fewer constants equal; with the ballast it takes as many ops out as plainly, so that long
products of constants keep their bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stepd.hook.engine.graphview import GraphView
from stepd.hook.engine.settings import Chaos

tf = pytest.importorskip("tensorflow.compat.v1")

from stepd.hook.engine import ballast  # noqa: E402


def test_what_lies_apart_is_missing_among_the_equals() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4], name="x")
        for k in range(3):
            two = tf.constant(2.0, name=f"two{k}")
            one = tf.subtract(two, tf.constant(1.0, name=f"one{k}"), name=f"less{k}")
            tf.multiply(tf.multiply(x, one), two, name=f"product{k}")
        tf.constant(3.0, name="alone")
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    run = view.ancestors(["product0", "product1", "product2"])

    def missing(moved: dict[str, str], ends: frozenset[str] = frozenset({"product0", "product1", "product2"})) -> int:
        before, now = ballast.taken_out(view, run, ends, moved)
        return before - now

    assert missing({}) == 0
    assert missing({"alone": "b"}) == 0
    assert missing({"two1": "b"}) == 3  # with it what is made of it, twice: no other is given the same
    assert missing({"two1": "b", "two2": "b"}) == 3  # one of a pair on each device is left
    assert missing({"two1": "b", "two2": "b", "one1": "b", "one2": "b", "less1": "b", "less2": "b"}) == 4
    assert missing({"one1": "b"}, frozenset({"less1", "product0", "product1", "product2"})) == 1  # what is fetched stays anyway
    assert ballast.taken_out(view, view.ancestors(["product1"]), {"product1"}, {"two1": "b"}) == (0, 0)


def test_what_only_a_copy_has_at_its_end_is_made_up_for() -> None:
    plain = ["a", "b", "c", "d", "e", "f"]
    assert ballast.missing(plain, plain, 2, 2) == 0
    assert ballast.missing(plain, plain, 2, 1) == 1
    assert ballast.missing(plain, ["a", "b", "c", "d", "x", "y", "e", "f"], 2, 2) == 0  # what is in between moves nothing
    assert ballast.missing(plain, ["a", "b", "c", "d", "e", "x", "y", "f"], 2, 2) == 2
    assert ballast.missing(plain, ["x", "a", "c", "d", "e", "f"], 2, 2) == 0
    assert ballast.missing(plain, ["a", "b", "c", "d", "f"], 2, 1) == 0  # one is gone that would have come to its place
    assert ballast.missing(plain, plain, 2, 3) == 0


def network(x: Any) -> tuple[Any, list[Any]]:
    """Two layers that multiply by one constant after another, as do their gradients."""

    def weights(k: int) -> Any:
        start = (0.3 * np.random.RandomState(k).randn(8, 8)).astype(np.float32)
        return tf.get_variable(f"w{k}", initializer=start, use_resource=True)

    h = 0.071 * tf.matmul(x, weights(0)) * 1.658 * 1.56 / 1.182
    h = 0.935 * tf.tanh(tf.pow(h, 3) * 0.794 * 0.1) @ weights(1)
    h = tf.pow(h + 0.321 * h[:, :], 3) * 1.458 * 0.1
    h = tf.tanh(tf.tanh(0.838 * (h + 1.564 * h[:, :])) * 0.9)
    loss = 0.7 * tf.reduce_mean(0.3 * tf.square(h))
    return loss, tf.gradients(loss, tf.trainable_variables())


def seen(asked: bool = False) -> tuple[list[bytes], list[str]]:
    """The values of ten steps, each as a run, by a callable and in parts, and the names in the program's own traces of them."""
    found, traced = [], set[str]()
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [4, 8], name="x")
        loss, gradients = network(x)
        with tf.Session(config=tf.ConfigProto(device_count={"CPU": 3})) as session:
            session.run(tf.global_variables_initializer())
            call = session.make_callable([loss, *gradients], [x])
            for k in range(10):
                fed = np.random.RandomState(k).randn(4, 8).astype(np.float32)
                metadata = tf.RunMetadata()
                options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE, output_partition_graphs=True) if asked else None
                values = session.run(gradients, {x: fed}, options=options, run_metadata=metadata if asked else None)
                found += [value.tobytes() for value in (*values, *call(fed))]
                in_parts = session.partial_run_setup([loss, *gradients], [x])
                found += [value.tobytes() for value in session.partial_run(in_parts, [loss, *gradients], {x: fed})]
                traced.update(stats.node_name for device in metadata.step_stats.dev_stats for stats in device.node_stats)
                traced.update(node.name for partition in metadata.partition_graphs for node in partition.node)
    return found, sorted(traced)


@pytest.mark.parametrize("way", ["in-session", "restart"])
@pytest.mark.parametrize("seed", range(2))
def test_products_of_constants_keep_their_bits(hooked: Any, way: Any, seed: int) -> None:
    expected, _ = seen()
    listener = hooked(chaos=Chaos(1, way, seed=seed, devices=3))
    assert seen()[0] == expected
    assert any(switch.ok and not switch.rollback for switch in listener.switches)


def test_the_programs_own_traces_show_none_of_it(hooked: Any) -> None:
    hooked(chaos=Chaos(1, "in-session", seed=1, devices=3))
    names = seen(asked=True)[1]
    assert any("Mul" in name or "mul" in name for name in names)
    assert not [name for name in names if "stepd" in name]


def test_no_constant_of_the_programs_becomes_one_with_the_hooks(hooked: Any) -> None:
    listener = hooked(chaos=Chaos(1, "in-session", seed=2, devices=2))
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [4, 3], name="x")
        first = tf.exp(tf.gather(tf.tanh(x), tf.constant(0, name="zero")))
        with tf.Session() as session:
            for _ in range(12):
                metadata = tf.RunMetadata()
                session.run(first, {x: np.ones((4, 3))}, tf.RunOptions(output_partition_graphs=True), metadata)
                assert "zero" in {node.name for graph in metadata.partition_graphs for node in graph.node}
    assert any(switch.ok and not switch.rollback for switch in listener.switches)
