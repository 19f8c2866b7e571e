"""Which ops of a step may fail, so that the updates beside them come first: what looks at values, where sizes meet, functions."""

from __future__ import annotations

from typing import Any

import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

from stepd.hook.engine import failing  # noqa: E402
from stepd.hook.engine.failing import updates_first  # noqa: E402
from stepd.hook.engine.graphview import GraphView  # noqa: E402
from stepd.hook.engine.kinds import step_kind  # noqa: E402
from stepd.hook.rewrite.shapes import static_shapes  # noqa: E402

pytestmark = pytest.mark.usefixtures("first_generation")


UPDATE = "ResourceApplyGradientDescent"


def test_gradients_of_branches_fail_of_nothing_and_wait_for_nobody(pairs: Any, trained: Any) -> None:
    """They take what the branches have put by, by which other ops tell that data has ended."""
    tf.enable_control_flow_v2()
    try:
        with tf.Graph().as_default():
            x, n = tf.placeholder(tf.float32, [2, 3]), tf.placeholder(tf.int32, [])
            w = tf.get_variable("w", [3, 3], initializer=tf.ones_initializer(), use_resource=True)
            taken = tf.switch_case(n, [lambda: tf.matmul(x, w), lambda: tf.tanh(tf.matmul(x, w))])
            train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(taken))
            assert pairs(train, tf.raw_ops.Assert(condition=n < 3, data=[n])) == {(UPDATE, "Assert")}
            _, other = trained(tf.placeholder(tf.float32, [3]), "other")
            assert pairs(train, other, tf.raw_ops.Assert(condition=n < 3, data=[n])) == {(UPDATE, "Assert")}
    finally:
        tf.disable_control_flow_v2()


def test_a_value_that_a_check_refuses_may_be_of_the_right_size(pairs: Any) -> None:
    """Batches of unknown size may not fit; a check of what is in one fails of something else, one of sizes of the same."""
    with tf.Graph().as_default() as graph:
        x, y = tf.placeholder(tf.float32, [None, 4]), tf.placeholder(tf.float32, [None, 1])
        w = tf.get_variable("w", [4, 1], initializer=tf.ones_initializer(), use_resource=True)
        train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.square(tf.matmul(x, w) - y)))
        for check in (tf.reduce_sum(x) > 0, tf.reduce_min(x) * tf.reduce_min(y) > 0):
            asserted = tf.raw_ops.Assert(condition=check, data=[x])
            assert pairs(train, asserted, feeds=(x, y), shapes=static_shapes(graph)) == {(UPDATE, "Assert")}
        sizes = tf.raw_ops.Assert(condition=tf.equal(tf.shape(x)[0], tf.shape(y)[0]), data=[x])
        assert pairs(train, sizes, feeds=(x, y), shapes=static_shapes(graph)) == {(UPDATE, "Assert")}  # it can be asked afterwards
        drawn = tf.raw_ops.Assert(condition=tf.equal(tf.shape(x + tf.random.normal([]))[0], tf.shape(y)[0]), data=[x])
        assert pairs(train, drawn, feeds=(x, y), shapes=static_shapes(graph)) == set()


def test_a_look_up_in_a_table_neither_waits_nor_says_more_than_is_in_it(pairs: Any, following: Any) -> None:
    with tf.Graph().as_default():
        words = tf.placeholder(tf.string, [None])
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.range(2)), 1)
        embedding = tf.get_variable("embedding", [3, 4], use_resource=True)
        loss = tf.reduce_sum(tf.square(tf.nn.embedding_lookup(embedding, table.lookup(words))))
        train = tf.train.AdagradOptimizer(0.1).minimize(loss)
        apply = ("ResourceSparseApplyAdagrad", "IteratorGetNext")
        assert apply in pairs(train, following())
        assert ("ResourceSparseApplyAdagrad", "StringToNumber") in pairs(train, tf.strings.to_number(words), feeds=(words,))


def test_of_two_that_fail_of_the_same_the_first_is_heard_of(pairs: Any) -> None:
    """A check of labels beside a loss that looks at them, too; averages come before both."""
    with tf.Graph().as_default():
        x, y = tf.placeholder(tf.float32, [None, 3]), tf.placeholder(tf.int64, [None])
        w = tf.get_variable("w", [3, 3], initializer=tf.ones_initializer(), use_resource=True)
        h = tf.matmul(x, w)
        kept = tf.get_variable("kept", [3], use_resource=True).assign(tf.reduce_mean(h, 0))
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=h))
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
        check = tf.raw_ops.Assert(condition=tf.reduce_all(y < 3), data=[y])
        softmax = "SparseSoftmaxCrossEntropyWithLogits"
        found = pairs(train, kept, check, feeds=(x, y))
        assert found == {("AssignVariableOp", "Assert"), ("AssignVariableOp", softmax), (UPDATE, "Assert")}
        view = GraphView.parse(tf.get_default_graph().as_graph_def().SerializeToString(), lambda name: name)
        step = step_kind([x.name, y.name], [], [train.name, kept.op.name, check.name])
        (failed,) = (name for name, node in view.nodes.items() if node.op == softmax)
        assert failing.heard_before(view, step, failed, lambda *_: None) == [check.name]
        assert failing.heard_before(view, step, check.name, lambda *_: None) == []
        checks = [tf.raw_ops.Assert(condition=tf.reduce_all(y < k), data=[y]).name for k in (3, 4)]
        view = GraphView.parse(tf.get_default_graph().as_graph_def().SerializeToString(), lambda name: name)
        step = step_kind([x.name, y.name], [], [train.name, *checks])
        assert failing.heard_before(view, step, checks[1], lambda *_: None) == checks[:1]  # as deep, and made before it
        assert failing.heard_before(view, step, checks[0], lambda *_: None) == []
        other = tf.raw_ops.Assert(condition=tf.shape(x)[0] < 30, data=[tf.shape(x)])
        assert (UPDATE, "Assert") in pairs(train, other, feeds=(x, y))  # of another cause


def test_what_no_update_needs_may_fail_of_what_it_is_given(pairs: Any) -> None:
    """Slices, ranges, so many elements; in layers and gradients the same suit each other."""
    with tf.Graph().as_default() as graph:
        x, y, z = (tf.placeholder(tf.float32, shape) for shape in ([2, 4], [None], [None]))
        n, images = tf.placeholder(tf.int32, []), tf.placeholder(tf.float32, [None, 16])
        w = tf.get_variable("w", [4, 2], initializer=tf.ones_initializer(), use_resource=True)
        h = tf.slice(tf.matmul(x, w), [0, n], [2, 1])
        train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.square(h)))

        def waiting(value: Any) -> set[str]:
            found = pairs(train, value, feeds=(x, y, z, n, images), shapes=static_shapes(graph))
            return {end for update, end in found if update == UPDATE}

        assert waiting(tf.slice(x, [0, 0], [1, n])) == {"Slice"}
        assert waiting(tf.range(0, 5, n)) == {"Range"}
        assert waiting(tf.fill([n], 1.0)) == {"Fill"}
        assert waiting(tf.reshape(y, [2, -1])) == {"Reshape"}
        assert waiting(tf.reduce_sum(y + z)) == {"AddV2"}
        assert waiting(tf.constant(3) ** n) == {"Pow"}
        tagged = tf.raw_ops.ScalarSummary(tags=tf.strings.as_string(n), values=1.0)
        assert waiting(tf.summary.merge([tf.summary.scalar("one", 1.0), tagged])) == {"MergeSummary"}
        for fine in (
            h * 2.0,
            tf.summary.merge([tf.summary.scalar("two", tf.reduce_sum(h)), tf.summary.scalar("three", h[0, 0])]),
            tf.reshape(images, [-1, 4, 4, 1]),
            tf.reduce_mean(y, 0),
            tf.slice(x, [0, 0], [1, 1]),
            x ** tf.cast(n, tf.float32),
        ):
            assert waiting(fine) == set()


def test_sizes_meet_in_functions_too(pairs: Any, trained: Any) -> None:
    with tf.Graph().as_default() as graph:
        x, y, rows = (tf.placeholder(tf.float32, shape) for shape in ([3], [None, None], [2, 4]))
        _, train = trained(x)
        product = tf.function(lambda given: tf.matmul(given, tf.ones([4, 2])))
        shapes = static_shapes(graph)
        assert pairs(train, product(y), feeds=(x, y), shapes=shapes) == {(UPDATE, "PartitionedCall")}
        assert pairs(train, product(rows), feeds=(x, rows), shapes=shapes) == set()
        assert pairs(train, tf.function(tf.tanh)(y), feeds=(x, y), shapes=shapes) == set()


def test_functions_and_python_without_state_end_too(pairs: Any, trained: Any, following: Any) -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [3])
        _, train = trained(x)
        iterator = tf.data.make_initializable_iterator(tf.data.Dataset.range(3))
        called = tf.function(iterator.get_next)()
        assert pairs(train, called) == {(UPDATE, "StatefulPartitionedCall")}
        assert pairs(train, tf.py_func(lambda: 1.0, [], tf.float32, stateful=False)) == {(UPDATE, "PyFuncStateless")}
        assert pairs(train, called, iterator.get_next()) == set()  # who takes the first element?
        assert pairs(train, called, following()) == {(UPDATE, "StatefulPartitionedCall"), (UPDATE, "IteratorGetNext")}


def test_pure_functions_and_samplers_are_beside_as_anything_else(pairs: Any, trained: Any, following: Any) -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [3])
        _, train = trained(x)
        called = tf.function(lambda a: a * 2.0)(x)
        sampled = tf.random.log_uniform_candidate_sampler(tf.constant([[1]], tf.int64), 1, 2, True, 9)[0]
        assert pairs(train, called, sampled, following()) == {(UPDATE, "IteratorGetNext")}


def test_updates_come_before_look_ups_of_what_is_fed(pairs: Any) -> None:
    with tf.Graph().as_default():
        x, labels = tf.placeholder(tf.float32, [4, 3]), tf.placeholder(tf.int64, [4])
        w, mean = (tf.get_variable(name, [3, 3], use_resource=True) for name in ("w", "mean"))
        h = tf.matmul(x, w)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=h))
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
        averaged = mean.assign(tf.matmul(h, h, transpose_a=True)).op
        found = ("AssignVariableOp", "SparseSoftmaxCrossEntropyWithLogits")
        assert pairs(train, averaged, feeds=(x, labels)) == {found}
        assert pairs(train, averaged, feeds=(x,)) == {found}
        assert pairs(averaged, tf.gather(x, tf.constant([1, 2])), feeds=(x,)) == set()  # it cannot fail
        assert pairs(averaged, tf.gather(x, labels), feeds=(x, labels)) == {("AssignVariableOp", "GatherV2")}
        called = tf.function(lambda y: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=h))(labels)
        assert {end for _, end in pairs(averaged, called, feeds=(x, labels))} <= {"PartitionedCall", "StatefulPartitionedCall"}
        assert len(pairs(averaged, called, feeds=(x, labels))) == 1
        turned = tf.reverse_sequence(x, labels, 1)
        assert pairs(averaged, turned, feeds=(x, labels)) == {("AssignVariableOp", "ReverseSequence")}
        again = tf.train.GradientDescentOptimizer(0.1).minimize(tf.nn.l2_loss(tf.reverse_sequence(h, labels, 1)), var_list=[w])
        assert pairs(again, averaged, feeds=(x, labels)) == {("AssignVariableOp", "ReverseSequence")}  # and not its gradient
        table = tf.get_variable("table", [9, 3], use_resource=True)
        looked_up = tf.nn.embedding_lookup(table, labels)
        other = tf.train.GradientDescentOptimizer(0.1).minimize(tf.nn.l2_loss(looked_up), var_list=[table])
        # Of two trainings that look something up the one that does so later waits for the other.
        assert pairs(train, other, feeds=(x, labels)) == {("ResourceScatterAdd", "SparseSoftmaxCrossEntropyWithLogits")}


def test_updates_come_before_two_batches_meet_and_gradients_after(pairs: Any) -> None:
    with tf.Graph().as_default() as graph:
        x, y = (tf.placeholder(tf.float32, [None, 3]) for _ in range(2))
        w, mean = (tf.get_variable(name, [3, 3], use_resource=True) for name in ("w", "mean"))
        h = tf.matmul(x, w)
        averaged = mean.assign(tf.matmul(h, h, transpose_a=True)).op
        train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(tf.square(h - y)))
        found = {("AssignVariableOp", "Sub"), ("Sub", "BroadcastGradientArgs")}
        assert pairs(train, averaged, feeds=(x, y)) == found
        assert pairs(train, averaged, feeds=(x, y), shapes=static_shapes(graph)) == found  # shapes that are known, of unknown ones
        rate = tf.placeholder(tf.float32, [])
        assert pairs(averaged, h - rate, feeds=(x, rate)) == set()
        assert pairs(averaged, h - tf.tanh(h), feeds=(x,)) == set()


def test_of_two_guarded_asserts_both_come_late() -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [])
        v = tf.get_variable("v", [], use_resource=True)
        update = v.assign_add(tf.exp(x)).op
        values = x
        for name in ("first", "second"):
            with tf.control_dependencies([tf.Assert(values < 5.0, [values], name=name)]):
                values = tf.identity(values)
        view = GraphView.parse(tf.get_default_graph().as_graph_def().SerializeToString(), lambda name: name)
        found = updates_first(view, step_kind([x.name], [values.name], [update.name]))
        assert {end.split("/")[0] for _, end in found} == {"first", "second"}  # the first may not run where the second does


def test_of_too_many_pairs_the_end_of_data_counts_first(
    pairs: Any, trained: Any, monkeypatch: pytest.MonkeyPatch, following: Any
) -> None:
    """Or a large net would lose what its last step of each round over the data has trained."""
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [3])
        _, train = trained(x)
        checks = [tf.check_numerics(tf.log(x + float(k)), "") for k in range(4)]
        step = (train, *checks, following())
        assert pairs(*step) == {(UPDATE, "IteratorGetNext"), (UPDATE, "CheckNumerics")}
        monkeypatch.setattr(failing, "_MOST", 1)
        assert pairs(*step) == {(UPDATE, "IteratorGetNext")}


def test_what_refuses_its_data_is_beside_and_floats_are_not(pairs: Any, trained: Any) -> None:
    with tf.Graph().as_default():
        x, n, y = tf.placeholder(tf.float32, [3]), tf.placeholder(tf.int32, []), tf.placeholder(tf.float32, [])
        _, train = trained(x)
        values = tf.placeholder(tf.float32, None)
        assert pairs(train, tf.summary.histogram("values", values), feeds=(x, values)) == {(UPDATE, "HistogramSummary")}
        assert pairs(train, 100 // n, feeds=(x, n)) == {(UPDATE, "FloorDiv")}
        assert pairs(train, tf.ensure_shape(values, [3]), feeds=(x, values)) == {(UPDATE, "EnsureShape")}
        assert not pairs(train, 100.0 // y, feeds=(x, y))
