"""Datasets and iterators of every kind, and a fetch of two batches at once."""

import numpy as np
import tensorflow.compat.v1 as tf


def pipeline(n=20):
    data = tf.data.Dataset.range(n).map(lambda i: tf.cast(i, tf.float32) * 0.5)
    return data.shuffle(8, seed=3).repeat(3).batch(4, drop_remainder=True)


def program_one_shot(record):
    batch = tf.data.make_one_shot_iterator(pipeline()).get_next()
    w = tf.get_variable("w", [4], initializer=tf.ones_initializer())
    train = tf.train.GradientDescentOptimizer(0.01).minimize(tf.reduce_sum(tf.square(batch - w)))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        with record.error("end"):
            for k in range(100):
                record.value(f"{k}", sess.run([batch, train, w])[0])
        record.value("w", sess.run(w))
    with tf.Session() as sess:
        record.value("a second session", sess.run([batch, batch]))
    record.graph("graph")


def program_initializable(record):
    n = tf.placeholder(tf.int64, [], name="n")
    data = tf.data.Dataset.range(n).shuffle(5, seed=2, reshuffle_each_iteration=True).repeat(2)
    data = data.interleave(lambda i: tf.data.Dataset.from_tensors(i).repeat(2), cycle_length=2).prefetch(2)
    iterator = tf.data.make_initializable_iterator(data)
    first, second = iterator.get_next(), iterator.get_next()
    with tf.control_dependencies([first]):
        then = tf.identity(first) + 100
    with tf.Session() as sess:
        with record.error("not initialized"):
            sess.run(first)
        for epoch in range(3):
            sess.run(iterator.initializer, {n: 4 + epoch})
            with record.error(f"end {epoch}"):
                for k in range(50):
                    record.value(f"{epoch} {k}", sess.run(then))
        sess.run(iterator.initializer, {n: 6})
        record.value("pairs", [sorted(int(v) for v in sess.run([first, second])) for _ in range(1)])
    record.graph("graph")


def program_reinitializable(record):
    train = tf.data.Dataset.from_tensor_slices(np.arange(12, dtype=np.float32)).shuffle(12, seed=5).batch(3)
    test = tf.data.Dataset.from_tensor_slices(np.arange(100, 106, dtype=np.float32)).batch(2)
    iterator = tf.data.Iterator.from_structure(tf.data.get_output_types(train), tf.data.get_output_shapes(train))
    use_train, use_test = iterator.make_initializer(train), iterator.make_initializer(test)
    value = iterator.get_next() * 2.0
    with tf.Session() as sess:
        for epoch in range(3):
            for name, start in (("train", use_train), ("test", use_test)):
                sess.run(start)
                with record.error(f"{name} {epoch} end"):
                    for k in range(20):
                        record.value(f"{name} {epoch} {k}", sess.run(value))
        sess.run(use_train)
        record.value("left open", sess.run(value))
    record.graph("graph")


def program_feedable(record):
    handle = tf.placeholder(tf.string, [], name="handle")
    train = tf.data.make_one_shot_iterator(pipeline())
    test = tf.data.make_initializable_iterator(tf.data.Dataset.range(9).map(lambda i: tf.cast(i, tf.float32)).batch(4))
    iterator = tf.data.Iterator.from_string_handle(handle, tf.data.get_output_types(train), tf.TensorShape([None]))
    value = iterator.get_next() + 1.0
    with tf.Session() as sess:
        train_handle, test_handle = sess.run([train.string_handle(), test.string_handle()])
        for epoch in range(3):
            sess.run(test.initializer)
            for k in range(4):
                record.value(f"train {epoch} {k}", sess.run(value, {handle: train_handle}))
            with record.error(f"end {epoch}"):
                for k in range(9):
                    record.value(f"test {epoch} {k}", sess.run(value, {handle: test_handle}))
        with record.error("no handle"):
            sess.run(value, {handle: "nothing"})


def program_transformations(record):
    data = tf.data.Dataset.zip((tf.data.Dataset.range(30), tf.data.Dataset.range(100, 130)))
    data = data.filter(lambda a, b: a % 3 != 0).map(lambda a, b: {"a": a, "b": tf.stack([a, b])}, num_parallel_calls=2)
    data = data.window(4, 2).flat_map(lambda w: tf.data.Dataset.zip((w["a"].batch(4), w["b"].batch(4))))
    data = data.padded_batch(2, ([None], [None, 2])).take(5).cache().repeat(2)
    scan = tf.data.Dataset.range(10).scan(np.int64(0), lambda s, x: (s + x, s + x)).skip(2).prefetch(1)
    value, other = tf.data.make_one_shot_iterator(data).get_next(), tf.data.make_one_shot_iterator(scan).get_next()
    grouped = tf.data.Dataset.range(20).group_by_window(lambda x: x % 2, lambda _, w: w.batch(3), 3)
    group = tf.data.make_one_shot_iterator(grouped).get_next()
    with tf.Session() as sess, record.error("end"):
        for k in range(30):
            record.value(f"group {k}", sess.run(group))
            record.value(f"{k}", sess.run(value))
            record.value(f"other {k}", sess.run(other))


def program_stateful_map(record):
    """Random ops, a table and a variable captured inside a dataset's functions."""
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.range(5, dtype=tf.int64), tf.range(5, dtype=tf.int64) * 7), -1
    )
    v = tf.get_variable("v", [], tf.int64, tf.zeros_initializer(), use_resource=True)
    data = tf.data.Dataset.range(40).map(lambda i: (table.lookup(i % 6) + v, tf.random_uniform([2], seed=4)))
    options = tf.data.Options()  # nothing may read the variable ahead of its step
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False
    data = data.with_options(options)
    iterator = tf.data.make_initializable_iterator(data)
    value = iterator.get_next()
    bump = v.assign_add(1000)
    with tf.Session() as sess:
        sess.run([tf.tables_initializer(), v.initializer])
        sess.run(iterator.initializer)
        for k in range(20):
            record.value(f"{k}", sess.run(value))
            if k % 5 == 4:
                record.value(f"bump {k}", sess.run(bump))
    record.graph("graph")


def program_saved(record):
    """An iterator whose position goes to a checkpoint and comes back."""
    iterator = tf.data.make_initializable_iterator(pipeline())
    value = iterator.get_next()
    saveable = tf.data.experimental.make_saveable_from_iterator(iterator)
    w = tf.get_variable("w", [], initializer=tf.ones_initializer())
    saver = tf.train.Saver([w, saveable])
    with tf.Session() as sess:
        sess.run([iterator.initializer, w.initializer])
        for k in range(5):
            record.value(f"before {k}", sess.run(value))
        saver.save(sess, "model")
        ahead = [sess.run(value) for _ in range(5)]
        record.value("ahead", ahead)
        saver.restore(sess, "model")
        again = [sess.run(value) for _ in range(5)]
        record.value("again", again)
        record.value("the same", bool(np.array_equal(ahead, again)))


def program_many(record):
    """Two iterators in lock step, an optional, an iterator consumed by two kinds of steps."""
    one = tf.data.make_one_shot_iterator(tf.data.Dataset.range(30))
    two = tf.data.make_one_shot_iterator(tf.data.Dataset.range(30).shuffle(30, seed=9))
    a, b = one.get_next(), two.get_next()
    both = tf.stack([a, b]) * 2
    optional = tf.data.experimental.get_next_as_optional(one)
    has = optional.has_value()
    with tf.Session() as sess:
        for k in range(8):
            record.value(f"both {k}", sess.run(both))
            record.value(f"only a {k}", sess.run(a))
            record.value(f"only b {k}", sess.run([b, b * 3]))
            record.value(f"optional {k}", sess.run(has))
