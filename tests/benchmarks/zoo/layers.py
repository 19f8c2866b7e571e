"""Building blocks of the zoo's models, in plain TensorFlow 1 graph style. Images are NHWC, sequences are batch first."""

from __future__ import annotations

import tensorflow as tf

v1 = tf.compat.v1


def variable(name: str, shape: list[int]) -> tf.Tensor:
    """A trainable variable of the current variable scope."""
    return v1.get_variable(name, shape, tf.float32, v1.glorot_uniform_initializer())


def dense(x: tf.Tensor, units: int, name: str, activation=None) -> tf.Tensor:
    """x [..., a] -> [..., units], with a bias."""
    with v1.variable_scope(name):
        shape = x.shape.as_list()
        flat = tf.reshape(x, [-1, shape[-1]]) if len(shape) > 2 else x
        y = tf.nn.bias_add(tf.matmul(flat, variable("kernel", [shape[-1], units])), variable("bias", [units]))
        y = activation(y) if activation else y
        return tf.reshape(y, [*shape[:-1], units]) if len(shape) > 2 else y


def conv(x: tf.Tensor, filters: int, size, name: str, stride=1, padding="SAME", activation=tf.nn.relu):
    """Convolution with a bias; `size` an int or (height, width)."""
    height, width = (size, size) if isinstance(size, int) else size
    with v1.variable_scope(name):
        kernel = variable("kernel", [height, width, x.shape.as_list()[-1], filters])
        y = tf.nn.bias_add(tf.nn.conv2d(x, kernel, stride, padding), variable("bias", [filters]))
        return activation(y) if activation else y


def conv_norm(x: tf.Tensor, filters: int, size, name: str, stride=1, padding="SAME", activation=tf.nn.relu):
    """Convolution without a bias, batch normalization, activation."""
    height, width = (size, size) if isinstance(size, int) else size
    with v1.variable_scope(name):
        kernel = variable("kernel", [height, width, x.shape.as_list()[-1], filters])
        y = batch_norm(tf.nn.conv2d(x, kernel, stride, padding))
        return activation(y) if activation else y


def separable(x: tf.Tensor, filters: int, size: int, name: str, stride: int = 1) -> tf.Tensor:
    """ReLU, depthwise and pointwise convolution, batch normalization, twice (NASNet's separable block)."""
    for k in range(2):
        with v1.variable_scope(f"{name}_{k}"):
            channels = x.shape.as_list()[-1]
            step = stride if k == 0 else 1
            deep = variable("depthwise", [size, size, channels, 1])
            y = tf.nn.depthwise_conv2d(tf.nn.relu(x), deep, [1, step, step, 1], "SAME")
            x = batch_norm(tf.nn.conv2d(y, variable("pointwise", [1, 1, channels, filters]), 1, "SAME"))
    return x


def batch_norm(x: tf.Tensor) -> tf.Tensor:
    """Fused batch normalization over the channels, training mode."""
    channels = x.shape.as_list()[-1]
    scale, offset = variable("scale", [channels, 1]), variable("offset", [channels, 1])
    return v1.nn.fused_batch_norm(x, tf.reshape(scale, [channels]), tf.reshape(offset, [channels]))[0]


def layer_norm(x: tf.Tensor, name: str) -> tf.Tensor:
    """Layer normalization over the last axis, written out as TensorFlow 1 models do."""
    with v1.variable_scope(name):
        width = x.shape.as_list()[-1]
        mean = tf.reduce_mean(x, -1, keepdims=True)
        variance = tf.reduce_mean(tf.math.squared_difference(x, mean), -1, keepdims=True)
        scale, offset = variable("scale", [1, width]), variable("offset", [1, width])
        normal = (x - mean) * tf.math.rsqrt(variance + 1e-6)
        return normal * tf.reshape(scale, [width]) + tf.reshape(offset, [width])


def dropout(x: tf.Tensor, rate: float = 0.1) -> tf.Tensor:
    """Dropout by a mask drawn in the step."""
    return v1.nn.dropout(x, rate=rate) if rate else x


def max_pool(x: tf.Tensor, size: int, stride: int, padding: str = "VALID") -> tf.Tensor:
    """Max pooling over squares."""
    return tf.nn.max_pool2d(x, size, stride, padding)


def avg_pool(x: tf.Tensor, size: int, stride: int, padding: str = "SAME") -> tf.Tensor:
    """Average pooling over squares."""
    return tf.nn.avg_pool2d(x, size, stride, padding)


def embedding(ids: tf.Tensor, vocabulary: int, width: int, name: str) -> tf.Tensor:
    """ids [...] -> [..., width]."""
    with v1.variable_scope(name):
        return tf.gather(variable("table", [vocabulary, width]), ids)


def lstm_cell(x: tf.Tensor, state, units: int, name: str):
    """One step of an LSTM layer: x [b, a], state (c, h) -> (h, (c, h)). Its weights are shared by the scope's reuse."""
    with v1.variable_scope(name, reuse=v1.AUTO_REUSE):
        c, h = state
        joined = tf.concat([x, h], 1)
        kernel = variable("kernel", [joined.shape.as_list()[1], 4 * units])
        gates = tf.nn.bias_add(tf.matmul(joined, kernel), variable("bias", [4 * units]))
        i, j, f, o = tf.split(gates, 4, 1)
        c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
        h = tf.tanh(c) * tf.sigmoid(o)
        return h, (c, h)


def cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Mean sparse softmax cross entropy."""
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def images(batch: int, size: int, channels: int = 3) -> tf.Tensor:
    """A batch of images as it arrives."""
    return v1.placeholder(tf.float32, [batch, size, size, channels], "images")


def labels(batch: int, *rest: int) -> tf.Tensor:
    """Class or token numbers as they arrive."""
    return v1.placeholder(tf.int32, [batch, *rest], "labels")
