"""What is fed and cut comes in where the program is; what is small, needed whole or needed by others stays."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf
from split_harness import facts_of

from stepd.hook.model import Split
from stepd.hook.rewrite.chosen import choose
from stepd.hook.rewrite.feeds import fed_at

DEVICES = ("/job:localhost/replica:0/task:0/device:CPU:0", "/job:localhost/replica:0/task:1/device:CPU:0")
TRAINER = "/job:localhost/replica:0/task:2/device:CPU:0"


def fed(graph: Any, ops: dict[str, str], devices: tuple[str, ...] = DEVICES, **others: Any) -> dict[str, str]:
    """What is fed elsewhere when `ops` (op -> axis) are in parts."""
    facts = facts_of(graph)
    chosen, refused = choose(facts, [Split(op, axis, 2, devices) for op, axis in ops.items()])
    assert refused == {}
    return fed_at(facts, chosen, TRAINER, **others)


def layer(rows: int | None, columns: int) -> Any:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [rows, columns], name="x")
        y = tf.matmul(x, tf.ones([columns, 4]), name="y")
        tf.raw_ops.Shape(input=x, name="size")
        tf.identity(y, name="read")
    return graph


def test_a_feed_that_is_cut_comes_in_at_the_trainer_with_those_that_ask_for_its_size() -> None:
    expected = {"x": TRAINER, "size": TRAINER}
    assert fed(layer(512, 64), {"y": "0"}) == fed(layer(None, 512), {"y": "0"}) == expected
    assert fed(layer(512, 64), {"y": "0"}, fixed={"size"}) == {"x": TRAINER}


def test_a_feed_stays_that_is_small_or_needed_whole_or_by_what_no_copy_has() -> None:
    assert fed(layer(16, 64), {"y": "0"}) == {}
    assert fed(layer(512, 64), {"y": "1"}) == {}
    assert fed(layer(512, 64), {"y": "0"}, devices=(DEVICES[0],) * 2) == {}
    assert fed(layer(512, 64), {"y": "0"}, held={"size"}) == {}
    assert fed(layer(512, 64), {"y": "0"}, fixed={"x"}) == {}
    assert fed(layer(512, 64), {"read": "0"}) == {}


def test_a_feed_stays_where_the_program_asks_for_it() -> None:
    with tf.Graph().as_default() as graph, tf.device("/cpu:0"):
        tf.matmul(tf.placeholder(tf.float32, [512, 64]), tf.ones([64, 4]), name="y")
    assert fed(graph, {"y": "0"}) == {}
