"""Datasets from Python generators: no element lost, none twice, the generator closed once."""

import numpy as np
import tensorflow.compat.v1 as tf


def program_generator(record):
    log = []

    def numbers(limit):
        log.append(f"start {int(limit)}")
        try:
            for k in range(int(limit)):
                log.append(k)
                yield k, np.full([2], k, np.float32)
        finally:
            log.append("end")

    data = tf.data.Dataset.from_generator(numbers, (tf.int64, tf.float32), ([], [2]), args=(9,))
    iterator = tf.data.make_initializable_iterator(data.map(lambda a, b: (a * 2, b + 1.0)).repeat(2))
    value = iterator.get_next()
    total = tf.get_variable("total", [2], initializer=tf.zeros_initializer())
    train = tf.assign_add(total, value[1])
    with tf.Session() as sess:
        sess.run(total.initializer)
        for epoch in range(2):
            sess.run(iterator.initializer)
            with record.error(f"end {epoch}"):
                for k in range(40):
                    record.value(f"{epoch} {k}", sess.run([value, train] if k % 3 else [value]))
    record.value("log", log)
    record.graph("graph")


def program_raising(record):
    def numbers():
        yield 1
        yield 2
        raise KeyError("from the generator")

    iterator = tf.data.make_initializable_iterator(tf.data.Dataset.from_generator(numbers, tf.int64, []))
    value = iterator.get_next(name="next")
    with tf.Session() as sess:
        for epoch in range(3):
            sess.run(iterator.initializer)
            for k in range(3):
                if k < 2:
                    record.value(f"{epoch} {k}", sess.run(value))
                else:
                    with record.error(f"{epoch} {k}"):
                        sess.run(value)


def program_py_func_map(record):
    seen = []

    def host(k):
        seen.append(int(k))
        return np.float32(len(seen) * 0.5 + k)

    data = tf.data.Dataset.range(12).map(lambda k: tf.py_func(host, [k], tf.float32)).batch(2)
    value = tf.data.make_one_shot_iterator(data).get_next()
    with tf.Session() as sess, record.error("end"):
        for k in range(20):
            record.value(f"{k}", sess.run(value))
    record.value("seen", seen)
