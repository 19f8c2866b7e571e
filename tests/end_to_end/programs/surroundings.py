"""What a program changes about its process between steps, and what else ops could tell by when they are made anew."""

import os
import threading

import numpy as np
import tensorflow.compat.v1 as tf


def counting():
    """A variable, and a step that writes it."""
    v = tf.get_variable("v", [], initializer=tf.zeros_initializer(), use_resource=True)
    return v, tf.assign_add(v, tf.exp(0.1 * v) * 0.3)


def two_files():
    """Of one name, in folders A and B."""
    for name in "AB":
        os.makedirs(name)
        with open(f"{name}/lines", "w") as file:
            file.writelines(f"{name}{k}\n" for k in range(20))


def lines(name):
    return tf.data.make_initializable_iterator(tf.data.TextLineDataset(name, buffer_size=16))


def program_folder(record):
    """A data set goes on with its file when the program goes elsewhere, where there is one of the same name."""
    home = os.getcwd()
    two_files()
    v, step = counting()
    iterator = lines("lines")
    line = iterator.get_next()
    try:
        os.chdir("A")
        with tf.Session() as sess:
            sess.run([v.initializer, iterator.initializer])
            for k in range(14):
                if k == 3:
                    os.chdir("../B")
                record.value(f"{k}", [sess.run(line), sess.run(step)])
    finally:
        os.chdir(home)


def program_pipe(record):
    """What comes by a pipe comes once."""
    os.mkfifo("pipe")

    def write():
        with open("pipe", "w") as file:
            file.writelines(f"line {k}\n" for k in range(20))

    writer = threading.Thread(target=write)
    writer.start()
    v, step = counting()
    iterator = lines("pipe")
    line = iterator.get_next()
    with tf.Session() as sess:
        sess.run([v.initializer, iterator.initializer])
        for k in range(8):
            with record.error(f"line {k}"):
                record.value(f"line {k}", sess.run(line))
            record.value(f"{k}", sess.run(step))
    if writer.is_alive():
        os.close(os.open("pipe", os.O_RDONLY | os.O_NONBLOCK))
    writer.join()


def program_step_inside(record):
    """A Python function that runs a step of its own, on a thread of TensorFlow's; which threads Python knows afterwards."""
    v, step = counting()
    with tf.Session() as sess:
        summed = tf.py_func(lambda a: np.float32(sess.run(step) + a), [tf.tanh(v) * 2.0], tf.float32)
        sess.run(v.initializer)
        for k in range(8):
            record.value(f"{k}", sess.run(summed))
    record.value("threads", [type(thread).__name__ for thread in threading.enumerate()])


def program_learning_phase(record):
    """What Keras' learning phase is, beside a Python function."""
    v, step = counting()
    phase = tf.placeholder_with_default(False, ())
    x = tf.placeholder(tf.float32, [3])
    y = tf.py_func(lambda a: a * 2, [x * v], tf.float32) + tf.cast(phase, tf.float32) * 0.3
    with tf.Session() as sess:
        sess.run(v.initializer)
        for k in range(9):
            feeds = {x: [1.0, 2.0, k], **({phase: True} if k % 3 == 2 else {})}
            record.value(f"{k}", [sess.run(y, feeds), sess.run(step)])


def program_link(record):
    """A data set goes on with its file when a link on the way to it is pointed elsewhere."""
    two_files()
    os.symlink("A", "current")
    v, step = counting()
    iterator = lines("current/lines")
    line = iterator.get_next()
    with tf.Session() as sess:
        sess.run([v.initializer, iterator.initializer])
        for k in range(14):
            if k == 3:
                os.symlink("B", "next")
                os.rename("next", "current")
            record.value(f"{k}", [sess.run(line), sess.run(step)])
