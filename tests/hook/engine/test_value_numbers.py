"""What has the same value number, and what has not."""

from __future__ import annotations

import functools
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepd.hook.engine import names
from stepd.hook.engine.value_numbers import Numbers, numbered

tf = pytest.importorskip("tensorflow.compat.v1")

from tensorflow.core.framework import graph_pb2  # noqa: E402

OPS = st.lists(st.tuples(st.sampled_from("mmaanti"), st.integers(0, 30), st.integers(0, 30)), min_size=2, max_size=20)


def drawn(ops: list[tuple[str, int, int]], start: float = 2.0) -> graph_pb2.GraphDef:
    """A graph of these ops on a placeholder and a constant of the value `start`."""
    with tf.Graph().as_default() as graph:
        values = [tf.placeholder(tf.float32, [4], name="x"), tf.constant(start, name="c")]
        for kind, one, other in ops:
            a, b = values[one % len(values)], values[other % len(values)]
            made = {"m": lambda a, b: a * b, "a": lambda a, b: a + b, "n": lambda a, b: tf.add_n([a + b, a + b, a * b]),
                    "t": lambda a, b: tf.tanh(a), "i": lambda a, b: tf.identity(a)}  # fmt: skip
            values.append(made[kind](a, b))
        return graph.as_graph_def()


def user_name(name: str) -> str:
    return names.user_text(name, {})


def elsewhere(graph: graph_pb2.GraphDef, seed: int) -> graph_pb2.GraphDef:
    """The same in another order, by other names, on other devices, and by way of ops that only hand on."""
    choose, made = random.Random(seed), graph_pb2.GraphDef()
    for node in choose.sample(list(graph.node), len(graph.node)):
        one = made.node.add()
        one.CopyFrom(node)
        one.name, one.device = f"{node.name}-stepd_3", f"/device:CPU:{choose.randrange(2)}"
        one.attr["_apart"].s = b"anything"
        for k, source in enumerate(node.input):
            one.input[k] = source.replace(":", "-stepd_3:") if ":" in source else f"{source}-stepd_3"
            if choose.random() < 0.3:
                handing = made.node.add(name=f"{node.name}-stepd_3-t{k}", op="StopGradient", input=[one.input[k]])
                handing.attr["T"].type = node.attr["T"].type
                one.input[k] = handing.name
    return made


@settings(max_examples=80, deadline=None)
@given(OPS, st.integers(0, 1 << 30))
def test_names_devices_and_order_do_not_count(ops: list[tuple[str, int, int]], seed: int) -> None:
    graph = drawn(ops)
    here, there = numbered(graph, user_name), numbered(elsewhere(graph, seed), user_name)
    for node in graph.node:
        assert here.value(node.name, 0) == there.value(f"{node.name}-stepd_3", 0)
    assert here.effects == there.effects


@settings(max_examples=80, deadline=None)
@given(OPS)
def test_another_constant_is_seen_in_all_that_is_made_of_it(ops: list[tuple[str, int, int]]) -> None:
    graph = drawn(ops)
    here, there = numbered(graph, user_name), numbered(drawn(ops, start=3.0), user_name)
    made_of = {"c"}
    for node in graph.node:  # in the order in which they were made
        if not made_of.isdisjoint(node.input):
            made_of.add(node.name)
        assert (here.value(node.name, 0) != there.value(node.name, 0)) == (node.name in made_of)


def numbers_of(build: Any) -> tuple[Numbers, list[str]]:
    with tf.Graph().as_default() as graph:
        found = [value.op.name for value in build(*(tf.placeholder(tf.float32, [4], name=name) for name in "xyz"))]
        return numbered(graph.as_graph_def(), user_name), found


def test_the_order_of_two_does_not_count_but_that_of_three() -> None:
    numbers, (one, other, by_n) = numbers_of(lambda x, y, z: [x + y, y + x, tf.add_n([x, y])])
    assert numbers.value(one, 0) == numbers.value(other, 0) == numbers.value(by_n, 0)
    numbers, (one, other) = numbers_of(lambda x, y, z: [(x * y) * z, x * (y * z)])
    assert numbers.value(one, 0) != numbers.value(other, 0)
    numbers, (one, turned, nested, other) = numbers_of(
        lambda x, y, z: [tf.add_n([x, y, z]), tf.add_n([y, x, z]), z + (x + y), tf.add_n([y, z, x])]
    )
    assert numbers.value(one, 0) == numbers.value(turned, 0) == numbers.value(nested, 0) != numbers.value(other, 0)
    numbers, (one, other) = numbers_of(lambda x, y, z: [tf.add_n([x, x, y]), 2.0 * x + y])
    assert numbers.value(one, 0) == numbers.value(other, 0)
    numbers, (one, other) = numbers_of(lambda x, y, z: [tf.exp(tf.reshape(x, [2, 2])), tf.reshape(tf.exp(x), [2, 2])])
    assert numbers.value(one, 0) == numbers.value(other, 0)
    numbers, (one, other, still) = numbers_of(
        lambda x, y, z: [
            tf.cast(tf.transpose([x, y]), tf.int32),
            tf.transpose(tf.cast([x, y], tf.int32)),
            tf.cast([x, y], tf.int32),
        ]
    )
    assert numbers.value(one, 0) == numbers.value(other, 0) != numbers.value(still, 0)
    numbers, (one, other, by_two, by_three) = numbers_of(lambda x, y, z: [x + x, tf.add_n([x, x]), 2.0 * x, x * 3.0])
    assert numbers.value(one, 0) == numbers.value(other, 0) == numbers.value(by_two, 0) != numbers.value(by_three, 0)
    numbers, (one, other) = numbers_of(lambda x, y, z: [x - y, y - x])
    assert numbers.value(one, 0) != numbers.value(other, 0)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_a_kernel_adds_up_to_nine_as_if_two_by_two(dtype: str) -> None:
    """What the numbers of sums stand on."""
    chosen, config = np.random.RandomState(4), tf.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True  # it makes one AddN of a chain
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        for count in range(2, 10):
            terms = [tf.cast(chosen.randn(257) * 10 ** chosen.uniform(-2, 2), dtype) for _ in range(count)]
            one, other = session.run([tf.add_n(terms), functools.reduce(tf.add, terms)])
            assert one.tobytes() == other.tobytes(), count


@pytest.mark.parametrize("v2", [False, True])
def test_what_a_loop_or_a_branch_does_counts(v2: bool) -> None:
    def of(factor: float) -> Numbers:
        with tf.Graph().as_default() as graph:
            (tf.enable_control_flow_v2 if v2 else tf.disable_control_flow_v2)()
            try:
                x = tf.placeholder(tf.float32, [], name="x")
                looped = tf.while_loop(lambda i: i < 9.0, lambda i: i * factor, [x])
                tf.cond(x > 0.0, lambda: looped + factor, lambda: looped)
            finally:
                tf.disable_control_flow_v2()
            return numbered(graph.as_graph_def(), user_name)

    assert (of(2.0).effects, sorted(of(2.0).of.values())) == (of(2.0).effects, sorted(of(2.0).of.values()))
    different = of(2.0), of(3.0)
    assert different[0].effects != different[1].effects or set(different[0].of.values()) != set(different[1].of.values())
    if not v2:
        assert different[0].effects != different[1].effects  # what goes on to the next round


def test_whose_state_it_is_counts_and_what_is_drawn() -> None:
    with tf.Graph().as_default() as graph:
        one, other = (tf.get_variable(name, [4], use_resource=True) for name in ("one", "other"))
        reads = [(v + 1.0).op.name for v in (one, other)]
        draws = [tf.random.uniform([4], seed=7).op.name for _ in range(2)]
        tf.assign(one, other)
        numbers = numbered(graph.as_graph_def(), user_name)
    assert numbers.value(reads[0], 0) != numbers.value(reads[1], 0)
    assert numbers.value(draws[0], 0) != numbers.value(draws[1], 0)
    assert numbers.of["Assign" if "Assign" in numbers.of else "AssignVariableOp"] in numbers.effects


def test_lists_of_zeros_are_like_what_they_are_made_of() -> None:
    def build(x: Any, y: Any, z: Any) -> list[Any]:
        return [tf.zeros_like(tf.raw_ops.TensorListFromTensor(tensor=t, element_shape=-1)) for t in (x, y, x)]

    numbers, (one, other, again) = numbers_of(build)
    assert numbers.value(one, 0) == numbers.value(again, 0) != numbers.value(other, 0)


def test_what_only_reads_or_holds_anyway_has_no_effect() -> None:
    with tf.Graph().as_default() as graph:
        rows = tf.get_variable("rows", [4, 2], initializer=tf.zeros_initializer(), use_resource=True)
        tf.gather(rows, [1, 2])
        tf.gather_nd(rows, [[1, 1]])
        tf.raw_ops.Assert(condition=tf.constant(True), data=["holds"])
        numbers = numbered(graph.as_graph_def(), user_name)
        assert "ResourceGather" in {node.op for node in graph.as_graph_def().node}
        failing = tf.raw_ops.Assert(condition=tf.placeholder(tf.bool, []), data=["may not"]).name
        with_another = numbered(graph.as_graph_def(), user_name)
    written = {numbers.of["rows/Assign"]}
    assert set(numbers.effects) == written
    assert set(with_another.effects) == written | {with_another.of[failing]}


def joined(loop: bool = False, hand_on: bool = False, wait: bool = False, device: str = "/device:CPU:0") -> bytes:
    """The number of a bias's gradient beside that of a filter, of the same gradient or one that an op hands on."""
    graph = graph_pb2.GraphDef()
    for name, op, *inputs in (
        ("g", "Placeholder"), ("x", "Placeholder"), ("sizes", "Placeholder"), ("handed", "Identity", "g"), ("waited", "NoOp"),
        ("filter", "Conv2DBackpropFilter", "x", "sizes", "handed" if hand_on else "g", *(["^waited"] if wait else [])),
        ("bias", "BiasAddGrad", "g"), *([("entered", "Enter", "x")] if loop else []),
    ):  # fmt: skip
        node = graph.node.add(name=name, op=op, input=inputs, device=device)
        node.attr["T"].type = node.attr["dtype"].type = tf.float32.as_datatype_enum
    graph.node[1].device = "/device:CPU:0"
    return numbered(graph, user_name).of["bias"]


def test_a_bias_with_whose_gradient_a_filters_is_one_kernel_is_another() -> None:
    assert joined() not in (joined(hand_on=True), joined(wait=True))
    assert joined(hand_on=True) == joined(wait=True)  # two kernels in both
    assert joined() == joined(device="/device:CPU:1")
    assert joined(loop=True) != joined(loop=True, device="/device:CPU:1")  # what comes from elsewhere in a loop may be waited for
    assert joined(device="/device:GPU:0") == joined(device="/device:GPU:0", hand_on=True)
