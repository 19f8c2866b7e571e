"""Which updates of a step come before what may fail in it, and where that would show in something else than the error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

from stepd.hook.engine import failing  # noqa: E402
from stepd.hook.engine.failing import updates_first  # noqa: E402
from stepd.hook.engine.graphview import GraphView  # noqa: E402
from stepd.hook.engine.kinds import step_kind  # noqa: E402
from stepd.hook.rewrite.shapes import static_shapes  # noqa: E402

pytestmark = pytest.mark.usefixtures("first_generation")


def as_they_are(view: GraphView) -> dict[str, bytes]:
    return {name: node.proto.SerializeToString(deterministic=True) for name, node in view.nodes.items()}


def pairs(*targets: Any, feeds: tuple[Any, ...] = (), shapes: Any = lambda *_: None) -> set[tuple[str, str]]:
    """(op type of the update, of what may fail) of a step."""
    graph = tf.get_default_graph()
    view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    names = [each.name if isinstance(each, tf.Operation) else each.op.name for each in targets]
    before = as_they_are(view)
    found = updates_first(view, step_kind([feed.name for feed in feeds], [], names), shapes=shapes)
    assert as_they_are(view) == before  # an attribute that is asked for where there is none would be there from now on
    return {(view.nodes[update].op, view.nodes[end].op) for update, end in found}


def trained(x: Any, name: str = "w") -> tuple[Any, Any]:
    """A variable and a step that trains it on `x`."""
    w = tf.get_variable(name, [3], initializer=tf.ones_initializer(), use_resource=True)
    return w, tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.square(x * w)))


UPDATE = "ResourceApplyGradientDescent"


def following() -> Any:
    return tf.data.make_one_shot_iterator(tf.data.Dataset.range(3)).get_next()


def test_training_comes_before_the_end_of_other_data_and_before_checks() -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [3])
        _, train = trained(x)
        queue = tf.FIFOQueue(3, tf.float32, [[]])
        assert pairs(train, following()) == {(UPDATE, "IteratorGetNext")}
        assert pairs(train, queue.dequeue()) == {(UPDATE, "QueueDequeueV2")}
        assert pairs(train, tf.py_func(lambda: 1.0, [], tf.float32)) == {(UPDATE, "PyFunc")}
        assert pairs(train, tf.check_numerics(tf.log(x), "")) == {(UPDATE, "CheckNumerics")}
        assert pairs(train, tf.debugging.assert_less(x, 9.0)) == {(UPDATE, "Assert")}
        assert pairs(train) == set()


def test_what_trains_on_the_data_and_counters_come_as_they_come() -> None:
    with tf.Graph().as_default():
        batch = tf.cast(following(), tf.float32)
        _, train = trained(batch)
        step = tf.train.get_or_create_global_step()
        assert pairs(train, step.assign_add(1)) == set()
        assert pairs(train, feeds=(batch,)) == set()


def test_of_a_chain_of_updates_the_last_is_waited_for() -> None:
    with tf.Graph().as_default():
        x, step = tf.placeholder(tf.float32, [3]), tf.train.get_or_create_global_step()
        w = tf.get_variable("w", [3], use_resource=True)
        train = tf.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(tf.square(x * w)), step)
        assert pairs(train, following()) == {("AssignAddVariableOp", "IteratorGetNext")}


def test_no_read_that_plainly_comes_early_comes_late() -> None:
    with tf.Graph().as_default():
        w, train = trained(tf.placeholder(tf.float32, [3]))
        looked_up = tf.gather(w, following())
        _, other = trained(tf.placeholder(tf.float32, [3]), "other")
        assert pairs(train, looked_up) == set()
        assert pairs(other, looked_up) == {(UPDATE, "IteratorGetNext")}
        kept = tf.get_variable("kept", [3], use_resource=False)
        written = kept.assign(tf.placeholder(tf.float32, [3]) * 2.0).op
        assert pairs(written, tf.check_numerics(kept._ref(), "")) == set()  # it reads the very memory


def test_what_python_and_queues_see_first_they_see_first() -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [3])
        _, train = trained(x)
        one, other = (tf.py_func(lambda a: a, [given], tf.float32) for given in (x, x * 2.0))
        queue = tf.FIFOQueue(3, tf.float32, [[3]])
        assert pairs(train, one, other) == set()
        assert pairs(train, queue.dequeue(), queue.size()) == set()
        assert pairs(train, queue.dequeue(), tf.FIFOQueue(3, tf.float32, [[3]]).size()) == {(UPDATE, "QueueDequeueV2")}


def test_nobody_waits_for_what_may_wait_for_others_or_not_come() -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [3])
        _, of_queue = trained(tf.FIFOQueue(3, tf.float32, [[3]]).dequeue(), "a")
        assert pairs(of_queue, following()) == set()
        called = tf.function(lambda: tf.numpy_function(lambda: np.ones(3, np.float32), [], tf.float32))()
        _, of_python = trained(called, "d")
        assert pairs(of_python, following()) == set()
        with tf.control_dependencies([tf.debugging.assert_less(x, 9.0)]):
            checked = tf.identity(x)
        _, of_checked = trained(checked, "b")
        assert pairs(of_checked, tf.check_numerics(tf.log(x), "")) == set()  # plainly this one is heard of, also where both fail


@pytest.mark.parametrize("second_generation", [False, True])
def test_an_update_in_a_branch_is_done_where_the_branches_join(second_generation: bool) -> None:
    (tf.enable_control_flow_v2 if second_generation else tf.disable_control_flow_v2)()
    try:
        with tf.Graph().as_default():
            x, taken = tf.placeholder(tf.float32, [3]), tf.placeholder_with_default(True, [])
            w, outer = tf.get_variable("w", [3], use_resource=True), tf.placeholder_with_default(True, [])
            added = tf.cond(taken, lambda: w.assign_add(x * 2.0), lambda: w.read_value())
            last = "If" if second_generation else "Merge"
            assert pairs(added, following()) == {(last, "IteratorGetNext")}
            nested = tf.cond(outer, lambda: tf.cond(taken, lambda: w.assign_add(x * 3.0), lambda: w.read_value()), lambda: x)
            assert pairs(nested, following()) == {(last, "IteratorGetNext")}
            check = tf.debugging.assert_less(tf.reduce_sum(x), 9.0)
            assert pairs(added, check) == {(last, "If" if second_generation else "Assert")}
    finally:
        tf.disable_control_flow_v2()


def test_gradients_of_branches_fail_of_nothing_and_wait_for_nobody() -> None:
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


def test_a_value_that_a_check_refuses_may_be_of_the_right_size() -> None:
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


@pytest.mark.parametrize("second_generation", [False, True])
def test_what_an_error_ends_plainly_it_ends(second_generation: bool) -> None:
    """A cancelled step goes on with no loop, and begins no call that stays one."""
    (tf.enable_control_flow_v2 if second_generation else tf.disable_control_flow_v2)()
    try:
        with tf.Graph().as_default():
            x, n = tf.placeholder(tf.float32, [3]), tf.placeholder(tf.int32, [])
            _, plain = trained(x, "plain")
            _, looped = trained(tf.while_loop(lambda i, a: i < 9, lambda i, a: (i + 1, tf.tanh(a)), [0, x])[1], "looped")
            check = tf.raw_ops.Assert(condition=n < 3, data=[n])
            assert pairs(plain, looped, check) == {(UPDATE, "Assert")}
            assert pairs(looped, check) == set()
            apart = tf.function(tf.sin, experimental_attributes={"_noinline": True})
            _, called = trained(apart(x), "called")
            assert pairs(called, check) == set()
            w, _ = trained(tf.placeholder(tf.float32, [3]), "checked")
            ended = tf.while_loop(lambda i, a: i < 9, lambda i, a: (i + 1, tf.tanh(a)), [0, w.read_value()])[1]
            kept = tf.get_variable("kept", [3], use_resource=True).assign(ended)
            assert pairs(kept, tf.check_numerics(ended, "")) == {("AssignVariableOp", "CheckNumerics")}  # it has ended by then
    finally:
        tf.disable_control_flow_v2()


def test_transfers_that_there_are_plainly_end_if_they_come_later() -> None:
    with tf.Graph().as_default() as graph:
        x, n = tf.placeholder(tf.float32, [3]), tf.placeholder(tf.int32, [])
        with tf.device("/cpu:1"):
            _, late = trained(tf.tanh(tf.tanh(tf.tanh(x + 1.0))), "late")
        check = tf.raw_ops.Assert(condition=n < 3, data=[n])
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
        step = step_kind([x.name, n.name], [], [late.name, check.name])
        first = view.ancestors(["Tanh_1"]) | {check.name, "Less", "late"}  # on the first device

        def found(away: Callable[[str], bool]) -> set[tuple[str, str]]:
            pairs = updates_first(view, step, lambda name: "there" if away(name) else "here")
            return {(view.nodes[update].op, end) for update, end in pairs}

        assert found(lambda name: False) == {(UPDATE, check.name)}
        assert found(lambda name: name not in first) == set()  # what comes there is sent behind the check
        assert found(lambda name: name in (check.name, "Less")) == {(UPDATE, check.name)}  # nothing is sent to the update


def test_a_look_up_in_a_table_neither_waits_nor_says_more_than_is_in_it() -> None:
    with tf.Graph().as_default():
        words = tf.placeholder(tf.string, [None])
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.range(2)), 1)
        embedding = tf.get_variable("embedding", [3, 4], use_resource=True)
        loss = tf.reduce_sum(tf.square(tf.nn.embedding_lookup(embedding, table.lookup(words))))
        train = tf.train.AdagradOptimizer(0.1).minimize(loss)
        apply = ("ResourceSparseApplyAdagrad", "IteratorGetNext")
        assert apply in pairs(train, following())
        assert ("ResourceSparseApplyAdagrad", "StringToNumber") in pairs(train, tf.strings.to_number(words), feeds=(words,))


def test_of_two_that_fail_of_the_same_the_first_is_heard_of() -> None:
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
        other = tf.raw_ops.Assert(condition=tf.shape(x)[0] < 30, data=[tf.shape(x)])
        assert (UPDATE, "Assert") in pairs(train, other, feeds=(x, y))  # of another cause


def test_what_no_update_needs_may_fail_of_what_it_is_given() -> None:
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
        for fine in (
            h * 2.0,
            tf.reshape(images, [-1, 4, 4, 1]),
            tf.reduce_mean(y, 0),
            tf.slice(x, [0, 0], [1, 1]),
            x ** tf.cast(n, tf.float32),
        ):
            assert waiting(fine) == set()


def test_tables_generators_and_functions_are_updated_too() -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [3])
        total = tf.reduce_sum(tf.square(x))
        table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, -1.0)
        generator = tf.random.Generator.from_seed(1)
        with tf.control_dependencies([total]):
            drawn = generator.normal([2])
        v = tf.get_variable("v", [], use_resource=True)
        called = tf.function(lambda a: v.assign_add(a))(total)
        insert = table.insert(tf.constant(1, tf.int64), total)
        assert pairs(insert, following()) == {("LookupTableInsertV2", "IteratorGetNext")}
        assert pairs(drawn, following()) == {("RngReadAndSkip", "IteratorGetNext")}
        assert pairs(called, following()) == {("StatefulPartitionedCall", "IteratorGetNext")}
        found = table.lookup(tf.cast(following(), tf.int64))
        assert pairs(insert, found) == set()  # plainly what is there may be found first


def test_functions_and_python_without_state_end_too() -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [3])
        _, train = trained(x)
        iterator = tf.data.make_initializable_iterator(tf.data.Dataset.range(3))
        called = tf.function(iterator.get_next)()
        assert pairs(train, called) == {(UPDATE, "StatefulPartitionedCall")}
        assert pairs(train, tf.py_func(lambda: 1.0, [], tf.float32, stateful=False)) == {(UPDATE, "PyFuncStateless")}
        assert pairs(train, called, iterator.get_next()) == set()  # who takes the first element?
        assert pairs(train, called, following()) == {(UPDATE, "StatefulPartitionedCall"), (UPDATE, "IteratorGetNext")}


def test_many_updates_come_before_many_checks() -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [3])
        trains = [trained(x, f"w{k}")[1] for k in range(60)]
        checks = [tf.check_numerics(tf.log(x + float(k)), "") for k in range(60)]
        view = GraphView.parse(tf.get_default_graph().as_graph_def().SerializeToString(), lambda name: name)
        found = updates_first(view, step_kind([], [], [each.name for each in trains] + [each.op.name for each in checks]))
        assert len(found) == 3600


def test_no_order_comes_of_python_handles_and_files_that_shows() -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [3])
        v = tf.get_variable("v", [3], use_resource=True)
        waited = tf.numpy_function(lambda a: a, [x], tf.float32, stateful=False)
        said = tf.numpy_function(lambda: np.float32(1.0), [], tf.float32)
        assert pairs(v.assign(waited), said) == set()  # the first may wait for what the second says
        table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, -1.0)
        insert = table.insert(tf.constant(1, tf.int64), tf.reduce_sum(tf.square(x)))
        element = following()
        taken = tf.placeholder_with_default(True, [])
        found = tf.cond(taken, lambda: table.lookup(tf.cast(element, tf.int64)), lambda: 0.0)
        assert pairs(insert, found, element) == set()
        _, train = trained(x)
        iterator = tf.data.make_one_shot_iterator(tf.data.Dataset.range(9))
        fed = tf.data.Iterator.from_string_handle(tf.placeholder(tf.string, []), tf.int64, []).get_next()
        assert pairs(train, iterator.get_next(), fed) == set()  # it may be the same one
        assert pairs(train, fed) == {(UPDATE, "IteratorFromStringHandleV2")}  # and with it what it hands to
        written = tf.io.write_file("name", tf.as_string(tf.reduce_sum(tf.square(x))))
        restored = tf.raw_ops.RestoreV2(prefix="name", tensor_names=["a"], shape_and_slices=[""], dtypes=[tf.float32])
        assert pairs(written, restored[0]) == set()  # it may be the same file
        assert pairs(written, element) == {("WriteFile", "IteratorGetNext")}


def test_pure_functions_and_samplers_are_beside_as_anything_else() -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [3])
        _, train = trained(x)
        called = tf.function(lambda a: a * 2.0)(x)
        sampled = tf.random.log_uniform_candidate_sampler(tf.constant([[1]], tf.int64), 1, 2, True, 9)[0]
        assert pairs(train, called, sampled, following()) == {(UPDATE, "IteratorGetNext")}


def test_updates_come_before_look_ups_of_what_is_fed() -> None:
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


def test_updates_come_before_two_batches_meet_and_gradients_after() -> None:
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


def test_python_comes_before_checks_alone() -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [3])
        told = tf.py_func(lambda a: a, [tf.exp(x)], tf.float32)
        written = tf.io.write_file("nowhere", tf.as_string(tf.reduce_sum(x)))
        check = tf.check_numerics(tf.log(x), "")
        assert pairs(told, check) == {("PyFunc", "CheckNumerics")}
        assert pairs(written, check) == {("WriteFile", "CheckNumerics")}
        queue = tf.FIFOQueue(3, tf.float32, [[3]])
        assert pairs(told, queue.enqueue(check)) == set()  # Python may wait for what comes in
        assert pairs(told, queue.dequeue()) == set()
        _, train = trained(x)
        assert pairs(train, written, following()) == {(UPDATE, "IteratorGetNext"), ("WriteFile", "IteratorGetNext")}
        read = tf.io.read_file(tf.placeholder_with_default("nowhere", []))
        _, of_read = trained(tf.io.decode_raw(read, tf.float32), "r")
        assert pairs(of_read, following()) == {(UPDATE, "IteratorGetNext")}


def test_handles_that_are_given_something_wait_for_nobody() -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [])
        table = tf.lookup.experimental.DenseHashTable(tf.int64, tf.float32, 0.0, empty_key=-1, deleted_key=-2)
        insert = table.insert(tf.placeholder(tf.int64, []), tf.exp(x))
        assert pairs(insert, tf.check_numerics(tf.log(x), "")) == {("LookupTableInsertV2", "CheckNumerics")}


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


def test_nothing_comes_late_before_a_read_that_would_come_behind_its_write() -> None:
    with tf.Graph().as_default():
        x, ids = tf.placeholder(tf.float32, [3]), tf.placeholder(tf.int64, [2])
        kept = tf.get_variable("kept", [3], use_resource=False)
        _, other = trained(x, "other")
        looked_up = tf.gather(kept._ref(), ids)  # it reads the very memory
        assert pairs(other, looked_up, feeds=(x, ids)) == {(UPDATE, "GatherV2")}
        assert pairs(other, kept.assign(x * 2.0).op, looked_up, feeds=(x, ids)) == set()
        read = kept._ref() * tf.check_numerics(x, "")
        assert pairs(other, read) == {(UPDATE, "CheckNumerics")}
        assert pairs(other, kept.assign(x * 3.0).op, read) == set()


def test_of_too_many_pairs_the_end_of_data_counts_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a large net would lose what its last step of each round over the data has trained."""
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [3])
        _, train = trained(x)
        checks = [tf.check_numerics(tf.log(x + float(k)), "") for k in range(4)]
        step = (train, *checks, following())
        assert pairs(*step) == {(UPDATE, "IteratorGetNext"), (UPDATE, "CheckNumerics")}
        monkeypatch.setattr(failing, "_MOST", 1)
        assert pairs(*step) == {(UPDATE, "IteratorGetNext")}


def test_what_refuses_its_data_is_beside_and_floats_are_not() -> None:
    with tf.Graph().as_default():
        x, n, y = tf.placeholder(tf.float32, [3]), tf.placeholder(tf.int32, []), tf.placeholder(tf.float32, [])
        _, train = trained(x)
        values = tf.placeholder(tf.float32, None)
        assert pairs(train, tf.summary.histogram("values", values), feeds=(x, values)) == {(UPDATE, "HistogramSummary")}
        assert pairs(train, 100 // n, feeds=(x, n)) == {(UPDATE, "FloorDiv")}
        assert pairs(train, tf.ensure_shape(values, [3]), feeds=(x, values)) == {(UPDATE, "EnsureShape")}
        assert not pairs(train, 100.0 // y, feeds=(x, y))
