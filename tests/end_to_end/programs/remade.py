"""State that would be other state if it were made again: data sets from draws, Python, tables, files, queues, other iterators, and in
parts whose function reads what changes; a queue that is made after other ops."""

import os

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import lookup_ops


def made_from(record, source, change=None, rounds=10):
    """Steps of an iterator over `source`, made once, with `change` (run, or called) before, between and after them."""
    iterator = tf.data.make_initializable_iterator(tf.data.Dataset.from_tensor_slices(source).repeat())
    n = iterator.get_next()
    y = tf.cast(n, tf.float32) * 0.5 + 1.0

    def changed(sess, k):
        if callable(change):
            change(k)
        elif change is not None:
            sess.run(change, {"k:0": k})

    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        changed(sess, 0)
        sess.run(iterator.initializer)
        for k in range(rounds):
            record.value(f"{k}", sess.run([n, y]))
            changed(sess, k)
        sess.run(iterator.initializer)
        for k in range(4):
            record.value(f"again {k}", sess.run([n, y]))


def program_draws(record):
    made_from(record, tf.random_uniform([6], seed=3))


def program_shuffled(record):
    made_from(record, tf.random.shuffle(tf.range(7), seed=5))


def program_python(record):
    calls = []

    def give():
        calls.append(1)
        return np.arange(5, dtype=np.int64) + 10 * len(calls)

    source = tf.py_func(give, [], tf.int64)
    source.set_shape([5])
    made_from(record, source)
    record.value("calls", len(calls))


def program_table(record):
    table = lookup_ops.MutableHashTable(tf.int64, tf.int64, -1)
    k = tf.placeholder(tf.int64, [], name="k")
    put = table.insert([0, 1, 2, 3], [k * 100, k * 100 + 1, k * 100 + 2, k * 100 + 3])
    made_from(record, table.lookup(tf.constant([3, 1, 2, 0], tf.int64)), put)


def program_files(record):
    def change(k):
        with open(f"part{k}.txt", "w") as file:
            file.write(f"words {k}")

    made_from(record, tf.string_to_hash_bucket_fast(tf.io.matching_files("part*.txt"), 1000), change)


def program_queue(record):
    queue = tf.FIFOQueue(30, tf.int64, shapes=[[3]])
    k = tf.placeholder(tf.int64, [], name="k")
    made_from(record, queue.dequeue(), queue.enqueue([tf.stack([k, k + 1, k + 2])]))


def program_variable(record):
    v = tf.get_variable("v", [5, 2], initializer=tf.random_uniform_initializer(seed=1), use_resource=True)
    k = tf.placeholder(tf.float32, [], name="k")
    made_from(record, tf.gather(v, [1, 3, 0]), tf.group(v.assign_add(tf.ones([5, 2]) * k)))


def program_iterator(record):
    other = tf.data.make_initializable_iterator(tf.data.Dataset.range(100).batch(3))
    given = other.get_next()
    iterator = tf.data.make_initializable_iterator(tf.data.Dataset.from_tensors(given * 2).repeat())
    n = iterator.get_next()
    y = n * 3
    with tf.Session() as sess:
        sess.run(other.initializer)
        sess.run(iterator.initializer)
        for k in range(10):
            record.value(f"{k}", sess.run([n, y]))
            record.value(f"other {k}", sess.run(given))
            if k % 4 == 3:
                sess.run(iterator.initializer)


def program_parts_of_a_variable(record):
    v = tf.get_variable("v", [], tf.int64, initializer=tf.zeros_initializer(), use_resource=True)

    def part(x):
        return tf.data.Dataset.from_tensors(x * 100 + v.read_value()).repeat(3)

    iterator = tf.data.make_initializable_iterator(tf.data.Dataset.range(6).flat_map(part).with_options(unhurried()))
    n, add = iterator.get_next(), tf.assign_add(v, 1)
    y = tf.cast(n, tf.float32) * 0.5
    with tf.Session() as sess:
        sess.run(v.initializer)
        sess.run(iterator.initializer)
        for k in range(14):
            record.value(f"{k}", sess.run([n, y]))
            sess.run(add)


def program_parts_of_a_table(record):
    table = lookup_ops.MutableHashTable(tf.int64, tf.float32, -1.0)

    def part(x):
        return tf.data.Dataset.from_tensors(table.lookup(x)).repeat(4)

    data = tf.data.Dataset.range(5).interleave(part, cycle_length=2, block_length=1).with_options(unhurried())
    iterator = tf.data.make_initializable_iterator(data)
    n = iterator.get_next()
    key, value = tf.placeholder(tf.int64, []), tf.placeholder(tf.float32, [])
    put, doubled = table.insert(key, value), n * 2.0
    with tf.Session() as sess:
        for k in range(5):
            sess.run(put, {key: k, value: 0.5 * k})
        sess.run(iterator.initializer)
        for k in range(14):
            record.value(f"{k}", sess.run([n, doubled]))
            sess.run(put, {key: k % 5, value: 10.0 * k})


def program_parts_of_words(record):
    """A table whose words never change, as text pipelines have it: such a session may be restarted."""
    words = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b", "c"], tf.constant([3, 4, 5], tf.int64)), -7)
    lines = tf.data.Dataset.from_tensor_slices(["a b", "c c a", "d b a c"])
    data = lines.flat_map(lambda t: tf.data.Dataset.from_tensor_slices(words.lookup(tf.string_split([t]).values))).repeat()
    iterator = tf.data.make_initializable_iterator(data)
    n = iterator.get_next()
    table = tf.get_variable("table", [8, 2], initializer=tf.random_uniform_initializer(seed=1), use_resource=True)
    loss = tf.reduce_sum(tf.square(tf.nn.embedding_lookup(table, tf.maximum(n, 0))))
    train = tf.train.AdagradOptimizer(0.1).minimize(loss)
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.tables_initializer()])
        sess.run(iterator.initializer)
        for k in range(14):
            record.value(f"{k}", sess.run([n, loss, train])[:2])


def unhurried():
    """Elements are made when they are wanted: plainly, too, a prefetched one may be of either side of a change."""
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    options.autotune.enabled = False
    return options


def program_emptied(record):
    """The files of two data sets are emptied by the first step that reads of them: their iterators have read on, and go on."""
    lines = []
    for k in range(2):
        with open(f"emptied{k}.txt", "w") as f:
            f.writelines(f"line {n} of {k}\n" for n in range(12))
        lines.append(tf.data.make_initializable_iterator(tf.data.TextLineDataset(f"emptied{k}.txt")))
    nexts = [iterator.get_next() for iterator in lines]

    def empty():
        for k in range(2):
            os.truncate(f"emptied{k}.txt", 0)
        return True

    with tf.control_dependencies(nexts):
        emptied = tf.py_func(empty, [], tf.bool)
    with tf.Session() as sess:
        sess.run([iterator.initializer for iterator in lines])
        for k in range(10):
            record.value(f"{k}", sess.run(nexts if k else [*nexts, emptied]))


def program_replaced(record):
    """Files that are replaced by others of the same name when iterators are in the middle of them."""
    sets = {"lines": tf.data.TextLineDataset, "pieces": lambda name: tf.data.FixedLengthRecordDataset(name, 8)}
    for name, make in sets.items():
        with open(name, "w") as f:
            f.writelines(f"first {k}\n" for k in range(9))
        word = tf.data.make_one_shot_iterator(make(name)).get_next()
        with tf.Session() as sess:
            record.value(f"{name} 0", sess.run(word))
            with open("other", "w") as f:
                f.writelines(f"other {k}\n" for k in range(9))
            os.replace("other", name)
            for k in range(1, 7):
                record.value(f"{name} {k}", sess.run(word))


def program_behind_others(record):
    """A queue that is made after other ops: whoever asks for it has them run. Only the program may, or batches are lost."""
    batch = tf.data.make_one_shot_iterator(tf.data.Dataset.range(100)).get_next()
    with tf.control_dependencies([batch, tf.random_uniform([], seed=3)]):
        queue = tf.PaddingFIFOQueue(3, [tf.int64], [[]])
    put, taken = queue.enqueue([batch * 2]), queue.dequeue()
    with tf.Session() as sess:
        for k in range(12):
            sess.run(put)
            record.value(f"{k}", sess.run(taken if k % 2 else [taken, batch]))
        record.value("next", sess.run(batch))
