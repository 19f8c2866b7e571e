"""What of a graph may move, and why the rest stays."""

from __future__ import annotations

from typing import Any

import pytest

from stepd.hook.engine.classify import classify
from stepd.hook.engine.graphview import GraphView
from stepd.hook.engine.state import inventory

tf = pytest.importorskip("tensorflow.compat.v1")
from tensorflow.python.compiler.xla import jit  # noqa: E402
from tensorflow.python.framework import function, versions  # noqa: E402


@pytest.mark.parametrize("seed", [None, 7])
def test_what_draws_and_holds_more_than_a_place_in_a_stream_has_one_state(seed: int | None) -> None:
    with tf.Graph().as_default() as graph:
        tf.RandomShuffleQueue(4, 1, [tf.float32], seed=seed, name="queue")
        tf.nn.learned_unigram_candidate_sampler(tf.constant([[1]], tf.int64), 1, 2, False, 4, seed=seed, name="learned")
        tf.nn.uniform_candidate_sampler(tf.constant([[1]], tf.int64), 1, 2, False, 4, seed=seed, name="drawn")
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    learned = next(node.name for node in view.nodes.values() if node.op == "LearnedUnigramCandidateSampler")
    assert {"queue", learned} <= classify(view).held.keys()
    obstacles = " ".join(inventory(view).obstacles)
    assert "queue (RandomShuffleQueueV2): RandomShuffleQueueV2 owns state" in obstacles and learned in obstacles
    assert ("drawn" in obstacles) == (seed is not None), "a stream without a seed goes on anywhere"


def test_what_gathers_batches_of_several_steps_has_one_state() -> None:
    with tf.Graph().as_default() as graph:

        @function.Defun(tf.float32)
        def twice(x: Any) -> Any:
            return x * 2.0

        limits: dict[str, Any] = {"num_batch_threads": 1, "max_batch_size": 2, "batch_timeout_micros": 1000}
        x = tf.zeros([1, 2])
        batch = tf.raw_ops.Batch(in_tensors=[x], grad_timeout_micros=1000, name="batch", **limits)
        tf.raw_ops.Unbatch(batched_tensor=batch[0][0], batch_index=batch[1], id=batch[2], timeout_micros=9, name="unbatch")

        @function.Defun(tf.float32)
        def inside(x: Any) -> Any:
            return tf.raw_ops.BatchFunction(in_tensors=[x], captured_tensors=[], f=twice, Tout=[tf.float32], **limits)[0]

        call = inside(x)
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    assert {"batch", "unbatch", call.op.name} <= classify(view).held.keys()


@pytest.mark.parametrize("use_resource", [True, False])
def test_what_xla_compiles_together_stays_together(use_resource: bool) -> None:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [2, 3], name="x")
        with jit.experimental_jit_scope():
            w = tf.get_variable("w", [3, 4], use_resource=use_resource)
            inside = tf.tanh(tf.matmul(x, w, name="product") * 2.0, name="inside")
            with jit.experimental_jit_scope(compile_ops=False):
                free = tf.sin(x, name="free")
        handed = tf.identity(inside, name="handed")
        tf.add(tf.reduce_max(tf.add_n([handed, handed * 2.0], name="given"), name="outside"), tf.reduce_sum(free), name="sum")
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    pinned = classify(view).pinned
    assert {"w", "product", "inside", "handed", "given"} <= pinned.keys()
    assert "XLA" in pinned["inside"]
    assert not {"free", "outside", "sum"} & pinned.keys()


@pytest.mark.parametrize(("noinline", "seed", "apart"), [(True, 3, True), (False, 3, False), (True, None, False)])
def test_a_function_that_runs_as_one_and_draws_keeps_every_step_where_it_is(noinline: bool, seed: int | None, apart: bool) -> None:
    with tf.Graph().as_default() as graph:

        @function.Defun(tf.float32, noinline=noinline, func_name="StackedNoise")
        def noise(x):  # type: ignore[no-untyped-def]
            return x + (tf.random_uniform([2], seed=seed) if seed else tf.ones([2]))

        @function.Defun(tf.float32)
        def outer(x):  # type: ignore[no-untyped-def]
            return noise(x) * 2.0

        outer(tf.placeholder(tf.float32, [2]))
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    assert ("StackedNoise" in classify(view).apart) == apart
    held = [name for name, why in classify(view).held.items() if "draws" in why]
    assert bool(held) == (seed is not None)  # whatever the function is named like


def test_what_xla_compiles_as_a_whole_keeps_every_step_where_it_is() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [2], name="x")
        tf.xla.experimental.compile(lambda v: [tf.tanh(v) * 2.0], [x])
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    assert "XLA compiles as a whole" in classify(view).apart


@pytest.mark.parametrize(("version", "apart"), [("2.12.1", True), ("2.15.0", False), ("2.21.0", False)])
def test_a_scope_keeps_every_step_where_it_is_where_xla_goes_beyond_it(
    monkeypatch: pytest.MonkeyPatch, version: str, apart: bool
) -> None:
    monkeypatch.setattr(versions, "VERSION", version)
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [2], name="x")
        with jit.experimental_jit_scope():
            inside = tf.tanh(x * 2.0, name="inside")
        tf.exp(inside)
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    assert (f"in TensorFlow {version}" in classify(view).apart) == apart


def test_what_prints_a_number_of_times_has_one_state() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [2])
        tf.Print(x * 2.0, [x], first_n=3, name="some")
        tf.Print(x * 3.0, [x], name="all")
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    held = classify(view).held
    assert "printed" in held["some"] and "all" not in held


def test_what_an_error_names_lies_where_the_error_arises() -> None:
    with tf.Graph().as_default() as graph:
        handed = tf.identity(tf.sin(tf.placeholder(tf.float32, [None]), name="named"), name="handed")
        tf.sin(tf.ensure_shape(handed, [2], name="refuses"), name="behind")
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    groups = [set(group) for group in classify(view).groups]
    assert [group for group in groups if "refuses" in group] == [{"named", "handed", "refuses"}]


def test_a_variable_of_which_another_op_says_the_name_stays() -> None:
    with tf.Graph().as_default() as graph:
        tf.get_variable("once", [2], use_resource=True)
        tf.get_variable("twice", [2], use_resource=True)
        tf.import_graph_def(graph.as_graph_def(), name="again")
        tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="alone", name="alone")

        @function.Defun()
        def reads():  # type: ignore[no-untyped-def]
            return tf.raw_ops.ReadVariableOp(
                resource=tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="inside"), dtype=tf.float32
            )

        tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="inside", name="outside")
        reads()
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    classes = classify(view)
    assert classes.variables == {"alone"}
    assert classes.pinned["twice"] == "twice and again/twice are one variable"
    assert "are one variable" in classes.pinned["outside"]


@pytest.mark.parametrize(("noinline", "checks"), [(True, False), (False, True), (False, False)])
def test_who_reads_a_call_whose_error_a_transfer_would_hide_moves_with_it(noinline: bool, checks: bool) -> None:
    with tf.Graph().as_default() as graph:

        @function.Defun(tf.float32, noinline=noinline, func_name="Inner")
        def inner(v):  # type: ignore[no-untyped-def]
            return tf.check_numerics(tf.log(v), "v") if checks else tf.log(v)

        call = inner(tf.placeholder(tf.float32, [2]))
        reader = tf.multiply(call, 2.0)
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    together = any({call.op.name, reader.op.name} <= set(group) for group in classify(view).groups)
    assert together is (noinline or checks)


@pytest.mark.parametrize(
    ("use", "apart"),
    [
        ("fetched", True),
        ("begins", False),
        ("fed", False),
        ("listed", False),
        ("called", True),
        ("mapped", True),
        ("added", True),
        ("inside", True),
    ],
)
def test_what_tensorflow_reads_when_it_builds_a_step_is_not_read_by_copies(use: str, apart: bool) -> None:
    with tf.Graph().as_default() as graph:
        name = tf.placeholder(tf.string, []) if use == "fed" else tf.constant("words.txt")
        if use == "listed":
            tf.data.make_initializable_iterator(tf.data.Dataset.list_files("*.txt", shuffle=False)).get_next()
        elif use == "called":
            tf.negative(tf.py_func(float, [], tf.float64, stateful=False))
        elif use == "added":
            v = tf.get_variable("v", initializer=0.0, use_resource=True)
            v.assign_add(tf.strings.to_number(tf.io.read_file("words.txt")), read_value=False)
        elif use == "inside":
            function.Defun(func_name="Words")(lambda: tf.io.read_file("words.txt"))()
        elif use == "mapped":
            tf.raw_ops.GenerateVocabRemapping(new_vocab_file="new", old_vocab_file="old", new_vocab_offset=0, num_new_vocab=4)
        else:
            read = tf.strings.upper(tf.io.read_file(name))
        if use == "begins":
            tf.get_variable("read", initializer=read, use_resource=True)
            tf.train.match_filenames_once("*.txt")
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    assert ("when TensorFlow builds a step" in classify(view).apart) == apart


@pytest.mark.parametrize(("nested", "others", "apart"), [(True, True, True), (True, False, False), (False, True, False)])
def test_a_stream_whose_name_numbers_all_loops_keeps_them_where_they_are(nested: bool, others: bool, apart: bool) -> None:
    """TensorFlow numbers a loop's condition after all loops of the graph: one copy more, and the stream began anew."""
    before = tf.control_flow_v2_enabled()
    tf.enable_control_flow_v2()
    with tf.Graph().as_default() as graph:
        try:
            x = tf.placeholder(tf.float32, [3])

            def drawn(i: tf.Tensor, a: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                return i + 1, a + tf.random_normal([3], seed=5)

            def nest(i: tf.Tensor, a: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                return tf.cond(a[0] > 0.0, lambda: drawn(i, a), lambda: (i + 1, a))

            tf.while_loop(lambda i, _: i < 3, nest if nested else drawn, [0, x], name="noisy")
            if others:
                tf.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, tf.tanh(a)), [0, x])
        finally:
            (tf.enable_control_flow_v2 if before else tf.disable_control_flow_v2)()
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    assert ("noisy draws from a seeded random stream in" in classify(view).apart) is apart
