"""Encoders with attention in plain ops, as BERT and GPT-2 are written for sessions: a GELU by a third power, layer normalization by moments,
scaled and masked scores. Their gradients are long products with constants in between, which TensorFlow orders as it sees fit."""

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.core.protobuf import config_pb2

BATCH, LENGTH, WIDTH, HEADS = 2, 6, 16, 2


def weights(name, shape):
    values = np.random.RandomState(sum(map(ord, name))).randn(*shape).astype(np.float32) * 0.3
    return tf.get_variable(name, initializer=values, use_resource=True)


def dense(x, name, width):
    return tf.nn.bias_add(tf.matmul(x, weights(name, [x.shape[-1], width])), weights(f"{name}_bias", [width]))


def normalized(x, name):
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, weights(f"{name}_beta", [WIDTH]), weights(f"{name}_gamma", [WIDTH]), 1e-12)


def gelu(x):
    return x * (0.5 * (1.0 + tf.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * tf.pow(x, 3)))))


def heads(x):
    return tf.transpose(tf.reshape(x, [BATCH, LENGTH, HEADS, WIDTH // HEADS]), [0, 2, 1, 3])


def encoder(x):
    mask = tf.constant(np.triu(np.full((LENGTH, LENGTH), -1e4, np.float32), 1))[None, None]
    h = tf.reshape(x, [BATCH * LENGTH, WIDTH])
    for k in range(2):
        with tf.variable_scope(f"layer_{k}"):
            q, keys, values = (heads(dense(h, name, WIDTH)) for name in ("query", "key", "value"))
            scores = tf.multiply(tf.matmul(q, keys, transpose_b=True), 1.0 / np.sqrt(WIDTH / HEADS)) + mask
            context = tf.reshape(tf.transpose(tf.matmul(tf.nn.softmax(scores), values), [0, 2, 1, 3]), [BATCH * LENGTH, WIDTH])
            h = normalized(h + dense(context, "output", WIDTH), "attended")
            h = normalized(h + dense(gelu(dense(h, "inner", 2 * WIDTH)), "outer", WIDTH), "out")
    return h


def inputs(k):
    return np.random.RandomState(k).randn(BATCH, LENGTH, WIDTH).astype(np.float32)


def trained(record, gate):
    x = tf.placeholder(tf.float32, [BATCH, LENGTH, WIDTH], "x")
    h = encoder(x)
    loss = tf.reduce_mean(tf.square(h - 0.1))
    optimizer = tf.train.AdamOptimizer(0.01)
    gradients = optimizer.compute_gradients(loss, gate_gradients=gate)
    clipped, norm = tf.clip_by_global_norm([g for g, _ in gradients], 1.0)
    train = optimizer.apply_gradients([(g, v) for g, (_, v) in zip(clipped, gradients, strict=True)])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            record.value(f"{k}", sess.run([loss, norm, train], {x: inputs(k)})[:2])
            if k % 4 == 3:
                record.value(f"encoded {k}", sess.run(h, {x: inputs(0)}))
        record.value("trained", sess.run(tf.trainable_variables()))


def program_gated(record):
    trained(record, tf.train.Optimizer.GATE_OP)


def program_free(record):
    trained(record, tf.train.Optimizer.GATE_NONE)


def program_colocated(record):
    """Gradients that lie with what they are of: a power's square and its gradient's differ in that alone."""
    x = tf.placeholder(tf.float32, [BATCH * LENGTH, WIDTH], "x")
    h = x
    for layer in range(3):
        h = gelu(dense(h, f"layer{layer}", WIDTH))
    loss = tf.reduce_mean(tf.square(h))
    optimizer = tf.train.MomentumOptimizer(0.05, 0.9)
    gradients, variables = zip(*optimizer.compute_gradients(loss, colocate_gradients_with_ops=True), strict=True)
    clipped, norm = tf.clip_by_global_norm(gradients, 1.0)
    train = optimizer.apply_gradients(zip(clipped, variables, strict=True))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            record.value(f"{k}", sess.run([loss, norm, train], {x: inputs(k).reshape(-1, WIDTH)})[:2])
        record.value("trained", sess.run(tf.trainable_variables()))


def program_by_callables(record):
    """Training by a callable that was made from options, with a limit of time, evaluation by plain steps."""
    x = tf.placeholder(tf.float32, [BATCH, LENGTH, WIDTH], "x")
    h = encoder(x)
    kept = tf.nn.dropout(h, rate=0.2, seed=4)
    loss = tf.reduce_mean(tf.square(kept - 0.1), name="loss")
    train = tf.train.MomentumOptimizer(0.05, 0.9).minimize(loss, name="train")
    options = config_pb2.CallableOptions(feed=["x:0"], fetch=["loss:0"], target=[train.name])
    options.run_options.timeout_in_ms = 600_000
    limited = tf.RunOptions(timeout_in_ms=600_000, report_tensor_allocations_upon_oom=True)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        step = sess._make_callable_from_options(options)
        for k in range(14):
            record.value(f"{k}", step(inputs(k)))
            if k % 5 == 4:
                record.value(f"evaluated {k}", sess.run([loss, h], {x: inputs(0)}, options=limited))
        record.value("trained", sess.run(tf.trainable_variables()))
