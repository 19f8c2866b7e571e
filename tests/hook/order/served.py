"""Runs steps on a server whose executors were taken over: `served.py LIBRARY LANES ORDER`. Prints when each op with a priority ran,
and whether an op without one, which waits for the last of them, let them run."""

import json
import sys
import threading
from pathlib import Path

import numpy as np
import tensorflow.compat.v1 as tf

from stepd.hook.order.native import library
from stepd.hook.order.native.stamp import stamp

tf.disable_eager_execution()
library.load(Path(sys.argv[1]), stamp().text)
lanes, order = int(sys.argv[2]), json.loads(sys.argv[3])
config = tf.ConfigProto(device_count={"CPU": 2}, inter_op_parallelism_threads=lanes + 1, intra_op_parallelism_threads=1)
server = tf.train.Server({"stepd": ["localhost:0"]}, job_name="stepd", task_index=0, config=config)
reached, waits = threading.Event(), [False]  # the first step only measures what ops cost


def wait(value):
    return value * 0 + np.float32(not waits[0] or reached.wait(30.0))


x = tf.placeholder(tf.float32, [300, 300])
factors = [x + float(k) for k in (*sorted(order), 99)]
with tf.control_dependencies(factors):  # all can begin when this has ended
    start = tf.linalg.matmul(x, x, name="start")
ops = [tf.linalg.matmul(start, factor, name=f"op{k}") for k, factor in zip(sorted(order), factors[:-1], strict=True)]
handed = tf.linalg.matmul(start, factors[-1], name="handed")  # has no priority, but another device waits for it
with tf.device("/cpu:1"):
    far = tf.linalg.matmul(handed, handed, name="far")
waiting = tf.py_func(wait, [start[0, 0]], tf.float32, name="waiting")
last = tf.py_func(lambda v: (reached.set(), v)[1], [ops[order[-1]][0, 0]], tf.float32, name="last")
fetches, fed = [*ops, far, waiting, last], {x: np.random.RandomState(0).randn(300, 300).astype(np.float32)}
with tf.Session(server.target) as session:
    plain = session.run(fetches, fed)[0].sum()

library.take_over(lanes)
table = library.new_table()
library.add(table, {f"op{k}": place for place, k in enumerate(order)})
with tf.Session(server.target) as session:
    session.run(start, fed)
    delegated = library.counts()[1]
for op in [start.op, *(op.op for op in ops)]:
    op._set_attr("_stepd_order", tf.AttrValue(i=table))
with tf.Session(server.target) as session:
    session.run(fetches, fed)
    reached.clear()
    waits[0] = True
    metadata = tf.RunMetadata()
    values = session.run(fetches, fed, tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), metadata)
spans = {
    node.node_name.removeprefix("op"): tuple(node.all_start_nanos + at for at in (node.op_start_rel_nanos, node.op_end_rel_nanos))
    for device in metadata.step_stats.dev_stats
    for node in device.node_stats
    if node.node_name.startswith(("op", "handed"))
}
told = {"spans": spans, "waited": bool(values[-2]), "plain": float(plain), "values": float(values[0].sum()), "delegated": delegated}
print(json.dumps(told))
