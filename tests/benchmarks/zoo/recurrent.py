"""Recurrent language models and translation of the papers, unrolled over time as TensorFlow 1's static_rnn does.

RNNLM (Zaremba 2014), GNMT (Wu 2016: bidirectional first layer, residual stacks, attention of the first decoder layer), NMT
(Luong 2017: stacked LSTM layers, attention over the encoder on every step).
"""

from __future__ import annotations

import tensorflow as tf
from zoo.layers import cross_entropy, dense, dropout, embedding, labels, lstm_cell, v1


def _zeros(batch: int, units: int) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.zeros([batch, units]), tf.zeros([batch, units])


def _layer(steps: list[tf.Tensor], units: int, name: str, residual: bool = False) -> list[tf.Tensor]:
    """One LSTM layer over all steps, each [batch, width] -> [batch, units]."""
    with v1.variable_scope(name):
        state = _zeros(steps[0].shape.as_list()[0], units)
        outputs = []
        for x in steps:
            h, state = lstm_cell(dropout(x, 0.2), state, units, "cell")
            outputs.append(h + x if residual else h)
        return outputs


def _embedded(name: str, batch: int, length: int, vocabulary: int, units: int) -> list[tf.Tensor]:
    ids = v1.placeholder(tf.int32, [batch, length], f"{name}_ids")
    return tf.unstack(embedding(ids, vocabulary, units, f"{name}_embedding"), axis=1)


def _loss(outputs: list[tf.Tensor], batch: int, vocabulary: int) -> tf.Tensor:
    joined = tf.concat(outputs, 0)
    wanted = tf.reshape(labels(batch, len(outputs)), [batch * len(outputs)])
    return cross_entropy(dense(joined, vocabulary, "softmax"), wanted)


def rnnlm(batch: int, layers: int = 2, units: int = 2048, length: int = 20, vocabulary: int = 10000) -> tf.Tensor:
    """Penn Treebank: 10,000 words, 20 steps."""
    steps = _embedded("words", batch, length, vocabulary, units)
    for k in range(layers):
        steps = _layer(steps, units, f"layer{k}")
    return _loss(steps, batch, vocabulary)


def gnmt(batch: int, layers: int = 4, units: int = 1024, length: int = 20, vocabulary: int = 32000) -> tf.Tensor:
    """Encoder and decoder of `layers` layers; attention from the first decoder layer feeds all the others."""
    source = _embedded("source", batch, length, vocabulary, units)
    with v1.variable_scope("encoder"):
        forward = _layer(source, units // 2, "forward")
        backward = _layer(source[::-1], units // 2, "backward")[::-1]
        steps = [tf.concat(pair, 1) for pair in zip(forward, backward, strict=True)]
        for k in range(1, layers):
            steps = _layer(steps, units, f"layer{k}", residual=k > 1)
    memory = tf.stack(steps, 1)
    target = _embedded("target", batch, length, vocabulary, units)
    with v1.variable_scope("decoder"):
        return _loss(_attending_decoder(target, memory, layers, units), batch, vocabulary)


def nmt(batch: int, layers: int = 2, units: int = 1024, length: int = 20, vocabulary: int = 32000) -> tf.Tensor:
    """Stacked encoder; the decoder feeds its attention into its first layer on every step (Luong's input feeding)."""
    steps = _embedded("source", batch, length, vocabulary, units)
    with v1.variable_scope("encoder"):
        for k in range(layers):
            steps = _layer(steps, units, f"layer{k}")
    memory = tf.stack(steps, 1)
    target = _embedded("target", batch, length, vocabulary, units)
    with v1.variable_scope("decoder"):
        states = [_zeros(batch, units) for _ in range(layers)]
        attention, outputs = tf.zeros([batch, units]), []
        for x in target:
            x = tf.concat([x, attention], 1)
            for k in range(layers):
                x, states[k] = lstm_cell(dropout(x, 0.2), states[k], units, f"layer{k}")
            attention = _attention(x, memory, units)
            outputs.append(attention)
        return _loss(outputs, batch, vocabulary)


def _attending_decoder(target: list[tf.Tensor], memory: tf.Tensor, layers: int, units: int) -> list[tf.Tensor]:
    first = _layer(target, units, "layer0")
    contexts = [_attention(h, memory, units) for h in first]
    steps = first
    for k in range(1, layers):
        joined = [tf.concat(pair, 1) for pair in zip(steps, contexts, strict=True)]
        lower, steps = steps, _layer(joined, units, f"layer{k}")
        if k > 1:
            steps = [a + b for a, b in zip(steps, lower, strict=True)]
    return steps


def _attention(query: tf.Tensor, memory: tf.Tensor, units: int) -> tf.Tensor:
    """Luong's general attention: query [b, u], memory [b, t, u] -> [b, u]."""
    with v1.variable_scope("attention", reuse=v1.AUTO_REUSE):
        scores = tf.matmul(memory, tf.expand_dims(dense(query, units, "query"), 2))
        context = tf.squeeze(tf.matmul(tf.nn.softmax(scores, 1), memory, transpose_a=True), 1)
        return tf.tanh(dense(tf.concat([query, context], 1), units, "out"))
