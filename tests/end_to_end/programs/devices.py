"""tf.device in the program's own code."""

import numpy as np
import tensorflow.compat.v1 as tf


def config():
    return tf.ConfigProto(device_count={"CPU": 3}, log_device_placement=False)


def program_towers(record):
    x = tf.placeholder(tf.float32, [6, 4], name="x")
    losses = []
    optimizer = tf.train.MomentumOptimizer(0.05, 0.9)
    grads = []
    for k in range(3):
        with tf.device(f"/cpu:{k}"), tf.variable_scope("model", reuse=tf.AUTO_REUSE):
            w = tf.get_variable("w", [4, 4], initializer=tf.glorot_uniform_initializer(seed=2))
            h = tf.nn.relu(tf.matmul(x[2 * k : 2 * k + 2], w))
            losses.append(tf.reduce_mean(tf.square(h - 1.0)))
            grads.append(optimizer.compute_gradients(losses[-1], [w])[0][0])
    with tf.device("/device:CPU:0"):
        train = optimizer.apply_gradients([(tf.add_n(grads) / 3.0, w)])
    with tf.Session(config=config()) as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            record.value(f"{k}", sess.run([losses, train], {x: np.arange(24).reshape(6, 4) * 0.1 + k})[0])
        record.value("w", sess.run(w))
    record.graph("graph")


def program_setters(record):
    with tf.device(tf.train.replica_device_setter(ps_tasks=0)), tf.device(lambda op: "/cpu:1" if op.type == "MatMul" else ""):
        v = tf.get_variable("v", [2, 2], initializer=tf.ones_initializer())
        y = tf.matmul(v, v) + 1.0
    with tf.colocate_with(v, ignore_existing=True):
        z = y * 2.0
    with tf.device(None), tf.device("/job:localhost/replica:0/task:0/device:CPU:2"):
        u = tf.get_variable("u", [2], initializer=tf.zeros_initializer(), use_resource=True)
        step = u.assign_add([1.0, 2.0])
    with tf.Session(config=config()) as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(9):
            record.value(f"{k}", sess.run([y, z, step]))
        meta = tf.RunMetadata()
        sess.run([y, step], options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), run_metadata=meta)
        kinds = {d.device.split("/")[-1].rsplit(":", 1)[0] for d in meta.step_stats.dev_stats}
        record.value("kinds", sorted(kinds))
    record.value("tensor device", [y.device, v.device, u.device])
    record.graph("graph")


def program_wishes(record):
    """Devices that are there, that are not, that are named by parts, by functions and by colocation; variables and queues on them."""
    x = tf.placeholder(tf.float32, [4, 3], name="x")
    with tf.device("/cpu:1"):
        w = tf.get_variable("w", [3, 3], initializer=tf.glorot_uniform_initializer(seed=4))
        queue = tf.FIFOQueue(8, tf.float32, shapes=[[3]], name="queue")
    with tf.device("/task:0/cpu:2"):
        u = tf.get_variable("u", [3], initializer=tf.ones_initializer(), use_resource=True)
        h = tf.tanh(tf.matmul(x, w) + u)
    with tf.device("/gpu:0"):
        soft = tf.reduce_sum(h * 2.0, axis=0)
    with tf.device(tf.DeviceSpec(device_type="CPU", device_index=0)), tf.device("/job:localhost"):
        loss = tf.reduce_mean(tf.square(h - 0.5))
    with tf.colocate_with(u), tf.device("/cpu:0"):
        noise = tf.nn.dropout(h, rate=0.5, seed=6)
    train = tf.train.AdagradOptimizer(0.1).minimize(loss + tf.reduce_sum(noise) * 0.01, colocate_gradients_with_ops=True)
    put, take = queue.enqueue(soft), queue.dequeue()
    soft_config = tf.ConfigProto(device_count={"CPU": 3}, allow_soft_placement=True)
    with tf.Session(config=soft_config) as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(14):
            feed = {x: np.cos(np.arange(12.0) * (k + 1)).reshape(4, 3)}
            record.value(f"{k}", sess.run([loss, noise, train], feed)[:2])
            sess.run(put, feed)
            record.value(f"taken {k}", sess.run(take))
        record.value("state", sess.run([w, u, *(v for v in tf.global_variables() if "Adagrad" in v.name)]))
    with tf.Session(config=config()) as sess:
        for k in range(5):
            with record.error(f"without the gpu {k}"):
                sess.run(loss, {x: np.full((4, 3), k)})
    with tf.device("/cpu:7"):
        nowhere = tf.reduce_sum(x, name="nowhere")
    with tf.Session(config=config()) as sess, record.error("no such device"):
        sess.run(nowhere, {x: np.ones((4, 3))})
    record.value("asked", [t.device for t in (h, soft, loss, noise, nowhere)])
    record.graph("graph")


def program_missing(record):
    """A session that places only what it runs: ops on devices that are not there fail, the ones beside them go on."""
    x = tf.placeholder(tf.float32, [3], name="x")
    y = tf.reduce_sum(tf.tanh(x) * 2.0)
    with tf.device("/cpu:7"):
        nowhere = tf.add(y, 1.0, name="nowhere")
    with tf.device("/gpu:0"):
        no_gpu = tf.add(tf.constant(2.0), y, name="no_gpu")
    sess = tf.InteractiveSession()
    record.value("devices", [(d.name, d.device_type) for d in sess.list_devices()])
    for k in range(6):
        record.value(f"{k}", sess.run(y, {x: [k, 1, 2]}))
        with record.error(f"nowhere {k}"):
            sess.run(nowhere, {x: [k, 1, 2]})
        with record.error(f"no gpu {k}"):
            sess.run(no_gpu, {x: [k, 1, 2]})
    with tf.device("/gpu:0"):
        late = tf.exp(y, name="late")
    for k in range(4):
        with record.error(f"late {k}"):
            sess.run(late, {x: [k, 1, 2]})
        record.value(f"after it {k}", sess.run(y, {x: [k, 2, 2]}))
    record.value("devices in the end", [d.name for d in sess.list_devices()])
    sess.close()
