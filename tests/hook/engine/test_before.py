"""What is sure to have run before a write: behind conditions, in and behind loops, in functions. What is not sure is a race."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

from stepd.hook.engine.graphview import GraphView  # noqa: E402
from stepd.hook.engine.kinds import step_kind  # noqa: E402
from stepd.hook.engine.races import races  # noqa: E402
from stepd.hook.engine.reads import first_reads  # noqa: E402

pytestmark = pytest.mark.usefixtures("first_generation")


def variable(name: str = "v", use_resource: bool = True) -> Any:
    return tf.get_variable(name, [2], initializer=tf.ones_initializer(), use_resource=use_resource)


def pairs(graph: Any, *targets: Any) -> set[tuple[str, str]]:
    """(op type of the reader, of the writer) of the races of a step."""
    view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    found = races(view, step_kind([], [], [t.name if isinstance(t, tf.Operation) else t.op.name for t in targets]), every=True)
    return {(view.nodes[race.reader].op, view.nodes[race.writer].op) for race in found}


@pytest.mark.parametrize(("use_resource", "write"), [(True, "AssignAddVariableOp"), (False, "AssignAdd")])
def test_a_write_in_a_condition_beside_a_read(use_resource: bool, write: str) -> None:
    with tf.Graph().as_default() as graph:
        v = variable(use_resource=use_resource)
        p = tf.placeholder_with_default(True, [])
        written = tf.cond(p, lambda: tf.identity(tf.assign_add(v, [1.0, 1.0])), lambda: tf.zeros([2]))
        read = tf.square(v)
        before = tf.square(v, name="before")
        with tf.control_dependencies([before]):
            after = tf.cond(p, lambda: tf.identity(tf.assign_add(v, [1.0, 1.0])), lambda: tf.zeros([2]))
    assert (("ReadVariableOp" if use_resource else "Square"), write) in pairs(graph, written, read)
    assert ("Square", write) not in pairs(graph, after) and ("ReadVariableOp", write) not in pairs(graph, after)


@pytest.mark.parametrize("use_resource", [True, False])
def test_what_never_runs_in_one_step_is_no_race(use_resource: bool) -> None:
    with tf.Graph().as_default() as graph:
        v = variable(use_resource=use_resource)
        p = tf.placeholder_with_default(True, [])
        out = tf.cond(p, lambda: tf.identity(tf.assign(v, [2.0, 3.0])), lambda: tf.square(v))
        other = tf.cond(p, lambda: tf.identity(tf.assign(v, [2.0, 3.0])), lambda: tf.zeros([2]))
        another = tf.cond(tf.logical_not(p), lambda: tf.square(v), lambda: tf.zeros([2]))
    assert pairs(graph, out) == set()
    assert pairs(graph, other, another) != set()  # nothing is known of two predicates


def test_a_merge_does_not_wait_for_the_branch_that_is_dead() -> None:
    with tf.Graph().as_default() as graph:
        v = variable()
        p = tf.placeholder_with_default(True, [])
        read = v.read_value()
        used_in_one = tf.cond(p, lambda: tf.zeros([2]), lambda: tf.square(read))
        inside = tf.cond(p, lambda: tf.zeros([2]), lambda: tf.square(v.read_value()))
        both = tf.cond(p, lambda: tf.negative(read), lambda: tf.square(read))
        writes = []
        for value in (used_in_one, inside, both):
            with tf.control_dependencies([value]):
                writes.append(v.assign([2.0, 2.0], read_value=False))
    assert pairs(graph, writes[0]) == {("ReadVariableOp", "AssignVariableOp")}
    assert pairs(graph, writes[1]) == set()
    assert pairs(graph, writes[2]) == set()


@pytest.mark.parametrize("use_resource", [True, False])
def test_training_behind_a_loop(use_resource: bool) -> None:
    """Every round reads the weights; each round's product goes into the next, so that the last waits for all."""
    with tf.Graph().as_default() as graph:
        w = tf.get_variable("w", [2, 2], initializer=tf.ones_initializer(), use_resource=use_resource)

        def body(i: Any, h: Any) -> Any:
            return i + 1, tf.tanh(tf.matmul(h, w))

        _, h = tf.while_loop(lambda i, h: i < 4, body, [tf.constant(0), tf.ones([2, 2])])
        _, row = tf.while_loop(
            lambda i, h: i < 2,
            lambda i, h: (i + 1, tf.while_loop(lambda j, g: j < 2, body, [tf.constant(0), h])[1]),
            [tf.constant(0), h],
        )
        plain = tf.get_variable("plain", [2, 2], initializer=tf.ones_initializer(), use_resource=True)
        train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_sum(tf.square(tf.matmul(h, plain))))
        with tf.control_dependencies([row]):
            update = tf.assign(w, tf.ones([2, 2]))
    assert pairs(graph, train) == set()
    assert pairs(graph, update) == set()
    view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    assert first_reads(view, step_kind([], [], [train.name])).all


@pytest.mark.parametrize("skipping", [False, True])
@pytest.mark.parametrize("use_resource", [True, False])
def test_training_of_a_recurrent_net(use_resource: bool, skipping: bool) -> None:
    """Also one that hands its state on, in rounds that lie beyond the end of a sequence, without reading anything."""
    with tf.Graph().as_default() as graph:
        kernel = tf.get_variable("kernel", [4, 2], initializer=tf.ones_initializer(), use_resource=use_resource)
        inputs = tf.TensorArray(tf.float32, 3).unstack(tf.ones([3, 5, 2]))

        def body(t: Any, h: Any, outputs: Any) -> Any:
            def call() -> Any:
                return tf.tanh(tf.matmul(tf.concat([inputs.read(t), h], 1), kernel))

            h = tf.cond(t < 2, call, lambda: tf.identity(h)) if skipping else call()
            return t + 1, h, outputs.write(t, h)

        start = [tf.constant(0), tf.zeros([5, 2]), tf.TensorArray(tf.float32, 3)]
        _, _, outputs = tf.while_loop(lambda t, *_: t < 3, body, start)
        train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.square(outputs.stack())))
    assert pairs(graph, train) == set()


def test_a_loop_whose_result_does_not_wait_for_all_rounds() -> None:
    with tf.Graph().as_default() as graph:
        v = variable()

        def last(i: Any, _: Any) -> Any:
            return i + 1, tf.identity(v.read_value() * tf.cast(i, tf.float32))

        def counted(i: Any, _: Any) -> Any:
            with tf.control_dependencies([v.read_value()]):
                return i + 1, tf.zeros([2])

        steps = []
        for body in (last, counted):
            i, h = tf.while_loop(lambda i, h: i < 4, body, [tf.constant(0), tf.zeros([2])])
            for waited in (h, i):
                with tf.control_dependencies([waited]):
                    steps.append((v.assign([2.0, 2.0], read_value=False), i, h))
    race = {("ReadVariableOp", "AssignVariableOp")}
    assert [pairs(graph, *step) for step in steps] == [race, race, race, set()]  # the counter itself waited in the last


def rounds(order: Callable[[Any, Any], Any]) -> set[tuple[str, str]]:
    with tf.Graph().as_default() as graph:
        v = variable()
        i, h = tf.while_loop(lambda i, h: i < 4, lambda i, h: order(v, (i, h)), [tf.constant(0), tf.zeros([2])])
    return pairs(graph, i, h)


def test_a_read_and_a_write_in_each_round() -> None:
    def one_after_the_other(v: Any, at: Any) -> Any:
        with tf.control_dependencies([at[1]]):
            read = v.read_value()
        with tf.control_dependencies([read]), tf.control_dependencies([v.assign_add([1.0, 1.0], read_value=False)]):
            return at[0] + 1, at[1] + tf.identity(read)

    def ordered_in_the_round_alone(v: Any, at: Any) -> Any:
        read = v.read_value()
        at = at[0] + 1, at[1]
        with tf.control_dependencies([read]), tf.control_dependencies([v.assign_add([1.0, 1.0], read_value=False)]):
            return at[0], tf.identity(read)

    assert rounds(one_after_the_other) == set()
    assert rounds(ordered_in_the_round_alone) != set()


def test_branches_of_different_rounds() -> None:
    """Never both in one round, but one may read while another round still writes, or before it does."""

    def either(v: Any, at: Any) -> Any:
        i, _ = at
        return i + 1, tf.cond(i < 2, lambda: tf.square(v.read_value()), lambda: tf.identity(v.assign_add([1.0, 1.0])))

    assert rounds(either) != set()


def test_a_function_that_writes() -> None:
    with tf.Graph().as_default() as graph:
        v = variable()

        @tf.function  # type: ignore[untyped-decorator]
        def write() -> Any:
            return v.assign_add([1.0, 1.0])

        read = tf.square(v.read_value())
        assert ("ReadVariableOp", "StatefulPartitionedCall") in pairs(graph, read, write())


def test_two_writes_are_a_race_of_their_own() -> None:
    with tf.Graph().as_default() as graph:
        v = variable()
        writes = [v.assign_add([1.0, 1.0], read_value=False), v.assign([1.0, 1.0], read_value=False)]
        with tf.control_dependencies(writes[:1]):
            later = v.assign([1.0, 1.0], read_value=False)
    assert pairs(graph, *writes) == {("AssignAddVariableOp", "AssignVariableOp")}
    assert pairs(graph, later) == set()


def test_two_ops_of_one_variable() -> None:
    with tf.Graph().as_default() as inner:
        variable().read_value()
    with tf.Graph().as_default() as graph:
        imported = tf.import_graph_def(inner.as_graph_def(), name="a", return_elements=["v", "v/Read/ReadVariableOp"])
        variable()
        write = tf.raw_ops.AssignVariableOp(resource=graph.get_tensor_by_name("v:0"), value=[1.0, 2.0])
    assert pairs(graph, imported[1], write) == {("ReadVariableOp", "AssignVariableOp")}


def test_the_value_of_a_variable_is_not_written_with_it() -> None:
    with tf.Graph().as_default() as graph:
        one, other = variable("one", False), variable("other", False)
        copied = tf.assign(other, one)
        with tf.control_dependencies([copied]):
            after = tf.square(one)
    assert pairs(graph, after) == set()
