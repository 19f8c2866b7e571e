"""Variables that are read and written in conditions and loops of the first generation, as real programs do it."""

from __future__ import annotations

import numpy as np
import tensorflow.compat.v1 as tf


def dense(x, size, name, start):
    with tf.variable_scope(name):
        kernel = tf.get_variable("kernel", [x.shape[-1], size], initializer=start)
        return tf.nn.bias_add(tf.matmul(x, kernel), tf.get_variable("bias", [size], initializer=tf.zeros_initializer()))


def run_steps(record, fetches, feed, steps=12):
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(steps):
            record.value(f"step {k}", sess.run(fetches, feed(k)))
        record.value("variables", sess.run(tf.global_variables()))
    record.graph("graph")


def program_target_net(record):
    """A Q-net whose target is copied from it every few steps, in a condition that waits for the update."""
    state, chosen = tf.placeholder(tf.float32, [None, 4]), tf.placeholder(tf.int32, [None])
    with tf.variable_scope("online", use_resource=True):
        online = dense(tf.tanh(dense(state, 6, "a", tf.glorot_uniform_initializer(1))), 3, "b", tf.glorot_uniform_initializer(2))
    with tf.variable_scope("target", use_resource=True):
        target = dense(tf.tanh(dense(state, 6, "a", tf.glorot_uniform_initializer(3))), 3, "b", tf.glorot_uniform_initializer(4))
    mine, theirs = tf.trainable_variables("online"), tf.trainable_variables("target")
    best = tf.stop_gradient(tf.reduce_max(target, 1))
    loss = tf.reduce_mean(tf.square(tf.reduce_sum(online * tf.one_hot(chosen, 3), 1) - (0.5 + 0.9 * best)))
    step = tf.train.get_or_create_global_step()
    train = tf.train.AdamOptimizer(0.01).minimize(loss, step, mine)
    with tf.control_dependencies([train]):
        now = tf.identity(step.read_value())
        copied = tf.cond(
            tf.equal(now % 4, 0), lambda: tf.group(*[tf.assign(t, v) for t, v in zip(theirs, mine, strict=True)]), tf.no_op
        )
    random = np.random.RandomState(0)
    batches = [(random.randn(5, 4).astype("f"), random.randint(0, 3, 5)) for _ in range(12)]
    run_steps(record, [loss, copied], lambda k: dict(zip((state, chosen), batches[k], strict=True)))


def program_accumulated(record):
    """Gradients that are summed up in variables, of which every third step makes an update, in a branch."""
    x, y = tf.placeholder(tf.float32, [8, 5]), tf.placeholder(tf.float32, [8, 1])
    out = dense(tf.nn.relu(dense(x, 7, "a", tf.glorot_uniform_initializer(1))), 1, "b", tf.glorot_uniform_initializer(2))
    loss = tf.losses.mean_squared_error(y, out)
    optimizer = tf.train.MomentumOptimizer(0.05, 0.9)
    grads = optimizer.compute_gradients(loss)
    sums = [
        tf.get_variable(f"sum{k}", initializer=tf.zeros_like(v.initial_value), trainable=False) for k, (_, v) in enumerate(grads)
    ]
    count = tf.get_variable("count", initializer=0, trainable=False)
    with tf.control_dependencies([tf.assign_add(s, g) for s, (g, _) in zip(sums, grads, strict=True)]):
        counted = tf.assign_add(count, 1)

    def apply():
        update = optimizer.apply_gradients([(s / 3.0, v) for s, (_, v) in zip(sums, grads, strict=True)])
        with tf.control_dependencies([update]):
            return tf.group(*[tf.assign(s, tf.zeros_like(s)) for s in sums], tf.assign(count, 0))

    with tf.control_dependencies([counted]):
        done = tf.cond(tf.equal(tf.identity(counted), 3), apply, tf.no_op)
    random = np.random.RandomState(1)
    data = [(random.randn(8, 5).astype("f"), random.randn(8, 1).astype("f")) for _ in range(12)]
    run_steps(record, [loss, done], lambda k: dict(zip((x, y), data[k], strict=True)))


def program_spectral(record):
    """Weights divided by their largest singular value, whose vector goes on in a loop and is kept for the next step."""
    x = tf.placeholder(tf.float32, [6, 5])
    w = tf.get_variable("w", [5, 4], initializer=tf.glorot_uniform_initializer(3), use_resource=True)
    u = tf.get_variable("u", [1, 4], initializer=tf.ones_initializer(), trainable=False, use_resource=True)

    def turn(i, vector):
        other = tf.nn.l2_normalize(tf.matmul(vector, w, transpose_b=True))
        return i + 1, tf.nn.l2_normalize(tf.matmul(other, w))

    _, vector = tf.while_loop(lambda i, _: i < 3, turn, [0, u])
    other = tf.nn.l2_normalize(tf.matmul(vector, w, transpose_b=True))
    sigma = tf.reduce_sum(tf.matmul(tf.stop_gradient(other), w) * tf.stop_gradient(vector))
    with tf.control_dependencies([sigma]):
        kept = u.assign(vector, read_value=False)
    out = dense(tf.nn.relu(tf.matmul(x, w / sigma)), 1, "out", tf.glorot_uniform_initializer(4))
    loss = tf.reduce_mean(tf.square(out - 1.0))
    with tf.control_dependencies([kept]):
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    run_steps(record, [loss, sigma, train], lambda k: {x: np.random.RandomState(k).randn(6, 5)})


def program_recurrent_by_hand(record):
    """A loop over time that skips what lies behind the end of a sequence, dense layers above it, Adam on all of it."""
    x, length = tf.placeholder(tf.float32, [None, 6, 3]), tf.placeholder(tf.int32, [])
    kernel = tf.get_variable("kernel", [8, 5], initializer=tf.glorot_uniform_initializer(1), use_resource=True)
    inputs = tf.TensorArray(tf.float32, 6).unstack(tf.transpose(x, [1, 0, 2]))

    def body(t, h, out):
        new = tf.cond(t < length, lambda: tf.tanh(tf.matmul(tf.concat([inputs.read(t), h], 1), kernel)), lambda: h)
        return t + 1, new, out.write(t, new)

    start = [0, tf.zeros([tf.shape(x)[0], 5]), tf.TensorArray(tf.float32, 6)]
    _, last, outputs = tf.while_loop(lambda t, *_: t < 6, body, start, parallel_iterations=4)
    h = last
    for k in range(3):
        h = tf.nn.relu(dense(h, 5, f"dense{k}", tf.glorot_uniform_initializer(k)))
    loss = tf.reduce_mean(tf.square(dense(h, 1, "top", tf.glorot_uniform_initializer(9)))) + tf.reduce_mean(outputs.stack()) * 0.1
    train = tf.train.AdamOptimizer(0.02).minimize(loss)
    run_steps(record, [loss, train], lambda k: {x: np.random.RandomState(k).randn(4, 6, 3), length: 2 + k % 5})


def program_chain(record):
    """A Markov chain: proposals in a loop of one iteration at a time, accepted in a condition, counted in variables in the loop."""
    state = tf.get_variable("state", initializer=np.zeros(3, "f"), use_resource=True)
    accepted = tf.get_variable("accepted", initializer=0, use_resource=True)

    def energy(v):
        return tf.reduce_sum(tf.square(v - [1.0, -1.0, 0.5]))

    def turn(i, at):
        proposed = at + tf.random_normal([3], stddev=0.4, seed=3)
        better = tf.log(tf.random_uniform([], seed=4)) < energy(at) - energy(proposed)

        def take():
            with tf.control_dependencies([accepted.assign_add(1, read_value=False)]):
                return tf.identity(proposed)

        return i + 1, tf.cond(better, take, lambda: at)

    _, last = tf.while_loop(lambda i, _: i < 8, turn, [0, state.read_value()], parallel_iterations=1)
    with tf.control_dependencies([last]):
        kept = state.assign(last)
        count = accepted.read_value()
    run_steps(record, [last, kept, count], lambda k: None)


def program_kept_best(record):
    """The best weights so far are kept in a branch, learning rates fall on a plateau, early stopping puts the best back."""
    x = tf.constant(np.random.RandomState(2).randn(10, 4), tf.float32)
    w = tf.get_variable("w", [4, 1], initializer=tf.glorot_uniform_initializer(5), use_resource=True)
    best = tf.get_variable("best", [4, 1], initializer=tf.zeros_initializer(), trainable=False)
    least = tf.get_variable("least", initializer=1e9, trainable=False)
    rate = tf.get_variable("rate", initializer=0.4, trainable=False)
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - tf.sin(x[:, :1]))) + tf.reduce_mean(tf.abs(w))
    train = tf.train.GradientDescentOptimizer(tf.identity(rate)).minimize(loss)
    with tf.control_dependencies([train]):
        after = tf.reduce_mean(tf.square(tf.matmul(x, tf.identity(w)) - tf.sin(x[:, :1])))
        kept = tf.cond(
            after < least,
            lambda: tf.group(tf.assign(best, w), tf.assign(least, after)),
            lambda: tf.group(tf.assign(rate, rate * 0.7), tf.assign(w, best * 0.5 + w * 0.5)),
        )
    run_steps(record, [loss, after, kept], lambda k: None, 16)
