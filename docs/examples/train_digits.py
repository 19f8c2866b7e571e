"""Trains a convolutional network with parallel branches on scikit-learn's handwritten digits.

A plain TensorFlow graph-mode program: tf.data feeds shuffled batches, a stem of convolutions and two blocks of branches (in the
manner of Inception) see them at several filter sizes, Adam learns. By itself it runs wherever TensorFlow puts it. `--devices A,B`
is what an expert would add by hand: the branches of every block shared out over two devices, each with about half of the block's
multiplications.

    python train_digits.py --steps 100      # Ctrl-C ends it after the step that it is in
    python train_digits.py --target grpc://localhost:2222 --devices /job:stepd/task:0,/job:stepd/task:1
"""

import argparse
import contextlib
import json
import pathlib
import signal
import sys
import threading
import time

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

v1 = tf.compat.v1
CHANNELS = 32  # of each branch: a block's output has four times as many
# The stem does 23 % of all multiplications, as in Inception-v3.
STEM = (72, 172, 212, 168)
# Inside the wide branches. The deep ones do 56 and 55 % of their block's multiplications, as in Inception-v3's Mixed_5c and 5d.
WIDE = ((160, 120), (168, 120))


def conv(name, x, size, channels):
    """A convolution with bias and relu, variables included."""
    with v1.variable_scope(name):
        fan_in = size * size * int(x.shape[-1])
        kernel = v1.get_variable(
            "kernel",
            [size, size, int(x.shape[-1]), channels],
            initializer=v1.random_normal_initializer(stddev=(2.0 / fan_in) ** 0.5, seed=len(name) + fan_in),
        )
        bias = v1.get_variable("bias", [channels], initializer=v1.zeros_initializer())
        return tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, kernel, strides=1, padding="SAME"), bias))


def block(name, x, wide_channels, on):
    """Four branches side by side, joined by their channels. `on(k)` is where an expert puts part k of the work: the deep branch is
    more than half of it, as in Inception-v3, and as near to half as whole branches allow."""
    first, second = wide_channels
    with v1.variable_scope(name):
        with on(0):
            wide = conv("wide_in", x, 1, first)
            wide = conv("wide", conv("wide_mid", wide, 5, second), 3, CHANNELS)
            narrow = conv("narrow", x, 1, CHANNELS)
            pooled = conv("pooled", tf.nn.max_pool2d(x, 3, 1, "SAME"), 1, CHANNELS)
        with on(1):
            deep = conv("deep_in", x, 1, 204)
            deep = conv("deep", conv("deep_mid2", conv("deep_mid1", deep, 3, 204), 3, 140), 3, CHANNELS)
        with on(0):
            return tf.concat([wide, narrow, deep, pooled], axis=3)


def build(images, labels, on):
    """The whole training graph; returns (loss, train_op)."""
    with on(0):
        x = images
        for k, channels in enumerate(STEM):
            x = conv(f"stem{k}", x, 3, channels)
    for k, wide_channels in enumerate(WIDE):
        x = block(f"block{k}", x, wide_channels, on)
    with on(0), v1.variable_scope("head"):
        features = tf.reduce_mean(x, axis=[1, 2])
        weights = v1.get_variable("weights", [int(features.shape[-1]), 10], initializer=v1.glorot_uniform_initializer(seed=9))
        logits = tf.matmul(features, weights)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    optimizer = v1.train.AdamOptimizer(1e-3)
    # Gradients run where their forward ops do; the slots of a variable lie beside it.
    gradients = optimizer.compute_gradients(loss, colocate_gradients_with_ops=True)
    return loss, optimizer.apply_gradients(gradients)


def batches(batch_size):
    """Shuffled batches of digits for ever: images [batch, 8, 8, 1] in 0..1, labels [batch]."""
    digits = load_digits()
    images = digits.images[..., None].astype(np.float32) / 16.0
    data = tf.data.Dataset.from_tensor_slices((images, digits.target.astype(np.int32)))
    data = data.shuffle(len(images), seed=1).repeat().batch(batch_size, drop_remainder=True)
    return v1.data.make_one_shot_iterator(data).get_next()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--target", default="", help="a TensorFlow server to run on")
    parser.add_argument("--devices", default="", help="two devices, by hand: A,B")
    parser.add_argument("--log-every", type=int, default=20, metavar="STEPS")
    parser.add_argument("--out", type=pathlib.Path, help="write losses and step times here, as JSON")
    options = parser.parse_args()

    v1.disable_eager_execution()
    devices = options.devices.split(",") if options.devices else []

    def on(half):
        return tf.device(devices[half % len(devices)]) if devices else contextlib.nullcontext()

    with on(0):
        images, labels = batches(options.batch)
    loss, train = build(images, labels, on)

    stopping = threading.Event()
    signal.signal(signal.SIGINT, lambda number, frame: stopping.set())
    losses, starts, seconds = [], [], []
    with v1.Session(
        options.target, config=v1.ConfigProto(inter_op_parallelism_threads=2, intra_op_parallelism_threads=1)
    ) as session:
        session.run(v1.global_variables_initializer())
        for step in range(options.steps):
            if stopping.is_set():
                break
            start = time.perf_counter()
            value, _ = session.run([loss, train])
            seconds.append(time.perf_counter() - start)
            starts.append(start)
            losses.append(float(value))
            if step % options.log_every == 0:
                print(f"step {step:5d}  loss {value:.4f}  {seconds[-1] * 1000:7.1f} ms", file=sys.stderr, flush=True)
    if options.out:
        options.out.write_text(json.dumps({"losses": losses, "seconds": seconds, "starts": starts}))


if __name__ == "__main__":
    main()
