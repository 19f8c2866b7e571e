"""Images: a detector whose loss goes through masks, Python and suppression of boxes, a picture that a loop outside of TensorFlow
searches for, as style transfer with an optimizer of scipy's does, a mobile net whose gradients wait for its normalizations, and a
recurrent convolution."""

import numpy as np
import tensorflow.compat.v1 as tf


def weights(name, *shape):
    values = np.random.RandomState(sum(map(ord, name))).randn(*shape).astype(np.float32) * 0.3
    return tf.get_variable(name, initializer=values, use_resource=True)


def program_detector(record):
    images, truth = tf.placeholder(tf.float32, [2, 8, 8, 3]), tf.placeholder(tf.float32, [2, 4, 4, 5])
    h = tf.nn.leaky_relu(tf.nn.bias_add(tf.nn.conv2d(images, weights("k", 3, 3, 3, 8), 2, "SAME"), weights("kb", 8)), 0.1)
    cells = tf.nn.bias_add(tf.nn.conv2d(h, weights("out", 1, 1, 8, 5), 1, "SAME"), weights("out_b", 5))
    place, size, sure = tf.sigmoid(cells[..., :2]), tf.exp(tf.minimum(cells[..., 2:4], 3.0)), tf.sigmoid(cells[..., 4])
    anchors = tf.py_func(lambda boxes: np.maximum(boxes[..., 2:4], 0.1).astype(np.float32), [truth], tf.float32)
    anchors.set_shape([2, 4, 4, 2])
    there = truth[..., 4] > 0.5
    overlap = tf.reduce_min(tf.minimum(size, anchors) / tf.maximum(size, anchors), -1)
    loss = tf.reduce_sum(tf.boolean_mask(tf.reduce_sum(tf.square(place - truth[..., :2]), -1), there))
    loss += tf.reduce_sum(tf.square(sure - tf.stop_gradient(overlap) * tf.cast(there, tf.float32)))
    loss += 0.1 * tf.reduce_sum(tf.where(there, 1 - overlap, tf.zeros_like(overlap)))
    train = tf.train.MomentumOptimizer(0.01, 0.9, use_nesterov=True).minimize(loss)
    boxes = tf.reshape(tf.concat([place - size / 2, place + size / 2], -1), [-1, 4])
    kept = tf.image.non_max_suppression(boxes, tf.reshape(sure, [-1]), 6, 0.4)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        rng = np.random.RandomState(4)
        for k in range(12):
            feeds = {images: rng.randn(2, 8, 8, 3), truth: rng.rand(2, 4, 4, 5)}
            record.value(f"{k}", sess.run([loss, train], feeds)[0])
            if k % 3 == 2:
                record.value(f"kept {k}", sess.run([kept, sure], {images: feeds[images]}))


def program_searched(record):
    picture = weights("picture", 1, 8, 8, 3)
    seen = tf.nn.relu(tf.nn.conv2d(picture, tf.constant(np.random.RandomState(8).randn(3, 3, 3, 6).astype(np.float32)), 1, "SAME"))
    flat = tf.reshape(seen, [-1, 6])
    style = tf.constant(np.random.RandomState(9).randn(6, 6).astype(np.float32))
    loss = tf.nn.l2_loss(tf.matmul(flat, flat, transpose_a=True) / 64 - style) * 5 + 2e-3 * tf.image.total_variation(picture)[0]
    slope = tf.gradients(loss, picture)[0]
    given = tf.placeholder(tf.float32, picture.shape)
    put = picture.assign(given)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        at = sess.run(picture)
        for k in range(6):
            height, down = sess.run([loss, slope])
            pace = 0.1
            for _ in range(3):
                sess.run(put, {given: at - pace * down})
                lower = sess.run(loss)
                record.value(f"{k} by {pace:.3f}", [height, lower])
                if lower < height:
                    break
                pace *= 0.3
            at = at - pace * down


def normalized(h, name, learns):
    """Batch normalization whose averages are updated by who asks for them, and which is fed whether to learn."""
    size = h.shape.as_list()[-1:]
    scale, offset = weights(f"{name}_scale", *size), weights(f"{name}_offset", *size)
    averages = [
        tf.get_variable(f"{name}_{k}", initializer=np.ones(size, np.float32), trainable=False) for k in ("mean", "variance")
    ]
    y, *seen = tf.cond(
        learns,
        lambda: tf.nn.fused_batch_norm(h, scale, offset)[:3],
        lambda: tf.nn.fused_batch_norm(h, scale, offset, *averages, is_training=False)[:3],
    )
    for old, new in zip(averages, seen, strict=True):
        tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, tf.assign_sub(old, (old - new) * 0.1))
    return y


def program_mobile(record):
    images, labels = tf.placeholder(tf.float32, [4, 8, 8, 3]), tf.placeholder(tf.int32, [4])
    learns = tf.placeholder_with_default(False, [])
    h = images
    for k, (given, made) in enumerate([(3, 4), (4, 6)]):
        h = normalized(tf.nn.conv2d(h, weights(f"k{k}", 3, 3, given, made), 2, "SAME"), f"n{k}", learns)
        h = h * tf.nn.relu6(h + 3.0) / 6.0  # hard swish
        gate = tf.nn.relu6(tf.matmul(tf.reduce_mean(h, [1, 2]), weights(f"g{k}", made, made)) + 3.0) * (1.0 / 6.0)
        h = h * gate[:, None, None, :]
    logits = tf.matmul(tf.reduce_mean(h, [1, 2]), weights("out", 6, 4))
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train = tf.train.RMSPropOptimizer(0.02, 0.9, 0.9, 1.0).minimize(loss)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        rng = np.random.RandomState(2)
        for k in range(8):
            feeds = {images: rng.rand(4, 8, 8, 3), labels: rng.randint(0, 4, 4)}
            record.value(f"{k}", sess.run([[train], [loss, train]][k % 2], {**feeds, learns: True}))
            if k % 3 == 2:
                record.value(f"seen {k}", sess.run([loss, logits], feeds))
        record.value("variables", sess.run(tf.global_variables()))


def program_recurrent(record):
    """A bias beside the filters of two layers, unrolled and in a loop: with which of them does its gradient become one kernel?"""
    x = tf.placeholder(tf.float32, [3, 4, 4, 4, 1])
    k, r, b, kl, bl = (weights(name, *shape) for name, *shape in (
        ("k", 2, 2, 1, 2), ("r", 2, 2, 2, 2), ("b", 2), ("kl", 2, 2, 1, 2), ("bl", 2)))  # fmt: skip
    h = tf.zeros([4, 3, 3, 2])
    for t in range(3):
        h = tf.tanh(tf.nn.bias_add(tf.nn.conv2d(x[t], k, 1, "VALID"), b) + tf.nn.conv2d(h, r, 1, "SAME"))

    def body(t, state):
        return t + 1, tf.tanh(state * 0.5 + tf.nn.bias_add(tf.nn.conv2d(x[t], kl, 1, "VALID"), bl))

    _, last = tf.while_loop(lambda t, _: t < 3, body, (0, tf.zeros([4, 3, 3, 2])))
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    steps = [optimizer.compute_gradients(tf.reduce_sum(tf.square(h - 0.3)), [k, r, b])]
    steps.append(list(zip(tf.gradients(tf.reduce_sum(tf.square(last - 0.3)), [kl, bl]), [kl, bl], strict=True)))
    trains = [optimizer.apply_gradients(pairs) for pairs in steps]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        rng = np.random.RandomState(1)
        for n in range(16):
            gradients = [gradient for gradient, _ in steps[n % 2]]
            record.value(f"{n}", sess.run([gradients, trains[n % 2]], {x: rng.randn(3, 4, 4, 4, 1)})[0])
        record.value("at the end", sess.run(tf.global_variables()))
