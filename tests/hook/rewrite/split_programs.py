"""Training programs of further common kinds: how far does data parallelism reach in them? Each returns (loss, training op).

Written as their authors would for one device, small; whatever stands in a region's way is left there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from split_models import Data, Layers, Model, _attend, _flat, _loss

_SEED = 11


def _adam(*losses: Any) -> tuple[Any, Any]:
    """Trains the variables whose name begins with "g" on the first loss and the others on the second, or all on the only one."""
    if len(losses) == 1:
        return losses[0], tf.train.AdamOptimizer(0.005).minimize(losses[0], name="train")
    of_first = [v for v in tf.trainable_variables() if v.name.startswith("g")]
    others = [v for v in tf.trainable_variables() if not v.name.startswith("g")]
    optimizers = [tf.train.AdamOptimizer(0.005, 0.5), tf.train.AdamOptimizer(0.005, 0.5)]
    steps = [o.minimize(loss, var_list=v) for o, loss, v in zip(optimizers, losses, (of_first, others), strict=True)]
    return tf.add_n(losses), tf.group(*steps, name="train")


def _up(n: Layers, x: Any, filters: int, size: int, batch: Any, stride: int = 2) -> Any:
    """A transposed convolution to `size` by `size`."""
    weights = n.weights(3, 3, filters, int(x.shape[-1]), scale=0.1)
    return tf.nn.bias_add(tf.nn.conv2d_transpose(x, weights, [batch, size, size, filters], stride), n.weights(filters))


def _rows(data: Data, x: Any) -> Any:
    return tf.shape(x)[0] if data.late else data.batch


def unet(data: Data) -> tuple[Any, Any]:
    """Segmentation: down, up by transposed convolutions, skips; Dice and cross-entropy by pixel."""
    n = Layers(data.dtype)
    x, y = data.images(8, 2, 3)
    batch = _rows(data, x)
    top = n.conv(n.conv(x, 4), 4)
    middle = n.conv(tf.nn.max_pool2d(top, 2, 2, "SAME"), 6)
    low = tf.nn.dropout(n.conv(tf.nn.max_pool2d(middle, 2, 2, "SAME"), 8), rate=0.2, seed=_SEED)
    middle = n.conv(tf.concat([_up(n, low, 6, 4, batch), middle], 3), 6)
    top = n.conv(tf.concat([_up(n, middle, 4, 8, batch), top], 3), 4)
    scores = n.conv(top, 3, 1, relu=False)
    mask = tf.one_hot(tf.tile(tf.reshape(y, [-1, 1, 1]), [1, 8, 8]), 3, dtype=data.dtype)
    likely = tf.nn.softmax(scores)
    dice = 1 - 2 * tf.reduce_sum(likely * mask) / (tf.reduce_sum(likely) + tf.reduce_sum(mask))
    entropy = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(labels=mask, logits=scores))
    return _adam(dice + entropy)


def densenet(data: Data) -> tuple[Any, Any]:
    """Blocks whose layers read all before them; running averages of batch normalization."""
    n = Layers(data.dtype)
    x, y = data.images(8, 3, 5)
    x = n.conv(x, 4, relu=False)
    for block in range(2):
        for _ in range(2):
            x = tf.concat([x, n.conv(tf.nn.relu(n.norm(x)), 4, relu=False)], 3)
        if block == 0:
            x = tf.nn.avg_pool2d(n.conv(tf.nn.relu(n.norm(x)), 4, 1, relu=False), 2, 2, "VALID")
    return _adam(_loss(n.dense(tf.reduce_mean(tf.nn.relu(x), [1, 2]), 5), y))


def seq2seq(data: Data) -> tuple[Any, Any]:
    """Encoder, decoder with additive attention and a mask for lengths, unrolled; loss weighted by word."""
    n = Layers(data.dtype)
    steps, words, units = 4, 9, 6
    x, y = data.words(steps, words)
    table, memory_weights, query_weights = n.weights(words, units), n.weights(units, units), n.weights(units, units)
    kernel, other, v = n.weights(2 * units, 4 * units), n.weights(3 * units, 4 * units), n.weights(units)

    def cell(weights: Any, value: Any, h: Any, c: Any) -> tuple[Any, Any]:
        i, j, f, o = tf.split(tf.matmul(tf.concat([value, h], 1), weights), 4, 1)
        c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
        return tf.tanh(c) * tf.sigmoid(o), c

    h = c = tf.zeros_like(tf.nn.embedding_lookup(table, x[:, 0]))
    outputs = []
    for value in tf.unstack(tf.nn.embedding_lookup(table, x), steps, 1):
        h, c = cell(kernel, value, h, c)
        outputs.append(h)
    memory = tf.stack(outputs, 1)
    keys = tf.tensordot(memory, memory_weights, 1)
    lengths = 1 + tf.reduce_max(x, 1) % steps
    mask = tf.cast(tf.sequence_mask(lengths, steps), data.dtype)
    scores = []
    for value in tf.unstack(tf.nn.embedding_lookup(table, tf.concat([x[:, :1], y[:, :-1]], 1)), steps, 1):
        energy = tf.reduce_sum(v * tf.tanh(keys + tf.expand_dims(tf.matmul(h, query_weights), 1)), 2)
        weights = tf.nn.softmax(energy + (1 - mask) * -1e9)
        context = tf.reduce_sum(tf.expand_dims(weights, 2) * memory, 1)
        h, c = cell(other, tf.concat([value, context], 1), h, c)
        scores.append(h)
    logits = tf.tensordot(tf.stack(scores, 1), table, [[2], [1]])
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
    return _adam(tf.reduce_sum(losses * mask) / tf.reduce_sum(mask))


def transformer(data: Data) -> tuple[Any, Any]:
    """A decoder: causal mask, dropout, label smoothing, padding left out of the loss, tied embeddings, a step-wise rate."""
    n = Layers(data.dtype)
    steps, words, width = 4, 9, 8
    x, y = data.words(steps, words)
    table = n.weights(words, width)
    h = tf.nn.embedding_lookup(table, x) * np.sqrt(width) + n.weights(steps, width)
    h = tf.nn.dropout(h, rate=0.1, seed=_SEED)
    causal = (1 - tf.linalg.band_part(tf.ones([steps, steps], data.dtype), -1, 0)) * -1e9
    for _ in range(2):
        flat = tf.reshape(n.layer_norm(h), [-1, width])
        q, k, v = (tf.transpose(tf.reshape(n.dense(flat, width), [-1, steps, 2, 4]), [0, 2, 1, 3]) for _ in range(3))
        weights = tf.nn.softmax(tf.einsum("bhqd,bhkd->bhqk", q, k) / 2.0 + causal)
        mixed = tf.einsum("bhqk,bhkd->bqhd", tf.nn.dropout(weights, rate=0.1, seed=_SEED), v)
        h += tf.reshape(n.dense(tf.reshape(mixed, [-1, width]), width), [-1, steps, width])
        wide = n.dense(tf.reshape(n.layer_norm(h), [-1, width]), 16)
        h += tf.reshape(n.dense(wide * tf.sigmoid(1.702 * wide), width), [-1, steps, width])
    logits = tf.matmul(tf.reshape(n.layer_norm(h), [-1, width]), table, transpose_b=True)
    wanted = tf.one_hot(tf.reshape(y, [-1]), words, 0.9, 0.1 / (words - 1), dtype=data.dtype)
    losses = tf.nn.softmax_cross_entropy_with_logits_v2(labels=tf.stop_gradient(wanted), logits=logits)
    real = tf.cast(tf.not_equal(tf.reshape(y, [-1]), 0), data.dtype)
    return _adam(tf.reduce_sum(losses * real) / tf.maximum(tf.reduce_sum(real), 1.0))


def wgan_gp(data: Data) -> tuple[Any, Any]:
    """A critic with a gradient penalty between real and made images."""
    n = Layers(data.dtype)
    real, _ = data.images(8, 1, 5)
    batch = _rows(data, real)
    noise = tf.random.normal([batch, 6], seed=_SEED, dtype=data.dtype)
    with tf.variable_scope("g"):
        x = tf.reshape(n.dense(noise, 4 * 4 * 4, True), [-1, 4, 4, 4])
        fake = tf.tanh(_up(n, x, 1, 8, batch))
    shared: list[Any] = []

    def critic(x: Any) -> Any:
        if not shared:
            shared.extend([n.weights(3, 3, 1, 4), n.weights(3, 3, 4, 6), n.weights(24, 1)])
        for weights in shared[:2]:
            x = tf.nn.leaky_relu(tf.nn.conv2d(x, weights, 2, "SAME"))
        return tf.matmul(_flat(x), shared[2])

    with tf.variable_scope("c"):
        of_real, of_fake = critic(real), critic(fake)
        share = tf.random.uniform([batch, 1, 1, 1], seed=_SEED, dtype=data.dtype)
        between = share * real + (1 - share) * fake
        slopes = tf.sqrt(tf.reduce_sum(tf.square(tf.gradients(critic(between), between)[0]), [1, 2, 3]) + 1e-8)
    penalty = tf.reduce_mean(tf.square(slopes - 1.0))
    return _adam(-tf.reduce_mean(of_fake), tf.reduce_mean(of_fake) - tf.reduce_mean(of_real) + 10.0 * penalty)


def dcgan(data: Data) -> tuple[Any, Any]:
    """Two networks with batch normalization."""
    n = Layers(data.dtype)
    real, _ = data.images(8, 1, 5)
    batch = _rows(data, real)
    with tf.variable_scope("g"):
        x = tf.reshape(n.dense(tf.random.uniform([batch, 6], -1, 1, seed=_SEED, dtype=data.dtype), 2 * 2 * 8), [-1, 2, 2, 8])
        x = _up(n, tf.nn.relu(n.norm(x)), 4, 4, batch)
        fake = tf.tanh(_up(n, tf.nn.relu(n.norm(x)), 1, 8, batch))
    with tf.variable_scope("d"):
        kernels = [n.weights(3, 3, 1, 4), n.weights(3, 3, 4, 6), n.weights(24, 1)]
    scores = []
    for x in (real, fake):
        x = tf.nn.leaky_relu(tf.nn.conv2d(x, kernels[0], 2, "SAME"))
        x = tf.nn.leaky_relu(n.norm(tf.nn.conv2d(x, kernels[1], 2, "SAME")))
        scores.append(tf.matmul(_flat(x), kernels[2]))

    def entropy(scores: Any, truth: float) -> Any:
        labels = tf.ones_like(scores) * truth
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=scores))

    return _adam(entropy(scores[1], 1.0), entropy(scores[0], 0.9) + entropy(scores[1], 0.0))


def wide_deep(data: Data) -> tuple[Any, Any]:
    """Sparse crossings into a linear part, averaged embeddings of lists into a deep one."""
    n = Layers(data.dtype)
    ids, labels = data.words(4, 20)
    dense = n.layer_norm(tf.cast(ids, data.dtype))
    where = tf.where(tf.not_equal(ids, 0))
    lists = tf.SparseTensor(where, tf.gather_nd(ids, where), tf.shape(ids, out_type=tf.int64))
    deep = tf.nn.embedding_lookup_sparse(n.weights(20, 6), lists, None, combiner="mean")
    wide = tf.nn.embedding_lookup_sparse(n.weights(20, 1), lists, None, combiner="sum")
    x = tf.concat([deep, dense], 1)
    x.set_shape([None, 10])
    for _ in range(2):
        x = tf.nn.dropout(n.dense(x, 12, True), rate=0.1, seed=_SEED)
    logits = tf.squeeze(n.dense(x, 1) + wide, 1)
    truth = tf.cast(labels[:, 0] % 2, data.dtype)
    return _adam(tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=truth, logits=logits)))


def siamese(data: Data) -> tuple[Any, Any]:
    """Pairs of images, one network for both, angles between them, a loss that is contrastive within the batch."""
    n = Layers(data.dtype)
    x, y = data.images(8, 2, 5)
    kernels = [n.weights(3, 3, 1, 4), n.weights(3, 3, 4, 6), n.weights(24, 8)]

    def embedded(x: Any) -> Any:
        for kernel in kernels[:2]:
            x = tf.nn.relu(tf.nn.conv2d(x, kernel, 2, "SAME"))
        return tf.nn.l2_normalize(tf.matmul(_flat(x), kernels[2]), 1)

    one, other = embedded(x[..., :1]), embedded(x[..., 1:])
    near = tf.reduce_sum(tf.squared_difference(one, other), 1)
    same = tf.cast(tf.equal(y % 2, 0), data.dtype)
    pairs = same * near + (1 - same) * tf.square(tf.maximum(1.0 - tf.sqrt(near + 1e-6), 0.0))
    angles = tf.matmul(one, other, transpose_b=True) / 0.2
    batch = _loss(angles, tf.range(_rows(data, x)))
    return _adam(tf.reduce_mean(pairs) + batch)


def vae(data: Data) -> tuple[Any, Any]:
    """Draws between encoder and decoder."""
    n = Layers(data.dtype)
    x, _ = data.images(8, 1, 5)
    h = _flat(n.conv(n.conv(x, 4, 3, 2), 6, 3, 2))
    mean, spread = tf.split(n.dense(h, 8), 2, 1)
    z = mean + tf.exp(0.5 * spread) * tf.random.normal(tf.shape(mean), seed=_SEED, dtype=data.dtype)
    up = tf.reshape(n.dense(z, 4 * 4 * 4, True), [-1, 4, 4, 4])
    logits = _up(n, up, 1, 8, _rows(data, x))
    entropy = tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.sigmoid(x), logits=logits)
    apart = -0.5 * tf.reduce_sum(1 + spread - tf.square(mean) - tf.exp(spread), 1)
    return _adam(tf.reduce_mean(tf.reduce_sum(entropy, [1, 2, 3]) + apart))


def speech(data: Data) -> tuple[Any, Any]:
    """Convolutions over time, a recurrent layer both ways, connectionist temporal classification."""
    n = Layers(data.dtype)
    steps, units, classes = 8, 6, 5
    x, y = data.images(steps, 3, classes)
    x = n.conv(x, 4)
    x = tf.reshape(x, [-1, steps, steps * 4])
    both = []
    for turned in (False, True):
        kernel = n.weights(steps * 4 + units, units)
        h, outputs = tf.zeros_like(x[:, 0, :units]), []
        for value in tf.unstack(tf.reverse(x, [1]) if turned else x, steps, 1):
            h = tf.tanh(tf.matmul(tf.concat([value, h], 1), kernel))
            outputs.append(h)
        both.append(tf.stack(outputs[::-1] if turned else outputs, 0))
    logits = tf.reshape(n.dense(tf.reshape(tf.concat(both, 2), [-1, 2 * units]), classes + 1), [steps, -1, classes + 1])
    batch = tf.shape(y, out_type=tf.int64)[0]
    where = tf.stack([tf.range(batch), tf.zeros_like(y, tf.int64)], 1)
    labels = tf.SparseTensor(where, y, tf.stack([batch, 1]))
    losses = tf.nn.ctc_loss(labels, tf.cast(logits, tf.float32), sequence_length=tf.fill(tf.shape(y), steps))
    return _adam(tf.cast(tf.reduce_mean(losses), data.dtype))


def detector(data: Data) -> tuple[Any, Any]:
    """Boxes and classes by anchor: the chosen class' score, smooth distances, the hardest negatives, focal weights."""
    n = Layers(data.dtype)
    anchors, classes = 16, 4
    x, y = data.images(8, 3, classes)
    x = n.conv(n.conv(x, 4), 6, 3, 2)
    scores = tf.reshape(n.conv(x, classes, relu=False), [-1, anchors, classes])
    boxes = tf.reshape(n.conv(x, 4, relu=False), [-1, anchors, 4])
    wanted = (tf.expand_dims(y, 1) + tf.range(anchors)) % classes
    positive = tf.cast(tf.equal(wanted, 1), data.dtype)
    likely = tf.nn.softmax(scores)
    truth = tf.one_hot(wanted, classes, dtype=data.dtype)
    focal = tf.reduce_sum(truth * tf.square(1 - likely) * -tf.log(tf.clip_by_value(likely, 1e-6, 1.0)), 2)
    hardest, at = tf.nn.top_k(focal * (1 - positive), 4)
    rows = tf.tile(tf.expand_dims(tf.range(tf.shape(at)[0]), 1), [1, 4])
    picked = tf.gather_nd(boxes, tf.stack([rows, at], 2))
    away = tf.abs(boxes - tf.cast(tf.expand_dims(wanted, 2), data.dtype) * 0.1)
    smooth = tf.where(away < 1.0, 0.5 * tf.square(away), away - 0.5)
    count = tf.maximum(tf.reduce_sum(positive), 1.0)
    loss = (tf.reduce_sum(focal * positive) + tf.reduce_sum(hardest)) / count + tf.reduce_mean(tf.square(picked)) * 1e-2
    return _adam(loss + tf.reduce_sum(tf.reduce_sum(smooth, 2) * positive) / count)


def mixture(data: Data) -> tuple[Any, Any]:
    """Experts mixed by a gate, an encoder with multi-head attention pooled by position, squeeze and excitation."""
    n = Layers(data.dtype)
    x, y = data.words(4, 9)
    h = tf.nn.embedding_lookup(n.weights(9, 8), x)
    h = n.layer_norm(h + _attend(n, h, h, 2, 4, 4))
    pooled = tf.concat([tf.reduce_max(h, 1), tf.reduce_mean(h, 1), h[:, 0]], 1)
    gate = tf.nn.softmax(n.dense(pooled, 3))
    experts = tf.stack([n.dense(n.dense(pooled, 12, True), 6) for _ in range(3)], 1)
    best = tf.argmax(gate, 1, output_type=tf.int32)
    hard = tf.gather(experts, best, axis=1, batch_dims=1)
    mixed = tf.reduce_sum(tf.expand_dims(gate, 2) * experts, 1) + 0.1 * hard
    load = tf.reduce_mean(tf.one_hot(best, 3, dtype=data.dtype), 0)
    balance = 3.0 * tf.reduce_sum(load * tf.reduce_mean(gate, 0))
    return _adam(_loss(n.dense(mixed, 9), y[:, 0]) + 0.01 * balance)


PROGRAMS: dict[str, Model] = {
    f.__name__: f
    for f in (unet, densenet, seq2seq, transformer, wgan_gp, dcgan, wide_deep, siamese, vae, speech, detector, mixture)
}
