"""Whose name an error says that comes out of a function: that of a call that stays one, not of what is put inline."""

from __future__ import annotations

from typing import Any

import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

from tensorflow.python.framework import function  # noqa: E402
from tensorflow.python.ops import control_flow_util  # noqa: E402

from stepd.hook.engine import hidden  # noqa: E402
from stepd.hook.engine.graphview import GraphView  # noqa: E402


def named(made: Any) -> set[str]:
    """The types of the ops of a graph whose names an error of a check in a function says."""
    with tf.Graph().as_default() as graph:
        made(tf.placeholder(tf.float32, []))
    view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    checks = {each.name for body in view.functions.values() for each in body.node_def if each.op == "CheckNumerics"}
    assert checks
    return {node.op for node in view.nodes.values() for check in checks if hidden._has(view, node, check)}


def check(x: Any) -> Any:
    return tf.check_numerics(tf.log(x), "log")


def test_a_function_that_stays_a_call_is_named_and_what_is_put_inline_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_flow_util, "ENABLE_CONTROL_FLOW_V2", True)
    (caller,) = named(tf.function(check))
    assert caller in ("PartitionedCall", "StatefulPartitionedCall")
    assert named(lambda x: tf.cond(x > 0.0, lambda: check(x), lambda: x)) == set()
    assert named(lambda x: tf.while_loop(lambda y: y < 9.0, lambda y: check(y) + 9.0, [x])) == set()
    assert named(function.Defun(tf.float32, func_name="checked")(check)) == set()
    assert named(function.Defun(tf.float32, func_name="apart", noinline=True)(check)) == {"apart"}
