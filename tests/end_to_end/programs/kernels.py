"""Layers that TensorFlow makes one kernel of, in training, in evaluation and in frozen graphs: on some processors oneDNN's."""

import numpy as np
import tensorflow.compat.v1 as tf


def leaf(name, *shape, frozen=False):
    seed = sum(map(ord, tf.get_variable_scope().name + name))
    values = np.random.RandomState(seed).randn(*shape).astype(np.float32) * 0.2
    return tf.constant(values) if frozen else tf.get_variable(name, initializer=values)


def layer(x, name, units, frozen=False):
    """A convolution of 3 by 3 on images, a product on rows, with a bias."""
    inputs = int(x.shape[-1])
    bias = leaf(f"{name}_bias", units, frozen=frozen)
    if len(x.shape) == 4:
        return tf.nn.bias_add(tf.nn.conv2d(x, leaf(f"{name}_kernel", 3, 3, inputs, units, frozen=frozen), 1, "SAME"), bias)
    return tf.nn.bias_add(tf.matmul(x, leaf(f"{name}_kernel", inputs, units, frozen=frozen)), bias)


def normalized(x, name, axes, frozen=False):
    mean, variance = tf.nn.moments(x, axes, keepdims=True)
    scale, shift = (leaf(f"{name}_{which}", int(x.shape[-1]), frozen=frozen) for which in ("scale", "shift"))
    return tf.nn.batch_normalization(x, mean, variance, shift, scale, 1e-3)


ACTIVATIONS = {
    "swish": lambda y: y * tf.sigmoid(y),
    "mish": lambda y: y * tf.tanh(tf.nn.softplus(y)),
    "gelu": lambda y: 0.5 * y * (1.0 + tf.erf(y / np.float32(np.sqrt(2.0)))),
    "gelu_by_tanh": lambda y: 0.5 * y * (1.0 + tf.tanh(np.float32(np.sqrt(2 / np.pi)) * (y + 0.044715 * tf.pow(y, 3)))),
    "gelu_of_bert": lambda y: y * (0.5 * (1.0 + tf.tanh(np.float32(np.sqrt(2 / np.pi)) * (y + 0.044715 * tf.pow(y, 3))))),
    "leaky": lambda y: tf.maximum(0.2 * y, y),
}


def net(x, frozen=False, alike=False):
    """`alike`: all layers have the same weights."""
    outputs = []
    for name, activation in ACTIVATIONS.items():
        with tf.name_scope(name) if alike else tf.variable_scope(name):
            # Joining convolutions, constants and some of these, TensorFlow 2.21 fails half-way, and what is done by then hangs on the rest.
            hidden = (tf.nn.relu if frozen else activation)(layer(x, "images", 8, frozen))
            hidden = tf.nn.max_pool2d(normalized(hidden, "norm", [1, 2], frozen), 3, 2, "SAME")  # its windows overlap
            rows = activation(layer(tf.reduce_mean(hidden, [1, 2]), "rows", 6, frozen))
            outputs.append(normalized(rows, "row_norm", [1], frozen))
    return tf.concat(outputs, 1)


def program_trained(record):
    """By an optimizer, whose gradients wait for each other, and by gradients that do not."""
    x = tf.placeholder(tf.float32, [4, 10, 10, 5], name="x")
    outputs = net(x)
    loss = tf.reduce_mean(tf.square(outputs - 0.1))
    weights = tf.trainable_variables()
    trained = tf.train.MomentumOptimizer(0.02, 0.9).minimize(loss)
    gradients = tf.gradients(loss, weights)
    with tf.control_dependencies(gradients):
        by_hand = tf.group(*(tf.assign_sub(v, 0.02 * g) for v, g in zip(weights, gradients, strict=True)))
    draw = np.random.RandomState(0)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(8):
            feed = {x: draw.randn(4, 10, 10, 5)}
            record.value(f"train {k}", sess.run([loss, trained if k % 2 else by_hand], feed)[0])
            record.value(f"read {k}", sess.run(outputs, feed))
            record.value(f"weights {k}", sess.run(weights))


def program_frozen(record):
    """A graph whose weights are constants."""
    evaluated(record)


def program_alike(record):
    """The same constants again and again, of which TensorFlow makes one, and of what is computed with them."""
    evaluated(record, alike=True)


def evaluated(record, alike=False):
    x = tf.placeholder(tf.float32, [4, 10, 10, 5], name="x")
    outputs = net(x, frozen=True, alike=alike)
    instance = tf.nn.leaky_relu(normalized(tf.nn.relu(layer(x, "last", 8, True)), "instance", [1, 2], True))
    draw = np.random.RandomState(0)
    with tf.Session() as sess:
        for k in range(8):
            record.value(f"read {k}", sess.run([outputs, instance], {x: draw.randn(4, 10, 10, 5)}))


def program_named(record):
    """Layers with a name for each step of the way, as code bases have that look for these names later; TensorFlow's own swish."""
    x = tf.placeholder(tf.float32, [4, 8, 8, 3], name="x")
    hidden = tf.identity(tf.nn.conv2d(x, leaf("kernel", 3, 3, 3, 6), 1, "SAME"), "initial_conv")
    scale, shift, mean, variance = (leaf(name, 6) for name in ("scale", "shift", "mean", "variance"))
    hidden, _, _ = tf.nn.fused_batch_norm(hidden, scale, shift, mean, tf.square(variance) + 1.0, is_training=False)
    hidden = tf.reduce_mean(tf.identity(tf.nn.relu(tf.identity(hidden)), "initial_relu"), [1, 2])
    for name in ("first", "second"):
        hidden = tf.nn.swish(tf.matmul(hidden, leaf(f"{name}_kernel", int(hidden.shape[1]), 8)) + leaf(f"{name}_bias", 8))
    outputs = tf.identity(tf.nn.tanh(tf.identity(layer(hidden, "last", 4))), "final_dense")
    weights = [v for v in tf.trainable_variables() if v.op.name.split("_")[0] in ("first", "second", "last")]
    gradients = tf.gradients(tf.reduce_mean(tf.square(outputs - 0.1)), weights)
    draw = np.random.RandomState(0)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(8):
            feed = {x: draw.randn(4, 8, 8, 3)}
            record.value(f"read {k}", sess.run(outputs, feed))
            record.value(f"gradients {k}", sess.run(gradients, feed))
