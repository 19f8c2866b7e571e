"""Between-graph replication: a parameter server and two workers, each a process (with whatever runs inside it)."""

import json
import os
import socket
import subprocess
import sys
import time

CHILD = len(sys.argv) > 1


def main():
    sockets = [socket.socket() for _ in range(3)]
    for one in sockets:
        one.bind(("localhost", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    cluster = json.dumps({"ps": [f"localhost:{ports[0]}"], "worker": [f"localhost:{p}" for p in ports[1:]]})
    jobs = [("ps", 0), ("worker", 0), ("worker", 1)]
    children = [
        subprocess.Popen([sys.executable, __file__, cluster, job, str(k)], stdout=subprocess.PIPE, text=True) for job, k in jobs
    ]
    for (job, k), child in zip(jobs[1:], children[1:], strict=True):
        out, _ = child.communicate(timeout=200)
        print(job, k, child.returncode, out)
    children[0].kill()
    children[0].communicate()


def replica(cluster, job, task):
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    server = tf.train.Server(tf.train.ClusterSpec(json.loads(cluster)), job, task)
    if job == "ps":
        server.join()
    with tf.device(tf.train.replica_device_setter(1, worker_device=f"/job:worker/task:{task}")):
        step = tf.train.get_or_create_global_step()
        w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
        mine = tf.get_variable(f"mine{task}", [], initializer=tf.zeros_initializer()) if task == 0 else None
        seen = tf.get_variable("seen", [2], initializer=tf.zeros_initializer())
        mark = tf.scatter_add(seen, [task], [1.0])
        # Exact whatever the order: sums of powers of two.
        add = tf.assign_add(w, 2.0 ** -(3 + task), use_locking=True)
        train = tf.group(add, mark, tf.assign_add(step, 1, use_locking=True))
        own = tf.sqrt(tf.cast(tf.range(4), tf.float32)) * float(task + 1)
    del mine
    config = tf.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{task}"])
    if task == 0:
        with tf.Session(server.target, config=config) as sess:
            sess.run(tf.global_variables_initializer())
    else:
        waiting = tf.report_uninitialized_variables([w, seen, step])
        with tf.Session(server.target, config=config) as sess:
            while len(sess.run(waiting)):
                time.sleep(0.05)
    with tf.Session(server.target, config=config) as sess:
        values = [sess.run([own, train])[0].tolist() for _ in range(12)]
        while sess.run(step) < 24:
            time.sleep(0.02)
        print(json.dumps([values, float(sess.run(w)), sess.run(seen).tolist()]), flush=True)
        # The other may still look at this worker's devices: it goes last that ends last.
        done = tf.constant(os.getpid() > 0)
        assert sess.run(done)


if CHILD:
    replica(sys.argv[1], sys.argv[2], int(sys.argv[3]))
else:
    main()
