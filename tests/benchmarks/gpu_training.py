"""A training program for bench_gpus.py; it knows nothing of stepd.

    python gpu_training.py OUT STEPS GPUS

Four convolutional towers over one image, their features joined in dense layers with dropout, word embeddings beside them, Adam.
It asks for GPUS logical GPUs on the machine's first one (with as many real ones, for those: GPUS is 0) and names no device. Appends
to OUT one line a step: seconds, the bits of its loss.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import tensorflow.compat.v1 as tf

BATCH, SIDE, TOWERS = 64, 32, 4


def tower(images: tf.Tensor, k: int) -> tf.Tensor:
    hidden = images
    for layer, channels in enumerate((64, 128, 256)):
        filters = tf.get_variable(f"tower{k}/filters{layer}", [3, 3, hidden.shape[-1], channels])
        hidden = tf.nn.relu(tf.nn.conv2d(hidden, filters, strides=2 if layer else 1, padding="SAME"))
    return tf.reshape(hidden, [BATCH, -1])


def model() -> tuple[tf.Tensor, tf.Operation, tf.Tensor, tf.Tensor]:
    images = tf.placeholder(tf.float32, [BATCH, SIDE, SIDE, 3], name="images")
    words = tf.placeholder(tf.int32, [BATCH, 20], name="words")
    table = tf.get_variable("table", [5000, 128])
    said = tf.reduce_mean(tf.nn.embedding_lookup(table, words), axis=1)
    seen = tf.concat([tower(images, k) for k in range(TOWERS)] + [said], axis=1)
    hidden = seen
    for layer, width in enumerate((1024, 512)):
        weights = tf.get_variable(f"dense{layer}", [hidden.shape[-1], width])
        hidden = tf.nn.dropout(tf.nn.tanh(tf.matmul(hidden, weights)), rate=0.1, seed=3 + layer)
    loss = tf.reduce_mean(tf.squared_difference(tf.matmul(hidden, tf.get_variable("out", [512, 8])), 1.0), name="loss")
    step = tf.train.get_or_create_global_step()
    return loss, tf.train.AdamOptimizer(1e-4).minimize(loss, step), images, words


def main() -> None:
    out, steps, gpus = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    tf.disable_eager_execution()
    tf.set_random_seed(7)
    config = tf.ConfigProto()
    config.gpu_options.allow_growth = True
    if gpus:
        config.gpu_options.allow_growth = False
        config.gpu_options.experimental.virtual_devices.add(memory_limit_mb=[6144] * gpus)
    loss, train, images, words = model()
    random = np.random.RandomState(0)
    pictures, texts = random.rand(BATCH, SIDE, SIDE, 3).astype("float32"), random.randint(0, 5000, [BATCH, 20])
    with out.open("w", buffering=1) as lines, tf.Session(config=config) as session:
        session.run(tf.global_variables_initializer())
        for _ in range(steps):
            start = time.monotonic()
            value = session.run([loss, train], {images: pictures, words: texts})[0]
            lines.write(f"{time.monotonic() - start:.9f} {value.tobytes().hex()}\n")


if __name__ == "__main__":
    main()
