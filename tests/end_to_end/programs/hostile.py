"""What a program may do to find out, or to get in the way: names, lifetimes, nested runs, patched sessions, corners of the config."""

import gc
import inspect
import threading
import weakref
from unittest import mock

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.client import session as session_lib


def model(scale=1.0):
    x = tf.placeholder(tf.float32, [2, 3], name="x")
    w = tf.get_variable("w", [3, 2], initializer=tf.glorot_uniform_initializer(seed=3))
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - scale), name="loss")
    return x, w, loss, tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)


def feed(k):
    return np.sin(np.arange(6.0) + k).reshape(2, 3)


def program_names(record):
    """Ops that are named as a tool beneath might name its own."""
    x = tf.placeholder(tf.float32, [2], name="stepd_1/x")
    w = tf.Variable([1.0, 2.0], name="w-stepd_1")
    u = tf.Variable([1.0, 2.0], name="stepd_2/w", use_resource=True)
    y = tf.multiply(x, w, name="y-stepd_2-part0")
    z = tf.add(y, u, name="stepd_alias_0")
    with tf.name_scope("stepd_0"):
        out = tf.reduce_sum(z, name="sum-stepd_3")
    step = tf.group(tf.assign_add(w, [0.5, 0.25]), u.assign_add(x))
    bad = tf.reshape(tf.identity(z, name="z-stepd_9"), tf.cast(x[:1] * 0.0 + 3.0, tf.int32), name="impossible-stepd_4")
    with tf.Session() as sess:
        with record.error("not yet"):
            sess.run(y, {x: [1.0, 2.0]})
        sess.run(w.initializer)
        with record.error("nor this"):
            sess.run(z, {x: [1.0, 2.0]})
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            record.value(f"{k}", sess.run([out, z, w, u], {x: [k, 1.0]}))
            sess.run(step, {x: [k, 1.0]})
            if k % 3 == 1:
                with record.error(f"bad {k}"):
                    sess.run(bad, {x: [k, 1.0]})
            late = tf.multiply(z, float(k), name=f"late-stepd_{k}")
            record.value(f"late {k}", sess.run(f"late-stepd_{k}:0", {x: [k, 2.0]}))
        record.checkpoint("saved", tf.train.Saver().save(sess, "model-stepd_1"))
    del late
    record.graph("graph")


def program_lifetimes(record):
    """Sessions and graphs go when the program lets go of them."""
    graph = tf.Graph()
    with graph.as_default():
        x, w, loss, train = model()
        sess = tf.Session()
        sess.run(tf.global_variables_initializer())
        for k in range(8):
            record.value(f"{k}", sess.run([loss, train], {x: feed(k)})[0])
    one = weakref.ref(sess)
    call = sess.make_callable(loss, [x])
    record.value("called", [call(feed(k)) for k in range(5)])
    del call, sess
    gc.collect()
    record.value("the session is gone", one() is None)
    whole = weakref.ref(graph)
    del graph, x, w, loss, train
    gc.collect()
    record.value("the graph is gone", whole() is None)


def program_nested(record):
    """A run of the same session, and of another one, from inside a run."""
    x, w, loss, train = model()
    config = tf.ConfigProto(inter_op_parallelism_threads=4, use_per_session_threads=True)  # others may be left without a thread
    sess, other = tf.Session(config=config), tf.Session(config=config)
    doubled = w * 2.0

    def inside(value):
        return np.float32(value + sess.run(doubled).sum() + other.run(doubled).sum())

    outer = tf.py_func(inside, [tf.reduce_sum(x)], tf.float32, stateful=True)
    with sess, other:
        for one in (sess, other):
            one.run(tf.global_variables_initializer())
        for k in range(9):
            record.value(f"{k}", sess.run(outer, {x: feed(k)}))
            record.value(f"loss {k}", [sess.run([loss, train], {x: feed(k)})[0], other.run(loss, {x: feed(k)})])


def program_patched(record):
    """Sessions that a program, or a test framework, wraps, subclasses or patches."""
    x, w, loss, train = model()
    seen = []

    class Logging(tf.Session):
        def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
            seen.append(len(inspect.stack()) > 0)
            return super().run(fetches, feed_dict, options, run_metadata)

    class Wrapped:
        def __init__(self, inner):
            self._inner = inner

        def __getattr__(self, name):
            return getattr(self._inner, name)

    with Logging() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(8):
            record.value(f"{k}", Wrapped(sess).run([loss, train], {x: feed(k)})[0])
        run = session_lib.BaseSession.run
        with mock.patch.object(session_lib.BaseSession, "run", lambda self, *a, **k: ["patched", run(self, *a, **k)]):
            record.value("patched", sess.run(loss, {x: feed(0)}))
        call = session_lib.BaseSession._call_tf_sessionrun
        with mock.patch.object(session_lib.BaseSession, "_call_tf_sessionrun", lambda self, *a: seen.append(1) or call(self, *a)):
            for k in range(4):
                record.value(f"below {k}", sess.run([loss, train], {x: feed(k)})[0])
    record.value("seen", len(seen))


def program_feeds(record):
    """Tensors in the middle of the graph are fed: variables' reads, gradients, one of two outputs; what is fed is fetched."""
    x, w, loss, train = model()
    squares = tf.square(x, name="squares")
    parts = tf.split(squares, [1, 2], axis=1)
    total = tf.reduce_sum(parts[0]) + tf.reduce_sum(parts[1]) * 2.0
    read = tf.identity(w)
    (gradient,) = tf.gradients(loss, [w])
    scaled = gradient * 3.0
    step = tf.assign_sub(w, scaled)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(8):
            record.value(f"middle {k}", sess.run([total, squares], {squares: feed(k)}))
            record.value(f"one output {k}", sess.run([total, *parts], {x: feed(k), parts[1]: np.ones((2, 2))}))
            record.value(f"both {k}", sess.run(total, {parts[0]: [[1], [k]], parts[1]: np.zeros((2, 2))}))
            record.value(f"variable {k}", sess.run([read, loss], {w: np.full((3, 2), k), x: feed(k)}))
            record.value(f"gradient {k}", sess.run([step, gradient], {gradient: np.full((3, 2), 0.125 * k)}))
            record.value(f"fed and fetched {k}", sess.run([x, "x:0"], {"x:0": feed(k)}))
            with record.error(f"not fed {k}"):
                sess.run([total, train], {squares: feed(k)})


def program_handles_fetched(record):
    """Values that name devices and resources."""
    v = tf.get_variable("v", [2], initializer=tf.ones_initializer(), use_resource=True)
    add = tf.raw_ops.AssignAddVariableOp(resource=v.handle, value=[1.0, 2.0])
    data = tf.data.make_initializable_iterator(tf.data.Dataset.range(100))
    name = data.string_handle()
    with tf.Session() as sess:
        sess.run([v.initializer, data.initializer])
        for k in range(8):
            record.value(f"string {k}", sess.run(name)[:40])
            record.value(f"handle {k}", type(sess.run(v.handle)).__name__)
            sess.run(add)
            record.value(f"value {k}", sess.run([v, data.get_next()]) if k < 5 else sess.run(v))


def program_static_graph(record):
    """A session that promises never to extend its graph, and sessions with everything else that a config may ask."""
    x, w, loss, train = model()
    init = tf.global_variables_initializer()
    rewriting = tf.GraphOptions(place_pruned_graph=False, infer_shapes=True)
    configs = {
        "static": tf.ConfigProto(experimental={"optimize_for_static_graph": True}),
        "no partitions": tf.ConfigProto(experimental={"disable_output_partition_graphs": True}),
        "one thread": tf.ConfigProto(inter_op_parallelism_threads=1, intra_op_parallelism_threads=1),
        "own threads": tf.ConfigProto(use_per_session_threads=True, graph_options=rewriting),
        "pruned": tf.ConfigProto(graph_options=tf.GraphOptions(place_pruned_graph=True)),
        "caller": tf.ConfigProto(inter_op_parallelism_threads=-1),
        "local": tf.ConfigProto(experimental={"executor_type": ""}),
        "isolated": tf.ConfigProto(isolate_session_state=True),
    }
    for name, config in configs.items():
        with tf.Session(config=config) as sess:
            sess.run(init)
            for k in range(7):
                record.value(f"{name} {k}", sess.run([loss, train], {x: feed(k)})[0])
    extra = tf.constant(1.0)
    with tf.Session(config=configs["static"]) as sess:
        record.value("one", sess.run(extra))
        more = extra + 1.0
        with record.error("extended"):
            sess.run(more)
        with record.error("again"):
            sess.run(extra)


def program_executors(record):
    x, w, loss, train = model()
    for name in ("SINGLE_THREADED_EXECUTOR", "no such executor"):
        with tf.Session(config=tf.ConfigProto(experimental={"executor_type": name})) as sess, record.error(name):
            sess.run(tf.global_variables_initializer())
            for k in range(8):
                record.value(f"{name} {k}", sess.run([loss, train], {x: feed(k)})[0])


def program_debugged(record):
    """The debugger's wrapper watches tensors by the names of their ops, and dumps them into files of those names."""
    import os

    from tensorflow.python.debug.lib import debug_utils

    x, w, loss, train = model()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(8):
            options = tf.RunOptions()
            debug_utils.add_debug_tensor_watch(options, "loss", debug_urls=[f"file://{os.getcwd()}/dump{k}"])
            record.value(f"{k}", sess.run([loss, train], {x: feed(k)}, options, tf.RunMetadata())[0])
            found = [
                os.path.join(os.path.relpath(folder, f"dump{k}"), file.rsplit("_", 1)[0])
                for folder, _, files in os.walk(f"dump{k}")
                for file in files
                if file.startswith("loss")
            ]
            record.value(f"dumped {k}", sorted(found))


def program_mutex(record):
    """Critical sections and mutexes, which are state that an op holds while others wait."""
    section = tf.CriticalSection(name="section")
    v = tf.get_variable("v", [], initializer=tf.zeros_initializer(), use_resource=True)
    x = tf.placeholder(tf.float32, [], name="x")

    def body():
        with tf.control_dependencies([v.assign_add(x)]):
            return tf.identity(v.read_value())

    step = section.execute(body)
    with tf.Session() as sess:
        sess.run(v.initializer)
        totals = []

        def work():
            for _ in range(12):
                totals.append(float(sess.run(step, {x: 1.0})))

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        record.value("totals", sorted(totals))
        record.value("v", sess.run(v))


def program_churn(record):
    """Sessions that open while others run, close while others switch, and are dropped without a close."""
    x, w, loss, train = model()
    init = tf.global_variables_initializer()
    finals = [None] * 4

    def work(slot):
        for turn in range(4):
            sess = tf.Session(graph=loss.graph)
            sess.run(init)
            for k in range(5):
                value = sess.run([loss, train], {x: feed(k)})[0]
            finals[slot] = value
            if turn % 2:
                sess.close()
            del sess

    threads = [threading.Thread(target=work, args=(slot,)) for slot in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    record.value("finals", finals)


def program_closed_under_runs(record):
    """A session is closed by another thread while runs go on, again and again: each run is done or says that it was not."""
    x, w, loss, train = model()
    init = tf.global_variables_initializer()
    kinds, alive = set(), []
    for turn in range(6):
        sess = tf.Session()
        sess.run(init)
        begun = threading.Event()

        def work(sess=sess, begun=begun, turn=turn):
            try:
                for k in range(100000):
                    sess.run([loss, train], {x: feed(k)})
                    if k == 4 + turn:
                        begun.set()
            except Exception as error:
                kinds.add(type(error).__name__)

        thread = threading.Thread(target=work)
        thread.start()
        begun.wait(60)
        sess.close()
        thread.join(60)
        alive.append(thread.is_alive())
        with record.error(f"afterwards {turn}"):
            sess.run(loss, {x: feed(0)})
    record.value("ends", [sorted(kinds - {"CancelledError", "RuntimeError"}), alive])
