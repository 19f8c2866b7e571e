"""Which updates of a step come before what may fail in it, and where that would show in something else than the error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

from stepd.hook.engine.failing import updates_first  # noqa: E402
from stepd.hook.engine.graphview import GraphView  # noqa: E402
from stepd.hook.engine.kinds import step_kind  # noqa: E402
from stepd.hook.rewrite.shapes import static_shapes  # noqa: E402

pytestmark = pytest.mark.usefixtures("first_generation")


UPDATE = "ResourceApplyGradientDescent"


def test_training_comes_before_the_end_of_other_data_and_before_checks(pairs: Any, trained: Any, following: Any) -> None:
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


def test_what_trains_on_the_data_and_counters_come_as_they_come(pairs: Any, trained: Any, following: Any) -> None:
    with tf.Graph().as_default():
        batch = tf.cast(following(), tf.float32)
        _, train = trained(batch)
        step = tf.train.get_or_create_global_step()
        assert pairs(train, step.assign_add(1)) == set()
        assert pairs(train, feeds=(batch,)) == set()


def test_of_a_chain_of_updates_the_last_is_waited_for(pairs: Any, following: Any) -> None:
    with tf.Graph().as_default():
        x, step = tf.placeholder(tf.float32, [3]), tf.train.get_or_create_global_step()
        w = tf.get_variable("w", [3], use_resource=True)
        train = tf.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(tf.square(x * w)), step)
        assert pairs(train, following()) == {("AssignAddVariableOp", "IteratorGetNext")}


def test_what_is_fed_and_kept_comes_before_a_check(pairs: Any) -> None:
    with tf.Graph().as_default():
        x, n = tf.placeholder(tf.float32, [3]), tf.placeholder(tf.int32, [])
        kept = tf.get_variable("kept", [3], use_resource=True)
        check = tf.raw_ops.Assert(condition=n < 3, data=[n])
        assert pairs(kept.assign(x).op, check, feeds=(x, n)) == {("AssignVariableOp", "Assert")}
        assert pairs(kept.initializer, check, feeds=(n,)) == {("AssignVariableOp", "Assert")}
        assert pairs(kept.assign(tf.constant([1.0, 2.0, 3.0])).op, check, feeds=(n,)) == set()  # it is done at once


def test_an_update_that_may_fail_comes_after_one_that_does_not(pairs: Any) -> None:
    """Though a look-up that the other needs may fail as well."""
    with tf.Graph().as_default() as graph:
        ids, z = tf.placeholder(tf.int32, [None]), tf.placeholder(tf.float32, [None, None])
        table = tf.get_variable("table", [6, 2], use_resource=True)
        looked_up = tf.nn.embedding_lookup(table, ids)
        train = tf.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(tf.square(looked_up)))
        given = tf.ConditionalAccumulator(tf.float32, [4, 3]).apply_grad(z)
        found = pairs(train, given, feeds=(ids, z), shapes=static_shapes(graph))
        assert found == {("ResourceSparseApplyAdagrad", "ResourceAccumulatorApplyGradient")}


def test_no_read_that_plainly_comes_early_comes_late(pairs: Any, trained: Any, following: Any) -> None:
    with tf.Graph().as_default():
        w, train = trained(tf.placeholder(tf.float32, [3]))
        looked_up = tf.gather(w, following())
        _, other = trained(tf.placeholder(tf.float32, [3]), "other")
        assert pairs(train, looked_up) == set()
        assert pairs(other, looked_up) == {(UPDATE, "IteratorGetNext")}
        kept = tf.get_variable("kept", [3], use_resource=False)
        written = kept.assign(tf.placeholder(tf.float32, [3]) * 2.0).op
        assert pairs(written, tf.check_numerics(kept._ref(), "")) == set()  # it reads the very memory


def test_what_python_and_queues_see_first_they_see_first(pairs: Any, trained: Any) -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [3])
        _, train = trained(x)
        one, other = (tf.py_func(lambda a: a, [given], tf.float32) for given in (x, x * 2.0))
        queue = tf.FIFOQueue(3, tf.float32, [[3]])
        assert pairs(train, one, other) == set()
        assert pairs(train, queue.dequeue(), queue.size()) == set()
        assert pairs(train, queue.dequeue(), tf.FIFOQueue(3, tf.float32, [[3]]).size()) == {(UPDATE, "QueueDequeueV2")}


def test_nobody_waits_for_what_may_wait_for_others_or_not_come(pairs: Any, trained: Any, following: Any) -> None:
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
def test_an_update_in_a_branch_is_done_where_the_branches_join(pairs: Any, second_generation: bool, following: Any) -> None:
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


@pytest.mark.parametrize("second_generation", [False, True])
def test_what_an_error_ends_plainly_it_ends(pairs: Any, trained: Any, second_generation: bool) -> None:
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


def test_transfers_that_there_are_plainly_end_if_they_come_later(trained: Any) -> None:
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


def test_tables_generators_and_functions_are_updated_too(pairs: Any, following: Any) -> None:
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


def test_many_updates_come_before_many_checks(trained: Any) -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [3])
        trains = [trained(x, f"w{k}")[1] for k in range(60)]
        checks = [tf.check_numerics(tf.log(x + float(k)), "") for k in range(60)]
        view = GraphView.parse(tf.get_default_graph().as_graph_def().SerializeToString(), lambda name: name)
        found = updates_first(view, step_kind([], [], [each.name for each in trains] + [each.op.name for each in checks]))
        assert len(found) == 3600


def test_no_order_comes_of_python_handles_and_files_that_shows(pairs: Any, trained: Any, following: Any) -> None:
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


def test_python_comes_before_checks_alone(pairs: Any, trained: Any, following: Any) -> None:
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


def test_handles_that_are_given_something_wait_for_nobody(pairs: Any) -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [])
        table = tf.lookup.experimental.DenseHashTable(tf.int64, tf.float32, 0.0, empty_key=-1, deleted_key=-2)
        insert = table.insert(tf.placeholder(tf.int64, []), tf.exp(x))
        assert pairs(insert, tf.check_numerics(tf.log(x), "")) == {("LookupTableInsertV2", "CheckNumerics")}


def test_nothing_comes_late_before_a_read_that_would_come_behind_its_write(pairs: Any, trained: Any) -> None:
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
