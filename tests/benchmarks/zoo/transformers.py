"""Transformers of the papers: translation (Vaswani 2017), BERT (Devlin 2019), GPT-3 (Brown 2020) and Swin (Liu 2021) shapes."""

from __future__ import annotations

import tensorflow as tf
from zoo.layers import conv, cross_entropy, dense, dropout, embedding, images, labels, layer_norm, v1


def _attention(query: tf.Tensor, memory: tf.Tensor, heads: int, masked: bool, apart: bool) -> tf.Tensor:
    """Multi-head attention: [b, t, w] over [b, s, w] -> [b, t, w].

    `apart`: each head's ops are nodes of their own, and masked weights have no dropout.
    """
    width = query.shape.as_list()[-1]
    q, k, v = dense(query, width, "q"), dense(memory, width, "k"), dense(memory, width, "v")
    scale = (width // heads) ** -0.5
    if apart:
        parts = zip(*(tf.split(x, heads, 2) for x in (q, k, v)), strict=True)
        joined = tf.concat([_weighted(*part, scale, masked, 0.0 if masked else 0.1) for part in parts], 2)
    else:
        joined = _together(_weighted(*(_apart(x, heads) for x in (q, k, v)), scale, masked))
    return dense(joined, width, "out")


def _weighted(q: tf.Tensor, k: tf.Tensor, v: tf.Tensor, scale: float, masked: bool, drop=0.1) -> tf.Tensor:
    scores = tf.matmul(q * scale, k, transpose_b=True)
    if masked:
        length = scores.shape.as_list()[-1]
        scores += v1.constant(-1e9) * (1.0 - tf.linalg.band_part(tf.ones([length, length]), -1, 0))
    return tf.matmul(dropout(tf.nn.softmax(scores), drop), v)


def _apart(x: tf.Tensor, heads: int) -> tf.Tensor:
    b, t, w = x.shape.as_list()
    return tf.transpose(tf.reshape(x, [b, t, heads, w // heads]), [0, 2, 1, 3])


def _together(x: tf.Tensor) -> tf.Tensor:
    b, h, t, w = x.shape.as_list()
    return tf.reshape(tf.transpose(x, [0, 2, 1, 3]), [b, t, h * w])


def _gelu(x: tf.Tensor) -> tf.Tensor:
    return 0.5 * x * (1.0 + tf.tanh(0.79788456 * (x + 0.044715 * tf.pow(x, 3.0))))


def _feed_forward(x: tf.Tensor, width: int, activation) -> tf.Tensor:
    return dense(dropout(dense(x, width, "up", activation)), x.shape.as_list()[-1], "down")


def _block(x, heads, masked, memory=None, activation=tf.nn.relu, apart=False, after=False):
    """Self attention, attention over `memory` where there is one, feed forward; each with a residual and a layer norm.

    `after`: the norm stands after the residual (BERT, the first Transformer), else before the sub-layer.
    """
    width = x.shape.as_list()[-1]
    parts = [("self", lambda y: _attention(y, y, heads, masked, apart))]
    if memory is not None:
        parts.append(("cross", lambda y: _attention(y, memory, heads, False, False)))
    parts.append(("feed", lambda y: _feed_forward(y, 4 * width, activation)))
    for name, part in parts:
        with v1.variable_scope(name):
            x = layer_norm(x + dropout(part(x)), "norm") if after else x + dropout(part(layer_norm(x, "norm")))
    return x


def _tokens(name: str, batch: int, length: int, vocabulary: int, width: int) -> tf.Tensor:
    ids = v1.placeholder(tf.int32, [batch, length], f"{name}_ids")
    words = embedding(ids, vocabulary, width, f"{name}_embedding")
    places = embedding(tf.range(length), length, width, f"{name}_positions")
    return dropout(words + places)


def _token_loss(x: tf.Tensor, batch: int, vocabulary: int) -> tf.Tensor:
    _, length, width = x.shape.as_list()
    logits = dense(tf.reshape(x, [batch * length, width]), vocabulary, "softmax")
    return cross_entropy(logits, tf.reshape(labels(batch, length), [batch * length]))


def transformer(
    batch: int, layers: int = 6, width: int = 512, heads: int = 8, length: int = 64, vocabulary: int = 32000,
    apart: bool = False,
) -> tf.Tensor:  # fmt: skip
    """Encoder and decoder of `layers` layers; `batch` sentences of `length` tokens."""
    x = _tokens("source", batch, length, vocabulary, width)
    for k in range(layers):
        with v1.variable_scope(f"encoder/layer{k}"):
            x = _block(x, heads, False, apart=apart, after=True)
    y = _tokens("target", batch, length, vocabulary, width)
    for k in range(layers):
        with v1.variable_scope(f"decoder/layer{k}"):
            y = _block(y, heads, True, memory=x, apart=apart, after=True)
    return _token_loss(y, batch, vocabulary)


def bert(batch: int, layers: int = 24, width: int = 1024, heads: int = 16, length: int = 64) -> tf.Tensor:
    """BERT-large with its masked-words head."""
    x = _tokens("words", batch, length, 30522, width)
    for k in range(layers):
        with v1.variable_scope(f"layer{k}"):
            x = _block(x, heads, False, activation=_gelu, after=True)
    with v1.variable_scope("head"):
        x = layer_norm(dense(x, width, "transform", _gelu), "norm")
    return _token_loss(x, batch, 30522)


def gpt(batch: int, layers: int = 24, width: int = 1024, heads: int = 16, length: int = 2048) -> tf.Tensor:
    """GPT-3's shape; Moirai's input is one sequence of 2048 tokens."""
    x = _tokens("words", batch, length, 50257, width)
    for k in range(layers):
        with v1.variable_scope(f"layer{k}"):
            x = _block(x, heads, True, activation=_gelu)
    return _token_loss(layer_norm(x, "norm"), batch, 50257)


def swin(batch: int, depths=(2, 2, 24, 4), width: int = 128, window: int = 8, size: int = 1024) -> tf.Tensor:
    """Swin's shape: four stages of windowed attention, every other one shifted, patches merged 2 x 2 between stages.

    Windows of 8 and images of 1024 where the papers have 7 and 1100, so that windows tile every stage's image.
    """
    x = conv(images(batch, size), width, 4, "patches", 4, activation=None)
    for stage, depth in enumerate(depths):
        with v1.variable_scope(f"stage{stage}"):
            if stage:
                x = tf.nn.space_to_depth(x, 2)
                x = dense(x, x.shape.as_list()[-1] // 2, "merge")
            for k in range(depth):
                with v1.variable_scope(f"block{k}"):
                    x = _windowed(x, 4 * 2**stage, window, shift=window // 2 if k % 2 else 0)
    return cross_entropy(dense(tf.reduce_mean(x, [1, 2]), 1000, "logits"), labels(batch))


def _windowed(x: tf.Tensor, heads: int, window: int, shift: int) -> tf.Tensor:
    b, h, w, c = x.shape.as_list()
    if shift:
        x = tf.roll(x, [-shift, -shift], [1, 2])
    tiles = tf.reshape(x, [b, h // window, window, w // window, window, c])
    tiles = tf.reshape(tf.transpose(tiles, [0, 1, 3, 2, 4, 5]), [b * h * w // window**2, window**2, c])
    tiles = _block(tiles, heads, False, activation=_gelu)
    tiles = tf.reshape(tiles, [b, h // window, w // window, window, window, c])
    x = tf.reshape(tf.transpose(tiles, [0, 1, 3, 2, 4, 5]), [b, h, w, c])
    return tf.roll(x, [shift, shift], [1, 2]) if shift else x
