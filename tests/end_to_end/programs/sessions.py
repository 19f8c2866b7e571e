"""Sessions: interactive, several on one graph, several graphs, thousands, reset, closed from elsewhere."""

import gc
import os
import threading

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.core.protobuf import config_pb2


def counter(name="v"):
    v = tf.get_variable(name, [], initializer=tf.zeros_initializer())
    return v, tf.assign_add(v, 1.0)


def program_interactive(record):
    sess = tf.InteractiveSession()
    v, step = counter()
    v.initializer.run()
    for k in range(10):
        step.op.run()
        record.value(f"{k}", [v.eval(), (v * 2.0).eval()])
    record.value("default", tf.get_default_session() is sess)
    sess.close()
    record.value("no default", tf.get_default_session() is None)
    record.graph("graph")


def program_handles(record):
    """Each run of an interactive session is placed for itself; it gives out handles of variables on its own device alone."""
    x = tf.placeholder(tf.float32, [None, 6], name="x")
    hidden = x
    for k in range(4):
        w = tf.get_variable(f"w{k}", initializer=tf.random_normal([6, 6], stddev=0.4, seed=k), use_resource=True)
        hidden = tf.tanh(tf.matmul(hidden, w))
    loss = tf.reduce_mean(tf.square(hidden - 0.1))
    train = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
    sess = tf.InteractiveSession()
    try:
        tf.global_variables_initializer().run()
        for k in range(24):
            feed = {x: np.random.RandomState(k).randn(3, 6)}
            sess.run(train, feed)
            if k % 6 == 5:
                name = f"w{k // 6}:0"
                record.value(f"handle {k}", str(sess.run(name).dtype))
                handle, value = sess.run([name, loss], feed)
                record.value(f"handle beside {k}", [str(handle.dtype), value])
            record.value(f"loss {k}", sess.run(loss, feed))
        record.value("state", sess.run(tf.trainable_variables()))
    finally:
        sess.close()


def program_several(record):
    v, step = counter()
    noise = tf.random_uniform([2], seed=3)
    sessions = [tf.Session() for _ in range(3)]
    for n, sess in enumerate(sessions):
        sess.run(v.initializer)
        for _ in range(n):
            sess.run(step)
    for k in range(8):
        record.value(f"{k}", [sess.run([step, noise]) for sess in sessions])
        extra = v * float(k)
        record.value(f"extended {k}", [sess.run(extra) for sess in sessions[: 1 + k % 3]])
    sessions[1].close()
    for k in range(5):
        record.value(f"two left {k}", [sessions[0].run(step), sessions[2].run(step)])
    for sess in sessions:
        sess.close()
    record.graph("graph")


def program_graphs(record):
    graphs = [tf.Graph() for _ in range(3)]
    sessions = []
    for n, graph in enumerate(graphs):
        with graph.as_default():
            v, step = counter()
            step = tf.identity(step + float(n), name="out")
            sessions.append(tf.Session(graph=graph))
            sessions[-1].run(v.initializer)
    for k in range(9):
        record.value(f"{k}", [sess.run("out:0") for sess in sessions])
    with record.error("the wrong graph"):
        sessions[0].run(step)
    for n, sess in enumerate(sessions):
        record.graph(f"graph {n}", sess.graph)
        sess.close()


def program_thousand(record):
    """Opened and closed a thousand times: no thread and no file stays."""
    x = tf.placeholder(tf.float32, [], name="x")
    y = x * 2.0 + 1.0
    with tf.Session() as sess:
        sess.run(y, {x: 1.0})
    gc.collect()
    files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    total = 0.0
    for k in range(1000):
        with tf.Session() as sess:
            total += float(sess.run(y, {x: k}))
    gc.collect()
    record.value("total", total)
    record.value("no more files", len(os.listdir("/proc/self/fd")) - files <= 2)
    record.value("no more threads", threading.active_count() - threads <= 0)


def program_unused(record):
    """Sessions that never run, that are only deleted, that are closed twice, that are entered twice."""
    v, step = counter()
    tf.Session()
    idle = tf.Session()
    idle.close()
    idle.close()
    del idle
    gc.collect()
    sess = tf.Session()
    with sess:
        sess.run(v.initializer)
    with record.error("entered again"), sess:
        sess.run(step)
    with record.error("closed"):
        sess.run(step)
    with tf.Graph().as_default(), record.error("an empty graph"), tf.Session() as sess:
        sess.run(None)
    with tf.Graph().as_default(), tf.Session() as sess:
        tf.constant(1.0)
        record.value("nothing", sess.run([]))
    for config in (tf.ConfigProto(device_count={"CPU": 3}), tf.ConfigProto(allow_soft_placement=True), None):
        with record.error("bad target"):  # which the error shows with the config
            tf.Session("nowhere://here", config=config).run(step)
    with record.error("bad config"):
        tf.Session(config="none")
    with record.error("bad graph"):
        tf.Session(graph="none")
    with tf.Session() as one:
        one.run(v.initializer)
        with tf.Session() as two:
            two.run(v.initializer)
            record.value("inner", [tf.get_default_session() is two, two.run(step)])
        record.value("outer", [tf.get_default_session() is one, one.run(step)])
        record.value("attributes", [one.graph is tf.get_default_graph(), one.sess_str])
        record.value("text", type(one).__name__)


def program_devices(record):
    config = tf.ConfigProto(device_count={"CPU": 4})
    with tf.Session(config=config) as sess:
        x = tf.constant([1.0, 2.0]) + 1.0
        for k in range(6):
            record.value(f"{k}", sess.run(x))
        record.value("devices", sorted(d.name for d in sess.list_devices() if d.device_type == "CPU"))
    record.value("config", str(config))


def program_closed_elsewhere(record):
    queue = tf.FIFOQueue(1, tf.int32, shapes=[[]])
    take = queue.dequeue()
    one = tf.constant(1) + 1
    sess = tf.Session()
    for k in range(7):
        record.value(f"{k}", sess.run(one))
    started = threading.Event()

    def close():
        started.wait()
        sess.close()

    thread = threading.Thread(target=close)
    thread.start()
    started.set()
    try:
        sess.run(take)
    except (tf.errors.CancelledError, RuntimeError) as error:
        record.value("woken", type(error).__name__ in ("CancelledError", "RuntimeError"))
    thread.join(20)
    record.value("alive", thread.is_alive())
    with record.error("after"):
        sess.run(one)


def program_threads(record):
    """Many threads call run at once; each sees its own values and the sum is exact."""
    v, _ = counter()
    x = tf.placeholder(tf.float32, [], name="x")
    step = tf.assign_add(v, x, use_locking=True)
    y = tf.sqrt(x * x) * 2.0
    results = {}
    with tf.Session() as sess:
        sess.run(v.initializer)

        def work(n):
            results[n] = [float(sess.run(y, {x: n + k})) for k in range(30)]
            for _ in range(30):
                sess.run(step.op, {x: 1.0})

        threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        record.value("results", {n: results[n] for n in sorted(results)})
        record.value("sum", sess.run(v))


def program_extended_by_threads(record):
    """One thread runs while another adds ops and runs them."""
    v, step = counter()
    graph = tf.get_default_graph()
    with tf.Session() as sess:
        sess.run(v.initializer)
        found = []

        def grow():
            with graph.as_default():
                for k in range(15):
                    found.append(float(sess.run(tf.constant(float(k)) * 2.0)))

        thread = threading.Thread(target=grow)
        thread.start()
        for _ in range(30):
            sess.run(step)
        thread.join()
        record.value("grown", found)
        record.value("steps", sess.run(v))


def program_reset(record):
    """Containers on a server: reset drops what they hold, also under an open session."""
    server = tf.train.Server.create_local_server()
    with tf.container("box"):
        v = tf.get_variable("v", [], initializer=tf.ones_initializer(), use_resource=False)
    step = tf.assign_add(v, 1.0)
    sess = tf.Session(server.target)
    sess.run(v.initializer)
    for k in range(8):
        record.value(f"{k}", sess.run(step))
    other = tf.Session(server.target)
    record.value("seen by another", other.run(v))
    tf.Session.reset(server.target, ["box"])
    with tf.Session(server.target) as fresh, record.error("gone"):
        fresh.run(v)
    with record.error("aborted"):
        sess.run(step)


def program_reset_all(record):
    """A session without state: its devices keep their numbers, and it is closed when the process resets its sessions."""
    x = tf.placeholder(tf.float32, [3])
    y = tf.exp(tf.sin(x)) * x + tf.cos(x)
    sess = tf.Session()
    numbers = {d.name: d.incarnation for d in sess.list_devices()}
    for k in range(4):
        record.value(f"{k}", sess.run(y, {x: [k, 2.0, 3.0]}))
    record.value("same", all(numbers[d.name] == d.incarnation for d in sess.list_devices()))
    unused = tf.Session()
    tf.Session.reset("")
    for k in range(4):
        with record.error(f"closed {k}"):
            sess.run(y, {x: [k, 2.0, 3.0]})
    with record.error("closed before its first run"):
        unused.run(y, {x: [1.0, 2.0, 3.0]})
    with record.error("more of the graph"):
        sess.run(tf.square(y), {x: [1.0, 2.0, 3.0]})
    with record.error("a callable"):
        sess._make_callable_from_options(config_pb2.CallableOptions(feed=[x.name], fetch=[y.name]))
    with record.error("a partial run"):
        sess.partial_run_setup([y], [x])
    record.value("still listed", all(numbers[d.name] == d.incarnation for d in sess.list_devices()))
    sess.close()
    with record.error("not any more"):
        sess.list_devices()
