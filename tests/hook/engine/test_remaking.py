"""A session stays where it is when a new one would make other data sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

from stepd.hook.engine import state  # noqa: E402
from stepd.hook.engine.graphview import GraphView  # noqa: E402


def obstacles(make: Callable[[], Any], one_shot: bool = False) -> tuple[str, ...]:
    with tf.Graph().as_default() as graph:
        if one_shot:
            tf.data.make_one_shot_iterator(make()).get_next()
        else:
            tf.data.make_initializable_iterator(make()).get_next()
        found = state.inventory(GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)).obstacles
    return tuple(why for why in found if "by which name" not in why)  # a program could have asked for it


def counter() -> Any:
    return tf.get_variable("counter", [], tf.int64, initializer=tf.zeros_initializer(), use_resource=True)


def words() -> Any:
    pairs = tf.lookup.KeyValueTensorInitializer(np.arange(4), np.arange(4) + 7)
    return tf.lookup.StaticHashTable(pairs, -1)


def changing_table() -> Any:
    return tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)


SOURCES: dict[str, Callable[[], Any]] = {
    "counter/Read": lambda: counter().read_value(),
    "random_uniform": lambda: tf.random_uniform([6], seed=3),
    "PyFunc": lambda: tf.py_func(lambda: np.arange(3), [], tf.int64),
    "_lookup_table_find": lambda: changing_table().lookup(tf.constant([1, 2], tf.int64)),
    "words": lambda: words().lookup(tf.constant([1, 2], tf.int64)),  # made again before the table is filled
    "MatchingFiles": lambda: tf.io.matching_files("part*.txt"),
    "fifo_queue_Dequeue": lambda: tf.FIFOQueue(9, tf.int64, shapes=[[3]]).dequeue(),
    "IteratorGetNext": lambda: tf.data.make_initializable_iterator(tf.data.Dataset.range(9).batch(3)).get_next(),
}


@pytest.mark.parametrize("source", SOURCES)
def test_what_a_data_set_was_made_of_may_have_changed(source: str) -> None:
    found = obstacles(lambda: tf.data.Dataset.from_tensors(SOURCES[source]()))
    assert any("was made with what" in why for why in found)


def test_a_one_shot_iterators_own_ops_count_too() -> None:
    (why,) = obstacles(lambda: tf.data.Dataset.from_tensors(tf.io.matching_files("part*.txt")), one_shot=True)
    assert "MatchingFiles" in why


def of_parts(kind: str, inner: Callable[[Any], Any]) -> Any:
    def part(x: Any) -> Any:
        return tf.data.Dataset.from_tensors(inner(x)).repeat(3)

    data = tf.data.Dataset.range(6)
    return data.flat_map(part) if kind == "flat_map" else data.interleave(part, cycle_length=2, block_length=1)


@pytest.mark.parametrize("kind", ["flat_map", "interleave"])
@pytest.mark.parametrize(
    ("owner", "read"), [(counter, lambda v, x: v.read_value() + x), (changing_table, lambda table, x: table.lookup(x))]
)
def test_parts_that_were_made_with_what_changes(kind: str, owner: Callable[[], Any], read: Callable[[Any, Any], Any]) -> None:
    def make() -> Any:
        owned = owner()
        return of_parts(kind, lambda x: read(owned, x))

    (why,) = obstacles(make)
    assert "may make the part of a data set that it is in again" in why


def test_data_sets_that_are_the_same_again_are_no_obstacle() -> None:
    """Constants, words that never change, and what single elements read when they come."""

    def make() -> Any:
        table, variable = words(), counter()
        parts = of_parts("flat_map", table.lookup)
        data = tf.data.Dataset.zip((parts, tf.data.TFRecordDataset(["a", "b"])))
        return data.map(lambda x, record: (x + variable.read_value(), record)).shuffle(5, seed=2).batch(2)

    assert obstacles(make) == ()
    assert obstacles(lambda: tf.data.Dataset.from_tensor_slices(tf.range(4) * 2).repeat(), one_shot=True) == ()
