"""What Grappler makes of training steps whose updates wait for the loss, and of evaluations beside them, in last bits."""

import numpy as np
import tensorflow.compat.v1 as tf
from rewritten import weights


def trained(record, label, x, loss, ends=(), gate=1, wait=()):
    """Steps whose updates wait for the loss, as what their gradients compute does for `wait`, and evaluations."""
    optimizer = tf.train.GradientDescentOptimizer(0.05)
    with tf.control_dependencies(wait):
        pairs = optimizer.compute_gradients(loss, gate_gradients=gate)
    with tf.control_dependencies([loss]):
        step = optimizer.apply_gradients(pairs)
    with tf.control_dependencies([step]):
        tf.identity(loss, "train_op")  # what slim's training runs
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(6):
            feed = {x: np.random.RandomState(k).randn(*[size or 4 for size in x.shape.as_list()])}
            record.value(f"{label} {k}", sess.run([loss, [gradient for gradient, _ in pairs], step], feed)[:2])
            record.value(f"{label} {k} without", sess.run([loss, *ends], feed))


def program_twice(record):
    """Values that a sum or an op takes twice, whose gradients are one value twice, behind a tuple too."""
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [8, 5])
        start = tf.nn.fused_batch_norm(tf.reshape(x, [-1, 1, 1, 5]), weights("g", 5), weights("bb", 5))[0]
        y = tf.reshape(start, [8, 5])
        u = y + y
        z = tf.add_n([u + x, u + x, x, u + x])
        trained(record, "sum", x, tf.reduce_mean(u) + 0.5 * tf.reduce_mean(tf.square(z - 0.5)))
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [8, 5])
        w, b = weights("w", 5, 5), weights("b", 5)
        p, q = tf.nn.bias_add(tf.matmul(x, w), b), tf.nn.bias_add(tf.matmul(x, w), b)
        trained(record, "layers", x, tf.reduce_mean(tf.maximum(x + (p + q), tf.matmul(tf.matmul(x, w), w))))
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [2, 5, 5, 4])
        c = tf.nn.bias_add(tf.nn.conv2d(x, weights("ww", 3, 3, 4, 4), 1, "SAME"), weights("b", 4))
        y = (x + c) + (c + x)
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.ones_like(y) * 0.3, logits=y))
        trained(record, "turned", x, loss, gate=2)


def program_evaluated(record):
    """A product that only an evaluation fetches, of a loss that is handed on behind the step."""
    x = tf.placeholder(tf.float32, [2, 4, 4, 6])
    h = tf.nn.conv2d(x, weights("ww", 3, 3, 6, 6), 1, "SAME")
    _, variance = tf.nn.moments(h, [1, 2], keepdims=True)
    o = tf.get_variable("s", initializer=0.4) * (h * tf.rsqrt(variance + 1e-5))
    trained(record, "normalized", x, tf.reduce_mean(tf.square(o - 0.1)), [o])


def program_awaited(record):
    """Gradients whose constants wait for the loss, which a strategy may put elsewhere."""
    x = tf.placeholder(tf.float32, [None, 4, 4, 3])
    h = tf.nn.conv2d_transpose(x, weights("ww", 3, 3, 3, 3), [4, 4, 4, 3], 1)
    loss = tf.reduce_mean(tf.square(h * tf.ensure_shape(x, [None, 4, 4, 3]) * 0.3 * 0.3))
    trained(record, "in scope", x, loss, wait=[loss])
