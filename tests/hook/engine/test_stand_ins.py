"""Who waits for an op that a strategy has put elsewhere waits for a stand-in beside it, and for that alone."""

from __future__ import annotations

from typing import Any

import pytest

from stepd.hook.engine.copy import copied_nodes
from stepd.hook.engine.graphview import GraphView

tf = pytest.importorskip("tensorflow.compat.v1")


def waits(moved: dict[str, str], homes: dict[str, str] | None = None, stays: bool = True) -> dict[str, list[str]]:
    """Node of the copy -> what it waits for, where two constants and a NoOp wait for "loss", which Grappler leaves in its step
    (`stays`) or not."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4], name="x")
        loss = tf.debugging.check_numerics(x, "no loss", name="loss") if stays else tf.reduce_mean(x, name="loss")
        with tf.control_dependencies([loss]):
            one, two = tf.constant(1.0, name="one"), tf.constant(2.0, name="two")
            tf.add(tf.multiply(x, one), two, name="sum")
            tf.no_op("barrier")
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    homes = homes or {}

    def home(name: str) -> str:
        return homes.get(name, "a")

    def device(name: str) -> str:
        return moved.get(name) or home(name)

    nodes: list[Any] = copied_nodes(view, list(view.nodes), {}, "stepd_1", moved, device=device, home=home)
    return {node.name: [name for name in node.input if name.startswith("^")] for node in nodes}


def test_there_is_one_stand_in_for_each_device_that_plainly_is_the_ops_own() -> None:
    found = waits({"loss": "b", "two": "c"})
    there, elsewhere = "loss-stepd_1-there0", "loss-stepd_1-there1"
    assert found["one-stepd_1"] == [f"^{there}"]
    assert found["two-stepd_1"] == [f"^{elsewhere}"]
    assert found[f"{there}-given"] == found[f"{elsewhere}-given"] == found["barrier-stepd_1"] == ["^loss-stepd_1"]


def test_what_goes_from_the_step_takes_its_stand_in_along() -> None:
    """It is read for nobody, so that a wait is made of it: for what the op itself waited for, where nobody else reads that."""
    found = waits({"loss": "b"}, stays=False)
    assert found["one-stepd_1"] == found["two-stepd_1"] == ["^loss-stepd_1-there0"]
    assert found["loss-stepd_1-there0"] == found["loss-stepd_1"] == []
    assert "loss-stepd_1-there0-given" not in found


def test_there_is_none_where_the_program_has_them_apart_or_they_stay_together() -> None:
    for found in (
        waits({}),
        waits({"loss": "b", "one": "b", "two": "b", "sum": "b", "Mul": "b"}),
        waits({"loss": "b"}, {"loss": "c"}),
    ):
        assert not [name for name in found if "there" in name]
        assert found["one-stepd_1"] == ["^loss-stepd_1"]


def test_twins_have_one_stand_in_for_both() -> None:
    """Grappler makes one of two equal constants where they wait for one op, and none of two stand-ins."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4], name="x")
        for name in ("first", "second"):
            with tf.control_dependencies([tf.exp(x, name=f"{name}_loss")]):
                tf.add(tf.constant(1.0, name=f"{name}_one"), x, name=f"{name}_sum")
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    moved = {f"{name}_{op}": "b" for name in ("first", "second") for op in ("one", "sum")}
    nodes: list[Any] = copied_nodes(
        view, list(view.nodes), {}, "stepd_1", moved, device=lambda name: moved.get(name, "a"), home=lambda _: "a"
    )
    found = {node.name: list(node.input) for node in nodes}
    assert found["first_one-stepd_1"] == found["second_one-stepd_1"] == ["^first_loss-stepd_1-there0"]
