"""Steps that fail now and then, and after which the program goes on: what else they had to do is done."""

import os

import numpy as np
import tensorflow.compat.v1 as tf


def _trained(x, name, depth=4):
    """A step that trains `depth` layers on x [2, 4], with Adam and a counter."""
    h = x
    with tf.variable_scope(name, use_resource=True):
        for k in range(depth):
            w = tf.get_variable(f"w{k}", [4, 4], initializer=tf.constant_initializer(0.1 * (k + 1)))
            h = tf.tanh(tf.matmul(h, w))
        count = tf.get_variable("count", [], tf.int64, tf.zeros_initializer(), trainable=False)
    return tf.train.AdamOptimizer(0.01).minimize(tf.reduce_mean(tf.square(h - 0.3)), count)


def program_branch(record):
    """A variable that is given its value late, and is read in a branch that is seldom taken, of both generations."""
    x, taken = tf.placeholder(tf.float32, [2, 4], name="x"), tf.placeholder(tf.bool, [], name="taken")
    steps = [_trained(x, "first"), _trained(x, "second")]
    own = tf.global_variables()
    with tf.variable_scope("late", use_resource=True):
        late = [tf.get_variable(f"teacher{k}", [4, 4], initializer=tf.ones_initializer(), trainable=False) for k in range(2)]
    scores = [tf.cond(taken, lambda: tf.reduce_sum(tf.matmul(x, late[0])), lambda: tf.constant(0.0))]
    tf.enable_control_flow_v2()
    scores.append(tf.cond(taken, lambda: tf.reduce_sum(tf.matmul(x, late[1])), lambda: tf.constant(0.0)))
    tf.disable_control_flow_v2()
    with tf.Session() as sess:
        sess.run(tf.variables_initializer(own))
        for k in range(24):
            with record.error(f"{k}"):
                feed = {x: np.sin(np.arange(8.0).reshape(2, 4) + k), taken: k % 8 in (4, 5)}
                record.value(f"{k}", sess.run([scores[k % 2], steps[k % 2]], feed)[0])
            record.value(f"after {k}", sess.run(own))
            if k == 15:
                sess.run([each.initializer for each in late])


def program_filed(record):
    """What was computed of each batch is written to a file while the next batch is fetched, and the data ends."""
    batch = tf.placeholder(tf.float32, [2, 4], name="batch")
    number = tf.placeholder(tf.int32, [], name="number")
    with tf.variable_scope("net", use_resource=True):
        w = tf.get_variable("w", [4, 4], initializer=tf.constant_initializer(0.2))
    h = batch
    for _ in range(6):
        h = tf.tanh(tf.matmul(h, w))
    following = tf.data.make_initializable_iterator(
        tf.data.Dataset.range(8).map(lambda k: tf.fill([4], tf.cast(k, tf.float32))).batch(2)
    )
    told = tf.io.write_file(tf.strings.join(["told", tf.as_string(number)]), tf.as_string(tf.reduce_sum(h)))
    element = following.get_next()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for epoch in range(4):
            sess.run(following.initializer)
            now = sess.run(element)
            for k in range(4):
                with record.error(f"{epoch} {k}"):
                    now = sess.run([element, told], {batch: now, number: 4 * epoch + k})[0]
            record.value(f"files {epoch}", sorted((name, open(name).read()) for name in os.listdir(".") if name.startswith("told")))


def program_unsuited(record):
    """What is given something that does not suit, and is fetched beside training: pictures, sizes, indices, ranges."""
    x, bad = tf.placeholder(tf.float32, [2, 4], name="x"), tf.placeholder(tf.bool, [], name="bad")
    train, ids = _trained(x, "net"), tf.placeholder(tf.int32, [None], name="ids")
    text, size = tf.placeholder(tf.string, [], name="text"), tf.placeholder(tf.int32, [], name="size")
    serialized = tf.io.serialize_many_sparse(tf.SparseTensor([[0, 0]], [1.0], [1, 2]))
    ends = [
        tf.image.decode_gif(text),
        tf.image.decode_bmp(text),
        tf.unravel_index(ids, [5]),
        tf.image.extract_glimpse(tf.ones([2, 8, 8, 1]), tf.stack([size, 2]), tf.zeros([2, 2])),
        tf.image.resize_area(tf.ones([1, 4, 4, 1]), tf.stack([size, 2])),
        tf.raw_ops.RaggedRange(starts=[0], limits=[5], deltas=[size], Tsplits=tf.int64),
        tf.quantization.quantize(x, tf.cast(1 - size, tf.float32) * 4.0, 1.0, tf.quint8),
        tf.io.deserialize_many_sparse(tf.where(bad, tf.constant([["a", "b", "c"]]), serialized), tf.float32),
        tf.math.segment_min(x, ids[:2]),
    ]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(3 * len(ends)):
            amiss = k % 3 == 2
            feed = {
                x: np.sin(np.arange(8.0).reshape(2, 4) + k),
                bad: amiss,
                text: b"",
                size: 0 if amiss else 1,
                ids: [3, 7] if amiss else [0, 1],
            }
            with record.error(f"{k}"):
                sess.run([ends[k // 3], train], feed)
            record.value(f"after {k}", sess.run(tf.global_variables()))
