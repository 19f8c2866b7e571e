"""What a step does beside what fails of values that it is given: averages, counters, calls of Python, files."""

import os

import numpy as np
import tensorflow.compat.v1 as tf


def _normalized(h, count):
    """(`h` behind `count` layers with batch normalization, their updates)."""
    updates = []
    for k in range(count):
        with tf.variable_scope(f"layer{k}", use_resource=True):
            w = tf.get_variable("w", [h.shape[-1], h.shape[-1]], initializer=tf.constant_initializer(0.1 * (k + 1)))
            mean, variance = tf.nn.moments(tf.matmul(h, w), [0])
            kept = tf.get_variable("kept", [h.shape[-1]], initializer=tf.zeros_initializer(), trainable=False)
            updates.append(kept.assign_sub((kept - mean) * 0.1))
            h = tf.tanh(tf.nn.batch_normalization(tf.matmul(h, w), mean, variance, None, None, 1e-3))
    return h, updates


def program_given(record):
    """Labels that are none, indices beyond a table, batches of two sizes; the program goes on after each."""
    x, y = tf.placeholder(tf.float32, [None, 8], name="x"), tf.placeholder(tf.float32, [None], name="y")
    label = tf.placeholder(tf.int64, [None], name="label")
    h, updates = _normalized(x + tf.gather(np.float32(0.1) * tf.range(12.0), label)[:, None], 4)
    average, averaging = tf.metrics.mean(tf.square(h))
    losses = [
        tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=h)),
        tf.reduce_mean(tf.square(tf.reduce_sum(h, 1) - y)),
    ]
    with tf.control_dependencies(updates):
        trains = [tf.train.GradientDescentOptimizer(0.01).minimize(loss) for loss in losses]
    rng = np.random.RandomState(7)
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        for k in range(30):
            labels = rng.randint(0, 8, 16)
            labels[3] = (labels[3], 9, 77)[k % 3]  # within, beyond the classes, beyond the table
            sizes = rng.randn(16 - (k % 5 == 1)).astype(np.float32)
            feeds = {x: rng.randn(16, 8), y: sizes, label: labels}
            try:
                record.value(f"{k} got", sess.run([trains[k % 2], losses[k % 2], averaging], feeds)[1:])
            except tf.errors.InvalidArgumentError as error:
                record.value(f"{k} failed", type(error).__name__)  # of an op and its gradient either is heard of plainly
            record.value(f"{k}", sess.run([average, *tf.global_variables()]))


def program_outside(record):
    """Calls of Python, files and checkpoints beside a check; counters and files that are not there beside updates."""
    x, path = tf.placeholder(tf.float32, [], name="x"), tf.placeholder(tf.string, [], name="path")
    h, _ = _normalized(tf.fill([8, 8], x * 0.1), 4)
    value = tf.reduce_sum(h) * 0.0 + 1.0
    calls = []
    v, count = (tf.get_variable(name, [], dtype, initializer=tf.zeros_initializer(), use_resource=True)
                for name, dtype in (("v", tf.float32), ("count", tf.int32)))  # fmt: skip
    table = tf.lookup.experimental.DenseHashTable(tf.int64, tf.float32, 0.0, empty_key=-1, deleted_key=-2)
    check, update = tf.check_numerics(tf.log(x), "bad"), v.assign_add(value)
    steps = [
        [check, tf.py_func(lambda a: calls.append(1) or a, [value], tf.float32)],
        [check, tf.io.write_file(path, tf.as_string(value))],
        [check, tf.raw_ops.SaveV2(prefix=path, tensor_names=["a"], shape_and_slices=[""], tensors=[value])],
        [check, table.insert(tf.cast(tf.abs(x) * 10.0, tf.int64), value)],
        [count.count_up_to(0), update],
        [tf.io.read_file(path), update],
        [tf.raw_ops.RestoreV2(prefix=path, tensor_names=["a"], shape_and_slices=[""], dtypes=[tf.float32]), update],
    ]
    size = table.size()
    os.makedirs("made", exist_ok=True)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(5 * len(steps)):
            with record.error(f"{k}"):
                sess.run(steps[k % len(steps)], {x: -0.1 * k - 0.1, path: f"made/{k}"})
            record.value(f"{k}", [*sess.run([v, size]), len(calls), len(os.listdir("made"))])


def program_unset(record):
    """Variables that get their values one after the other, and steps in between that need all: the others' updates are kept."""
    x = tf.placeholder(tf.float32, [None, 6], name="x")
    rng = np.random.RandomState(7)
    with tf.variable_scope("net", use_resource=True):
        w = tf.get_variable("w", [6, 5], initializer=tf.constant_initializer(0.1), partitioner=tf.fixed_size_partitioner(2))
        late = tf.get_variable("late", [5], initializer=tf.ones_initializer())
        table = tf.get_variable("table", [7, 5], initializer=tf.constant_initializer(0.2))
    plain, count = (tf.get_variable(name, [5], initializer=tf.zeros_initializer(), use_resource=False) for name in ("p", "count"))
    h = tf.matmul(x, w) + tf.reduce_sum(tf.nn.embedding_lookup(table, [1, 3, 3]), 0) + plain
    hot = tf.placeholder(tf.bool, [], name="hot")
    loss = tf.reduce_sum(tf.square(tf.cond(hot, lambda: h * late, lambda: h)))
    train = tf.train.AdamOptimizer(0.01).minimize(loss, var_list=[*w, table, plain])
    step = tf.group(train, tf.assign_add(count, tf.reduce_sum(tf.tanh(h), 0)))
    every = tf.global_variables()
    with tf.Session() as sess:
        for k, variable in enumerate(every):
            sess.run(variable.initializer)
            for what, ends in (("step", [step]), ("late", [step, late]), ("cold", [step, loss])):
                try:
                    sess.run(ends, {x: rng.randn(4, 6), hot: what == "late"})
                except tf.errors.OpError:
                    record.value(f"{k} {what}", "failed")  # of which variable, and how that is said, differs plainly, too
            there = [v for v in every if sess.run(tf.is_variable_initialized(v))]
            record.value(f"{k}", sess.run(there))
