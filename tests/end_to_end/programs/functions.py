"""Function calls of every kind, with gradients and state inside."""

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.framework import function
from tensorflow.python.ops import functional_ops


def program_tf_function(record):
    x = tf.placeholder(tf.float32, [3], name="x")
    v = tf.Variable([1.0, 2.0, 3.0], use_resource=True)

    @tf.function
    def inner(t):
        return tf.nn.relu(t) * 2.0

    @tf.function
    def outer(t):
        v.assign_add(t * 0.1)
        if tf.reduce_sum(t) > 2.0:
            t = inner(t)
        for _ in tf.range(3):
            t = t + inner(t)
        return t, v.read_value()

    y, seen = outer(x)
    (g,) = tf.gradients(tf.reduce_sum(y), x)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(10):
            record.value(f"{k}", sess.run([y, seen], {x: [k, 1.0, -1.0]}))
            record.value(f"gradient {k}", sess.run(g, {x: [1.0, -k, 2.0]}))
    record.graph("graph")


def program_defun(record):
    @function.Defun(tf.float32, tf.float32, func_name="product")
    def product(a, b):
        return a * b + 1.0, tf.reduce_sum(a)

    @function.Defun(tf.float32, func_name="noisy")
    def noisy(a):
        return a + tf.random_uniform([2], seed=3, name="noise")

    x = tf.placeholder(tf.float32, [2], name="x")
    y, z = product(x, x)
    n = noisy(y)
    (g,) = tf.gradients([y, z], x)
    with tf.Session() as sess:
        for k in range(12):
            record.value(f"{k}", sess.run([y, z, g], {x: [k, 2.0]}))
            record.value(f"noisy {k}", sess.run(n, {x: [k, 2.0]}))
    record.graph("graph")


def program_py_func(record):
    calls = []

    def host(a, b):
        calls.append(float(a.sum()))
        return (a + b).astype(np.float32), np.int64(len(calls))

    x = tf.placeholder(tf.float32, [2], name="x")
    y, count = tf.py_func(host, [x * 2.0, tf.constant([1.0, 1.0])], [tf.float32, tf.int64])
    pure = tf.numpy_function(lambda a: np.sort(a)[::-1].copy(), [x], tf.float32)
    eager = tf.py_function(lambda a: a * a, [x], tf.float32)
    eager.set_shape([2])
    (g,) = tf.gradients(tf.reduce_sum(eager), x)

    def fails(_):
        raise ValueError("the user's own words")

    bad = tf.py_func(fails, [x], tf.float32, name="bad")
    with tf.Session() as sess:
        for k in range(9):
            record.value(f"stateful {k}", sess.run([y + 1.0, count], {x: [k, 2.0]}))
            record.value(f"others {k}", sess.run([pure, eager, g], {x: [k, 2.0]}))
            with record.error(f"raises {k}"):
                sess.run(bad, {x: [0.0, 0.0]})
    record.value("calls", calls)


def program_partitioned_call(record):
    @function.Defun(tf.float32, tf.resource)
    def body(a, handle):
        read = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
        with tf.control_dependencies([read]):
            step = tf.raw_ops.AssignAddVariableOp(resource=handle, value=a)
        with tf.control_dependencies([step]):
            return tf.identity(read * a)

    @function.Defun(tf.float32)
    def pure(a):
        return tf.exp(a) - 1.0

    v = tf.get_variable("v", [2], initializer=tf.ones_initializer(), use_resource=True)
    x = tf.placeholder(tf.float32, [2], name="x")
    with tf.control_dependencies([v.read_value()]):
        (y,) = tf.raw_ops.StatefulPartitionedCall(args=[x * 1.0, v.handle], Tout=[tf.float32], f=body)
    (z,) = tf.raw_ops.PartitionedCall(args=[x], Tout=[tf.float32], f=pure)
    remote = tf.raw_ops.StatefulPartitionedCall(args=[x], Tout=[tf.float32], f=pure)
    with tf.Session() as sess:
        sess.run(v.initializer)
        for k in range(10):
            record.value(f"{k}", sess.run([y, z, remote], {x: [k, 0.5]}))
            record.value(f"v {k}", sess.run(v))


def program_custom_gradient(record):
    @tf.custom_gradient
    def clipped(t):
        return tf.identity(t), lambda dy: tf.clip_by_value(dy, -0.1, 0.1)

    x = tf.placeholder(tf.float32, [3], name="x")
    y = tf.reduce_sum(tf.square(clipped(x * 3.0)))
    (g,) = tf.gradients(y, x)
    with tf.get_default_graph().gradient_override_map({"Sign": "Identity"}):
        s = tf.sign(x)
    (gs,) = tf.gradients(s, x)
    with tf.Session() as sess:
        for k in range(8):
            record.value(f"{k}", sess.run([y, g, s, gs], {x: [k, -1.0, 0.01]}))
    record.graph("graph")


def program_remote_call(record):
    @function.Defun(tf.float32)
    def body(a):
        return a * 3.0

    x = tf.placeholder(tf.float32, [2], name="x")
    y = functional_ops.remote_call(args=[x], Tout=[tf.float32], f=body, target="/cpu:0")[0]
    index = tf.placeholder(tf.int32, [], name="index")
    chosen = tf.switch_case(index, [lambda: x + 1.0, lambda: x * x, lambda: -x])
    loop = functional_ops.For(0, 5, 1, [x], function.Defun(tf.int32, tf.float32)(lambda i, t: t + tf.cast(i, tf.float32)))
    with tf.Session() as sess:
        for k in range(9):
            record.value(f"{k}", sess.run([y, chosen, loop], {x: [k, 1.0], index: k % 3}))


def program_drawing(record):
    """Functions that run as one keep random streams of their own for every step that calls them; some are named like ops."""
    x = tf.placeholder(tf.float32, [2])

    @function.Defun(tf.float32, noinline=True, func_name="StackedNoise")
    def kept(v):
        return v + tf.random_uniform([2], seed=3)

    @function.Defun(tf.float32)
    def inlined(v):
        return v * tf.random_normal([2], seed=4)

    noisy = functional_ops.If(
        x[0] > 1.0,
        [x],
        function.Defun(tf.float32, func_name="more")(lambda v: v + tf.random_uniform([2], seed=5)),
        function.Defun(tf.float32, func_name="less")(lambda v: v - 1.0),
    )
    first = kept(x)
    with tf.control_dependencies([first]):  # both draw from the one stream of a step
        second = kept(x)
    steps = [first, inlined(x), noisy[0], tf.exp(second) + tf.square(x)]
    with tf.Session() as sess:
        for k in range(5):
            fed = {x: [k, 0.5]}
            record.value(f"each {k}", [sess.run(step, fed) for step in steps])
            record.value(f"together {k}", sess.run(steps, fed))


def program_failing(record):
    """Functions that TensorFlow does not inline fail, by one check at a time; calls that must stay calls; steps go on after it."""
    x, n = tf.placeholder(tf.float32, [None], name="x"), tf.placeholder(tf.int32, [], name="n")

    @tf.function
    def checked(v, least):
        tf.debugging.assert_greater(least, 0, message="least must be positive")
        return tf.reshape(v, [2, 2]) * 2.0

    @function.Defun(tf.float32, noinline=True, func_name="Kept")
    def kept(v):
        return tf.linalg.inv(tf.reshape(v, [2, 2]))

    steps = [checked(x, n) + 1.0, kept(x) * 3.0]
    with tf.Session() as sess:
        for k in range(12):
            for which, step in enumerate(steps):
                with record.error(f"{which} {k}"):
                    record.value(f"{which} {k}", sess.run(step, {x: np.arange(3 if k % 3 else 4) + 1.0, n: 1 if k % 3 else k % 2}))


def program_reading(record):
    """A training step whose function checks what it is given, and reads a variable itself: what the check says is heard of."""
    w = tf.get_variable("w", [3], initializer=tf.ones_initializer(), use_resource=True)

    @tf.function
    def checked(a):
        tf.debugging.assert_less(tf.reduce_sum(a), 9.0, message="too large")
        return a * 2.0 * w

    x = tf.placeholder(tf.float32, [3], name="x")
    c = tf.tanh(x * w) + 1.0
    with tf.control_dependencies([c]):
        t = checked(x)
    loss = tf.reduce_sum(c * tf.exp(-w)) + tf.reduce_sum(t * w)
    train = tf.train.GradientDescentOptimizer(0.001).minimize(loss)
    with tf.Session() as sess:
        sess.run(w.initializer)
        for k in range(20):
            with record.error(f"{k}"):
                sess.run(train, {x: [10.0 if k % 3 == 2 else 1.0, 0.2, 1.0]})
            record.value(f"{k}", sess.run(w))


def program_constants(record):
    """A function with constants, and its gradient: what Grappler makes of these where calls are put inline."""
    x = tf.placeholder(tf.float32, [4, 6], name="x")
    w = tf.get_variable("w", initializer=np.linspace(-1, 1, 6).astype(np.float32), use_resource=True)
    m = tf.get_variable("m", initializer=np.random.RandomState(1).randn(6, 6).astype(np.float32), use_resource=True)

    @tf.function(autograph=False)
    def scaled(t, by):
        return tf.tanh(tf.sin(t / 0.326 / 1.536 / 1.074) * by)

    by = tf.identity(w.read_value())
    loss = tf.reduce_mean(tf.square(scaled(scaled(tf.matmul(x, m), by), by) - 0.3)) * 0.7
    slopes = tf.gradients(loss, [w, m])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(16):
            record.value(f"{k}", sess.run(slopes if k % 2 else [loss, *slopes], {x: np.random.RandomState(k).randn(4, 6)}))
