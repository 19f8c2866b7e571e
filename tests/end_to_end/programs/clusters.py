"""Servers in this process: in-graph clusters, synchronous replicas, resources that outlive a session."""

import threading

import numpy as np
import tensorflow.compat.v1 as tf


def program_in_graph(record):
    """One session on a cluster of two tasks; ops on both."""
    a = tf.train.Server.create_local_server()
    x = tf.placeholder(tf.float32, [4, 3], name="x")
    with tf.device("/job:localhost/task:0/cpu:0"):
        w = tf.get_variable("w", [3, 2], initializer=tf.glorot_uniform_initializer(seed=1))
    h = tf.nn.relu(tf.matmul(x, w))
    loss = tf.reduce_mean(tf.square(h - 1.0))
    train = tf.train.AdamOptimizer(0.05).minimize(loss)
    data = tf.data.make_one_shot_iterator(tf.data.Dataset.range(100)).get_next()
    with tf.Session(a.target) as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(10):
            record.value(f"{k}", sess.run([loss, data, train], {x: np.sin(np.arange(12.0) + k).reshape(4, 3)})[:2])
    with tf.Session(a.target) as sess:
        record.value("the variables stay", sess.run(w))
        record.value("kinds", sorted({d.device_type for d in sess.list_devices()} & {"CPU"}))
    record.graph("graph")


def program_two_tasks(record):
    ports = free_ports(2)
    cluster = tf.train.ClusterSpec({"worker": [f"localhost:{p}" for p in ports]})
    servers = [tf.train.Server(cluster, "worker", k, start=True) for k in range(2)]
    x = tf.placeholder(tf.float32, [2, 2], name="x")
    halves = []
    for k in range(2):
        with tf.device(f"/job:worker/task:{k}"):
            v = tf.get_variable(f"v{k}", [2, 2], initializer=tf.ones_initializer())
            halves.append(tf.matmul(x, v) * (k + 1.0))
            queue = tf.FIFOQueue(5, tf.float32, shapes=[[2, 2]], shared_name=f"queue{k}")
            tf.add_to_collection("put", queue.enqueue(halves[-1]))
            tf.add_to_collection("take", queue.dequeue())
    loss = tf.reduce_sum(halves[0] + halves[1])
    train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
    with tf.Session(servers[0].target) as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(8):
            record.value(f"{k}", sess.run([loss, train], {x: [[k, 1.0], [2.0, 3.0]]})[0])
            sess.run(tf.get_collection("put"), {x: np.eye(2) * k})
            record.value(f"taken {k}", sess.run(tf.get_collection("take")))
    with tf.Session(servers[1].target) as sess:
        record.value("from the other side", sess.run(tf.global_variables()))


def program_synchronous(record):
    """SyncReplicasOptimizer: a chief and a second worker in threads of one process; the sum does not depend on their order."""
    server = tf.train.Server.create_local_server()
    graph = tf.Graph()
    with graph.as_default():
        x = tf.placeholder(tf.float32, [], name="x")
        w = tf.get_variable("w", [], initializer=tf.ones_initializer())
        step = tf.train.get_or_create_global_step()
        loss = w * x
        optimizer = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.25), 2, total_num_replicas=2)
        train = optimizer.minimize(loss, global_step=step)
        hook = optimizer.make_session_run_hook(is_chief=True, num_tokens=0)
        together = threading.Barrier(2)

        def replica(sess, share):
            for _ in range(8):
                together.wait()
                sess.run(train, {x: share})

        with tf.train.MonitoredTrainingSession(server.target, hooks=[hook], stop_grace_period_secs=1) as sess:
            second = threading.Thread(target=replica, args=(sess, 2.0))
            second.start()
            replica(sess, 1.0)
            second.join()
            seen = sess.run([w, step], {x: 0.0})
    record.value("seen", seen)
    record.graph("graph", graph)


def program_shared_resources(record):
    """A variable and a queue that two sessions of one server share."""
    server = tf.train.Server.create_local_server()
    v = tf.get_variable("v", [2], initializer=tf.zeros_initializer(), use_resource=True)
    step = v.assign_add([1.0, 2.0])
    queue = tf.FIFOQueue(9, tf.float32, shapes=[[2]], shared_name="exchange")
    put, take = queue.enqueue(v.read_value()), queue.dequeue()
    one, two = tf.Session(server.target), tf.Session(server.target)
    one.run(v.initializer)
    for k in range(9):
        record.value(f"{k}", one.run(step) if k % 2 else two.run(step))
        one.run(put)
        record.value(f"taken {k}", two.run(take))
    one.close()
    record.value("after the other's end", [two.run(step) for _ in range(4)])
    two.close()


def free_ports(count):
    import socket

    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("localhost", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
