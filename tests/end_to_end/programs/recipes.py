"""Recipes of training: gradients gathered over steps, scaled losses, towers, averages for evaluation, schedules, the best checkpoint kept."""

import numpy as np
import tensorflow.compat.v1 as tf
from training import convolution, dense, images, normalized


def batch(k, n=8):
    rng = np.random.RandomState(k)
    return rng.randn(n, 6).astype("f"), rng.randint(0, 3, n)


def inputs():
    return tf.placeholder(tf.float32, [None, 6], name="x"), tf.placeholder(tf.int32, [None], name="y")


def program_accumulated(record):
    """Gradients of several small batches are added up in variables, applied together, and set back; all by control edges."""
    x, y = inputs()
    loss = tf.losses.sparse_softmax_cross_entropy(y, dense(dense(x, 5, "h", tf.nn.relu), 3, "out"))
    step = tf.train.get_or_create_global_step()
    rate = tf.train.polynomial_decay(0.1, step, 6, 0.01, power=2.0)
    optimizer = tf.train.MomentumOptimizer(rate, 0.9)
    gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
    sums = [tf.Variable(tf.zeros_like(v.initialized_value()), trainable=False, name="sum") for v in variables]
    count = tf.Variable(0.0, trainable=False, name="count")
    with tf.control_dependencies([loss]):
        gather = tf.group(*[s.assign_add(g) for s, g in zip(sums, gradients, strict=True)], count.assign_add(1.0))
    clipped, norm = tf.clip_by_global_norm([s / count for s in sums], 0.5)
    with tf.control_dependencies([norm, rate]):
        train = optimizer.apply_gradients(list(zip(clipped, variables, strict=True)), step)
    with tf.control_dependencies([train]):
        train_and_reset = tf.group(*[s.assign(tf.zeros_like(s)) for s in sums], count.assign(0.0))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(21):
            record.value(f"{k}", sess.run([loss, gather], dict(zip((x, y), batch(k), strict=True)))[0])
            if k % 3 == 2:
                record.value(f"norm {k}", sess.run([norm, rate, train_and_reset])[:2])
                record.value(f"sums {k}", sess.run([sums[0], count, step]))
        record.value("all", sess.run(tf.global_variables()))
    record.graph("graph")


def program_scaled(record):
    """Half precision with a scaled loss: steps whose gradients are not finite are left out by a branch, and the scale follows."""
    x, y = inputs()
    w = tf.get_variable("w", [6, 3], initializer=tf.glorot_uniform_initializer(seed=1))
    u = tf.get_variable("u", [6, 3], initializer=tf.glorot_uniform_initializer(seed=2), use_resource=True)
    half = tf.cast(x, tf.float16)
    logits = tf.cast(tf.matmul(half, tf.cast(w, tf.float16)) + tf.tanh(tf.matmul(half, tf.cast(u, tf.float16))), tf.float32)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    scale = tf.get_variable("scale", [], initializer=tf.constant_initializer(2.0**14), trainable=False)
    good = tf.get_variable("good", [], tf.int32, initializer=tf.zeros_initializer(), trainable=False)
    now = tf.identity(scale)
    optimizer = tf.train.AdamOptimizer(0.05)
    scaled = optimizer.compute_gradients(loss * now)
    with tf.control_dependencies([now]):
        pairs = [(g / now, v) for g, v in scaled]
    finite = tf.reduce_all([tf.reduce_all(tf.is_finite(g)) for g, _ in pairs])

    def apply():
        with tf.control_dependencies([optimizer.apply_gradients(pairs)]):
            counted = tf.assign_add(good, 1)
            return tf.cond(tf.equal(counted % 4, 0), lambda: tf.assign(scale, now * 2.0), lambda: tf.identity(now))

    def skip():
        with tf.control_dependencies([tf.assign(good, 0)]):
            return tf.assign(scale, now / 4.0)

    with tf.control_dependencies([loss]):
        train = tf.cond(finite, apply, skip)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(18):
            a, b = batch(k)
            record.value(f"{k}", sess.run([loss, finite, train], {x: a * (1e4 if k % 7 == 3 else 1.0), y: b})[:2])
            record.value(f"scale {k}", sess.run([scale, good]))
        record.value("all", sess.run(tf.global_variables()))
    record.graph("graph")


def program_towers(record):
    """A tower for each of four GPUs that need not be there, averaged gradients, soft placement; variables where a setter puts them."""
    x, y = tf.placeholder(tf.float32, [8, 8, 8, 1], name="x"), tf.placeholder(tf.int64, [8], name="y")
    step = tf.train.get_or_create_global_step()
    optimizer = tf.train.MomentumOptimizer(tf.train.exponential_decay(0.05, step, 3, 0.8, staircase=True), 0.9)
    towers, losses = [], []
    for i, (part, labels) in enumerate(zip(tf.split(x, 4), tf.split(y, 4), strict=True)):

        def place(op, i=i):
            return "/cpu:0" if op.type in ("Variable", "VariableV2", "VarHandleOp") else f"/gpu:{i}"

        with tf.device(place), tf.name_scope(f"tower_{i}"), tf.variable_scope("model", reuse=i > 0):
            h = normalized(convolution(part, 3, "c"), True, "n") if i == 0 else convolution(part, 3, "c")
            logits = dense(tf.reshape(tf.nn.max_pool2d(h, 2, 2, "SAME"), [-1, 48]), 4, "out")
            losses.append(tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)))
            towers.append(optimizer.compute_gradients(losses[-1] + 1e-3 * tf.nn.l2_loss(logits)))
    averaged = []
    with tf.device("/cpu:0"):
        for pairs in zip(*towers, strict=True):
            given = [tf.expand_dims(g, 0) for g, _ in pairs if g is not None]
            averaged.append((tf.reduce_mean(tf.concat(given, 0), 0), pairs[0][1]))
        total = tf.add_n(losses) / 4.0
        with tf.control_dependencies([total, *tf.get_collection(tf.GraphKeys.UPDATE_OPS)]):
            train = optimizer.apply_gradients(averaged, step)
    config = tf.ConfigProto(allow_soft_placement=True, log_device_placement=False, device_count={"CPU": 2})
    config.gpu_options.allow_growth = True
    with tf.Session(config=config) as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            feed = {x: images() * (1 + 0.01 * k), y: np.arange(8) % 4}
            record.value(f"{k}", sess.run([total, losses, train], feed)[:2])
        record.value("all", sess.run(tf.global_variables()))
    with tf.Session() as sess, record.error("without soft placement"):
        sess.run(tf.global_variables_initializer())
    record.graph("graph")


def program_averaged(record):
    """Batch normalization by UPDATE_OPS, averages of all weights, and an evaluation graph that restores the averages in place of the weights."""
    x, y = inputs()

    def model(training):
        with tf.variable_scope("model", reuse=tf.AUTO_REUSE):
            h = normalized(tf.reshape(dense(x, 4, "h"), [-1, 1, 1, 4]), training, "n")
            return dense(tf.reshape(tf.nn.relu(h), [-1, 4]), 3, "out")

    loss = tf.losses.sparse_softmax_cross_entropy(y, model(True))
    step = tf.train.get_or_create_global_step()
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        descent = tf.train.GradientDescentOptimizer(0.1).minimize(loss, step)
    averages = tf.train.ExponentialMovingAverage(0.95, num_updates=step, zero_debias=False)
    with tf.control_dependencies([descent]):
        train = averages.apply()
    saver = tf.train.Saver(max_to_keep=2, keep_checkpoint_every_n_hours=1)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            record.value(f"{k}", sess.run([loss, train], dict(zip((x, y), batch(k), strict=True)))[0])
            if k % 3 == 2:
                saver.save(sess, "ckpt/model", step)
                record.value(f"kept {k}", saver.last_checkpoints)
        record.checkpoint("last", tf.train.latest_checkpoint("ckpt"))
    with tf.Graph().as_default():
        x, y = inputs()
        right = tf.reduce_mean(tf.cast(tf.nn.in_top_k(model(False), y, 1), tf.float32))
        names = tf.train.ExponentialMovingAverage(0.95).variables_to_restore()
        record.value("names", sorted(names))
        with tf.Session() as sess:
            tf.train.Saver(names).restore(sess, tf.train.latest_checkpoint("ckpt"))
            for k in range(6):
                record.value(f"right {k}", sess.run([right, model(False)], dict(zip((x, y), batch(k), strict=True))))
        record.graph("evaluation")
    record.graph("graph")


def program_best_kept(record):
    """Training goes back to the best checkpoint when the loss on held-out data rises; the rate is halved; it ends by patience."""
    x, y = inputs()
    logits = dense(tf.nn.dropout(dense(x, 8, "h", tf.nn.relu), rate=0.2, seed=3), 3, "out")
    loss = tf.losses.sparse_softmax_cross_entropy(y, logits)
    rate = tf.Variable(1.5, trainable=False, name="rate")
    halve = rate.assign(rate * 0.5)
    train = tf.train.AdagradOptimizer(rate).minimize(loss)
    saver, best = tf.train.Saver(max_to_keep=3), tf.train.Saver(max_to_keep=1, name="best")
    lowest, patience = np.inf, 0
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(14):
            for i in range(2):
                record.value(f"{k} {i}", sess.run([loss, train], dict(zip((x, y), batch(k * 2 + i), strict=True)))[0])
            held = float(np.mean([sess.run(loss, dict(zip((x, y), batch(100 + i), strict=True))) for i in range(2)]))
            record.value(f"held {k}", held)
            saver.save(sess, "all/model", k, write_meta_graph=k == 0)
            if held < lowest:
                lowest, patience = held, 0
                best.save(sess, "best/model", k)
            else:
                patience += 1
                best.restore(sess, tf.train.latest_checkpoint("best"))
                record.value(f"halved {k}", sess.run(halve))
            if patience > 4:
                break
        record.value("kept", [saver.last_checkpoints, best.last_checkpoints])
        record.checkpoint("best", tf.train.latest_checkpoint("best"))
    record.graph("graph")
