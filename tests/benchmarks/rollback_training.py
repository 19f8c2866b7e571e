"""A training program for bench_rollback.py; it knows nothing of stepd.

    python rollback_training.py OUT STOP [STEPS]

A chain of dense layers, so that on two devices in turn each op waits for a transfer (with an activation that TensorFlow does not
fuse with the product: what is fused stays together). Trains until STOP exists (at least STEPS
steps; exactly STEPS where STOP is "-") and appends one line a step to OUT: the monotonic clock at its end, its seconds, the bits
of its loss.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import tensorflow.compat.v1 as tf

LAYERS = 40
WIDTH = 384


def main() -> None:
    out, stop, least = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 0
    tf.disable_eager_execution()
    tf.set_random_seed(7)
    x = tf.placeholder(tf.float32, [192, WIDTH], name="x")
    hidden = x
    for k in range(LAYERS):
        weights = tf.get_variable(f"w{k}", [WIDTH, WIDTH], initializer=tf.orthogonal_initializer(seed=k))
        hidden = tf.nn.softsign(tf.matmul(hidden, weights, name=f"product{k}"), name=f"hidden{k}")
    loss = tf.reduce_mean(tf.nn.dropout(hidden, rate=0.1, seed=3) ** 2, name="loss")
    train = tf.train.MomentumOptimizer(0.01, 0.9).minimize(loss)
    data = np.random.RandomState(0).rand(192, WIDTH).astype("float32")
    steps = 0
    with out.open("w", buffering=1) as lines, tf.Session() as session:
        session.run(tf.global_variables_initializer())
        while steps < least or (stop != "-" and not Path(stop).exists()):
            start = time.monotonic()
            value = session.run([loss, train], {x: data})[0]
            end = time.monotonic()
            lines.write(f"{end:.6f} {end - start:.9f} {value.tobytes().hex()}\n")
            steps += 1


if __name__ == "__main__":
    main()
