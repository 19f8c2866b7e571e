"""What public code writes by hand: leaky ReLUs, boxes decoded from a table of anchors in a loop, hashed categories, cosines."""

import numpy as np
import tensorflow.compat.v1 as tf


def train(record, loss, feeds, others=()):
    step = tf.train.GradientDescentOptimizer(0.05).minimize(loss)
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.tables_initializer()])
        for k in range(12):
            record.value(f"step {k}", sess.run([step, loss], feeds(k))[1])
            if k % 3 == 2:
                record.value(f"others {k}", sess.run(list(others), feeds(k)))
        record.value("state", sess.run(tf.trainable_variables()))


def leaky(x, leak=0.2):
    return 0.5 * (1 + leak) * tf.identity(x) + 0.5 * (1 - leak) * tf.abs(x)


def convolved(x, filters, name):
    shape = [3, 3, x.shape[-1], filters]
    kernel = tf.get_variable(f"{name}_kernel", initializer=tf.random_normal(shape, stddev=0.1, seed=filters))
    bias = tf.get_variable(f"{name}_bias", [filters], initializer=tf.zeros_initializer())
    return tf.nn.bias_add(tf.nn.conv2d(x, kernel, 2, "SAME"), bias)


def program_leaky(record):
    """The activation of a well-known image translator."""
    images = tf.placeholder(tf.float32, [2, 16, 16, 3])
    hidden = leaky(convolved(images, 6, "first"))
    scores = convolved(leaky(convolved(hidden, 8, "second")), 1, "third")
    loss = tf.reduce_mean(-tf.log(tf.sigmoid(scores) + 1e-12))
    train(record, loss, lambda k: {images: np.random.RandomState(k).randn(2, 16, 16, 3)}, [scores])


def program_boxes(record):
    features = tf.placeholder(tf.float32, [2, 4, 5])
    anchors = tf.constant(np.array([[0, 0, 4, 4], [2, 2, 8, 6], [1, 3, 5, 9], [4, 4, 9, 9]], np.float32))
    kernel = tf.get_variable("kernel", initializer=tf.random_normal([5, 4], stddev=0.1, seed=3))
    offsets = tf.reshape(tf.matmul(tf.reshape(features, [-1, 5]), kernel), [2, 4, 4])

    def decoded(each):
        width, height = anchors[:, 2] - anchors[:, 0], anchors[:, 3] - anchors[:, 1]
        x = each[:, 0] * width + anchors[:, 0] + 0.5 * width
        y = each[:, 1] * height + anchors[:, 1] + 0.5 * height
        half = [0.5 * tf.exp(each[:, 2]) * width, 0.5 * tf.exp(each[:, 3]) * height]
        return tf.stack([x - half[0], y - half[1], x + half[0], y + half[1]], 1)

    boxes = tf.map_fn(decoded, offsets, parallel_iterations=1)
    loss = tf.reduce_mean(tf.square(offsets - 0.1)) + 1e-3 * tf.reduce_mean(tf.abs(boxes - 1.0))
    train(record, loss, lambda k: {features: np.random.RandomState(k).randn(2, 4, 5)}, [boxes])


def program_hashed(record):
    """Categories that are numbers, hashed as text; bags of embeddings of resource variables; assertions that hold."""
    ids, labels = tf.placeholder(tf.int64, [None]), tf.placeholder(tf.float32, [None])
    rows = tf.strings.to_hash_bucket_fast(tf.as_string(ids), 12)
    places = tf.stack([tf.cast(tf.range(tf.size(ids)) // 2, tf.int64), tf.zeros_like(ids)], 1)
    bags = tf.SparseTensor(places, rows, tf.cast([tf.size(ids) // 2 + 1, 1], tf.int64))
    parts = []
    for name, combiner in (("mean", "mean"), ("sum", "sqrtn")):
        table = tf.get_variable(name, initializer=tf.random_normal([12, 3], stddev=0.3, seed=len(name)), use_resource=True)
        parts.append(tf.nn.safe_embedding_lookup_sparse(table, bags, combiner=combiner))
    with tf.control_dependencies([tf.debugging.assert_equal(tf.shape(parts[0])[1], 3)]):
        logits = tf.reduce_sum(tf.concat(parts, 1), 1)
    wanted = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels[: tf.size(logits)], logits=logits)
    random = np.random.RandomState
    train(record, tf.reduce_mean(wanted), lambda k: {ids: random(k).randint(0, 90, 8), labels: np.arange(8) % 2}, [logits, rows])


def program_cosines(record):
    """Norms, whose gradients add a value to itself and to others, and masks that are cast and turned."""
    x, lengths = tf.placeholder(tf.float32, [3, 4, 5]), tf.placeholder(tf.int32, [3])
    mask = tf.transpose(tf.sequence_mask(lengths, 4, tf.float32))
    memory = tf.get_variable("memory", initializer=tf.random_normal([6, 5], stddev=0.5, seed=1))
    kernel = tf.get_variable("kernel", initializer=tf.random_normal([5, 5], stddev=0.4, seed=2))
    keys = tf.tanh(tf.einsum("bte,ef->btf", x, kernel))
    below = tf.norm(keys, axis=2)[:, :, None] * tf.norm(memory + 1e-6, axis=1) + 1e-8
    alike = tf.nn.softmax(tf.einsum("bte,me->btm", keys, memory) / below)
    read = tf.transpose(tf.einsum("btm,me->bte", alike, memory) * keys, [1, 0, 2]) * mask[:, :, None]
    loss = tf.reduce_mean(tf.square(read - tf.transpose(x, [1, 0, 2]) * 0.1))
    train(record, loss, lambda k: {x: np.random.RandomState(k).randn(3, 4, 5), lengths: [1 + k % 4, 4, 2]}, [alike, mask])
