"""Which ops may be given shapes that do not fit, as far as a graph says before it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

from stepd.hook.engine.fitting import may_not_fit, may_not_take  # noqa: E402
from stepd.hook.rewrite.shapes import static_shapes  # noqa: E402

pytestmark = pytest.mark.usefixtures("first_generation")


@pytest.fixture
def asked(viewed: Callable[[], Any]) -> Callable[..., tuple[int, ...]]:
    """What a question says of the op of a value."""

    def found(question: Callable[..., tuple[int, ...]], value: Any) -> tuple[int, ...]:
        op = value if isinstance(value, tf.Operation) else value.op
        with viewed() as view:
            return question(view, op.name, static_shapes(tf.get_default_graph()))

    return found


def given(*shape: int | None) -> Any:
    return tf.placeholder(tf.float32, shape)


def test_a_size_that_is_not_known_may_not_be_the_one_that_is(asked: Any) -> None:
    with tf.Graph().as_default():
        free, rows, fixed = given(None, None), given(None, 4), tf.ones([2, 4])
        for value in (
            free + fixed,
            tf.maximum(rows, fixed),
            tf.matmul(free, tf.ones([4, 2])),
            tf.matmul(fixed, free, transpose_b=True),
            tf.matmul(given(None, 2, 4), tf.ones([3, 4, 2])),
            tf.add_n([rows, fixed]),
            tf.stack([rows, fixed]),
            tf.einsum("ij,jk->ik", free, tf.ones([4, 3])),
            tf.nn.conv2d(given(None, 8, 8, None), tf.ones([3, 3, 4, 2]), padding="SAME"),
            tf.nn.depthwise_conv2d(given(None, None, 8, 8), tf.ones([3, 3, 4, 2]), [1] * 4, "SAME", data_format="NCHW"),
        ):
            assert asked(may_not_fit, value) == (0, 1), value
        assert asked(may_not_fit, tf.concat([free, fixed], 0)) == (0, 1, 2)
        assert asked(may_not_fit, tf.broadcast_to(free, [2, 4])) == (0, 1)
        tf.image.non_max_suppression(fixed, given(None), 2)
        (suppressed,) = (op for op in tf.get_default_graph().get_operations() if op.type.startswith("NonMax"))
        assert asked(may_not_fit, suppressed)


def test_layers_metrics_and_what_is_all_unknown_fit(asked: Any) -> None:
    with tf.Graph().as_default():
        rows, fixed, anything = given(None, 4), tf.ones([2, 4]), tf.placeholder(tf.float32)
        for value in (
            rows * 2.0,
            rows + tf.ones([4]),
            rows * given(None, 1),
            rows - given(None, 4),
            tf.matmul(rows, tf.ones([4, 3])),
            tf.concat([rows, fixed], 0),
            tf.concat([rows, given(None, 2)], -1),
            tf.einsum("ij,jk->ik", rows, tf.ones([4, 3])),
            tf.broadcast_to(given(1, 4), [2, 4]),
            tf.nn.conv2d(given(None, None, None, 4), tf.ones([3, 3, 2, 2]), padding="SAME"),  # in two groups
            tf.nn.conv2d(anything, tf.ones([3, 3, 4, 2]), padding="SAME"),
            anything + fixed,
            tf.equal(tf.argmax(rows, 1), tf.argmax(given(None, 9), 1)),
        ):
            assert asked(may_not_fit, value) == (), value


def test_what_stays_takes_its_own_shape_and_a_dense_table_no_key_of_its_own(asked: Any) -> None:
    with tf.Graph().as_default():
        free, ids = given(None, None), tf.placeholder(tf.int32, [None])
        kept = tf.get_variable("kept", [2, 4], use_resource=True)
        table = tf.lookup.experimental.MutableHashTable(tf.int32, tf.float32, [0.0] * 4)
        dense = tf.lookup.experimental.DenseHashTable(tf.int32, tf.int32, 0, empty_key=7, deleted_key=-1)
        gradients = tf.ConditionalAccumulator(tf.float32, [2, 4])
        assert asked(may_not_take, tf.assign(kept, free)) == (1,)
        assert asked(may_not_take, tf.assign_add(kept, free)) == (1,)
        assert asked(may_not_take, tf.assign_sub(kept, given(2, 4))) == ()
        assert asked(may_not_take, tf.assign(tf.get_variable("old", [2, 4], use_resource=False), free)) == (1,)
        assert asked(may_not_take, kept.assign(given(2, 4))) == ()
        assert asked(may_not_take, gradients.apply_grad(free)) == (2,)
        assert asked(may_not_take, gradients.apply_grad(given(2, 4))) == ()
        assert asked(may_not_take, table.insert(ids, free)) == (2,)
        assert asked(may_not_take, table.insert(ids, given(None, 4))) == ()
        assert asked(may_not_take, dense.insert(ids, ids)) == (1,)
        behind = tf.raw_ops.AssignAddVariableOp(resource=tf.identity(kept.handle), value=free)
        assert asked(may_not_take, behind) == ()  # of what shape the variable is is not looked up
