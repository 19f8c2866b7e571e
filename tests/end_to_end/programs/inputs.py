"""Inputs old and new: producers, shuffled batches, copies to devices, prefetched to them, maps over elements."""

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import data_flow_ops


def program_copied(record):
    """Data sets that are copied to a device, prefetched there, and read through several iterators."""

    def data(n=40):
        return (
            tf.data.Dataset.range(n)
            .map(lambda i: (tf.cast(i, tf.float32) * [1.0, 0.5], i % 3))
            .shuffle(7, seed=3)
            .repeat()
            .batch(4)
        )

    copied = data().apply(tf.data.experimental.copy_to_device("/cpu:0")).prefetch(1)
    with tf.device("/cpu:0"):
        first = tf.data.make_initializable_iterator(copied)
        x, y = first.get_next()
    second = tf.data.make_one_shot_iterator(data().prefetch(2))
    u, z = second.get_next()
    prefetched = data().apply(tf.data.experimental.prefetch_to_device("/cpu:0", 2))
    third = tf.data.make_initializable_iterator(prefetched)
    p, q = third.get_next()
    w = tf.get_variable("w", [2], initializer=tf.ones_initializer(), use_resource=True)
    loss = tf.reduce_mean(tf.square(x * w - u)) + tf.reduce_mean(tf.square(p * w + 1.0))
    train = tf.train.GradientDescentOptimizer(0.001).minimize(loss)
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), first.initializer, third.initializer])
        for k in range(14):
            record.value(f"{k}", sess.run([loss, y, z, q, train])[:4])
            if k == 8:
                sess.run(first.initializer)
        record.value("w", sess.run(w))
    record.graph("graph")


def program_mapped(record):
    """map_fn over elements, flat_map, interleave, scan, reduce, window, unbatch, filters, choices by a random data set, and rejection."""
    base = tf.data.Dataset.range(30)
    kinds = {
        "map_fn": base.batch(3).map(lambda b: tf.map_fn(lambda v: tf.cond(v % 2 > 0, lambda: v * v, lambda: -v), b)),
        "loop": base.map(
            lambda i: tf.while_loop(lambda j, _: j < i % 5, lambda j, s: (j + 1, s * 2 + j), [tf.constant(0, tf.int64), i])[1]
        ),
        "flat": base.flat_map(lambda i: tf.data.Dataset.range(i % 4)).batch(2, drop_remainder=True),
        "interleave": base.interleave(
            lambda i: tf.data.Dataset.from_tensors(i).repeat(3), 4, 2, num_parallel_calls=2, deterministic=True
        ),
        "scan": base.apply(tf.data.experimental.scan(tf.constant(1, tf.int64), lambda s, i: (s + i, s * i))),
        "window": base.window(4, 2, 1, True).flat_map(lambda w: w.batch(4)),
        "unbatch": base.batch(5).unbatch().filter(lambda i: i % 3 > 0).take(11),
        "random": tf.data.experimental.RandomDataset(5).map(lambda s: tf.random.stateless_uniform([2], [s, s])).take(20),
        "grouped": base.apply(
            tf.data.experimental.group_by_reducer(
                lambda i: i % 4, tf.data.experimental.Reducer(lambda _: tf.constant(0, tf.int64), lambda s, i: s + i, lambda s: s)
            )
        ),
        "chosen": tf.data.experimental.choose_from_datasets([base, base.map(lambda i: -i)], tf.data.Dataset.range(2).repeat(12)),
        "sampled": tf.data.experimental.sample_from_datasets([base, base.map(lambda i: -i)], [0.3, 0.7], seed=4),
        "cached": base.map(lambda i: i * 3).cache().repeat(2).shuffle(5, seed=8, reshuffle_each_iteration=True),
        "options": base.batch(4)
        .with_options(tf.data.Options())
        .map(lambda b: tf.reduce_sum(b), num_parallel_calls=tf.data.AUTOTUNE),
        "reduced": tf.data.Dataset.from_tensors(base.reduce(tf.constant(0, tf.int64), lambda a, b: a + b)),
    }
    reads = {name: tf.data.make_initializable_iterator(kind) for name, kind in kinds.items()}
    nexts = {name: it.get_next() for name, it in reads.items()}
    with tf.Session() as sess:
        for _ in range(2):
            sess.run([it.initializer for it in reads.values()])
            for k in range(13):
                for name, value in nexts.items():
                    with record.error(f"{name} {k}"):
                        record.value(f"{name} {k}", sess.run(value))
    record.graph("graph")


def program_producers(record):
    """input_producer of tensors, shuffled with a seed by one thread; batch_join; maybe_batch; a limit on epochs; queue sizes."""
    v = tf.constant(np.arange(20, dtype="f").reshape(10, 2))
    rows = tf.train.input_producer(v, num_epochs=3, shuffle=True, seed=3, capacity=4)
    numbers = tf.train.range_input_producer(7, shuffle=True, seed=5)
    row = rows.dequeue()
    batched = tf.train.batch([row, numbers.dequeue()], 4, num_threads=1, capacity=9, allow_smaller_final_batch=True)
    w = tf.get_variable("w", [2, 1], initializer=tf.ones_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(batched[0], w) - 1.0))
    train = tf.train.AdamOptimizer(0.01).minimize(loss, tf.train.get_or_create_global_step())
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess, coordinator)
        steps = 0
        try:
            while not coordinator.should_stop():
                record.value(f"{steps}", sess.run([batched, loss, train])[:2])
                steps += 1
        except tf.errors.OutOfRangeError as error:
            record.note_error("end", error)
        finally:
            coordinator.request_stop()
        coordinator.join(threads)
        record.value("w", sess.run(w))
    record.graph("graph")


def program_shuffled(record):
    """shuffle_batch_join, shuffle_batch, maybe_shuffle_batch, with readers of lines; as a multiset, since threads have no order."""
    for k in range(3):
        with open(f"lines{k}.txt", "w") as f:
            f.writelines(f"{k},{i},{i * 0.5}\n" for i in range(9))
    names = tf.train.string_input_producer([f"lines{k}.txt" for k in range(3)], num_epochs=2, shuffle=True, seed=2)
    pairs = []
    for _ in range(2):
        key, line = tf.TextLineReader().read(names)
        pairs.append(tf.decode_csv(line, [[0], [0], [0.0]]))
    joined = tf.train.shuffle_batch_join(pairs, 5, 40, 6, seed=4, allow_smaller_final_batch=True)
    total = tf.get_variable("total", [], tf.float32, tf.zeros_initializer(), use_resource=True)
    add = tf.assign_add(total, tf.reduce_sum(joined[2]))
    seen = []
    with tf.train.MonitoredSession() as sess:
        while not sess.should_stop():
            try:
                seen += [tuple(r) for r in zip(*sess.run([*joined, add])[:3], strict=True)]
            except tf.errors.OutOfRangeError:
                break
    record.value("seen", sorted((int(a), int(b), float(c)) for a, b, c in seen))
    record.graph("graph")


def program_unseeded(record):
    """A shuffling queue whose draws have no seed: which elements there are, how many and until when is known all the same."""
    x = tf.placeholder(tf.float32, [3], name="x")
    value = tf.exp(tf.sin(x)) * 2.0
    queue = tf.RandomShuffleQueue(8, 0, [tf.int32], [[]])
    put, take, size, close = queue.enqueue_many([tf.range(5)]), queue.dequeue(), queue.size(), queue.close()
    barrier = data_flow_ops.Barrier((tf.float32,), shapes=((),))
    insert, taken, shut = barrier.insert_many(0, ["a"], [1.0]), barrier.take_many(1), barrier.close()
    with tf.Session() as sess:
        sess.run([put, shut])
        seen = []
        for k in range(12):
            record.value(f"{k}", sess.run([value, size], {x: [0.1 * k] * 3}))
            if k == 6:
                sess.run(close)
            if k % 2:
                with record.error(f"take {k}"):
                    seen.append(int(sess.run(take)))
            record.value(f"closed {k}", sess.run(queue.is_closed()))
        record.value("seen", sorted(seen))
        for what in (insert, taken, put):
            with record.error(what.name if isinstance(what, tf.Operation) else "taken"):
                sess.run(what)
