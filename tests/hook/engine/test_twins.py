"""Ops that compute the same of the same move together, and what the program keeps apart stays apart: sums keep their bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stepd.hook.engine.classify import classify
from stepd.hook.engine.graphview import GraphView
from stepd.hook.engine.settings import Chaos

tf = pytest.importorskip("tensorflow.compat.v1")

from stepd.hook.engine import twins  # noqa: E402


def view_of(graph: Any) -> GraphView:
    return GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)


def test_what_computes_the_same_is_found_through_what_only_hands_on() -> None:
    with tf.Graph().as_default() as graph:
        x, y = tf.placeholder(tf.float32, [4], name="x"), tf.placeholder(tf.float32, [4], name="y")
        tf.multiply(x, y, name="one")
        tf.multiply(y, x, name="turned")
        tf.multiply(tf.identity(x, "named"), y, name="handed")
        with tf.control_dependencies([y]):
            tf.multiply(tf.stop_gradient(x, "stopped"), y, name="waiting")
        first, second = tf.raw_ops.IdentityN(input=[y, x], name="both")
        tf.multiply(first, second, name="of_both")
        tf.multiply(first, tf.identity(first), name="of_one")  # another value
        tf.subtract(x, y, name="sub")
        tf.subtract(y, x, name="other_sub")
        tf.reduce_sum(x, 0, name="reduced")
        tf.reduce_sum(x, 0, keepdims=True, name="kept")
        tf.random_uniform([4], name="drawn")
        tf.random_uniform([4], name="drawn_again")
        found = twins.of(view_of(graph))
    assert [set(names) for names in found.sets] == [
        {"one", "turned", "handed", "waiting", "of_both", "named", "stopped", "both", "x", "y"},
    ]
    assert found.one == {"turned": "one"}
    assert found.count(["one", "turned", "sub", "sub"]) == 3


def test_twins_of_computed_constants_lie_with_what_computes_them() -> None:
    """As the gradients of two losses that are added: each has ones of its own, which are one constant on one device."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4], name="x")
        for name, factor in (("one", 1.0), ("two", 1.0)):
            tf.multiply(tf.multiply(x, factor), tf.fill([4], 3.0, name=f"{name}_filled"), name=name)
        tf.sin(tf.fill([4], 3.0, name="read_by_no_twin"))
        found = twins.of(view_of(graph))
    assert any({"one", "two", "one_filled", "two_filled"} <= set(names) for names in found.sets)
    assert "read_by_no_twin" not in found.members


def test_ends_of_a_tuple_that_hand_on_one_value_are_one() -> None:
    """The two gradients of `y + y` are handed on by an Identity each, which wait for the same."""
    with tf.Graph().as_default() as graph:
        y, other = tf.placeholder(tf.float32, [4], name="y"), tf.placeholder(tf.float32, [4], name="other")
        for name, waits in (("one", [y, other]), ("two", [other, y]), ("three", [y])):
            with tf.control_dependencies(waits):
                barrier = tf.no_op(f"{name}_barrier")
            with tf.control_dependencies([barrier]):
                tf.identity(y, f"{name}_end")
                tf.identity(other, f"{name}_other")
        tf.identity(y, "named")
        found = [set(names) for names in twins.of(view_of(graph)).sets]
    assert found == [{"one_barrier", "two_barrier"}, {"one_end", "two_end"}, {"one_other", "two_other"}]


def test_what_decides_two_conditions_in_one_way_is_one() -> None:
    with tf.Graph().as_default() as graph:
        x, above = tf.placeholder(tf.float32, [4], name="x"), tf.placeholder(tf.bool, [])
        for name in ("one", "two"):
            tf.raw_ops.Switch(data=x, pred=tf.identity(above, name))
        assert ("one", "two") in twins.of(view_of(graph)).sets


@pytest.mark.parametrize(("hand_on", "together"), [(tf.stop_gradient, True), (tf.identity, False)])
def test_what_stops_a_gradient_lies_with_what_it_waits_for(hand_on: Any, together: bool) -> None:
    """It is taken out before its reader is joined with a bias and an activation, which waits then and is joined with nothing."""
    with tf.Graph().as_default() as graph:
        x, y = tf.placeholder(tf.float32, [4, 4], name="x"), tf.placeholder(tf.float32, [4, 4], name="y")
        with tf.control_dependencies([tf.tanh(y, name="before")]):
            handed = hand_on(x, name="handed")
        tf.tanh(tf.matmul(handed, y))
        groups = [set(group) for group in classify(view_of(graph)).groups]
    assert ({"x", "before", "handed"} in groups) == together


def test_constants_of_one_value_are_one_and_move_with_who_reads_them() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4], name="x")
        for name, factor in (("one", 3.0), ("two", 3.0), ("other", 4.0)):
            tf.multiply(x, tf.constant(factor, name=f"{name}_factor"), name=name)
        tf.sin(tf.constant(3.0, name="read_by_no_twin"))
        found = twins.of(view_of(graph))
    assert [set(names) for names in found.sets] == [{"one", "two", "one_factor", "two_factor"}]
    assert found.one == {"two": "one"}


def test_constants_that_wait_are_one_where_what_else_is_taken_is() -> None:
    """A logarithm's gradient adds a one that waits for the gradient: two gradients of one loss."""
    with tf.Graph().as_default() as graph:
        x, y = tf.placeholder(tf.float32, [4], name="x"), tf.placeholder(tf.float32, [4], name="y")
        for name in ("one", "two"):
            with tf.control_dependencies([tf.multiply(x, y, name=f"{name}_given")]):
                waiting = tf.constant(1.0, name=f"{name}_waiting")
                tf.add(waiting, x, name=name)
                tf.subtract(waiting, 2.0, name=f"{name}_folded")  # a constant of its own that waits
        found = twins.of(view_of(graph))
    assert {"one", "two", "one_waiting", "two_waiting"} in [set(names) for names in found.sets]
    assert not {"one_folded", "two_folded"} & found.members
    assert "two" not in found.one, "not sure"


def test_what_is_folded_is_a_constant_where_it_is_whatever_it_is_folded_of() -> None:
    """Two backward passes whose first steps, of constants alone, the program has on different devices."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4], name="x")
        for name, device in (("one", "/cpu:0"), ("other", "/cpu:1")):
            with tf.device(device):
                third = tf.divide(tf.constant(1.0), tf.constant(3.0), name=f"{name}_third")
            with tf.device("/cpu:1"):
                tf.multiply(x, tf.negative(third, name=f"{name}_folded"), name=name)
        found = twins.of(view_of(graph))
    assert found.maybe["one"] == ("one", "other") and "one_third" not in found.maybe


def test_twins_move_together_with_the_sum_that_they_are_terms_of() -> None:
    with tf.Graph().as_default() as graph:
        x, y = tf.placeholder(tf.float32, [4], name="x"), tf.placeholder(tf.float32, [4], name="y")
        tf.add_n([tf.multiply(x, y, name="a"), tf.multiply(x, y, name="b"), tf.sin(x, name="c")], name="total")
        together = [set(group) for group in classify(view_of(graph)).groups]
    assert together == [{"a", "b", "c", "total"}], "made one, a is held twice, and the sum begins with c"


def test_a_value_that_twins_of_one_op_read_has_one_reader() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4], name="x")
        inner = tf.subtract(tf.sin(x), tf.cos(x), name="inner")
        tf.add(inner, x, name="outer")
        tf.add(inner, x, name="outer_again")
        together = [set(group) for group in classify(view_of(graph)).groups]
    assert {"inner", "outer", "outer_again"} <= set.union(*together)


def test_who_reads_a_sum_twice_is_one_reader() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4])
        total = tf.add_n([tf.sin(x), tf.cos(x), tf.exp(x)], name="inner")
        tf.tanh(tf.add_n([total, total], name="outer"))
        groups = classify(view_of(graph)).group_of
    assert groups["inner"] == groups["outer"]


def test_readers_of_twins_are_readers_of_one_value() -> None:
    """As a mask that each layer makes for itself: the layers must not be tied together."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4], name="x")
        for k in range(2):
            tf.add(tf.subtract(tf.sin(x, name="s"), tf.cos(x, name="t"), name=f"mask{k}"), tf.exp(x * (k + 2.0)), name=f"layer{k}")
        groups = classify(view_of(graph)).group_of
    assert groups["mask0"] == groups["mask1"]
    assert "layer0" not in groups or groups["layer0"] != groups.get("layer1")


def huber(x: Any) -> Any:
    """The gradient of a product of a value with itself is two twins of a sum of three terms."""
    w = tf.get_variable("w", initializer=np.linspace(-2, 2, 5, dtype=np.float32), use_resource=True)
    size = tf.abs(x * w)
    quadratic = tf.minimum(size, 1.5)
    loss = tf.cos(x) * (0.5 * (quadratic * quadratic) + tf.sin(x) * (size - quadratic))
    return tf.tanh(tf.gradients(loss, quadratic)[0])


def placed(x: Any) -> Any:
    """Sums, products and constants that the program itself has put on several devices, where nothing is joined."""
    devices = [f"/cpu:{k % 3}" for k in range(7)]
    total: Any = x
    for k, device in enumerate(devices):
        with tf.device(device):
            total = total + tf.sin(x * float(k + 1)) * (0.1 + k)
    with tf.device("/cpu:1"):
        product = tf.reduce_max(total, 0) * tf.reduce_min(total, 0)
    with tf.device("/cpu:2"):
        return tf.stack([product * 0.3, (product + total[0]) - 0.3])


@pytest.mark.parametrize("build", [huber, placed])
@pytest.mark.parametrize("seed", range(3))
def test_values_keep_their_bits(hooked: Any, build: Any, seed: int) -> None:
    def values() -> list[bytes]:
        with tf.Graph().as_default():
            x = tf.placeholder(tf.float32, [None, 5], name="x")
            result = build(x)
            data = np.random.RandomState(seed)
            with tf.Session(config=tf.ConfigProto(device_count={"CPU": 3})) as session:
                session.run(tf.global_variables_initializer())
                return [session.run(result, {x: data.randn(40, 5)}).tobytes() for _ in range(8)]

    expected = values()
    listener = hooked(chaos=Chaos(1, "in-session", seed=seed, devices=3))
    assert values() == expected
    assert any(s.ok and not s.rollback for s in listener.switches)


@pytest.mark.parametrize("rows", [4, None])
def test_gradients_of_equal_terms_are_twins_whether_the_batch_is_known(rows: int | None) -> None:
    with tf.Graph().as_default() as graph:
        q = tf.tanh(tf.placeholder(tf.float32, [rows, 3]))
        both = [tf.multiply(q, tf.subtract(1.0, q, name=f"less{k}"), name=f"product{k}") for k in range(2)]
        tf.gradients(tf.reduce_sum(tf.square(both[0] + both[1])), [q])
    maybe = twins.of(view_of(graph)).maybe
    assert maybe["product0"] == ("product0", "product1")
    assert set(maybe["gradients/product0_grad/Mul_1"]) == {"gradients/product0_grad/Mul_1", "gradients/product1_grad/Mul_1"}


def test_a_term_that_may_have_been_broadcast_makes_no_twins() -> None:
    with tf.Graph().as_default() as graph:
        x, y = tf.placeholder(tf.float32, [None, 3]), tf.placeholder(tf.float32, [None, 3])
        tf.gradients(tf.reduce_sum(tf.square(tf.sin(x) + tf.sin(y))), [x, y])
    assert "gradients/Sin_grad/mul" not in twins.of(view_of(graph)).maybe


def test_what_the_program_has_on_two_devices_is_not_joined_on_one(hooked: Any, two_devices: Any) -> None:
    listener = hooked()
    x = tf.placeholder(tf.float32, [4], name="x")
    with tf.device("/cpu:0"):
        inner = tf.add(tf.sin(x), tf.cos(x), name="inner")
    with tf.device("/cpu:1"):
        total = tf.add(inner, tf.tanh(x), name="outer")
    with tf.Session(config=two_devices) as session:
        session.run(total, {x: np.ones(4)})
        pinned = listener.engines[0].switcher().classes().pinned
    assert "another device" in pinned["inner"] and "another device" in pinned["outer"]


def test_a_variable_is_at_home_where_its_optimizer_was_made(hooked: Any, two_devices: Any) -> None:
    from stepd.hook.engine.home import home

    listener = hooked()
    w = tf.get_variable("w", [4], use_resource=True)
    with tf.device("/cpu:1"):
        train = tf.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(tf.square(w)), var_list=[w])
    with tf.Session(config=two_devices) as session:
        session.run(tf.global_variables_initializer())
        metadata = tf.RunMetadata()
        session.run(train, options=tf.RunOptions(output_partition_graphs=True), run_metadata=metadata)
        switcher = listener.engines[0].switcher()
        view = switcher.view()
        lies = {node.name: node.device for graph in metadata.partition_graphs for node in graph.node}
        for name in ("w", "w/Adam"):
            assert home(view, switcher.devices, view.nodes[name]) == lies[name] and lies[name].endswith("CPU:1")


def test_two_backward_passes_of_one_loss_move_as_one_where_they_are_summed() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [3, 2])
        a, b = (tf.get_variable(name, [2, 4], use_resource=True) for name in "ab")
        s = tf.matmul(x, a) * 0.6 + tf.matmul(x, b) * 1.2
        h = s
        for _ in range(2):
            h = tf.tanh(tf.matmul(tf.concat([s, h], 1), tf.ones([8, 4])))
        loss = tf.reduce_mean(tf.square(tf.concat([s, h], 1)))
        for one in (a, b):
            tf.gradients(loss, [one])
        view = view_of(graph)
    sums = [node.name for node in view.nodes.values() if node.op == "AddN" and len(node.inputs) > 2]
    assert len(sums) == 2
    ends = {"gradients/concat_2_grad/Slice", "gradients_1/concat_grad/Slice", "gradients/MatMul_3_grad/MatMul"}
    assert any({*sums, *ends} <= set(group) for group in classify(view).groups)
