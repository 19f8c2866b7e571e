"""Networks whose parts the program puts on devices itself: in towers, layer by layer, and as experts."""

import numpy as np
import tensorflow.compat.v1 as tf

DEVICES = 3


def on(k):
    return tf.device(f"/device:CPU:{k % DEVICES}")


def dense(x, size, name):
    with tf.variable_scope(name, reuse=tf.AUTO_REUSE):
        w = tf.get_variable("w", [x.shape[-1], size], initializer=tf.random_normal_initializer(stddev=0.3, seed=len(name)))
        b = tf.get_variable("b", [size], initializer=tf.random_normal_initializer(stddev=0.1, seed=len(name) + 50))
    return tf.tensordot(x, w, 1) + b


def normalized(x, name):
    with tf.variable_scope(name, reuse=tf.AUTO_REUSE):
        scale = tf.get_variable("scale", [x.shape[-1]], initializer=tf.ones_initializer())
    mean, variance = tf.nn.moments(x, [-1], keep_dims=True)
    return (x - mean) * tf.rsqrt(variance + 1e-5) * scale


def trained(record, fetches, train, x, y, steps=12):
    """`train` in two of three steps, each with some of the `fetches`."""
    config = tf.ConfigProto(device_count={"CPU": DEVICES}, allow_soft_placement=True)
    with tf.Session(config=config) as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(steps):
            r = np.random.RandomState(k)
            feed = {x: r.randn(6, *x.shape.as_list()[1:]), y: r.randn(6, y.shape[-1])}
            wanted = {"values": fetches[: 1 + k % len(fetches)], **({} if k % 3 == 2 else {"train": train})}
            record.value(f"{k}", sess.run(wanted, feed)["values"])
        record.value("variables", sess.run(tf.global_variables()))
    record.graph("graph")


def program_towers(record):
    """Variables on the first device, a tower on each, gradients averaged and clipped on the first."""
    x, y = tf.placeholder(tf.float32, [None, 8], "x"), tf.placeholder(tf.float32, [None, 3], "y")
    optimizer, losses, towers = tf.train.MomentumOptimizer(0.1, 0.9), [], []
    for k, (part, wanted) in enumerate(zip(tf.split(x, 3), tf.split(y, 3), strict=True)):
        with tf.device(lambda op, k=k: "/cpu:0" if op.type in ("VariableV2", "VarHandleOp") else f"/cpu:{k}"):
            h = normalized(tf.nn.relu(dense(part, 8, "hidden")), "norm")
            loss = tf.reduce_mean(tf.square(tf.nn.softmax(0.5 * dense(h, 3, "out")) - tf.nn.softmax(wanted)))
            losses.append(loss + 0.01 * tf.add_n([tf.nn.l2_loss(v) for v in tf.trainable_variables()]))
            towers.append(optimizer.compute_gradients(losses[-1]))
    with on(0):
        means = [tf.reduce_mean(tf.stack([g for g, _ in pairs]), 0) for pairs in zip(*towers, strict=True)]
        clipped, norm = tf.clip_by_global_norm(means, 0.4)
        train = optimizer.apply_gradients([(g, v) for g, (_, v) in zip(clipped, towers[0], strict=True)])
    trained(record, [tf.add_n(losses), norm, towers[1][0][0]], train, x, y)


def program_layers(record):
    """Attention and a feed-forward net by turns on three devices; two optimizers, each for half of the variables."""
    x, y = tf.placeholder(tf.float32, [6, 4, 8], "x"), tf.placeholder(tf.float32, [6, 3], "y")
    h = x
    for k in range(2):
        with on(k), tf.variable_scope(f"layer_{k}"):
            q, keys, values = (dense(h, 8, name) for name in ("q", "ke", "val"))
            with on(k + 1):
                weights = tf.nn.softmax(tf.matmul(q, keys, transpose_b=True) * 0.35 + 0.1)
            h = normalized(h + tf.matmul(weights, values), "norm")
            with on(k + 2):
                u = dense(h, 16, "wide")
                u = 1.05 * tf.where(u > 0.0, u, 1.67 * tf.exp(u) - 1.67)
            h = h + 0.7 * dense(u, 8, "narrow")
    with on(2):
        logits = dense(tf.reduce_mean(h, 1), 3, "logits")
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(logits=logits, labels=tf.sigmoid(y)))
    variables = tf.trainable_variables()
    one, other = tf.train.AdamOptimizer(0.01), tf.train.GradientDescentOptimizer(0.1)
    first = one.compute_gradients(loss, variables[::2])
    second = other.compute_gradients(0.5 * loss, variables[1::2], colocate_gradients_with_ops=True)
    with tf.control_dependencies([g for g, _ in first + second]):
        train = tf.group(one.apply_gradients(first), other.apply_gradients(second))
    trained(record, [loss, first[0][0], second[0][0], logits], train, x, y)


def program_experts(record):
    """Experts on a device each, and a gate that mixes them, whose tuple of gradients spans the devices."""
    x, y = tf.placeholder(tf.float32, [None, 8], "x"), tf.placeholder(tf.float32, [None, 3], "y")
    with on(0):
        gate = tf.nn.softmax(dense(x, DEVICES, "gate"))
    mixed = []
    for k in range(DEVICES):
        with on(k):
            expert = dense(0.9 * tf.nn.softplus(dense(x, 8, f"expert_{k}")) * 0.7, 3, f"expert_{k}_out")
            mixed.append(gate[:, k : k + 1] * expert)
    with on(1):
        loss = tf.reduce_mean(tf.square(tf.add_n(mixed) - y)) * 3.0
        loss += 0.01 * tf.reduce_mean(tf.square(tf.reduce_mean(gate, 0))) * 1.1
    gradients = tf.tuple(tf.gradients(loss, tf.trainable_variables()))
    optimizer = tf.train.RMSPropOptimizer(0.01)
    train = optimizer.apply_gradients(zip(gradients, tf.trainable_variables(), strict=True))
    trained(record, [loss, gradients[0], gate], train, x, y)


def program_choices(record):
    """Which of saturated values is the largest: the function, the place and who takes it lie on devices of their own."""
    x, y = tf.placeholder(tf.float32, [6, 8], "x"), tf.placeholder(tf.float32, [6, 3], "y")
    logits = dense(x, 3, "logits")
    chosen = []
    for k, function in enumerate((tf.sigmoid, tf.tanh, tf.math.erf, tf.sigmoid)):
        with on(k):
            sure = function(60.0 * logits)
        with on(k + 1):
            place = tf.argmax(sure, 1)
        with on(k if k < DEVICES else k + 2):  # the last one makes Grappler's graph a wrong one
            chosen.append(tf.identity(place) + 1)
    train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(tf.square(logits - y)))
    trained(record, chosen, train, x, y)
