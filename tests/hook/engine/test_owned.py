"""State that is reached by roundabout ways is seen before a restart, or a copy, would lose or mistake it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stepd.hook.engine.classify import classify
from stepd.hook.engine.graphview import GraphView
from stepd.hook.engine.state import inventory

tf = pytest.importorskip("tensorflow.compat.v1")


def view_of(build: Callable[[], Any]) -> GraphView:
    with tf.Graph().as_default() as graph:
        build()
    return GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)


def made_in(way: str) -> None:
    handle = tf.raw_ops.IteratorV2(shared_name="one", container="", output_types=[tf.int64], output_shapes=[[]], name="iterator")
    data = tf.data.Dataset.range(3)._variant_tensor

    def make(handle: Any) -> Any:
        return tf.raw_ops.MakeIterator(dataset=data, iterator=handle)

    if way == "condition":
        tf.cond(tf.placeholder(tf.bool, []), lambda: tf.group(make(handle)), tf.no_op)
    elif way == "function":

        @tf.function
        def called(handle: Any) -> None:
            make(handle)

        called(handle)
    elif way == "name":
        make(tf.raw_ops.IteratorV2(shared_name="one", container="", output_types=[tf.int64], output_shapes=[[]]))
    else:
        make(handle)
    if way == "twice":
        make(tf.identity(handle))


@pytest.mark.parametrize("way", ["directly", "condition", "function", "name", "twice"])
def test_which_data_set_an_iterator_has_is_known_only_where_one_op_makes_it_directly(way: str) -> None:
    obstacles = inventory(view_of(lambda: made_in(way))).obstacles
    assert ("which one it has is not known" in " ".join(obstacles)) == (way == "twice")
    assert ("of which data set is not known" in " ".join(obstacles)) == (way in ("condition", "function", "name"))
    assert bool(obstacles) == (way != "directly")


@pytest.mark.parametrize("top", [False, True])
def test_a_variable_in_a_function_is_carried_only_as_one_of_the_graph(top: bool) -> None:
    def build() -> None:
        tf.function(lambda: tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="inner"))()
        if top:
            tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="inner")

    assert ("a variable that is nowhere else" in " ".join(inventory(view_of(build)).obstacles)) == (not top)


@pytest.mark.parametrize(("shrinks", "refused"), [("LookupTableImportV2", True), ("LookupTableInsertV2", False)])
def test_a_table_that_has_shrunk_is_not_read_in_another_order(shrinks: str, refused: bool) -> None:
    def build() -> None:
        one, other = (
            tf.raw_ops.MutableHashTableV2(key_dtype=tf.int64, value_dtype=tf.int64, shared_name="table") for _ in range(2)
        )
        some = tf.constant([1, 2], tf.int64)
        getattr(tf.raw_ops, shrinks)(table_handle=one, keys=some, values=some)
        tf.cond(
            tf.placeholder(tf.bool, []),
            lambda: tf.raw_ops.LookupTableExportV2(table_handle=other, Tkeys=tf.int64, Tvalues=tf.int64)[0],
            lambda: some,
        )

    assert any("reads the pairs of table" in each for each in inventory(view_of(build)).obstacles) == refused


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("called", [False, True])
def test_what_writes_into_a_constants_memory_keeps_every_step_where_it_is(copied: bool, called: bool) -> None:
    def write() -> Any:
        given = tf.constant([0.0, 0.0])
        given = tf.raw_ops.DeepCopy(x=given) if copied else given
        return tf.raw_ops.InplaceAdd(x=given, i=[0], v=[1.0])

    apart = classify(view_of(tf.function(write) if called else write)).apart
    assert ("writes into the memory" in apart) == (not copied)


@pytest.mark.parametrize("called", [False, True])
@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (lambda: tf.range(8), True),
        (lambda: tf.placeholder_with_default([1.0, 2.0], [2]), True),
        (lambda: tf.ones([3]) * 2.0, True),
        (lambda: tf.constant(3.0), False),  # Python is given a number
        (lambda: tf.constant(["a", "b"]), False),
        (lambda: tf.random_uniform([3]), False),
    ],
)
def test_a_constant_that_python_may_write_keeps_every_step_where_it_is(given: Any, kept: bool, called: bool) -> None:
    def shuffle() -> Any:
        values = given()
        return tf.numpy_function(lambda each: each, [values], values.dtype)

    apart = classify(view_of(tf.function(shuffle) if called else shuffle)).apart
    assert ("writes into the memory" in apart) == kept


def test_a_constant_that_python_may_write_in_what_is_called() -> None:
    """A function is given it; a data set's function takes it from outside; elements are no constants."""

    def called() -> None:
        tf.function(lambda x: tf.numpy_function(np.sort, [x], tf.float32))(tf.constant([2.0, 1.0]))

    def captured() -> None:
        order = tf.constant([2.0, 1.0])
        elements = tf.data.Dataset.from_tensor_slices(tf.ones([4, 2]))
        tf.data.make_initializable_iterator(elements.map(lambda x: tf.numpy_function(lambda a, b: a + b, [x, order], tf.float32)))

    def elements() -> None:
        elements = tf.data.Dataset.from_tensor_slices(tf.ones([4, 2]))
        tf.data.make_initializable_iterator(elements.map(lambda x: tf.numpy_function(np.sort, [x], tf.float32)))

    assert ["writes into the memory" in classify(view_of(build)).apart for build in (called, captured, elements)] == [
        True,
        True,
        False,
    ]


@pytest.mark.usefixtures("second_generation")
@pytest.mark.parametrize(
    ("swapped", "asked", "kept"),
    [
        (False, lambda i, one, other: i, False),
        (False, lambda i, one, other: one, True),
        (False, lambda i, one, other: one * 2.0, True),  # a constant, too, where the function is put inline
        (False, lambda i, one, other: other, False),
        (True, lambda i, one, other: other, True),  # in the second round
        (True, lambda i, one, other: tf.function(lambda x: x + 1.0)(other), True),
        (False, lambda i, one, other: tf.function(lambda x: x + 1.0)(other), False),
        (True, lambda i, one, other: tf.cond(i > 1, lambda: other, lambda: tf.random.uniform([3])), True),
    ],
)
def test_a_constant_that_a_loop_begins_with_may_not_come_to_python(swapped: bool, asked: Any, kept: bool) -> None:
    def loop() -> Any:
        def body(i: Any, one: Any, other: Any) -> Any:
            given = asked(i, one, other)
            drawn = tf.reshape(tf.numpy_function(lambda x: np.float32(np.sum(x)), [given], tf.float32), [])
            after = (one + drawn, other)
            return (i + 1, *(after[::-1] if swapped else after))

        return tf.while_loop(lambda i, *_: i < 3, body, [0, tf.constant([1.0, 2.0, 3.0]), tf.random.uniform([3])])

    assert ("writes into the memory" in classify(view_of(loop)).apart) == kept


def test_what_loses_writes_to_shared_memory_keeps_every_step_where_it_is() -> None:
    def draw() -> Any:
        return tf.random.Generator.from_seed(5).binomial([2], 5.0, [0.5, 0.3])

    assert "writes into the memory" in classify(view_of(draw)).apart


def test_what_a_function_of_a_data_set_owns_is_not_lost() -> None:
    def build() -> None:
        def count(x: Any) -> Any:
            table = tf.raw_ops.MutableHashTableV2(key_dtype=tf.int64, value_dtype=tf.int64, shared_name="inside")
            put = tf.raw_ops.LookupTableInsertV2(table_handle=table, keys=[x], values=[x])
            with tf.control_dependencies([put]):
                return tf.raw_ops.LookupTableSizeV2(table_handle=table)

        tf.data.make_initializable_iterator(tf.data.Dataset.range(5).map(count).map(lambda x: x + 1))

    assert "MutableHashTableV2 owns state" in " ".join(inventory(view_of(build)).obstacles)


@pytest.mark.parametrize(("seed", "deterministic", "apart"), [(0, True, True), (3, True, False), (0, False, False)])
def test_regions_that_are_drawn_once_are_not_drawn_again(seed: int, deterministic: bool, apart: bool) -> None:
    def pool() -> Any:
        x, ratio = tf.ones([1, 8, 8, 1]), [1.0, 1.4, 1.4, 1.0]
        given = {"deterministic": deterministic, "seed": seed, "seed2": seed, "pseudo_random": True}
        return tf.raw_ops.FractionalMaxPool(value=x, pooling_ratio=ratio, **given).output

    for build in (pool, tf.function(pool)):
        assert ("drawn when TensorFlow builds a step" in classify(view_of(build)).apart) == apart
