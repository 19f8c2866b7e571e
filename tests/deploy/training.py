"""A plain training program for the deployment checks: a chain of small ops on two CPU devices. It has never heard of stepd.

python training.py OUT STOP STEPS       # until the file STOP appears, or so many steps; the bits of every loss go to OUT
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
v1.disable_eager_execution()
v1.set_random_seed(7)
out, stop, steps = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
x = v1.placeholder(tf.float32, [64, 64], name="x")
h = x
for k in range(40):
    h = tf.tanh(tf.matmul(h, v1.get_variable(f"w{k}", [64, 64], initializer=v1.orthogonal_initializer(seed=k))), name=f"h{k}")
loss = tf.reduce_mean(tf.nn.dropout(h, rate=0.1, seed=3) ** 2, name="loss")
train = v1.train.GradientDescentOptimizer(0.01).minimize(loss)
data = np.random.RandomState(0).rand(64, 64).astype("float32")
losses = []
with v1.Session(config=v1.ConfigProto(device_count={"CPU": 2})) as session:
    session.run(v1.global_variables_initializer())
    while len(losses) < steps if steps else not stop.exists():
        if not steps:
            time.sleep(0.05)  # leaves the cores to the planner
        losses.append(session.run([loss, train], {x: data})[0].tobytes().hex())
out.write_text(json.dumps(losses))
