"""Convolutional networks of the papers. Each function gives the loss of one batch; 1000 classes of ImageNet sizes.

LeNet (LeCun 1998), AlexNet (one tower, Krizhevsky 2014), VGG-19 (Simonyan 2015), Inception-v3 (Szegedy 2016, figures 5-7),
ResNet-200 (He 2016, pre-activation), NASNet-A (Zoph 2018, figure 4), Tensor Holography (Shi 2021: 30 layers of 24 filters).
"""

from __future__ import annotations

import tensorflow as tf
from zoo.layers import (
    avg_pool,
    batch_norm,
    conv,
    conv_norm,
    cross_entropy,
    dense,
    dropout,
    images,
    labels,
    max_pool,
    separable,
    v1,
    variable,
)


def _classify(features: tf.Tensor, batch: int, classes: int = 1000) -> tf.Tensor:
    return cross_entropy(dense(features, classes, "logits"), labels(batch))


def _flat(x: tf.Tensor) -> tf.Tensor:
    shape = x.shape.as_list()
    return tf.reshape(x, [shape[0], shape[1] * shape[2] * shape[3]])


def _pooled(x: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(x, [1, 2])


def lenet(batch: int) -> tf.Tensor:
    """28 x 28 digits."""
    x = conv(images(batch, 28, 1), 32, 5, "conv1")
    x = conv(max_pool(x, 2, 2), 64, 5, "conv2")
    x = dense(_flat(max_pool(x, 2, 2)), 1024, "dense1", tf.nn.relu)
    return _classify(dropout(x, 0.5), batch, 10)


def alexnet(batch: int) -> tf.Tensor:
    """224 x 224."""
    x = conv(images(batch, 224), 64, 11, "conv1", 4, "VALID")
    x = conv(max_pool(x, 3, 2), 192, 5, "conv2")
    x = max_pool(x, 3, 2)
    for k, filters in enumerate((384, 384, 256)):
        x = conv(x, filters, 3, f"conv{k + 3}")
    x = _flat(max_pool(x, 3, 2))
    for name in ("fc6", "fc7"):
        x = dropout(dense(x, 4096, name, tf.nn.relu), 0.5)
    return _classify(x, batch)


def vgg19(batch: int) -> tf.Tensor:
    """224 x 224, 16 convolutions and 3 dense layers."""
    x = images(batch, 224)
    for block, (count, filters) in enumerate(((2, 64), (2, 128), (4, 256), (4, 512), (4, 512))):
        for k in range(count):
            x = conv(x, filters, 3, f"conv{block + 1}_{k + 1}")
        x = max_pool(x, 2, 2)
    x = _flat(x)
    for name in ("fc6", "fc7"):
        x = dropout(dense(x, 4096, name, tf.nn.relu), 0.5)
    return _classify(x, batch)


def resnet200(batch: int) -> tf.Tensor:
    """224 x 224, bottleneck blocks 3, 24, 36, 3."""
    x = max_pool(conv_norm(images(batch, 224), 64, 7, "conv1", 2), 3, 2, "SAME")
    for stage, (blocks, filters) in enumerate(((3, 64), (24, 128), (36, 256), (3, 512))):
        for block in range(blocks):
            with v1.variable_scope(f"stage{stage}/block{block}"):
                stride = 2 if stage and not block else 1
                with v1.variable_scope("pre"):
                    before = tf.nn.relu(batch_norm(x))
                short = conv(before, 4 * filters, 1, "short", stride, activation=None) if not block else x
                y = conv_norm(before, filters, 1, "a")
                y = conv_norm(y, filters, 3, "b", stride)
                x = short + conv(y, 4 * filters, 1, "c", activation=None)
    return _classify(_pooled(tf.nn.relu(batch_norm(x))), batch)


def inception_v3(batch: int) -> tf.Tensor:
    """299 x 299, without the auxiliary classifier."""
    x = conv_norm(images(batch, 299), 32, 3, "stem1", 2, "VALID")
    x = conv_norm(x, 32, 3, "stem2", 1, "VALID")
    x = max_pool(conv_norm(x, 64, 3, "stem3"), 3, 2)
    x = conv_norm(x, 80, 1, "stem4", 1, "VALID")
    x = max_pool(conv_norm(x, 192, 3, "stem5", 1, "VALID"), 3, 2)
    for k, pooled in enumerate((32, 64, 64)):
        x = _inception_a(x, pooled, f"mixed_a{k}")
    with v1.variable_scope("reduce_a"):
        y = conv_norm(conv_norm(x, 64, 1, "b1"), 96, 3, "b2")
        branches = [conv_norm(x, 384, 3, "a", 2, "VALID"), conv_norm(y, 96, 3, "b3", 2, "VALID"), max_pool(x, 3, 2)]
        x = tf.concat(branches, 3)
    for k, width in enumerate((128, 160, 160, 192)):
        x = _inception_b(x, width, f"mixed_b{k}")
    with v1.variable_scope("reduce_b"):
        a = conv_norm(conv_norm(x, 192, 1, "a1"), 320, 3, "a2", 2, "VALID")
        b = conv_norm(conv_norm(conv_norm(x, 192, 1, "b1"), 192, (1, 7), "b2"), 192, (7, 1), "b3")
        x = tf.concat([a, conv_norm(b, 192, 3, "b4", 2, "VALID"), max_pool(x, 3, 2)], 3)
    for k in range(2):
        x = _inception_c(x, f"mixed_c{k}")
    return _classify(dropout(_pooled(x), 0.2), batch)


def _inception_a(x: tf.Tensor, pooled: int, name: str) -> tf.Tensor:
    with v1.variable_scope(name):
        five = conv_norm(conv_norm(x, 48, 1, "five1"), 64, 5, "five2")
        three = conv_norm(conv_norm(conv_norm(x, 64, 1, "three1"), 96, 3, "three2"), 96, 3, "three3")
        pool = conv_norm(avg_pool(x, 3, 1), pooled, 1, "pool")
        return tf.concat([conv_norm(x, 64, 1, "one"), five, three, pool], 3)


def _inception_b(x: tf.Tensor, width: int, name: str) -> tf.Tensor:
    with v1.variable_scope(name):
        once = conv_norm(conv_norm(x, width, 1, "once1"), width, (1, 7), "once2")
        twice = conv_norm(x, width, 1, "twice0")
        for k, size in enumerate(((7, 1), (1, 7), (7, 1))):
            twice = conv_norm(twice, width, size, f"twice{k + 1}")
        pool = conv_norm(avg_pool(x, 3, 1), 192, 1, "pool")
        once, twice = conv_norm(once, 192, (7, 1), "once3"), conv_norm(twice, 192, (1, 7), "twice4")
        return tf.concat([conv_norm(x, 192, 1, "one"), once, twice, pool], 3)


def _inception_c(x: tf.Tensor, name: str) -> tf.Tensor:
    with v1.variable_scope(name):
        a = conv_norm(x, 384, 1, "a")
        b = conv_norm(conv_norm(x, 448, 1, "b1"), 384, 3, "b2")
        fans = [
            conv_norm(y, 384, size, f"{which}_{k}") for which, y in (("a", a), ("b", b)) for k, size in enumerate(((1, 3), (3, 1)))
        ]
        pool = conv_norm(avg_pool(x, 3, 1), 192, 1, "pool")
        return tf.concat([conv_norm(x, 320, 1, "one"), *fans, pool], 3)


def nasnet(batch: int, cells: int = 6, filters: int = 148) -> tf.Tensor:
    """NASNet-A: three stacks of `cells` normal cells, a reduction cell (stride 2) before each but the first; 224 x 224."""
    x = conv_norm(images(batch, 224), filters // 2, 3, "stem", 2, "VALID")
    before = x = _reduction(x, x, filters, "stem_reduce")
    for stack in range(3):
        width = filters * 2**stack
        if stack:
            before, x = x, _reduction(x, before, width, f"reduce{stack}")
        for k in range(cells):
            before, x = x, _normal(x, before, width, f"stack{stack}_cell{k}")
    return _classify(dropout(_pooled(tf.nn.relu(x)), 0.5), batch)


def _fit(x: tf.Tensor, like: tf.Tensor, filters: int, name: str) -> tf.Tensor:
    """`x` squeezed to `filters` channels at the height of `like`."""
    stride = max(1, round(x.shape.as_list()[1] / like.shape.as_list()[1]))
    return conv_norm(tf.nn.relu(x), filters, 1, name, stride, activation=None)


def _normal(x: tf.Tensor, before: tf.Tensor, filters: int, name: str) -> tf.Tensor:
    with v1.variable_scope(name):
        p, h = _fit(before, x, filters, "p"), _fit(x, x, filters, "h")
        blocks = [
            separable(h, filters, 3, "a") + h,
            separable(p, filters, 3, "b1") + separable(h, filters, 5, "b2"),
            avg_pool(h, 3, 1) + p,
            avg_pool(p, 3, 1) + avg_pool(p, 3, 1),
            separable(p, filters, 5, "e1") + separable(p, filters, 3, "e2"),
        ]
        return tf.concat([p, *blocks], 3)


def _reduction(x: tf.Tensor, before: tf.Tensor, filters: int, name: str) -> tf.Tensor:
    with v1.variable_scope(name):
        p, h = _fit(before, x, filters, "p"), _fit(x, x, filters, "h")
        a = separable(h, filters, 5, "a1", 2) + separable(p, filters, 7, "a2", 2)
        b = tf.nn.max_pool2d(h, 3, 2, "SAME") + separable(p, filters, 7, "b", 2)
        c = avg_pool(h, 3, 2) + separable(p, filters, 5, "c", 2)
        d = avg_pool(a, 3, 1) + b
        e = separable(a, filters, 3, "e") + tf.nn.max_pool2d(h, 3, 2, "SAME")
        return tf.concat([b, c, d, e], 3)


def holography(batch: int) -> tf.Tensor:
    """Residual network over 384 x 384 depth images, 30 layers of 24 filters, three images out."""
    image = images(batch, 384, 4)
    x = first = conv_norm(image, 24, 3, "first")
    for k in range(28):
        x = conv_norm(x, 24, 3, f"layer{k}") + (first if k % 2 else 0.0)
    out = conv(x, 6, 3, "last", activation=tf.tanh)
    target = v1.placeholder(tf.float32, out.shape, "target")
    weight = variable("weight", [6, 1])
    return tf.reduce_mean(tf.square(out - target) * tf.reshape(weight, [6]))
