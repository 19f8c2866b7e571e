"""Images: a detector whose loss goes through masks, Python and suppression of boxes, and a picture that a loop outside of TensorFlow
searches for, as style transfer with an optimizer of scipy's does."""

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
