"""The user's own RunOptions and RunMetadata: traces, partition graphs, cost graphs, timeouts."""

import threading
import time

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.core.protobuf import rewriter_config_pb2
from tensorflow.python.framework import function


def config(**more):
    """No graph rewriting, so that a trace names the program's ops and nothing else."""
    rewrite = rewriter_config_pb2.RewriterConfig(disable_meta_optimizer=True)
    options = tf.OptimizerOptions(opt_level=tf.OptimizerOptions.L0)
    graph = tf.GraphOptions(rewrite_options=rewrite, optimizer_options=options)
    return tf.ConfigProto(graph_options=graph, **more)


def names_of(metadata):
    names = {node.node_name for dev in metadata.step_stats.dev_stats for node in dev.node_stats}
    return sorted(name for name in names if not name.startswith("_"))


def program_trace(record):
    x = tf.placeholder(tf.float32, [4, 4], name="x")
    v = tf.get_variable("v", [4, 4], initializer=tf.ones_initializer())
    with tf.name_scope("tower"):
        y = tf.matmul(tf.nn.relu(tf.matmul(x, v)), v, name="y")
    known = {op.name for op in tf.get_default_graph().get_operations()}
    with tf.Session(config=config()) as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(9):
            meta = tf.RunMetadata()
            options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE, output_partition_graphs=True)
            record.value(f"value {k}", sess.run(y, {x: [[float(k)] * 4] * 4}, options, meta))
            names = names_of(meta)
            record.value(f"the user's ops {k}", sorted(known & set(names)))
            others = [n for n in names if n.split(":")[0] not in known and "/_" not in n and "Recv" not in n]
            record.value(f"others {k}", [n for n in others if "edge_" not in n])
            graphs = {n.name for graph in meta.partition_graphs for n in graph.node if "/_" not in n.name}
            record.value(f"partitions {k}", sorted(graphs & known))
            labels = {
                n.timeline_label.split(" = ")[0]
                for dev in meta.step_stats.dev_stats
                for n in dev.node_stats
                if " = " in n.timeline_label
            }
            record.value(f"labels {k}", sorted(labels & known))
            for level in (tf.RunOptions.NO_TRACE, tf.RunOptions.SOFTWARE_TRACE, tf.RunOptions.HARDWARE_TRACE):
                meta = tf.RunMetadata()
                value = sess.run(y, {x: [[1.0] * 4] * 4}, tf.RunOptions(trace_level=level), meta)
                record.value(f"level {level} {k}", [value, bool(meta.step_stats.dev_stats)])
            meta = tf.RunMetadata()
            record.value(f"only metadata {k}", [sess.run(y, {x: [[1.0] * 4] * 4}, run_metadata=meta), str(meta)])
            record.value(f"plain {k}", sess.run(y, {x: [[float(k)] * 4] * 4}))
    record.graph("graph")


def program_timeout(record):
    queue = tf.FIFOQueue(2, tf.int32, name="queue")
    take = queue.dequeue(name="take")
    put = queue.enqueue(7)
    with tf.Session() as sess:
        for k in range(4):
            with record.error(f"deadline {k}"):
                sess.run(take, options=tf.RunOptions(timeout_in_ms=40))
            sess.run(put)
            record.value(f"took {k}", sess.run(take, options=tf.RunOptions(timeout_in_ms=20000)))
    with tf.Session(config=tf.ConfigProto(operation_timeout_in_ms=40)) as sess:
        for k in range(4):
            with record.error(f"session deadline {k}"):
                sess.run(take)
            sess.run(put)
            record.value(f"session took {k}", sess.run(take))


def program_deadlines(record):
    """Time limits of runs and of sessions over queues: those that fire take and put nothing, those that do not change nothing."""
    queue = tf.FIFOQueue(2, tf.int32, shapes=[[]], name="queue")
    n = tf.placeholder(tf.int32, [], name="n")
    put, take, pair = queue.enqueue(n * 3, name="put"), queue.dequeue(name="take"), queue.dequeue_many(2, name="pair")
    size = queue.size()
    v = tf.get_variable("v", [], tf.int32, tf.zeros_initializer(), use_resource=True)
    step = v.assign_add(n)
    short, long = tf.RunOptions(timeout_in_ms=30), tf.RunOptions(timeout_in_ms=60000)
    with tf.Session() as sess:
        sess.run(v.initializer)
        for k in range(5):
            with record.error(f"nothing to take {k}"):
                sess.run(take, options=short)
            for j in range(2):
                sess.run(put, {n: 10 * k + j}, options=long)
            with record.error(f"no room {k}"):
                sess.run(put, {n: -1}, options=short)
            record.value(f"full {k}", sess.run(size))
            record.value(f"taken {k}", sess.run(pair if k % 2 else [take, take][:1], options=long))
            if not k % 2:
                record.value(f"second {k}", sess.run(take))
            record.value(f"step {k}", sess.run(step, {n: k}, options=long, run_metadata=tf.RunMetadata()))
        callable_ = sess.make_callable(step, [n], accept_options=True)
        record.value("callable", [callable_(k, options=long) for k in range(6)])
    with tf.Session(config=tf.ConfigProto(operation_timeout_in_ms=50)) as sess:
        sess.run(v.initializer)
        for k in range(4):
            for j in range(2):
                sess.run(put, {n: 10 * k + j})
            with record.error(f"session: no room {k}"):
                sess.run(put, {n: -1})
            record.value(f"session: taken {k}", [sess.run(take), sess.run(take)])
            with record.error(f"session: nothing to take {k}"):
                sess.run(take)
            record.value(f"session: step {k}", sess.run(step, {n: k}))


def program_deadlines_of_threads(record):
    """Threads with time limits, blocked in both ends of queues while the main thread steps, and so while switches are due."""
    full, empty = tf.FIFOQueue(1, tf.int32, shapes=[[]]), tf.FIFOQueue(1, tf.int32, shapes=[[]])
    n = tf.placeholder(tf.int32, [], name="n")
    put, take, wait = full.enqueue(n + 0, name="put"), full.dequeue(), empty.dequeue(name="wait")
    v = tf.get_variable("v", [], tf.int32, tf.zeros_initializer())
    step = tf.assign_add(v, 1)
    heard = []

    def blocked(sess, op, feed, milliseconds):
        try:
            sess.run(op, feed, options=tf.RunOptions(timeout_in_ms=milliseconds))
            heard.append("done")
        except tf.errors.OpError as error:
            heard.append((type(error).__name__, error.message))

    with tf.Session() as sess:
        sess.run(v.initializer)
        sess.run(put, {n: 7})
        for turn in range(3):
            threads = [
                threading.Thread(target=blocked, args=(sess, put, {n: 100 + turn}, 400)),
                threading.Thread(target=blocked, args=(sess, wait, {}, 400)),
            ]
            for thread in threads:
                thread.start()
            steps = 0
            while any(thread.is_alive() for thread in threads):
                sess.run(step)
                steps += 1
            record.value(f"heard {turn}", sorted(map(str, heard)))
            record.value(f"left {turn}", [sess.run(full.size()), sess.run(v) > 0, steps > 0])
            sess.run(v.initializer)
        late = threading.Thread(target=blocked, args=(sess, put, {n: 200}, 60000))
        late.start()
        for k in range(6):
            record.value(f"step {k}", sess.run(step))
        record.value("taken", [sess.run(take), sess.run(take)])
        late.join(60)
        record.value("in time", heard[-1])


def program_options(record):
    x = tf.placeholder(tf.float32, [2], name="x")
    y = tf.reduce_sum(x * 2.0)
    config_ = tf.ConfigProto(inter_op_parallelism_threads=2, session_inter_op_thread_pool=[{"num_threads": 2}, {}])
    with tf.Session(config=config_) as sess:
        for k in range(6):
            for options in (
                tf.RunOptions(inter_op_thread_pool=1),
                tf.RunOptions(inter_op_thread_pool=-1),
                tf.RunOptions(report_tensor_allocations_upon_oom=True),
                tf.RunOptions(experimental={"use_run_handler_pool": True}),
            ):
                record.value(f"{options} {k}", sess.run(y, {x: [k, 1]}, options))
        with record.error("no such pool"):
            sess.run(y, {x: [1, 1]}, tf.RunOptions(inter_op_thread_pool=9))
        with record.error("no options"):
            sess.run(y, {x: [1, 1]}, options="wrong")


def program_cost_model(record):
    x = tf.placeholder(tf.float32, [8, 8], name="x")
    y = tf.matmul(x, x, name="y")
    options = tf.GraphOptions(build_cost_model=1)
    with tf.Session(config=tf.ConfigProto(graph_options=options)) as sess:
        for k in range(6):
            meta = tf.RunMetadata()
            record.value(f"{k}", sess.run(y, {x: [[float(k)] * 8] * 8}, run_metadata=meta))
            names = {n.name for n in meta.cost_graph.node if "/_" not in n.name and not n.name.startswith("_")}
            record.value(f"costs {k}", sorted(names & {"x", "y"}))


def program_counted_cost_model(record):
    """A cost model after some runs and then every few: a session counts its runs, whatever else happens to it."""
    x = tf.placeholder(tf.float32, [8, 8], name="x")
    y = tf.matmul(tf.tanh(x), x, name="y")
    options = tf.GraphOptions(build_cost_model=3, build_cost_model_after=4)
    with tf.Session(config=tf.ConfigProto(graph_options=options)) as sess:
        there = []
        for k in range(14):
            meta = tf.RunMetadata()
            record.value(f"{k}", sess.run(y, {x: [[float(k)] * 8] * 8}, run_metadata=meta))
            there.append(meta.HasField("cost_graph"))
        record.value("cost graphs", there)


def program_collectives(record):
    """Steps whose options say by which key the collectives of a graph meet, beside a variable that is updated."""
    from tensorflow.python.ops import collective_ops

    x, v = tf.placeholder(tf.float32, [2]), tf.get_variable("v", initializer=[1.0, 1.0])
    options, reduced = tf.RunOptions(), []
    options.experimental.collective_graph_key = 3
    for k in range(2):
        with tf.device(f"/cpu:{k}"):
            reduced.append(collective_ops.all_reduce(tf.tanh(x + k), 2, 3, 4, "Add", "Id"))
    with tf.control_dependencies(reduced):
        update = v.assign_add(reduced[0] * 0.5)
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(3):
            record.value(f"before {k}", sess.run(v))
        for k in range(6):
            record.value(f"{k}", sess.run([reduced, update], {x: [k, 1]}, options=options)[0])
        record.value("v", sess.run(v))


def program_limits(record):
    """Time limits of steps that compute, or are in Python, when they fire: what such a step updates is updated all the same."""
    x = tf.placeholder(tf.float32, [4, 3], name="x")
    slow = tf.py_func(lambda a: (time.sleep(0.15), a * np.float32(2.0))[1], [x], tf.float32)
    slow.set_shape([4, 3])
    w = tf.get_variable("w", [3, 2], initializer=tf.ones_initializer(), use_resource=True)
    v = tf.get_variable("v", [4, 3], initializer=tf.zeros_initializer(), use_resource=True)
    loss = tf.reduce_mean(tf.square(tf.tanh(tf.matmul(slow, w)) - 0.5))
    train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    step = tf.group(train, v.assign_add(slow))
    queue = tf.FIFOQueue(2, tf.float32, [[]])
    taken = queue.dequeue()
    short, long = tf.RunOptions(timeout_in_ms=20), tf.RunOptions(timeout_in_ms=60000)
    for config in (None, tf.ConfigProto(operation_timeout_in_ms=25)):
        with tf.Session(config=config) as sess:
            sess.run(tf.global_variables_initializer(), options=long)
            for k in range(9):
                feeds = {x: np.linspace(-1, 1, 12).reshape(4, 3) * (k + 1)}
                with record.error(f"{k}"):
                    record.value(f"{k} got", sess.run([loss, step], feeds, options=(short, long, None)[k % 3])[0])
                if k % 4 == 3:
                    with record.error(f"{k} waits"):
                        sess.run(taken, options=short)
                record.value(f"{k}", sess.run(tf.global_variables(), options=long))


def program_loops(record):
    """Time limits of steps with loops, which end with them, also one that would never end."""
    n = tf.placeholder(tf.int32, [], name="n")
    start = tf.ones([32, 32])
    looped = tf.while_loop(lambda i, h: i < n, lambda i, h: (i + 1, tf.tanh(h * 1.1)), [0, start], back_prop=False)[1]
    done = tf.get_variable("done", [], initializer=tf.zeros_initializer(), use_resource=True)
    counted = done.assign_add(1.0 + 0.0 * tf.reduce_mean(looped))
    short, long = tf.RunOptions(timeout_in_ms=40), tf.RunOptions(timeout_in_ms=60000)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer(), options=long)
        for k in range(9):
            with record.error(f"{k} looped"):
                sess.run(counted, {n: 2**31 - 1 if k % 3 == 2 else 3}, options=short if k % 3 == 2 else long)
            record.value(f"{k}", sess.run(done, options=long))


def program_no_memory(record):
    """What is said where memory does not suffice: in the graph, in a function, by Python."""
    x, n = tf.placeholder(tf.float32, [4], name="x"), tf.placeholder(tf.int64, [], name="n")

    @function.Defun(tf.int64, noinline=True)
    def apart(size):
        return tf.fill([size], 1.0)

    def raises(value):
        raise MemoryError("no room")

    fails = [tf.fill([n], 1.0), apart(n), tf.py_func(raises, [x], tf.float32)]
    done = tf.reduce_sum(x)
    with tf.Session() as sess:
        for k in range(9):
            record.value(f"{k}", sess.run(done, {x: np.full(4, k)}))
            with record.error(f"{k} failed"):
                sess.run(fails[k % 3], {x: np.ones(4), n: 1 << 46}, tf.RunOptions(timeout_in_ms=60000) if k % 2 else None)
