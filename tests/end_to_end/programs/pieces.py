"""What composed programs are made of: pieces that take numbers of a batch, and give numbers of the same shape.

A piece takes the composer, which draws and makes variables, and a tensor [BATCH, WIDTH] of float32; what it gives is small enough
to stand anywhere. Pieces are data to `composed.py`; those of control flow, functions and state are in `machinery.py`.
"""

import numpy as np
import tensorflow.compat.v1 as tf

BATCH, WIDTH = 4, 6
ACTIVATIONS = (tf.tanh, tf.sin, tf.sigmoid, tf.nn.softplus, tf.nn.elu, tf.nn.relu, lambda t: t * tf.sigmoid(1.3 * t))


def shaped(tensor):
    return tf.reshape(tensor, [-1, WIDTH])


def small(tensor):
    return shaped(tf.tanh(tensor))


def dense(c, h):
    h = tf.matmul(h, c.weight([WIDTH, WIDTH]))
    return c.one_of(ACTIVATIONS)(h + c.weight([WIDTH]) if c.below(2) else h)


def scaled(c, h):
    for _ in range(1 + c.below(4)):
        h = c.one_of(
            [lambda t: t * c.constant(), lambda t: t + c.constant(), lambda t: t / c.constant(), lambda t: c.constant() - t]
        )(h)
    return tf.sin(h)


def residual(c, h):
    parts = [c.piece(h) for _ in range(1 + c.below(3))]
    return small(c.one_of([lambda: tf.add_n([h, *parts]), lambda: h + parts[0], lambda: parts[-1] * h])())


def convolved(c, h):
    image = tf.reshape(h, [-1, 3, 2, 1])
    made = tf.nn.conv2d(image, c.weight([2, 2, 1, 3]), strides=1, padding="SAME")
    made = tf.nn.bias_add(made, c.weight([3]))
    made = c.one_of([tf.nn.relu, tf.nn.elu, tf.tanh])(made)
    if c.below(2):
        made = tf.nn.max_pool2d(made, 2, 1, "SAME")
    return small(tf.reduce_mean(made, -1))


def normalized(c, h):
    """A batch norm by hand, with moving averages that the training step brings forward."""
    mean, variance = tf.nn.moments(h, [0])
    for value in (mean, variance):
        average, read = c.variable([WIDTH], trainable=False)
        c.updates.append(lambda v=average, r=read, x=value: v.assign(r * 0.9 + x * 0.1))
    return tf.tanh(tf.nn.batch_normalization(h, mean, variance, c.weight([WIDTH]), c.weight([WIDTH]), 1e-3))


def fused_norm(c, h):
    image = tf.reshape(h, [-1, 3, 1, 2])
    made, mean, _ = tf.nn.fused_batch_norm(image, c.weight([2]), c.weight([2]))[:3]
    c.seen.append(mean)
    return small(made)


def layer_norm(c, h):
    mean = tf.reduce_mean(h, 1, keepdims=True)
    return tf.tanh((h - mean) * tf.rsqrt(tf.reduce_mean(tf.square(h - mean), 1, keepdims=True) + 1e-3) * c.weight([WIDTH]))


def embedded(c, h):
    table, _ = c.variable([7, WIDTH], read=False)
    ids = tf.argmax(h, 1) if c.below(2) else tf.cast(tf.abs(h[:, 0]) * 5.0, tf.int32) % 7
    if c.below(2):
        ids = tf.unique(ids)[0] if c.below(2) else ids
        found = c.reading(tf.nn.embedding_lookup(table, ids))
        return tf.tanh(h + tf.reduce_mean(found, 0))
    return tf.tanh(h * c.reading(tf.gather(table, ids)))


def partitioned(c, h):
    parts = [c.weight([3, WIDTH]) for _ in range(2)]
    return tf.tanh(tf.matmul(h, tf.concat(parts, 0)))


def attention(c, h):
    q, k, v = (tf.reshape(tf.matmul(h, c.weight([WIDTH, WIDTH])), [-1, 2, 3]) for _ in range(3))
    scores = tf.nn.softmax(tf.einsum("bij,bkj->bik", q, k) / c.constant())
    return small(tf.matmul(scores, v))


def sliced(c, h):
    left, right = tf.split(h, 2, 1)
    parts = [left[:, ::-1], tf.roll(right, 1, 0)] if c.below(2) else [right, tf.reverse(left, [0])]
    return tf.concat(parts, 1) if c.below(2) else tf.transpose(tf.concat([tf.transpose(p) for p in parts], 0))


def stacked(c, h):
    rows = tf.unstack(h, BATCH)
    c.drawn.shuffle(rows)
    return tf.stack([row * c.constant() for row in rows])


def partition(c, h):
    where = tf.cast(tf.reduce_sum(h, 1) > 0.0, tf.int32)
    parts = tf.dynamic_partition(h, where, 2)
    places = tf.dynamic_partition(tf.range(BATCH), where, 2)
    return shaped(tf.dynamic_stitch(places, [parts[0] * c.constant(), tf.tanh(parts[1])]))


def chosen(c, h):
    if c.below(2):
        return tf.where(h > 0.1, h * c.constant(), tf.tanh(h))
    best = tf.nn.top_k(h, 3)
    c.seen.append(best.indices)
    return tf.tile(best.values, [1, 2])


def scattered(c, h):
    ids = tf.stack([tf.argsort(h[:, 0]), tf.argsort(h[:, 1])], 1)
    values = tf.gather_nd(h, tf.minimum(ids, WIDTH - 1))
    return tf.tanh(h + tf.scatter_nd(ids, values, [BATCH, WIDTH]))


def segments(c, h):
    ids = tf.cast(tf.abs(h[:, 0]) * 3.0, tf.int32) % 3
    sums = tf.math.unsorted_segment_sum(h, ids, 3) if c.below(2) else tf.math.segment_sum(h, tf.sort(ids), name="segment")
    return tf.tanh(tf.gather(tf.pad(sums, [[0, 4], [0, 0]]), ids))


def sparse(c, h):
    places = tf.where(h > 0.0)
    made = tf.SparseTensor(places, tf.gather_nd(h, places), [BATCH, WIDTH])
    c.seen.append(made)
    if c.below(2):
        return tf.tanh(tf.sparse.to_dense(made) * c.constant())
    return tf.tanh(tf.sparse_tensor_dense_matmul(made, c.weight([WIDTH, WIDTH])))


def ragged(c, h):
    lengths = tf.cast(tf.abs(h[:, 0]) * 9.0, tf.int32) % (WIDTH + 1)
    made = tf.RaggedTensor.from_tensor(h, lengths)
    c.seen.append(made)
    return tf.tanh(h + tf.reduce_sum(made, 1)[:, None])


def words(c, h):
    text = tf.as_string(tf.round(h * 8.0), precision=1)
    c.seen.append(tf.strings.join([text, tf.constant("px")]))
    if c.below(2):
        return tf.strings.to_number(text) / 8.0
    kind = tf.strings.to_hash_bucket_fast(text, 5)
    return tf.tanh(tf.cast(kind, tf.float32) * c.constant() + h)


def algebra(c, h):
    square = tf.matmul(h, h, transpose_b=True) + 2.0 * tf.eye(BATCH)
    way = c.below(3)
    if way == 0:
        return tf.tanh(tf.linalg.solve(square, h))
    if way == 1:
        return tf.tanh(tf.matmul(tf.linalg.cholesky(square), h))
    return tf.tanh(tf.matmul(tf.linalg.inv(square), h))


def narrowed(c, h):
    dtype = c.one_of([tf.float16, tf.bfloat16, tf.float64])
    return tf.cast(tf.cast(h, dtype) * tf.cast(c.constant(), dtype), tf.float32)


def waves(c, h):
    return tf.tanh(tf.math.real(tf.signal.ifft(tf.signal.fft(tf.cast(h, tf.complex64)) * tf.cast(c.constant(), tf.complex64))))


def summed(c, h):
    way = c.below(4)
    if way == 0:
        return tf.tanh(tf.cumsum(h, 1, exclusive=bool(c.below(2))))
    if way == 1:
        return h * tf.reduce_max(h, 1, keepdims=True)
    if way == 2:
        return tf.tanh(tf.math.reduce_logsumexp(h, 0, keepdims=True) - h)
    return tf.nn.softmax(h, c.below(2))


def stopped(c, h):
    return tf.tanh(h + tf.stop_gradient(c.piece(h)))


def clipped(c, h):
    h = tf.clip_by_value(h, -c.constant(), c.constant())
    return tf.clip_by_norm(h, c.constant(), 1) if c.below(2) else tf.fake_quant_with_min_max_args(h, -1.0, 1.0)


def grown(c, h):
    image = tf.image.resize(tf.reshape(h, [-1, 3, 2, 1]), [6, 4], c.one_of(["bilinear", "nearest", "bicubic"]))
    return small(tf.nn.avg_pool2d(image, 2, 2, "SAME"))


def classified(c, h):
    labels = tf.one_hot(tf.argmax(h, 1), WIDTH)
    loss = c.one_of([
        lambda: tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=h * c.constant()),
        lambda: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.argmax(h, 1), logits=h),
        lambda: tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=h), 1),
    ])()  # fmt: skip
    c.losses.append(tf.reduce_mean(loss))
    return h


def curved(c, h):
    """Gradients in the forward pass."""
    y = tf.reduce_sum(tf.square(tf.tanh(h * c.constant())))
    slope = tf.gradients(y, h)[0]
    return tf.tanh(h - 0.1 * slope)


def sized(c, h):
    """Shapes that the graph computes."""
    rows = tf.shape(h)[0] if c.below(2) else tf.size(h) // WIDTH
    made = tf.reshape(h, tf.stack([rows * 2, 3]))
    return small(tf.reshape(made * tf.cast(rows, tf.float32) * 0.3, [rows, -1]))


def constants(c, h):
    table = tf.constant(np.random.RandomState(c.below(100)).randn(WIDTH, WIDTH).astype(np.float32))
    return tf.tanh(h @ (table * 0.5)) if c.below(2) else h + tf.fill([BATCH, WIDTH], c.constant())


PIECES = (
    dense, dense, scaled, scaled, residual, residual, convolved, normalized, fused_norm, layer_norm, embedded, partitioned, attention,
    sliced, stacked, partition, chosen, scattered, segments, sparse, ragged, words, algebra, narrowed, waves, summed, stopped, clipped,
    grown, classified, curved, sized, constants,
)  # fmt: skip
