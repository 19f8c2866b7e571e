"""Activations written by hand, whose gradients are products behind tuples that wait."""

import numpy as np
import tensorflow.compat.v1 as tf


def trained(record, *activations, steps=10, batch=6, gate=tf.train.Optimizer.GATE_OP):
    """A network with a layer for each activation, some of whose gradients are fetched in some steps."""
    x, y = tf.placeholder(tf.float32, [batch, 8], "x"), tf.placeholder(tf.float32, [batch, 8], "y")
    h = x
    for k, activation in enumerate(activations):
        with tf.variable_scope(f"layer_{k}"):
            w = tf.get_variable("w", [8, 8], initializer=tf.random_normal_initializer(stddev=0.3, seed=k))
            b = tf.get_variable("b", [8], initializer=tf.random_normal_initializer(stddev=0.1, seed=k + 50))
            h = activation(tf.matmul(h, w) + b)
    loss = tf.reduce_mean(tf.square(h - y))
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    gradients = optimizer.compute_gradients(loss, gate_gradients=gate)
    with tf.control_dependencies([g for g, _ in gradients] if gate == optimizer.GATE_NONE else []):
        train = optimizer.apply_gradients(gradients)
    steps_of = [[loss, train], [loss, train, [g for g, _ in gradients]], [loss], [loss, gradients[0][0]]]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(steps):
            feed = {x: np.random.RandomState(k).randn(6, 8), y: np.random.RandomState(k + 99).randn(6, 8)}
            record.value(f"{k}", [value for value in sess.run(steps_of[k % 4], feed) if value is not None])
        record.value("variables", sess.run(tf.global_variables()))


def selu(z):
    return 1.0507 * tf.where(z > 0.0, z, 1.6733 * tf.exp(z) - 1.6733)


def celu(z):
    return tf.maximum(z, 0.0) + tf.minimum(0.0, 0.9 * (tf.exp(z / 0.9) - 1.0))


def elu(z):
    return tf.where(z > 0.0, z, tf.exp(z) - 1.0)


def program_selected(record):
    trained(record, selu, elu, selu)


def program_both_sides(record):
    trained(record, celu, lambda z: tf.maximum(z, 0.2 * z), celu)


def program_smooth(record):
    trained(
        record,
        lambda z: z * tf.tanh(tf.nn.softplus(z)),
        lambda z: z * tf.sigmoid(1.7 * z),
        lambda z: 1.7159 * tf.tanh(0.6667 * z),
        lambda z: 0.9 * tf.nn.softplus(z) * 0.7,
        lambda z: 0.5 * z * (1.0 + tf.tanh(0.7978845608 * (z + 0.044715 * z * z * z))),
    )


def exclusive(z):
    q = tf.tanh(z)
    return q * (1.0 - q) + q * (1.0 - q)


def program_of_any_batch(record):
    """Of the gradients' broadcasting, which is undone, only the running step knows that there was none."""
    by_mean = [lambda z: z * z * tf.reduce_mean(z, 1, keepdims=True), lambda z: z * tf.nn.sigmoid(z[:, :1]) * z]
    trained(record, *by_mean, exclusive, batch=None, gate=tf.train.Optimizer.GATE_NONE)
