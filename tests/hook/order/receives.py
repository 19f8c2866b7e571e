"""Runs one step on the native executor of which a device receives a value for each of several ops with priorities: `receives.py
LIBRARY ORDER`. TensorFlow's own log, at level 2 of its transfers, says what was started when."""

import json
import sys
from pathlib import Path

import numpy as np
import tensorflow.compat.v1 as tf

from stepd.hook.order.native import library
from stepd.hook.order.native.stamp import EXECUTOR_TYPE, stamp

tf.disable_eager_execution()
library.load(Path(sys.argv[1]), stamp().text)
order = json.loads(sys.argv[2])
x = tf.placeholder(tf.float32, [4, 4])
ops = []
for k in sorted(order):
    with tf.device("/cpu:0"):
        sent = tf.linalg.inv(x + float(k + 5) * tf.eye(4), name=f"sent{k}")
    with tf.device("/cpu:1"):  # every other one is waited for behind an op without a number
        ops.append(tf.linalg.inv(tf.linalg.matmul(sent, sent) if k % 2 else sent, name=f"op{k}"))
table = library.new_table()
library.add(table, {f"op{k}": place for place, k in enumerate(order)})
for op in ops:
    op.op._set_attr("_stepd_order", tf.AttrValue(i=table))
config = tf.ConfigProto(device_count={"CPU": 2})
config.experimental.executor_type = EXECUTOR_TYPE
with tf.Session(config=config) as session:
    session.run([op.op for op in ops], {x: np.eye(4)})
