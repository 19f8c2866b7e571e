"""Partial runs: open while other runs go on, several at once, and their errors."""

import tensorflow.compat.v1 as tf


def program_partial(record):
    a = tf.placeholder(tf.float32, [], name="a")
    b = tf.placeholder(tf.float32, [], name="b")
    c = tf.placeholder(tf.float32, [], name="c")
    v = tf.get_variable("v", [], initializer=tf.ones_initializer())
    r1 = tf.add(a, b, name="r1")
    r2 = tf.multiply(r1, c, name="r2")
    step = tf.assign_add(v, 1.0)
    noise = tf.random_uniform([2], seed=5)
    with tf.Session() as sess:
        sess.run(v.initializer)
        for k in range(9):
            handle = sess.partial_run_setup([r1, r2, noise], [a, b, c])
            record.value(f"first {k}", sess.partial_run(handle, r1, {a: k, b: 2}))
            record.value(f"between {k}", sess.run([step, v]))
            record.value(f"second {k}", sess.partial_run(handle, [r2, noise], {c: 3}))
            record.value(f"after {k}", sess.run([r2, noise], {a: 1, b: k, c: 2}))
        one = sess.partial_run_setup([r1, r2], [a, b, c])
        two = sess.partial_run_setup([r1, r2], [a, b, c])
        record.value("one", sess.partial_run(one, r1, {a: 1, b: 2}))
        record.value("two", sess.partial_run(two, r1, {a: 10, b: 20}))
        for k in range(8):
            record.value(f"while open {k}", sess.run([step, noise]))
        record.value("one ends", sess.partial_run(one, r2, {c: 2}))
        record.value("two ends", sess.partial_run(two, r2, {c: 3}))
        with record.error("ended"):
            sess.partial_run(two, r2, {c: 3})
    record.graph("graph")


def program_errors(record):
    a = tf.placeholder(tf.float32, [], name="a")
    b = tf.placeholder(tf.float32, [], name="b")
    r1 = tf.add(a, 1.0, name="r1")
    r2 = tf.multiply(r1, b, name="r2")
    with tf.Session() as sess:
        for k in range(4):
            record.value(f"run {k}", sess.run(r2, {a: k, b: 2}))
            handle = sess.partial_run_setup([r1], [a])
            with record.error(f"not declared {k}"):
                sess.partial_run(handle, r2, {a: 1.0})
            with record.error(f"feed not declared {k}"):
                sess.partial_run(handle, r1, {b: 1.0})
            with record.error(f"no feeds {k}"):
                sess.partial_run(handle, r1)
            handle = sess.partial_run_setup([r1, r2], [a, b])
            record.value(f"ok {k}", sess.partial_run(handle, r1, {a: 1.0}))
            with record.error(f"twice {k}"):
                sess.partial_run(handle, r1, {a: 1.0})
        with record.error("unknown handle"):
            sess.partial_run("nothing", r1, {a: 1.0})
        with record.error("unfetchable"):
            sess.partial_run_setup(["zz:0"], [a])


def program_left_open(record):
    a = tf.placeholder(tf.float32, [], name="a")
    r1 = tf.add(a, 1.0, name="r1")
    r2 = tf.multiply(r1, 2.0, name="r2")
    sess = tf.Session()
    for k in range(8):
        sess.partial_run_setup([r1, r2], [a])
        record.value(f"run {k}", sess.run(r2, {a: k}))
    sess.close()


def program_failed(record):
    """One that lacks a feed fails; TensorFlow then cancels whatever the session is asked for, until the program makes another."""
    x = tf.placeholder(tf.float32, [], name="x")
    z = tf.placeholder(tf.float32, [], name="z")
    halves = [x * 2.0, x * 3.0]
    y = tf.sin(z) * tf.exp(z) + tf.cos(z) + halves[0] - halves[1]
    for j in range(4):
        with tf.Session() as sess:
            for k in range(2 + j):
                record.value(f"{j} before {k}", sess.run(y, {z: k, x: k}))
            handle = sess.partial_run_setup(halves, [])
            with record.error(f"{j} lacks a feed"):
                sess.partial_run(handle, halves[0])
            for k in range(6):
                with record.error(f"{j} after {k}"):
                    sess.run(y, {z: k, x: k})


def program_handles(record):
    """What a partial run is called: all that it is of, the first time by name, and a number that says how many there were."""
    x, a = tf.placeholder(tf.float32, [2, 3], name="x"), tf.placeholder(tf.float32, [], name="a")
    w = tf.get_variable("w", [3, 3], initializer=tf.ones_initializer())
    y = tf.multiply(tf.matmul(x, w), a, name="y")
    b = tf.reduce_sum(tf.tanh(y), name="b")
    asked = [([y, b], [x, a]), ([b, y], [a, x]), ([y, b], [x, a]), ([y, b + 1.0, b], [a, x])]
    with tf.Session() as sess:
        sess.run(w.initializer)
        for k in range(5):
            handles = [sess.partial_run_setup(*each) for each in asked]
            record.value(f"{k}", handles)
            record.value(f"{k} while open", sess.run(b, {x: [[1.0, 2.0, k]] * 2, a: 2.0}))
            for n, handle in enumerate(reversed(handles)):
                record.value(f"{k} {n}", sess.partial_run(handle, y, {x: [[1.0, k, n]] * 2, a: 3.0}))
                record.value(f"{k} {n} ends", sess.partial_run(handle, asked[3][0][1:] if n == 0 else b))
            for n in range(2):
                record.value(f"{k} after {n}", sess.run(b, {x: [[1.0, n, k]] * 2, a: 2.0}))
        for k in range(3):
            with record.error(f"ended {k}"):
                sess.partial_run(handles[0], b)
