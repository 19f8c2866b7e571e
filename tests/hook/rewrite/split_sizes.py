"""The models of split_models in sizes that are worth two devices, for benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from split_models import Data, Layers, _attend, _flat, _loss, _momentum

Large = Callable[[bool], tuple[Data, Any, Any]]


def vgg(late: bool) -> tuple[Data, Any, Any]:
    """Six convolutions and two dense layers on 32 by 32 images."""
    data, n = Data(np.float32, 32, late), Layers(np.float32)
    x, y = data.images(32, 3, 10)
    for filters in (32, 64, 128):
        x = tf.nn.max_pool2d(n.conv(n.conv(x, filters), filters), 2, 2, "SAME")
    return (data, *_momentum(_loss(n.dense(n.dense(_flat(x), 256, True), 10), y)))


def mlp(late: bool) -> tuple[Data, Any, Any]:
    """Four dense layers, a large batch."""
    data, n = Data(np.float32, 1024, late), Layers(np.float32)
    x, y = data.vectors(512, 10)
    for _ in range(3):
        x = n.dense(x, 768, True)
    return (data, *_momentum(_loss(n.dense(x, 10), y)))


def bert(late: bool) -> tuple[Data, Any, Any]:
    """Two encoder layers of width 256 on 64 words."""
    data, n = Data(np.float32, 16, late), Layers(np.float32)
    steps, words, width = 64, 1000, 256
    x, y = data.words(steps, words)
    h = n.layer_norm(tf.gather(n.weights(words, width), x) + n.weights(steps, width))
    for _ in range(2):
        h = n.layer_norm(h + _attend(n, h, h, 4, steps, steps))
        wide = n.dense(tf.reshape(h, [-1, width]), 4 * width)
        wide = 0.5 * wide * (1.0 + tf.erf(wide / np.sqrt(2.0)))
        h = n.layer_norm(h + tf.reshape(n.dense(wide, width), [-1, steps, width]))
    return (data, *_momentum(_loss(n.dense(tf.reshape(h, [-1, width]), words), tf.reshape(y, [-1]))))


def lstm(late: bool) -> tuple[Data, Any, Any]:
    """A language model of 256 units, 16 steps unrolled."""
    data, n = Data(np.float32, 128, late), Layers(np.float32)
    steps, words, units = 16, 1000, 256
    x, y = data.words(steps, words)
    embedding, kernel, bias = n.weights(words, units), n.weights(2 * units, 4 * units), n.weights(4 * units)
    inputs = tf.unstack(tf.nn.embedding_lookup(embedding, x), steps, 1)
    c = h = tf.zeros_like(inputs[0])
    outputs = []
    for value in inputs:
        i, j, f, o = tf.split(tf.matmul(tf.concat([value, h], 1), kernel) + bias, 4, 1)
        c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
        h = tf.tanh(c) * tf.sigmoid(o)
        outputs.append(h)
    logits = n.dense(tf.reshape(tf.stack(outputs, 1), [-1, units]), words)
    return (data, *_momentum(_loss(logits, tf.reshape(y, [-1]))))


LARGE: dict[str, Large] = {f.__name__: f for f in (vgg, mlp, bert, lstm)}
