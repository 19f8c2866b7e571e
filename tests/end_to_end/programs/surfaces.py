"""What a program sees through doors that few open: what is printed, sessions' settings, deep feeds, fetches that are dead, stacks."""

import os
import sys
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import control_flow_ops


class Caught:
    """The lines that go to standard output and standard error meanwhile, C++ included, each sorted."""

    def __enter__(self):
        sys.stdout.flush()
        sys.stderr.flush()
        self._kept = [os.dup(number) for number in (1, 2)]
        self._files = [tempfile.TemporaryFile() for _ in range(2)]
        for number, file in zip((1, 2), self._files, strict=True):
            os.dup2(file.fileno(), number)
        return self

    def __exit__(self, *_):
        sys.stdout.flush()
        sys.stderr.flush()
        self.lines = []
        for number, kept, file in zip((1, 2), self._kept, self._files, strict=True):
            os.dup2(kept, number)
            os.close(kept)
            file.seek(0)
            self.lines.append(sorted(file.read().decode().splitlines()))


def network():
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    w = tf.get_variable("w", [3, 2], initializer=tf.random_normal_initializer(seed=1), use_resource=True)
    y = tf.nn.relu(tf.matmul(x, w) + 0.1, name="y")
    loss = tf.reduce_mean(y * y, name="loss")
    return x, w, y, loss, tf.train.AdamOptimizer(0.05).minimize(loss, name="train")


def program_printed(record):
    """tf.Print, a number of times too and in a loop, and tf.print to both streams and a file."""
    x = tf.placeholder(tf.float32, [3], name="x")
    some = tf.Print(x * 2.0, [x, tf.shape(x), "text"], message="some: ", summarize=2, first_n=4)
    out = tf.print("out", x, {"k": x[0]}, output_stream=sys.stdout)
    err = tf.print("err", tf.constant(["a", "b"]), x, summarize=-1, end="|\n")
    filed = tf.print("filed", x, output_stream="file://printed.txt")
    rounds = tf.while_loop(lambda i: i < 3, lambda i: tf.Print(i + 1, [i], "round "), [0], parallel_iterations=1)
    with tf.Session() as sess:
        for k in range(7):
            with Caught() as caught:
                for each in (some, out, err, rounds, filed):  # lines of one run may lie within each other
                    record.value(f"{k}", sess.run(each, {x: [k, 1, 2]}))
            record.value(f"said {k}", caught.lines)
    with open("printed.txt") as file:
        record.value("file", file.read())


def configs():
    made = {
        name: tf.ConfigProto(**options)
        for name, options in {
            "hard": {"allow_soft_placement": False},
            "one thread": {"intra_op_parallelism_threads": 1, "inter_op_parallelism_threads": 1},
            "own threads": {"use_per_session_threads": True, "inter_op_parallelism_threads": 2},
            "isolated": {"isolate_session_state": True},
            "pruned": {"graph_options": tf.GraphOptions(place_pruned_graph=True)},
            "no optimizer": {"graph_options": tf.GraphOptions(optimizer_options=tf.OptimizerOptions(opt_level=-1))},
        }.items()
    }
    for name, field, value in (
        ("single-threaded", "executor_type", "SINGLE_THREADED_EXECUTOR"),
        ("static", "optimize_for_static_graph", True),
        ("no partition graphs", "disable_output_partition_graphs", True),
    ):
        made[name] = tf.ConfigProto()
        setattr(made[name].experimental, field, value)
    made["no rewrites"] = tf.ConfigProto()
    made["no rewrites"].graph_options.rewrite_options.disable_meta_optimizer = True
    return made


def program_configs(record):
    for name, config in configs().items():
        with tf.Graph().as_default():
            x, _, y, loss, train = network()
            with tf.Session(config=config) as sess:
                sess.run(tf.global_variables_initializer())
                for k in range(3):
                    feed = {x: np.sin(np.arange(6.0).reshape(2, 3) + k)}
                    record.value(f"{name} {k}", sess.run([loss, y, train], feed)[:2])
                record.value(f"{name} config", sess._config.SerializeToString(deterministic=True))
                late = tf.square(y)
                try:
                    record.value(f"{name} late", sess.run(late, {x: np.ones((1, 3))}))
                except tf.errors.OpError as error:
                    record.note_error(f"{name} late", error)


def program_fed_inside(record):
    """Feeds of what is computed, of constants, of what a variable is read into; the wrong ones in between."""
    x, w, y, loss, train = network()
    graph = tf.get_default_graph()
    product, read = graph.get_tensor_by_name("MatMul:0"), graph.get_tensor_by_name("MatMul/ReadVariableOp:0")
    total = tf.placeholder_with_default(tf.reduce_sum(x), [], name="total") * 2.0
    constant = tf.constant([1.0, 2.0], name="constant")
    tripled = constant * 3.0
    ref = tf.get_variable("ref", [2], initializer=tf.ones_initializer(), use_resource=False)
    doubled = ref * 2.0
    ragged = tf.ragged.placeholder(tf.float32, 1, name="ragged")
    sums = tf.reduce_sum(ragged, axis=1)
    batch, ones = np.arange(6.0).reshape(2, 3), np.ones((2, 2))
    fed = [
        (loss, {y: ones}),
        (loss, {product: -ones}),
        (y, {read: np.ones((3, 2)), x: batch}),
        (total, {x: batch}),
        (total, {"total:0": 4.0}),
        (tripled, {constant: [5.0, 6.0]}),
        (doubled, {ref: [7.0, 8.0]}),
        (sums, {ragged: tf.ragged.constant_value([[1.0, 2.0], [], [3.0]])}),
        (y, {y: [[9.0, 9.0]]}),
        (train, {loss: 1.0, x: batch}),
        (train, {y: ones, x: batch}),
        ([x, loss], {x: np.zeros((0, 3))}),
        ({"a": [y, (loss,)], "b": {"c": w}}, {x: batch}),
        (y, {}),
        (y, {x: [["a"] * 3]}),
        (y, {x: tf.constant(1.0)}),
        (y, {w.handle: 1, x: batch}),
        (train, {train: 1}),
        ([None], {}),
    ]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for turn in range(2):
            for k, (fetches, feed) in enumerate(fed):
                try:
                    record.value(f"{turn} {k}", sess.run(fetches, feed))
                except Exception as error:
                    record.note_error(f"{turn} {k}", error)
        record.value("w", sess.run(w))


def program_dead(record):
    """Fetches of the branch that was not taken, by runs and by a callable."""
    taken, x = tf.placeholder(tf.bool, [], name="taken"), tf.placeholder(tf.float32, [2], name="x")
    off, on = control_flow_ops.switch(x, taken, name="switch")
    a, b = tf.sin(on, name="a"), tf.cos(off, name="b")
    merged, which = control_flow_ops.merge([a, b], name="merged")
    with tf.control_dependencies([a]):
        after = tf.no_op("after")
    with tf.Session() as sess:
        both = sess.make_callable([a, merged], [taken, x])
        for k in range(4):
            feed = {taken: k % 2 == 0, x: [1.0, k]}
            record.value(f"{k}", sess.run([merged, which], feed))
            sess.run(after, feed)
            for name, fetch in (("a", a), ("b", b), ("off", off), ("both", [a, b])):
                try:
                    record.value(f"{name} {k}", sess.run(fetch, feed))
                except tf.errors.OpError as error:
                    record.note_error(f"{name} {k}", error)
            try:
                record.value(f"callable {k}", both(k % 2 == 0, [1.0, 2.0]))
            except tf.errors.OpError as error:
                record.note_error(f"callable {k}", error)


def program_stacks(record):
    """Stacks and lists by their raw ops, beyond their ends too."""
    ops, x = tf.raw_ops, tf.placeholder(tf.float32, [2], name="x")
    stack = ops.StackV2(max_size=-1, elem_type=tf.float32, stack_name="stack")
    pushed = ops.StackPushV2(handle=stack, elem=x + 1.0)
    with tf.control_dependencies([pushed]):
        popped = ops.StackPopV2(handle=stack, elem_type=tf.float32)
    with tf.control_dependencies([popped]):
        beyond = ops.StackPopV2(handle=stack, elem_type=tf.float32)
    some = ops.TensorListReserve(element_shape=[2], num_elements=3, element_dtype=tf.float32)
    for k in range(3):
        some = ops.TensorListSetItem(input_handle=some, index=k, item=x * float(k))
    whole = ops.TensorListStack(input_handle=some, element_shape=[2], element_dtype=tf.float32)
    outside = ops.TensorListGetItem(input_handle=some, index=7, element_shape=[2], element_dtype=tf.float32)
    with tf.Session() as sess:
        for k in range(4):
            feed = {x: [k, 1.0]}
            record.value(f"{k}", sess.run([popped, whole], feed))
            with record.error(f"beyond {k}"):
                sess.run(beyond, feed)
            with record.error(f"outside {k}"):
                sess.run(outside, feed)
        with record.error("a list"):
            sess.run(some, feed)
