"""What Grappler makes of neighbours where they share a device, in last bits and otherwise: parts of concatenations and splits,
places of largest values, products that only some steps read."""

import numpy as np
import tensorflow.compat.v1 as tf


def weights(name, *shape):
    start = np.random.RandomState(len(name) + sum(shape)).randn(*shape).astype(np.float32)
    return tf.get_variable(name, initializer=start, use_resource=True)


def seen(record, fetches, x, steps=4):
    """Every fetch in a step of its own, by turns."""
    shape = [size or 4 for size in x.shape.as_list()]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(steps):
            for i, fetch in enumerate(fetches):
                value = sess.run(fetch, {x: np.random.RandomState(k).randn(*shape)})
                if not isinstance(fetch, tf.Operation):
                    record.value(f"{i} {k}", value)
        record.value("variables", sess.run(tf.global_variables()))


def program_parts(record):
    x = tf.placeholder(tf.float32, [3, 7])
    sides = [tf.matmul(x, weights(name, 7, n)) for name, n in (("a", 3), ("bb", 2))]
    joined = [tf.nn.relu(tf.concat([f(side) for side in sides], 1)) for f in (tf.sigmoid, tf.exp, lambda t: tf.tanh(tf.exp(t)))]
    flat = tf.nn.relu(tf.concat([tf.reshape(tf.exp(side), [-1]) for side in sides], 0))
    one, two = tf.split(tf.matmul(x, weights("c", 7, 10)), 2, 1)
    seen(record, [*joined, flat, tf.sigmoid(one) + 2.0 * tf.sigmoid(two)], x)


def program_places(record):
    x = tf.placeholder(tf.float32, [3, 7])
    logits = tf.matmul(x, weights("a", 7, 5))
    best = tf.identity(tf.argmax(tf.sigmoid(40.0 * logits), 1)) + 1
    most = tf.reduce_max(tf.sigmoid(logits), 1) * 2.0
    nearest = tf.one_hot(tf.argmax(-(tf.square(x) + 1.0), 1), 8)
    seen(record, [best, most, [nearest, tf.tanh(x) * 0.3 * 0.7]], x)


def program_read_elsewhere(record):
    x = tf.placeholder(tf.float32, [4, 8])
    h = tf.tanh(tf.matmul(x, weights("a", 8, 8)))
    scaled = h * tf.exp(tf.reduce_mean(h, 1, keepdims=True))
    shifted = h + tf.reduce_mean(h, 1, keepdims=True)
    last = [scaled * weights("g", 8), tf.nn.softsign(scaled)]
    seen(record, [*last, tf.nn.softsign(shifted + weights("gg", 8)), tf.nn.softsign(shifted)], x)


def program_gated(record):
    x = tf.placeholder(tf.float32, [4, 8])
    h = tf.matmul(x, weights("w", 8, 8))
    y = h * tf.rsqrt(tf.reduce_mean(h * h, 1, keepdims=True)) * weights("g", 8)
    optimizer = tf.train.GradientDescentOptimizer(0.01)
    pairs = optimizer.compute_gradients(tf.reduce_sum(tf.tanh(y)))
    with tf.control_dependencies([gradient for gradient, _ in pairs]):
        train = optimizer.apply_gradients(pairs)
    seen(record, [train, y], x, 6)


def program_unlearned(record):
    x = tf.placeholder(tf.float32, [4, 8])
    h = tf.tanh(tf.matmul(x, weights("w", 8, 8)))
    y = h * tf.nn.relu6(h + 3.0) * 0.16667
    mask = tf.constant(np.random.RandomState(1).rand(4, 8).astype(np.float32))
    soft = tf.nn.softmax(tf.matmul(x, weights("ww", 8, 8)) * 0.3 * mask)
    loss = tf.reduce_sum(tf.square(y)) + tf.reduce_sum(tf.square(soft))
    seen(record, [loss, tf.train.GradientDescentOptimizer(0.1).minimize(loss)], x, 6)


def program_logs(record):
    x = tf.placeholder(tf.float32, [4, 8])
    fetches = []
    for k in range(1, 5):
        z = tf.matmul(x, weights("a" * k, 8, 5))
        t = tf.nn.softplus(tf.matmul(x, weights("t" * (k + 5), 8, 5)))
        e = 1.0 + tf.nn.softplus(z)
        fetches += [tf.reduce_sum(t * tf.log(tf.nn.softmax(z)), 1), [tf.reduce_sum(t * tf.log(e), 1), tf.nn.softplus(e)]]
        fetches.append(tf.nn.max_pool2d(tf.nn.elu(tf.reshape(z, [4, 5, 1, 1])), [2, 1], [2, 1], "VALID"))
    seen(record, fetches, x)
