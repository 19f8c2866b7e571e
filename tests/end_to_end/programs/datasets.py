"""Every kind of data set, a few elements at a time, with its place kept in between; files that they write, errors in mid-epoch."""

import os

import numpy as np
import tensorflow.compat.v1 as tf


def take(record, sess, label, fetch, feed=None):
    """Note a fetch, or the error that it ends in."""
    try:
        record.value(label, sess.run(fetch, feed))
    except tf.errors.OpError as error:
        record.note_error(label, error)


def filled(k):
    return tf.fill([tf.cast(k, tf.int32)], k)


def round_robin():
    numbers, more = tf.data.Dataset.range, tf.data.experimental

    def thrice(x):
        return tf.data.Dataset.from_tensors(x).repeat(3)

    return {
        "window": numbers(20).window(4, 2, drop_remainder=True).flat_map(lambda w: w.batch(4)),
        "interleave": numbers(5).interleave(thrice, cycle_length=3, block_length=2),
        "parallel interleave": numbers(5).interleave(thrice, 3, 2, num_parallel_calls=2, deterministic=True),
        "parallel map": numbers(20).map(lambda x: tf.cast(x, tf.float32) ** 2, 2, deterministic=True).prefetch(2),
        "in memory": numbers(5).map(lambda x: x + 1).cache().repeat(3),
        "shuffled": numbers(9).shuffle(4, seed=3).repeat(2),
        "shuffled once": numbers(9).shuffle(4, seed=3, reshuffle_each_iteration=False).repeat(2),
        "scan": numbers(15).apply(more.scan(np.int64(0), lambda s, x: (s + x, s * 2))),
        "sampled": more.sample_from_datasets([numbers(8), numbers(100, 108)], [0.3, 0.7], seed=5),
        "chosen": more.choose_from_datasets([numbers(8), numbers(100, 108)], numbers(2).repeat(5)),
        "random": more.RandomDataset(seed=4).take(12),
    }


def grouping():
    numbers, more = tf.data.Dataset.range, tf.data.experimental
    rows = {"a": np.arange(12.0).reshape(6, 2), "b": tf.SparseTensor([[0, 0], [3, 1], [5, 0]], [1, 2, 3], [6, 2])}
    return {
        "groups": numbers(20).apply(more.group_by_window(lambda x: x % 3, lambda _, w: w.batch(3), 3)),
        "buckets": numbers(15).map(lambda x: filled(x % 5 + 1)).apply(more.bucket_by_sequence_length(tf.size, [3, 5], [2, 2, 2])),
        "padded": numbers(10).map(lambda x: filled(x % 4)).padded_batch(3, [None]),
        "unbatched": numbers(12).batch(4).apply(more.unbatch()),
        "ragged": numbers(8).map(lambda x: filled(x % 3)).apply(more.dense_to_ragged_batch(3)),
        "sparse": numbers(8).map(lambda x: filled(x % 3)).apply(more.dense_to_sparse_batch(3, [4])),
        "rows": tf.data.Dataset.from_tensor_slices(rows),
        "reduced": numbers(6).map(lambda x: numbers(x + 1).reduce(np.int64(0), lambda a, b: a + b)),
        "skipping errors": numbers(10)
        .map(lambda x: tf.check_numerics(1.0 / tf.cast(x % 3, tf.float32), "no"))
        .apply(more.ignore_errors()),
        "unique": numbers(12).map(lambda x: x % 5).apply(more.unique()),
        "while": numbers(30).apply(more.take_while(lambda x: x < 11)),
    }


def a_few_at_a_time(record, data, rounds):
    """Each in a run of its own: where one of several ends, it is open what the others have given."""
    iterators = {name: tf.data.make_initializable_iterator(one) for name, one in data.items()}
    elements = {name: iterator.get_next() for name, iterator in iterators.items()}
    with tf.Session() as sess:
        sess.run([iterator.initializer for iterator in iterators.values()])
        for k in range(rounds):
            for name, element in elements.items():
                take(record, sess, f"{name} {k}", element)


def program_round_robin(record):
    a_few_at_a_time(record, round_robin(), 7)


def program_grouping(record):
    a_few_at_a_time(record, grouping(), 7)


def program_cached_files(record):
    """Caches that are written as the first epoch goes, one of them by a function of another data set."""
    numbers = tf.data.Dataset.range
    inner = numbers(3).cache("inner")
    a_few_at_a_time(record, {"whole": numbers(5).cache("whole").repeat(2), "called": numbers(2).flat_map(lambda _: inner)}, 12)
    record.value("files", sorted(os.listdir(".")))


class OutOfPaperError(Exception):
    pass


def program_raising(record):
    """A generator that raises in mid-epoch, now and then, and is begun anew with another argument."""
    given = []

    def pages(n):
        for k in range(n):
            given.append(k)
            if k == 3 and len(given) < 6:
                raise OutOfPaperError(f"at {k}")
            yield k, [f"line {k}"] * (k % 3)

    n = tf.placeholder(tf.int64, [], name="n")
    data = tf.data.Dataset.from_generator(pages, (tf.int64, tf.string), ([], [None]), args=(n,))
    iterator = tf.data.make_initializable_iterator(data.padded_batch(2, ([], [None])))
    number, lines = iterator.get_next()
    total = tf.get_variable("total", [], tf.int64, initializer=tf.zeros_initializer(), use_resource=True)
    add = total.assign_add(tf.reduce_sum(number))
    with tf.Session() as sess:
        sess.run(total.initializer)
        take(record, sess, "before", number)
        for epoch, size in enumerate([8, 4, 2]):
            sess.run(iterator.initializer, {n: size})
            for k in range(4):
                take(record, sess, f"{epoch} {k}", [number, lines, add] if k % 2 else [number, lines])
            record.value(f"total {epoch}", sess.run(total))
        record.value("given", given)


def program_saved_places(record):
    """An iterator's place in the program's own checkpoints, gone back to and taken to another session."""
    iterator = tf.data.make_initializable_iterator(tf.data.Dataset.range(40).shuffle(10, seed=2).batch(2))
    element = iterator.get_next()
    total = tf.get_variable("total", [], tf.int64, initializer=tf.zeros_initializer(), use_resource=True)
    add = total.assign_add(tf.reduce_sum(element))
    tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, tf.data.experimental.make_saveable_from_iterator(iterator))
    saver = tf.train.Saver(max_to_keep=2)
    with tf.Session() as sess:
        sess.run([total.initializer, iterator.initializer])
        for k in range(3):
            record.value(f"{k}", sess.run([element, add]))
        place = saver.save(sess, "./place", 3)
        for k in range(4):
            record.value(f"on {k}", sess.run([element, add]))
        saver.restore(sess, place)
        for k in range(4):
            record.value(f"again {k}", sess.run([element, add]))
    with tf.Session() as sess:
        with record.error("not initialized"):
            saver.restore(sess, place)
        sess.run(iterator.initializer)
        saver.restore(sess, place)
        record.value("elsewhere", sess.run([element, add]))
