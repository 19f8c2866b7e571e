"""Stateful random kernels: each draw made once, in the order of the seeds."""

import numpy as np
import tensorflow.compat.v1 as tf


def program_kernels(record):
    x = tf.placeholder(tf.float32, [6], name="x")
    draws = {
        "normal": tf.random_normal([3], seed=1),
        "uniform": tf.random_uniform([3], seed=2),
        "ints": tf.random_uniform([3], 0, 100, tf.int32, seed=3),
        "truncated": tf.truncated_normal([3], seed=4),
        "shuffled": tf.random_shuffle(x, seed=5),
        "classes": tf.multinomial([[0.1, 0.5, 0.4]], 4, seed=6),
        "gamma": tf.random_gamma([2], 1.5, seed=7),
        "poisson": tf.random_poisson([2.0, 4.0], [2], seed=8),
        "crop": tf.random_crop(x, [3], seed=9),
        "dropped": tf.nn.dropout(x, rate=0.4, seed=10),
        "stateless": tf.random.stateless_uniform([2], [1, 2]),
    }
    with tf.Session() as sess:
        for k in range(14):
            feed = {x: [1.0, 2.0, 3.0, 4.0, 5.0, k]}
            record.value(f"all {k}", sess.run(draws, feed))
            record.value(f"some {k}", sess.run([draws["normal"], draws["dropped"]], feed))
            record.value(f"one {k}", sess.run(draws["shuffled"], feed))
    record.graph("graph")


def program_graph_seed(record):
    tf.set_random_seed(1234)
    w = tf.get_variable("w", [4, 4], initializer=tf.glorot_normal_initializer())
    y = tf.nn.dropout(tf.matmul(tf.random_normal([2, 4]), w), rate=0.5)
    for session in range(3):
        with tf.Session() as sess:
            sess.run(w.initializer)
            for k in range(6):
                record.value(f"{session} {k}", sess.run([y, w]))
    with tf.Session() as sess:
        late = tf.random_uniform([3])
        record.value("a seed given late", sess.run(late))
    record.graph("graph")


def program_samplers(record):
    labels = tf.constant([[1], [4], [2]], tf.int64)
    weights = tf.get_variable("weights", [20, 4], initializer=tf.random_normal_initializer(seed=3))
    biases = tf.get_variable("biases", [20], initializer=tf.zeros_initializer())
    hidden = tf.random_normal([3, 4], seed=12)
    sampled = tf.nn.log_uniform_candidate_sampler(labels, 1, 5, True, 20, seed=2)
    loss = tf.reduce_mean(tf.nn.nce_loss(weights, biases, labels, hidden, 5, 20, sampled_values=sampled))
    soft = tf.reduce_mean(tf.nn.sampled_softmax_loss(weights, biases, labels, hidden, 5, 20, seed=4))
    counted = tf.nn.fixed_unigram_candidate_sampler(labels, 1, 4, True, 20, unigrams=list(range(1, 21)), seed=6)
    box = tf.image.sample_distorted_bounding_box([40, 40, 3], [[[0.1, 0.1, 0.9, 0.9]]], seed=8)
    pooled = tf.nn.fractional_max_pool(
        tf.reshape(tf.range(64.0), [1, 8, 8, 1]), [1.0, 1.44, 1.73, 1.0], True, deterministic=True, seed=5, seed2=6
    )
    train = tf.train.AdamOptimizer(0.1).minimize(loss + soft)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(10):
            record.value(f"{k}", sess.run([sampled, counted, box, pooled[0]]))
            record.value(f"loss {k}", sess.run([loss, soft, train])[:2])


def program_generator(record):
    with tf.Session() as sess:
        generator = tf.random.Generator.from_seed(5)
        draw = generator.normal([3])
        split = generator.uniform([2], 0, 9, tf.int32)
        sess.run(tf.global_variables_initializer())
        for k in range(10):
            record.value(f"{k}", sess.run(draw))
            record.value(f"ints {k}", sess.run(split))


def program_chained(record):
    """A random op whose size comes from another, inside a loop and a branch."""
    p = tf.placeholder(tf.bool, [], name="p")
    size = tf.random_uniform([], 1, 5, tf.int32, seed=1)
    values = tf.random_normal([size], seed=2)
    # One iteration after the other: else the draws have no order.
    body = lambda i, t: (i + 1, t + tf.random_normal([], seed=3))  # noqa: E731
    looped = tf.while_loop(lambda i, _: i < 3, body, [0, tf.reduce_sum(values)], parallel_iterations=1)[1]
    chosen = tf.cond(p, lambda: looped + tf.random_uniform([], seed=4), lambda: looped)
    with tf.Session() as sess:
        for k in range(15):
            record.value(f"{k}", sess.run([size, chosen], {p: k % 2 == 0}))


def program_learned(record):
    """Samplers that learn from the classes that they are given, without seeds: what they expect, not what they draw."""
    classes = tf.placeholder(tf.int64, [4, 1], name="classes")
    x = tf.placeholder(tf.float32, [4, 4], name="x")
    fed = tf.nn.learned_unigram_candidate_sampler(classes, 1, 3, False, 5).true_expected_count
    fixed = tf.nn.learned_unigram_candidate_sampler(tf.constant([[1], [2]], tf.int64), 1, 2, False, 4).true_expected_count
    total = tf.reduce_sum(tf.nn.relu(tf.matmul(x, tf.log(fed) + 1.0)) * 2.0) + tf.reduce_sum(fixed)
    with tf.Session() as sess:
        for k in range(10):
            record.value(f"{k}", sess.run([fed, fixed, total], {classes: [[2], [2], [k % 4], [1]], x: [[1.0] * 4] * 4}))


def program_behind_fed(record):
    """Steps that feed what they wait for: whether what is behind it draws is for Grappler to find, from who else uses it."""
    x, w = tf.placeholder(tf.float32, [4, 6], name="x"), tf.get_variable("w", [6], use_resource=True)
    read, noise = w.read_value(), tf.random_normal([4, 6], stddev=0.1, seed=40)
    noisy = tf.tanh(x * read) + noise
    loss = tf.reduce_mean(tf.square(noisy - 0.5))
    (slope,) = tf.gradients(loss, [w])
    waiting = {}
    for name, waited in (("used", [read, noisy, loss, slope]), ("only waited for", [noisy])):
        with tf.control_dependencies(waited):
            waiting[name] = tf.train.GradientDescentOptimizer(0.1).apply_gradients([(slope, w)])
    for name, train in waiting.items():
        with tf.Session() as sess:
            sess.run(w.assign(np.linspace(-1, 1, 6)))
            for k in range(12):
                values = np.random.RandomState(k).randn(4, 6)
                sess.run(train, {x: values, noisy: values} if k % 4 > 1 else {x: values})
                record.value(f"{name} {k}", sess.run(w))
            record.value(f"{name}: where the stream is", sess.run(noise))
