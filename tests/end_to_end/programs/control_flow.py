"""Loops, branches, TensorArrays and recurrent networks, of both generations, with their gradients."""

import numpy as np
import tensorflow.compat.v1 as tf


def loops(record):
    n = tf.placeholder(tf.int32, [], name="n")
    x = tf.placeholder(tf.float32, [3], name="x")
    w = tf.get_variable("w", [3], initializer=tf.constant_initializer(0.9))

    def body(i, t):
        t = tf.cond(tf.equal(i % 2, 0), lambda: t * w, lambda: t + tf.reduce_sum(w))
        inner = tf.while_loop(lambda j, _: j < i, lambda j, u: (j + 1, u * 0.5 + w), [0, t])[1]
        return i + 1, inner

    _, y = tf.while_loop(lambda i, _: i < n, body, [0, x])
    loss = tf.reduce_sum(tf.tanh(y))
    g = tf.gradients(loss, [x, w])
    train = tf.train.GradientDescentOptimizer(0.05).minimize(loss)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(10):
            record.value(f"{k}", sess.run([y, g], {x: [1.0, 2.0, k], n: k % 4}))
            record.value(f"train {k}", sess.run([train, w], {x: [1.0, 2.0, 0.1 * k], n: 3})[1])
    record.graph("graph")


def program_loops_v1(record):
    tf.disable_control_flow_v2()
    loops(record)


def program_loops_v2(record):
    tf.enable_control_flow_v2()
    try:
        loops(record)
    finally:
        tf.disable_control_flow_v2()


def branches(record):
    p = tf.placeholder(tf.bool, [], name="p")
    x = tf.placeholder(tf.float32, [2], name="x")
    v = tf.get_variable("v", [2], initializer=tf.zeros_initializer(), use_resource=True)

    def grow():
        with tf.control_dependencies([v.assign_add(x)]):
            return tf.identity(v.read_value()) + tf.random_uniform([2], seed=9)

    y = tf.cond(p, grow, lambda: x - 1.0)
    nested = tf.cond(p, lambda: tf.cond(x[0] > 2.0, lambda: x * 2.0, lambda: x * 3.0), lambda: tf.zeros([2]))
    chosen = tf.case([(x[0] > 5.0, lambda: tf.constant(1)), (x[0] > 2.0, lambda: tf.constant(2))], lambda: tf.constant(3))
    g = tf.gradients(nested, x)
    with tf.Session() as sess:
        sess.run(v.initializer)
        for k in range(12):
            record.value(f"{k}", sess.run([y, nested, chosen], {p: k % 3 != 0, x: [k, 1.0]}))
            record.value(f"gradient {k}", sess.run(g, {p: k % 2 == 0, x: [k, 1.0]}))
            record.value(f"v {k}", sess.run(v))
    record.graph("graph")


def program_branches_v1(record):
    tf.disable_control_flow_v2()
    branches(record)


def program_branches_v2(record):
    tf.enable_control_flow_v2()
    try:
        branches(record)
    finally:
        tf.disable_control_flow_v2()


def program_arrays(record):
    x = tf.placeholder(tf.float32, [5, 2], name="x")
    array = tf.TensorArray(tf.float32, 5, clear_after_read=False, infer_shape=False).unstack(x)
    doubled = tf.TensorArray(tf.float32, 0, dynamic_size=True)

    def body(i, out):
        return i + 1, out.write(i, array.read(i) * 2.0 + array.read(4 - i))

    _, doubled = tf.while_loop(lambda i, _: i < 5, body, [0, doubled])
    stacked = doubled.stack()
    joined = tf.TensorArray(tf.float32, 2, infer_shape=False).split(tf.reshape(x, [-1]), [4, 6]).concat()
    mapped = tf.map_fn(lambda row: row[0] * row[1], x)
    scanned = tf.scan(lambda a, row: a + row, x)
    folded = tf.foldl(lambda a, row: a * 0.5 + row, x)
    g = tf.gradients([stacked, mapped, scanned, folded], x)
    with tf.Session() as sess:
        for k in range(9):
            feed = {x: np.arange(10).reshape(5, 2) * 0.1 * k}
            record.value(f"{k}", sess.run([stacked, joined, mapped, scanned, folded], feed))
            record.value(f"gradient {k}", sess.run(g, feed))


class Cell:
    """A plain recurrent cell, as dynamic_rnn needs it."""

    output_size = state_size = 3

    def __call__(self, inputs, state, scope=None):
        with tf.variable_scope("cell", reuse=tf.AUTO_REUSE):
            w = tf.get_variable("w", [5, 3], initializer=tf.glorot_uniform_initializer(seed=2))
        state = tf.tanh(tf.matmul(tf.concat([inputs, state], 1), w))
        return tf.nn.dropout(state, rate=0.3, seed=6), state

    def zero_state(self, batch, dtype):
        return tf.zeros([batch, 3], dtype)


def program_recurrent(record):
    x = tf.placeholder(tf.float32, [4, None, 2], name="x")
    lengths = tf.placeholder(tf.int32, [4], name="lengths")
    out, state = tf.nn.dynamic_rnn(Cell(), x, lengths, dtype=tf.float32, parallel_iterations=1)
    both, _ = tf.nn.bidirectional_dynamic_rnn(Cell(), Cell(), x, lengths, dtype=tf.float32, parallel_iterations=1)
    loss = tf.reduce_mean(tf.square(out[:, -1])) + tf.reduce_mean(both[0] + both[1])
    train = tf.train.RMSPropOptimizer(0.05).minimize(loss)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(10):
            steps = 3 + k % 3
            feed = {x: np.linspace(0, 1, 8 * steps).reshape(4, steps, 2), lengths: [1, 2, 3, k % 3]}
            record.value(f"{k}", sess.run([loss, out, state, train], feed)[:3])
    record.graph("graph")


def program_stacks(record):
    """Values that a gradient loop takes from the stacks of a forward loop, also across runs of other kinds."""
    x = tf.placeholder(tf.float32, [2, 2], name="x")

    def body(i, t, kept):
        t = tf.matmul(t, x)
        return i + 1, t, kept.write(i, tf.reduce_sum(t))

    kept = tf.TensorArray(tf.float32, 4)
    _, y, kept = tf.while_loop(lambda i, *_: i < 4, body, [0, tf.eye(2), kept], parallel_iterations=1, swap_memory=True)
    g = tf.gradients([y, kept.stack()], x)
    with tf.Session() as sess:
        for k in range(10):
            feed = {x: [[0.5, 0.1 * k], [0.2, 0.3]]}
            record.value(f"{k}", sess.run([y, g, kept.stack()], feed) if k % 2 else sess.run(y, feed))


def program_asserts(record):
    x = tf.placeholder(tf.float32, [2], name="x")
    with tf.control_dependencies([tf.Assert(tf.reduce_all(x > 0), ["not positive:", x], name="positive")]):
        y = tf.sqrt(x, name="root")
    checked = tf.check_numerics(tf.log(x), "a bad logarithm", name="checked")
    printed = tf.Print(y, [y], "never first", first_n=0)
    with tf.Session() as sess:
        for k in range(8):
            record.value(f"good {k}", sess.run([y, printed], {x: [k + 1.0, 4.0]}))
            with record.error(f"assert {k}"):
                sess.run(y, {x: [-1.0, 4.0]})
            with record.error(f"numerics {k}"):
                sess.run(checked, {x: [0.0, 4.0]})


def program_modes(record):
    """Training and evaluation by conditions of the second generation: data, normalization, seeded dropout, updates."""
    from tensorflow.python.ops import control_flow_util

    rng = np.random.RandomState(4)
    iterators = [
        tf.data.make_one_shot_iterator(tf.data.Dataset.from_tensor_slices(rng.randn(n, 6).astype(np.float32)).repeat().batch(8))
        for n in (40, 16)
    ]
    training, before = tf.placeholder_with_default(True, [], name="training"), control_flow_util.ENABLE_CONTROL_FLOW_V2
    control_flow_util.ENABLE_CONTROL_FLOW_V2 = True  # for this graph alone: the suite's programs share a process
    try:
        x = tf.ensure_shape(tf.cond(training, *(iterator.get_next for iterator in iterators)), [None, 6])
        h, updates = x, []
        for k in range(3):
            w, mean = (tf.get_variable(f"{name}{k}", [6, 6][: 2 - (name == "mean")], initializer=tf.constant_initializer(0.1),
                                       trainable=name == "w", use_resource=True) for name in ("w", "mean"))  # fmt: skip
            h = tf.matmul(h, w)
            batch = tf.reduce_mean(h, 0)
            updates.append(tf.cond(training, lambda m=mean, b=batch: tf.group(m.assign_sub((m - b) * 0.1)), tf.no_op))
            h -= tf.cond(training, lambda b=batch: b, mean.read_value)
            h = tf.cond(training, lambda h=h, k=k: tf.nn.dropout(h, rate=0.3, seed=k), lambda h=h: tf.identity(h))
        loss = tf.reduce_mean(tf.square(h - x))
        with tf.control_dependencies(updates):
            train = tf.train.AdamOptimizer(0.01).minimize(loss)
    finally:
        control_flow_util.ENABLE_CONTROL_FLOW_V2 = before
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(24):
            record.value(f"{k} trained", sess.run([loss, train])[0])
            if k % 4 == 3:
                record.value(f"{k} seen", sess.run(loss, {training: False}))
        record.value("at the end", sess.run(tf.global_variables()))
