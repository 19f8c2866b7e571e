"""What is computed once more for the sake of memory, and graphs of which a session places what a step needs."""

import numpy as np
import tensorflow.compat.v1 as tf
from rewritten import seen, weights


def program_layers(record):
    """Gradients that compute the layers below once more, behind the loss or the gradients above (checkpointing)."""
    x, y = tf.placeholder(tf.float32, [8, 16]), tf.placeholder(tf.float32, [8, 16])
    layers = [(weights(f"w{'i' * k}", 16, 16), weights(f"b{'i' * k}", 16)) for k in range(3)]
    ws, bs = [0.3 * w for w, _ in layers], [0.3 * b for _, b in layers]

    def above(m, k):
        h = tf.nn.tanh(m + bs[k])
        return tf.matmul(h, ws[k + 1]) if k < 2 else tf.reduce_mean(tf.square(h - y))

    def behind(op, k, given=None):
        with tf.control_dependencies([op]):
            again = above(stopped[k], k)
        found = tf.gradients(again, [stopped[k], bs[k], *ws[k + 1 : k + 2]], grad_ys=given)
        for gradient in found:
            if gradient.op is not op:
                gradient.op._add_control_inputs([op])
        return found

    kept = [tf.matmul(x, ws[0])]
    for k in range(2):
        kept.append(above(kept[-1], k))
    loss, stopped = above(kept[-1], 2), [tf.stop_gradient(m) for m in kept]
    down, *found = behind(loss.op, 2)
    pairs = [(found[0], layers[2][1])]
    for k in (1, 0):
        down, b, w = behind(down.op, k, [down])
        pairs += [(b, layers[k][1]), (w, layers[k + 1][0])]
    pairs += [(tf.gradients(kept[0], [ws[0]], grad_ys=[down])[0], layers[0][0])]
    train = tf.train.AdamOptimizer(0.01).apply_gradients(pairs)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(8):
            feed = {x: np.sin(np.arange(128.0) + k).reshape(8, 16), y: np.cos(np.arange(128.0) - k).reshape(8, 16)}
            record.value(f"gradients {k}", sess.run([g for g, _ in pairs], feed))
            record.value(f"loss {k}", sess.run([loss, train] if k % 2 else [train, tf.constant(0.0)], feed)[0])
        record.value("all", sess.run(tf.trainable_variables()))


def program_tail(record):
    """A loss that nobody asks for, and its like behind it: Grappler takes the former out, and makes one kernel of the latter."""
    x = tf.placeholder(tf.float32, [8, 16])
    w, b = 0.3 * weights("w", 16, 16).read_value(), weights("b", 16).read_value()
    m, one = tf.matmul(x, w), tf.constant(1.0)

    def tail(m):
        return tf.reduce_mean(tf.square(tf.nn.tanh(m + b) - one))

    loss = tail(m)
    stopped = tf.stop_gradient(m)
    with tf.control_dependencies([loss.op]):
        again = tail(stopped)
    found = tf.gradients(again, [stopped, b])
    for gradient in found:
        gradient.op._add_control_inputs([loss.op])
    seen(record, [[found[1], tf.gradients(m, [w], grad_ys=[found[0]])[0]], [loss, found[1]]], x, steps=6)


def program_pruned(record):
    """An InteractiveSession places what a step needs of the graph, and does without Grappler then."""
    x = tf.placeholder(tf.float32, [8, 16])
    z = tf.matmul(x, weights("w", 16, 16)) + weights("b", 16)
    h = z * tf.sigmoid(1.702 * z) * 0.7 * 0.3
    loss = tf.reduce_mean(tf.square(h - tf.stop_gradient(z) * 0.3))
    train = tf.train.AdamOptimizer(0.01).minimize(loss)
    sess = tf.InteractiveSession()
    tf.global_variables_initializer().run()
    for k in range(8):
        record.value(f"{k}", sess.run([loss, train], {x: np.sin(np.arange(128.0) + k).reshape(8, 16)})[0])
        record.value(f"h {k}", h.eval({x: np.cos(np.arange(128.0) + k).reshape(8, 16)}))
    record.value("all", sess.run(tf.trainable_variables()))
    sess.close()
