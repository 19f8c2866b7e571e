"""What users compute with: recognition by CTC, gradients of their own, folds, schedules, draws, and checks that fail."""

import numpy as np
import tensorflow.compat.v1 as tf
from training import dense


def waves(rows, columns, shift=0.0):
    return np.sin(np.arange(rows * columns, dtype=np.float32) + shift).reshape(rows, columns)


def program_recognition(record):
    """CTC: sparse labels, a loss, beam and greedy decoders, an edit distance; a bidirectional recurrent net below."""
    frames = tf.placeholder(tf.float32, [None, 2, 6], name="frames")  # time first
    labels = tf.sparse_placeholder(tf.int32, name="labels")
    lengths = tf.placeholder(tf.int32, [2], name="lengths")
    wf = tf.get_variable("wf", [6, 5], initializer=tf.glorot_uniform_initializer(seed=1))
    wb = tf.get_variable("wb", [6, 5], initializer=tf.glorot_uniform_initializer(seed=2))

    def recur(inputs, w):
        return tf.scan(lambda h, x: tf.tanh(tf.matmul(x, w) + 0.5 * h), inputs, tf.zeros([2, 5]), parallel_iterations=4)

    forward = recur(frames, wf)
    backward = tf.reverse_sequence(
        recur(tf.reverse_sequence(frames, lengths, seq_axis=0, batch_axis=1), wb), lengths, seq_axis=0, batch_axis=1
    )
    logits = dense_frames(tf.concat([forward, backward], 2), 4)
    loss = tf.reduce_mean(tf.nn.ctc_loss(labels, logits, lengths))
    train = tf.train.MomentumOptimizer(0.05, 0.9).minimize(loss)
    (greedy,), _ = tf.nn.ctc_greedy_decoder(logits, lengths)
    (beam, second), scores = tf.nn.ctc_beam_search_decoder(logits, lengths, beam_width=5, top_paths=2)
    distance = tf.reduce_mean(tf.edit_distance(tf.cast(greedy, tf.int32), labels))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(10):
            truth = tf.SparseTensorValue([[0, 0], [0, 1], [1, 0]], [k % 3, (k + 1) % 3, (k + 2) % 3], [2, 2])
            feed = {frames: waves(7 * 2, 6, k).reshape(7, 2, 6), labels: truth, lengths: [7, 5]}
            record.value(f"train {k}", sess.run([loss, distance, train], feed)[:2])
            if k % 3 == 0:
                record.value(f"read {k}", sess.run([greedy, beam, second, scores], feed))
        record.value("weights", sess.run(tf.trainable_variables()))


def dense_frames(inputs, classes):
    flat = tf.reshape(inputs, [-1, inputs.shape[-1]])
    return tf.reshape(dense(flat, classes, "classes"), [-1, 2, classes])


def program_recomputed(record):
    """Gradients that the program makes itself: custom, recomputed, stopped, of gradients, by gradient_override_map, per example."""

    @tf.custom_gradient
    def clipped(x):
        return tf.identity(x), lambda dy: tf.clip_by_norm(dy, 0.5)

    @tf.RegisterGradient("HalfOf" + str(id(record)))
    def half(op, grad):
        return grad * 0.5

    x = tf.placeholder(tf.float32, [4, 6], name="x")
    w1 = tf.get_variable("w1", [6, 6], initializer=tf.orthogonal_initializer(seed=2), use_resource=True)
    w2 = tf.get_variable("w2", [6, 2], initializer=tf.glorot_normal_initializer(seed=3), use_resource=True)
    block = tf.recompute_grad(lambda h: tf.nn.elu(tf.matmul(h, w1)) * tf.nn.sigmoid(h))
    h = clipped(block(block(x)))
    with tf.get_default_graph().gradient_override_map({"Identity": "HalfOf" + str(id(record))}):
        h = tf.identity(h, name="halved")
    out = tf.matmul(h, w2)
    energy = tf.reduce_sum(tf.square(out)) + tf.reduce_sum(tf.stop_gradient(out) * out)
    (force,) = tf.gradients(energy, x)
    smooth = tf.reduce_sum(tf.tanh(tf.matmul(x, w1)) ** 2)
    (slope,) = tf.gradients(smooth, x)
    penalty = tf.reduce_mean(tf.square(tf.norm(slope, axis=1) - 1.0))
    weights = [w1, w2]
    firsts = tf.gradients(energy + penalty, weights)
    seconds = tf.gradients(tf.reduce_sum(tf.gradients(penalty, w1)[0]), w1, grad_ys=tf.constant(0.5))
    parts = tf.map_fn(lambda row: tf.reduce_sum(tf.gradients(tf.matmul(row[None], w2), w2)[0]), h, parallel_iterations=1)
    update = [tf.assign_sub(v, 0.01 * g) for v, g in zip(weights, firsts, strict=True)]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(10):
            record.value(f"{k}", sess.run([energy, penalty, force, seconds, parts], {x: waves(4, 6, k)}))
            sess.run(update, {x: waves(4, 6, k)})  # apart: gradients read the weights again
        record.value("weights", sess.run(weights))


def program_folds(record):
    """map_fn, scan, foldl and foldr over nests, TensorArrays in while loops with swapping."""
    x = tf.placeholder(tf.float32, [None, 4], name="x")
    # A resource: `first` may read it while the training step, whose gradients are others, writes to it.
    w = tf.get_variable("w", [4, 4], initializer=tf.orthogonal_initializer(seed=1), use_resource=True)
    mapped = tf.map_fn(lambda p: (p[0] * 2.0, tf.cast(p[1], tf.float32) + p[0]), (x, tf.cast(x * 3, tf.int32)),
                       dtype=(tf.float32, tf.float32), parallel_iterations=3)  # fmt: skip
    states = tf.scan(lambda a, r: (tf.tanh(tf.linalg.matvec(w, a[0]) + r), a[1] + 1), x, (tf.zeros([4]), 0), reverse=True,
                     swap_memory=True)  # fmt: skip
    left, right = tf.foldl(lambda a, r: a * 0.5 + r, x), tf.foldr(lambda a, r: tf.tanh(a) + r, x, back_prop=True)

    def body(i, h, out):
        h = tf.nn.relu(tf.matmul(h, w))
        return i + 1, h, out.write(i, tf.reduce_sum(h, 1))

    array = tf.TensorArray(tf.float32, 3, clear_after_read=False, element_shape=[None])
    _, last, out = tf.while_loop(lambda i, h, o: i < 3, body, (0, x, array), swap_memory=True, maximum_iterations=5)
    stacked = out.stack()
    loss = tf.reduce_sum(states[0]) + tf.reduce_sum(left * right) + tf.reduce_sum(stacked) + tf.reduce_mean(mapped[1])
    (first,) = tf.gradients(loss, w)
    train = tf.train.RMSPropOptimizer(0.01, momentum=0.5).minimize(loss)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(10):
            feed = {x: waves(2 + k % 3, 4, k)}
            record.value(f"{k}", sess.run([loss, mapped, states, left, right, last, stacked, first, train], feed)[:8])
        record.value("w", sess.run(w))


def program_schedules(record):
    """Rates by polynomial, piecewise, cosine and natural decay with a fed step; a case and a switch_case; counters; metrics."""
    step = tf.train.get_or_create_global_step()
    which = tf.placeholder(tf.int32, [], name="which")
    rates = [
        tf.train.polynomial_decay(0.1, step, 10, 0.01, 2.0, cycle=True),
        tf.train.piecewise_constant(step, [3, 6], [0.1, 0.05, 0.01]),
        tf.train.cosine_decay_restarts(0.1, step, 4),
        tf.train.natural_exp_decay(0.1, step, 3, 0.5, staircase=True),
    ]
    rate = tf.switch_case(which, [lambda r=r: tf.identity(r) for r in rates], default=lambda: tf.constant(0.001))
    x = tf.placeholder(tf.float32, [4, 3], name="x")
    labels = tf.cast(tf.reduce_sum(x, 1) > 0.0, tf.int32)
    logits = dense(x, 2, "out")
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    train = tf.train.MomentumOptimizer(rate, 0.9, use_nesterov=True).minimize(loss)
    advance = tf.assign_add(step, 1)  # apart: a rate's checks read the step at any time
    accuracy, see = tf.metrics.accuracy(labels, tf.argmax(logits, 1))
    area, see_area = tf.metrics.auc(labels, tf.nn.softmax(logits)[:, 1], num_thresholds=20)
    recall, see_recall = tf.metrics.recall_at_k(tf.cast(labels, tf.int64)[:, None], logits, 1)
    updates = tf.group(see, see_area, see_recall)
    reset = tf.variables_initializer(tf.get_collection(tf.GraphKeys.METRIC_VARIABLES))
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        for k in range(14):
            feed = {x: waves(4, 3, k), which: k % 5}
            record.value(f"rate {k}", sess.run([rate, *rates], feed))
            record.value(f"{k}", sess.run([loss, train], feed)[0])
            sess.run(advance)
            sess.run(updates, feed)
            record.value(f"metrics {k}", sess.run([accuracy, area, recall]))
            if k == 7:
                sess.run(reset)
        record.value("locals", sess.run(tf.local_variables()))


def program_sampled(record):
    """Candidate samplers, multinomial and stateless draws, shuffles, permutations and noise, every step."""
    tf.set_random_seed(11)
    x = tf.placeholder(tf.float32, [4, 6], name="x")
    weights = tf.get_variable("weights", [30, 6], initializer=tf.random_uniform_initializer(-1, 1))
    biases = tf.get_variable("biases", [30], initializer=tf.zeros_initializer())
    labels = tf.cast(tf.reshape(tf.argmax(x, 1), [4, 1]), tf.int64)
    nce = tf.reduce_mean(tf.nn.nce_loss(weights, biases, labels, x, 5, 30, partition_strategy="div"))
    soft = tf.reduce_mean(tf.nn.sampled_softmax_loss(weights, biases, labels, x, 6, 30, seed=5))
    step = tf.train.get_or_create_global_step()
    stateless = tf.random.stateless_normal([3], seed=[step, 7])
    draws = [tf.random.multinomial(x, 3), tf.random_shuffle(x), tf.random.poisson(tf.abs(x) * 3, []), tf.random.gamma([2], 0.7),
             tf.random.categorical(x, 2, seed=1), tf.random.truncated_normal([2, 2])]  # fmt: skip
    train = tf.train.AdagradOptimizer(0.1).minimize(nce + soft, step)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(9):
            feed = {x: waves(4, 6, k)}
            record.value(f"draws {k}", sess.run(draws, feed))
            record.value(f"stateless {k}", sess.run(stateless))
            record.value(f"{k}", sess.run([nce, soft, train], feed)[:2])
        record.value("weights", sess.run([weights, biases]))


def program_checked(record):
    """Assertions and numeric checks that fail in the middle of training, and steps that go on after them."""
    x = tf.placeholder(tf.float32, [3], name="x")
    w = tf.get_variable("w", [3], initializer=tf.ones_initializer())
    positive = tf.debugging.assert_positive(x, message="x shall be positive", summarize=2)
    with tf.control_dependencies([positive, tf.debugging.assert_less(tf.reduce_sum(x), 90.0, data=[x], message="too much")]):
        y = tf.check_numerics(tf.log(w * x), "the logarithm")  # one thing fails at a time: of two any may be told
    loss = tf.reduce_sum(tf.square(y), name="loss")
    optimizer = tf.train.AdamOptimizer(0.1)
    gradients = [(tf.clip_by_value(tf.verify_tensor_all_finite(g, "a gradient"), -1, 1), v) for g, v in
                 optimizer.compute_gradients(loss)]  # fmt: skip
    counted = tf.get_variable("counted", [], initializer=tf.zeros_initializer(), trainable=False)
    with tf.control_dependencies([tf.assign_add(counted, 1.0)]):
        train = optimizer.apply_gradients(gradients)
    feeds = {"good": [1, 2, 3], "negative": [-1, 2, 3], "zero": [0, 2, 3], "large": [50, 50, 1]}
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(3):
            for name, values in feeds.items():
                if name == "good":
                    record.value(f"{name} {k}", sess.run([loss, y, train], {x: values})[:2])
                else:
                    with record.error(f"{name} {k}"):
                        sess.run(loss, {x: values})
            with record.error(f"y {k}"):
                sess.run(tf.check_numerics(tf.log(w - 5.0), "of a new op"))
            record.value(f"w {k}", sess.run(w))
