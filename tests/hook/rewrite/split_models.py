"""Small training programs of the usual kinds, as people write them for one device. Each returns (loss, training op)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

Model = Callable[["Data"], tuple[Any, Any]]


class Data:
    """What a program trains on. `late`: the batch size is known at run time only. `how`: fed, an iterator, or a queue."""

    def __init__(self, dtype: Any, batch: int, late: bool = False, how: str = "fed") -> None:
        self.dtype = dtype
        self.batch = batch
        self.late = late
        self.how = how
        self.layers = 1
        self.arrays: dict[str, Any] = {}
        self.before: list[Any] = []
        self._random = np.random.RandomState(3)

    def images(self, size: int, channels: int, classes: int) -> tuple[Any, Any]:
        return self._inputs(self._real(size, size, channels), self._labels(classes))

    def vectors(self, width: int, classes: int) -> tuple[Any, Any]:
        return self._inputs(self._real(width), self._labels(classes))

    def words(self, steps: int, vocabulary: int) -> tuple[Any, Any]:
        text = self._random.randint(0, vocabulary, (self.batch, steps + 1)).astype(np.int32)
        return self._inputs(text[:, :-1].copy(), text[:, 1:].copy())

    def _real(self, *shape: int) -> Any:
        return self._random.randn(self.batch, *shape).astype(self.dtype)

    def _labels(self, classes: int) -> Any:
        return self._random.randint(0, classes, self.batch).astype(np.int32)

    def _inputs(self, *arrays: Any) -> tuple[Any, Any]:
        rows = None if self.late else self.batch
        if self.how == "fed":
            made = [tf.placeholder(a.dtype, [rows, *a.shape[1:]]) for a in arrays]
            self.arrays = {p.op.name: a for p, a in zip(made, arrays, strict=True)}
        elif self.how == "iterator":
            whole = tf.data.Dataset.from_tensor_slices(arrays).repeat().batch(self.batch, drop_remainder=not self.late)
            iterator = tf.data.make_initializable_iterator(whole)
            self.before.append(iterator.initializer)
            made = iterator.get_next()
        else:
            queue = tf.FIFOQueue(100 * self.batch, [a.dtype for a in arrays], [a.shape[1:] for a in arrays])
            self.before += [queue.enqueue_many([tf.constant(a) for a in arrays])] * 12
            take = queue.dequeue_up_to if self.late else queue.dequeue_many
            made = take(self.batch)
        return tuple(made)


class Layers:
    """Variables with fixed starts, and the layers of the models."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self._random = np.random.RandomState(5)
        self._count = 0

    def weights(self, *shape: int, scale: float = 0.0) -> Any:
        scale = scale or 1.0 / np.sqrt(np.prod(shape[:-1]))
        self._count += 1
        start = (self._random.randn(*shape) * scale).astype(self.dtype)
        return tf.get_variable(f"w{self._count}", initializer=start, use_resource=True)

    def conv(self, x: Any, filters: int, size: int = 3, stride: int = 1, relu: bool = True) -> Any:
        y = tf.nn.conv2d(x, self.weights(size, size, int(x.shape[-1]), filters), stride, "SAME")
        y = tf.nn.bias_add(y, self.weights(filters))
        return tf.nn.relu(y) if relu else y

    def dense(self, x: Any, units: int, relu: bool = False) -> Any:
        y = tf.matmul(x, self.weights(int(x.shape[-1]), units)) + self.weights(units)
        return tf.nn.relu(y) if relu else y

    def norm(self, x: Any) -> Any:
        """Batch normalization; TensorFlow's fused one where there is a kernel for the type."""
        c = int(x.shape[-1])
        gain, offset = self.weights(c) + 1.0, self.weights(c)
        if self.dtype == np.float32:
            return tf.nn.fused_batch_norm(x, gain, offset, epsilon=1e-3)[0]
        mean, variance = tf.nn.moments(x, [0, 1, 2])
        return tf.nn.batch_normalization(x, mean, variance, offset, gain, 1e-3)

    def layer_norm(self, x: Any) -> Any:
        mean, variance = tf.nn.moments(x, [-1], keep_dims=True)
        c = int(x.shape[-1])
        return tf.nn.batch_normalization(x, mean, variance, self.weights(c), self.weights(c) + 1.0, 1e-6)


def _flat(x: Any) -> Any:
    return tf.reshape(x, [-1, int(np.prod([int(d) for d in x.shape[1:]]))])


def _loss(logits: Any, labels: Any) -> Any:
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def _momentum(loss: Any, rate: float = 0.05) -> tuple[Any, Any]:
    return loss, tf.train.MomentumOptimizer(rate, 0.9).minimize(loss, name="train")


def _adam(loss: Any) -> tuple[Any, Any]:
    return loss, tf.train.AdamOptimizer(0.01).minimize(loss, name="train")


def mlp(data: Data) -> tuple[Any, Any]:
    n = Layers(data.dtype)
    x, y = data.vectors(12, 5)
    decay = [tf.nn.l2_loss(v) for v in tf.global_variables()]
    loss = _loss(n.dense(n.dense(n.dense(x, 16, True), 16, True), 5), y)
    return _momentum(tf.add_n([loss, *decay]))


def lenet(data: Data) -> tuple[Any, Any]:
    n = Layers(data.dtype)
    x, y = data.images(12, 1, 5)
    x = tf.nn.max_pool2d(n.conv(x, 4, 5), 2, 2, "SAME")
    x = tf.nn.max_pool2d(n.conv(x, 6, 5), 2, 2, "SAME")
    x = n.dense(tf.reshape(x, [-1, 3 * 3 * 6]), 16, True)
    return _adam(_loss(n.dense(x, 5), y))


def alexnet(data: Data) -> tuple[Any, Any]:
    n = Layers(data.dtype)
    x, y = data.images(17, 3, 5)
    x = n.conv(x, 6, 5, 2)
    if data.dtype == np.float32:
        x = tf.nn.lrn(x, 2, alpha=1e-3)
    x = n.conv(tf.nn.max_pool2d(x, 3, 2, "VALID"), 8)
    x = tf.nn.max_pool2d(n.conv(x, 8), 3, 2, "SAME")
    keep = tf.floor(tf.random_uniform(tf.shape(x), seed=7, dtype=data.dtype) + 0.8)
    # The published rate. At 0.05, batches that now and then are one image make 5e-9 of one unit in the last place by themselves.
    return _momentum(_loss(n.dense(_flat(x * keep), 5), y), 0.01)


def vgg(data: Data) -> tuple[Any, Any]:
    n = Layers(data.dtype)
    x, y = data.images(8, 3, 5)
    for filters in (4, 6):
        x = tf.nn.max_pool2d(n.conv(n.conv(x, filters), filters), 2, 2, "SAME")
    return _momentum(_loss(n.dense(n.dense(_flat(x), 24, True), 5), y))


def resnet(data: Data) -> tuple[Any, Any]:
    n = Layers(data.dtype)
    x, y = data.images(8, 3, 5)
    x = tf.nn.relu(n.norm(n.conv(x, 6, relu=False)))
    for _ in range(2):
        inner = tf.nn.relu(n.norm(n.conv(x, 6, relu=False)))
        x = tf.nn.relu(x + n.norm(n.conv(inner, 6, relu=False)))
    return _momentum(_loss(n.dense(tf.reduce_mean(x, [1, 2]), 5), y))


def inception(data: Data) -> tuple[Any, Any]:
    n = Layers(data.dtype)
    x, y = data.images(8, 3, 5)
    for _ in range(2):
        pooled = n.conv(tf.nn.avg_pool2d(x, 3, 1, "SAME"), 2, 1)
        x = tf.concat([n.conv(x, 3, 1), n.conv(n.conv(x, 2, 1), 4), pooled], 3)
    return _momentum(_loss(n.dense(tf.reduce_mean(x, [1, 2]), 5), y))


def unrolled(n: Layers, x: Any, words: int, units: int) -> list[Any]:
    """What an unrolled LSTM makes of the words `x` [batch, steps]: [batch, units] a step."""
    embedding, kernel, bias = n.weights(words, units), n.weights(2 * units, 4 * units), n.weights(4 * units)
    inputs = tf.unstack(tf.nn.embedding_lookup(embedding, x), int(x.shape[1]), 1)
    c = h = tf.zeros_like(inputs[0])
    outputs = []
    for value in inputs:
        i, j, f, o = tf.split(tf.matmul(tf.concat([value, h], 1), kernel) + bias, 4, 1)
        c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
        h = tf.tanh(c) * tf.sigmoid(o)
        outputs.append(h)
    return outputs


def lstm(data: Data) -> tuple[Any, Any]:
    """A language model, unrolled; gradients clipped by their global norm."""
    n = Layers(data.dtype)
    steps, words, units = 4, 11, 6
    x, y = data.words(steps, words)
    logits = n.dense(tf.reshape(tf.stack(unrolled(n, x, words, units), 1), [-1, units]), words)
    loss = _loss(logits, tf.reshape(y, [-1]))
    variables = tf.trainable_variables()
    gradients, _ = tf.clip_by_global_norm(tf.gradients(loss, variables), 1.0)
    return loss, tf.train.GradientDescentOptimizer(0.5).apply_gradients(zip(gradients, variables, strict=True), name="train")


def _attend(n: Layers, x: Any, memory: Any, heads: int, steps: int, others: int) -> Any:
    width = int(x.shape[-1])

    def project(value: Any, length: int) -> Any:
        flat = n.dense(tf.reshape(value, [-1, width]), width)
        return tf.transpose(tf.reshape(flat, [-1, length, heads, width // heads]), [0, 2, 1, 3])

    q, k, v = project(x, steps), project(memory, others), project(memory, others)
    weights = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / np.sqrt(width / heads))
    mixed = tf.reshape(tf.transpose(tf.matmul(weights, v), [0, 2, 1, 3]), [-1, width])
    return tf.reshape(n.dense(mixed, width), [-1, steps, width])


def attention(data: Data) -> tuple[Any, Any]:
    """An encoder and a decoder that attends to it."""
    n = Layers(data.dtype)
    steps, words, width = 4, 9, 8
    x, y = data.words(steps, words)
    table = n.weights(words, width)
    source = tf.gather(table, x)
    source = n.layer_norm(source + _attend(n, source, source, 2, steps, steps))
    target = tf.gather(table, tf.reverse(x, [1]))
    target = n.layer_norm(target + _attend(n, target, source, 2, steps, steps))
    logits = tf.matmul(tf.reshape(target, [-1, width]), table, transpose_b=True)
    return _adam(_loss(logits, tf.reshape(y, [-1])))


def bert(data: Data) -> tuple[Any, Any]:
    """An encoder with positions, a GELU, one-hot losses and weight decay."""
    n = Layers(data.dtype)
    steps, words, width = 4, 9, 8
    x, y = data.words(steps, words)
    h = n.layer_norm(tf.gather(n.weights(words, width), x) + n.weights(steps, width))
    for _ in range(data.layers):
        h = n.layer_norm(h + _attend(n, h, h, 2, steps, steps))
        wide = n.dense(tf.reshape(h, [-1, width]), 4 * width)
        wide = 0.5 * wide * (1.0 + tf.erf(wide / np.sqrt(2.0)))
        h = n.layer_norm(h + tf.reshape(n.dense(wide, width), [-1, steps, width]))
    likely = tf.nn.log_softmax(n.dense(tf.reshape(h, [-1, width]), words))
    wanted = tf.one_hot(tf.reshape(y, [-1]), words, dtype=data.dtype)
    loss = -tf.reduce_mean(tf.reduce_sum(likely * wanted, -1))
    return _adam(loss + 1e-3 * tf.add_n([tf.nn.l2_loss(v) for v in tf.trainable_variables()]))


MODELS: dict[str, Model] = {f.__name__: f for f in (mlp, lenet, alexnet, vgg, resnet, inception, lstm, attention, bert)}
