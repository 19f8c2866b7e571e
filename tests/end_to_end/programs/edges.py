"""Sums, products and normalization at the edges of conditions and functions, which TensorFlow may take out or put inline."""

import numpy as np
import tensorflow.compat.v1 as tf
from training import convolution, dense


def variables(x, name):
    with tf.variable_scope(name):
        scale = tf.get_variable("scale", [x.shape[-1]], initializer=tf.ones_initializer())
        return scale, tf.get_variable("shift", [x.shape[-1]], initializer=tf.zeros_initializer())


def normalized(x, name, scale=None, shift=None):
    if scale is None:
        scale, shift = variables(x, name)
    with tf.variable_scope(name):
        return tf.nn.batch_normalization(x, *tf.nn.moments(x, list(range(len(x.shape) - 1))), shift, scale, 1e-5)


def residual(record, wrap, made_before=False):
    """Residual blocks whose normalization is wrapped by `wrap(f, x)`, its variables as well, or made before; trained for a while."""
    x, labels = tf.placeholder(tf.float32, [6, 8, 8, 3], name="x"), tf.placeholder(tf.int32, [6], name="labels")
    hidden = convolution(x, 6, "in")
    for k in range(2):
        inner = convolution(hidden, 6, f"c{k}")
        made = variables(inner, f"n{k}") if made_before else ()
        inner = wrap(lambda v, k=k, made=made: normalized(v, f"n{k}", *made), inner)
        hidden = tf.nn.relu(inner + hidden * 0.5)
        hidden = wrap(lambda v: v + tf.sin(v) * 0.1, hidden) + tf.tanh(inner)
    logits = dense(tf.reduce_mean(hidden, [1, 2]), 4, "out")
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    optimizer = tf.train.MomentumOptimizer(0.05, 0.9)
    grads = optimizer.compute_gradients(loss)
    train = optimizer.apply_gradients(grads)
    rng = np.random.RandomState(0)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(8):
            feed = {x: rng.rand(6, 8, 8, 3), labels: rng.randint(0, 4, 6)}
            record.value(f"loss {k}", sess.run([loss, logits, [g for g, _ in grads]], feed))
            sess.run(train, feed)
        record.value("all", sess.run(tf.global_variables()))


def program_settled(record):
    """Conditions of the first generation whose outcome is a constant."""
    tf.disable_control_flow_v2()
    yes = tf.constant(True)
    residual(record, lambda f, v: tf.cond(yes, lambda: f(v), lambda: v * 2.0))


def program_settled_v2(record):
    tf.enable_control_flow_v2()
    try:
        yes = tf.constant(True)
        residual(record, lambda f, v: tf.cond(yes, lambda: f(v), lambda: v * 2.0))
    finally:
        tf.disable_control_flow_v2()


def program_defaulted(record):
    yes = tf.placeholder_with_default(True, [], name="training")
    residual(record, lambda f, v: tf.cond(yes, lambda: f(v), lambda: v * 2.0))


def program_called(record):
    with tf.variable_scope("", use_resource=True):  # functions read references whenever they like
        residual(record, lambda f, v: tf.function(f, autograph=False)(v), made_before=True)


def program_arithmetic(record):
    """Short sums and products on both sides of such edges, alone. Neither long sums nor gradients: which of the terms is held by
    none when a long sum begins, is open plainly."""
    from tensorflow.python.framework import function

    a, b, c = (tf.placeholder(tf.float32, [16], name=n) for n in "abc")
    yes = tf.constant(True)

    @function.Defun(tf.float32, tf.float32)
    def total(u, v):
        return u + v * 1.1

    @function.Defun(tf.float32, tf.float32, noinline=True)
    def apart(u, v):
        return u + v * 1.1

    whole = tf.function(lambda u, v: u + v * 1.1, autograph=False)
    outs = []
    for k, f in enumerate(
        [
            total,
            apart,
            whole,
            lambda u, v: tf.cond(yes, lambda: u + v * 1.1, lambda: u),
            lambda u, v: tf.while_loop(lambda i, _: i < 1, lambda i, w: (i + 1, w + v * 1.1), [0, u])[1],
        ]
    ):
        with tf.name_scope(f"k{k}"):
            outs += [
                f(a, b) + c,
                f(a + b, c) + b * 0.7,
                (f(a * 0.3, b) * 0.7),
                tf.exp(f(a, b) + 1.0) * 3.0 * 0.1,
                f(a, b) + f(b, c) + f(c, a),
                (f(a, b) - a) + (f(b, a) - b),
            ]
    with tf.Session() as sess:
        for k in range(16):
            rng = np.random.RandomState(k)
            feed = {p: rng.randn(16) for p in (a, b, c)}
            record.value(f"{k}", sess.run(outs, feed))


def program_held(record):
    """Sums of three values that gradients read as well, so that a sum must not begin in the memory of any of them."""
    x, labels = tf.placeholder(tf.float32, [16, 12], name="x"), tf.placeholder(tf.int32, [16], name="labels")
    hidden = x
    for k in range(4):
        parts = [dense(hidden, 12, f"{name}{k}") for name in ("a", "b", "c")]
        hidden = tf.tanh(parts[0]) + tf.sigmoid(parts[1]) + tf.nn.softplus(parts[2])
        hidden = tf.add_n([tf.exp(-hidden), tf.tanh(hidden), tf.sigmoid(hidden)])
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=hidden))
    train = tf.train.MomentumOptimizer(0.05, 0.9).minimize(loss)
    rng = np.random.RandomState(0)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            feed = {x: rng.rand(16, 12), labels: rng.randint(0, 12, 16)}
            record.value(f"loss {k}", sess.run([loss, hidden, train], feed)[:2])
        record.value("all", sess.run(tf.global_variables()))
