"""A training program for bench_gpu_memory.py that nearly fills a GPU; it knows nothing of stepd.

    python gpu_memory_training.py OUT LAYERS WIDTH STEPS MIB

LAYERS dense layers of WIDTH squared weights, with Adam, on the first of two logical GPUs of MIB each. Appends to OUT one line a
step: the bits of its loss; and "end".
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import tensorflow.compat.v1 as tf


def main() -> None:
    out = Path(sys.argv[1])
    layers, width, steps, mib = map(int, sys.argv[2:])
    tf.disable_eager_execution()
    tf.set_random_seed(1)
    batch = width * 2 // 5
    x = h = tf.placeholder(tf.float32, [batch, width])
    for k in range(layers):
        h = tf.nn.tanh(tf.matmul(h, tf.get_variable(f"w{k}", [width, width])) + tf.get_variable(f"b{k}", [width]))
    loss = tf.reduce_mean(tf.squared_difference(h, 0.3))
    train = tf.train.AdamOptimizer(1e-4).minimize(loss)
    config = tf.ConfigProto()
    config.gpu_options.experimental.virtual_devices.add(memory_limit_mb=[mib, mib])
    random = np.random.RandomState(0)
    with out.open("w", buffering=1) as lines, tf.Session(config=config) as session:
        session.run(tf.global_variables_initializer())
        for _ in range(steps):
            value = session.run([loss, train], {x: random.rand(batch, width).astype("f")})[0]
            lines.write(f"{value.tobytes().hex()}\n")
        lines.write("end\n")


if __name__ == "__main__":
    main()
