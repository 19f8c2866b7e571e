"""Sums of terms: added up in any shape they are what they were, beside the parts that they come from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from split_harness import assert_same, copied, facts_of
from split_models import Data
from split_training import replicated, train_both

from stepd.hook.model import Split
from stepd.hook.rewrite.chosen import choose
from stepd.hook.rewrite.emit import split_nodes
from stepd.hook.rewrite.sums import by_names

TREE = (0, 0, 0, 2)
STARS = (0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3)
RING = (1, 2, 3, 3, 0, 2, 3, 0, 1, 1, 3, 0, 1, 2, 2, 0)
TWO_ENDS = (0, 0, 2, 2, 1, 1, 3, 3)
SHAPES = {"tree": TREE, "slices": STARS, "ring": RING, "two ends": TWO_ENDS}
TASK = "/job:w/replica:0/task:"
DEVICES = [f"{TASK}{t}/device:CPU:{k}" for t, k in ((0, 0), (0, 1), (1, 0), (1, 1))]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("model", "late"), [("mlp", False), ("lstm", True)])
def test_gradients_in_any_shape_teach_the_same(model: str, late: bool, shape: str) -> None:
    both = train_both(model, Data(np.float64, 6, late=late), 4, replicated((1, 1, 2, 1), SHAPES[shape]))
    assert both.difference < 1e-10 and not both.refused
    sums = [node for node in both.nodes if node.op == "AddN" and "-sum" in node.name]
    assert len(sums) > 4 and all(2 <= len(node.input) <= 4 for node in sums)
    if shape != "tree":
        assert sum("-slices" in node.name for node in both.nodes) > 4


def product(rows: int | None, columns: int | None, dtype: Any) -> tuple[Any, Any, Any]:
    a, b = tf.placeholder(dtype, [rows, 8], name="a"), tf.placeholder(dtype, [8, columns], name="b")
    return a, b, tf.matmul(a, b, name="product")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("dtype", [tf.float64, tf.float32, tf.float16, tf.int32])
def test_a_sum_has_its_value_and_shape(dtype: Any, known: bool, shape: str) -> None:
    with tf.Graph().as_default() as graph:
        a, b, whole = product(*((3, 5) if known else (None, None)), dtype)
    facts = facts_of(graph)
    chosen, refused = choose(facts, [Split("product", "inner", 4, (), (1, 2, 1, 4), SHAPES[shape])])
    assert refused == {}
    definition = graph.as_graph_def()
    definition.node.extend(split_nodes(facts, copied(facts, ["product"], "stepd_1"), chosen, "stepd_1"))
    random = np.random.RandomState(0)
    sizes = [(3, 5), (16, 32)] if not known else [(3, 5)]
    with tf.Graph().as_default() as together:
        tf.import_graph_def(definition, name="")
        with tf.Session(graph=together) as session:
            for rows, columns in sizes:
                fed = {a.name: random.randint(-9, 9, (rows, 8)), b.name: random.randint(-9, 9, (8, columns))}
                expected, got = session.run([whole.name, "product-stepd_1:0"], fed)
                assert_same(expected, got, shape)


def test_sums_are_made_where_their_first_term_is() -> None:
    with tf.Graph().as_default() as graph:
        product(4, 4, tf.float32)
    facts = facts_of(graph)
    chosen, _ = choose(facts, [Split("product", "inner", 4, tuple(DEVICES), (), TREE)])
    made = split_nodes(facts, copied(facts, ["product"], "c"), chosen, "c")
    sums = {node.name: (node.device, list(node.input)) for node in made if node.op == "AddN"}
    assert sums == {
        "product-c-join0-sum0x2-all": (DEVICES[2], ["product-c-part2", "product-c-part3"]),
        "product-c-join0-sum0x0-all": (DEVICES[0], ["product-c-part0", "product-c-join0-sum0x2-all", "product-c-part1"]),
    }
    ring, _ = choose(facts, [Split("product", "inner", 4, tuple(DEVICES), (), RING)])
    made = split_nodes(facts, copied(facts, ["product"], "c"), ring, "c")
    assert [sum(node.op == "AddN" and node.device == device for node in made) for device in DEVICES] == [3, 3, 3, 3]


@pytest.mark.parametrize(
    ("axis", "into", "why"),
    [
        ("inner", (0, 1, 2), "4 numbers below 4 for each slice"),
        ("inner", (0, 1, 2, 4), "4 numbers below 4 for each slice"),
        ("inner", (1, 0, 2, 3), "in a circle"),
        ("0", TREE, "joined, not added up"),
    ],
)
def test_what_is_no_way_to_add_up_is_refused(axis: str, into: tuple[int, ...], why: str) -> None:
    with tf.Graph().as_default() as graph:
        product(4, 4, tf.float32)
    chosen, refused = choose(facts_of(graph), [Split("product", axis, 4, (), (), into)])
    assert chosen == {} and why in refused["product"]


def test_devices_names_make_a_tree_near_ones_first() -> None:
    assert by_names([*DEVICES, DEVICES[0]]) == (0, 0, 2, 2, 0)
    assert by_names(DEVICES[:2]) == (0, 1)
    assert by_names(DEVICES[:3]) == (0, 0, 2)
    assert by_names([f"{TASK}{t}/device:GPU:{k}" for t in range(2) for k in range(4)]) == (0, 0, 0, 2, 4, 4, 4, 6)
