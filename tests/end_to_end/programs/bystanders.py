"""What stands around a training loop and looks at it: threads that are counted, clocks that are replaced, random states, tracers, mocks."""

import copy
import gc
import pickle
import random
import sys
import threading
import time
import weakref
from unittest import mock

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.client import session as session_lib


def model():
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    w = tf.get_variable("w", [3, 2], initializer=tf.glorot_uniform_initializer(seed=1), use_resource=True)
    loss = tf.reduce_mean(tf.square(tf.tanh(tf.matmul(x, w)) - 0.5), name="loss")
    return x, loss, tf.train.AdamOptimizer(0.05).minimize(loss)


def feed(k):
    return np.random.RandomState(k).randn(4, 3)


def program_joined(record):
    """Every thread that there is but this one is joined, as old programs end; before that they are counted."""
    x, loss, train = model()
    queue = tf.FIFOQueue(3, tf.float32, shapes=[[]], name="queue")
    put, take = queue.enqueue(tf.reduce_sum(x)), queue.dequeue()
    before = threading.active_count()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        workers = [threading.Thread(target=lambda: [sess.run(take) for _ in range(6)], name=f"mine {k}") for k in range(2)]
        for worker in workers:
            worker.start()
        for k in range(12):
            record.value(f"{k}", sess.run([loss, put, train], {x: feed(k)})[0])
        for thread in threading.enumerate():
            if thread is not threading.main_thread() and "watch" not in thread.name:  # that of run.py
                thread.join(30)
                if thread.is_alive():
                    record.value("does not end", thread.name)
        record.value("left", [threading.active_count() - before, sess.run(queue.size())])


def program_clocks(record):
    """Time that a test holds still, counts, or lets run out, while sessions train, save and block."""
    x, loss, train = model()
    queue = tf.FIFOQueue(1, tf.int32, shapes=[[]], name="queue")
    put, take = queue.enqueue(1), queue.dequeue()
    saver = tf.train.Saver()
    names = ("time", "sleep", "monotonic", "perf_counter", "time_ns", "monotonic_ns", "perf_counter_ns")
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        with mock.patch.multiple(time, **{name: mock.Mock(return_value=1000000) for name in names}):
            blocked = threading.Thread(target=lambda: [sess.run(take) for _ in range(8)])
            blocked.start()
            for k in range(8):
                record.value(f"still {k}", sess.run([loss, put, train], {x: feed(k)})[0])
            blocked.join()
            asked = {name: getattr(time, name).call_count for name in names}
        record.value("asked", asked)
        with mock.patch.object(time, "time", side_effect=[1.0, 2.0, 4.0]):
            for k in range(6):
                record.value(f"runs out {k}", sess.run([loss, train], {x: feed(k)})[0])
            record.value("times", [time.time() for _ in range(3)])
        with mock.patch.object(time, "sleep"):
            with tf.train.MonitoredSession(tf.train.ChiefSessionCreator(checkpoint_dir=None)) as other:
                record.value("other", [other.run(loss, {x: feed(k)}) for k in range(4)])
        saver.save(sess, "c", write_meta_graph=False)
    record.checkpoint("saved", "c")


def program_states(record):
    """The states of Python's and numpy's random numbers, and of floating point, are the program's."""
    x, loss, train = model()
    random.seed(5)
    np.random.seed(6)
    with np.errstate(all="raise"), tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            shuffled = list(range(5))
            random.shuffle(shuffled)
            value = sess.run([loss, train], {x: np.random.randn(4, 3) * random.random()})[0]
            record.value(f"{k}", [value, shuffled, random.getrandbits(40), np.random.randint(1000)])
        record.value("floating point", np.geterr())
    record.value("printing", {k: v for k, v in np.get_printoptions().items() if k in ("precision", "threshold", "linewidth")})


def program_instances(record):
    """What a session is made of, as far as a program can look: its attributes, its class, whether it can be copied, pickled, referred to."""
    x, loss, train = model()
    sess = tf.Session(config=tf.ConfigProto(inter_op_parallelism_threads=2))
    record.value("before", [sorted(vars(sess)), [name for name in dir(sess) if "step" in name.lower()]])
    sess.run(tf.global_variables_initializer())
    for k in range(6):
        record.value(f"{k}", sess.run([loss, train], {x: feed(k)})[0])
    record.value(
        "after",
        [sorted(vars(sess)), sys.getrefcount(sess), type(sess).__mro__[1].__name__, sess._closed, getattr(sess, "_opened", None)],
    )
    record.value("config", str(sess._config))
    for name, what in (("pickle", pickle.dumps), ("copy", copy.deepcopy)):
        with record.error(name):
            what(sess)
    record.value("graph", [sess.graph is tf.get_default_graph(), sess.sess_str, sess._target, type(sess._session).__name__])
    for k in range(6):
        record.value(f"later {k}", sess.run([loss, train], {x: feed(k)})[0])
    with sess as entered, tf.Session() as inner:
        record.value("nested", [entered is sess, tf.get_default_session() is inner])
        record.value("default", [loss.eval({x: feed(1)}, sess), tf.get_default_session() is inner])
        inner.run(tf.global_variables_initializer())
        record.value("of the inner", loss.eval({x: feed(1)}))
    died = []
    reference = weakref.ref(sess, lambda _: died.append("died"))
    del sess, entered
    gc.collect()
    record.value("gone", [reference() is None, died])


def program_traced(record):
    """A tracer in all threads, as coverage tools have it, and a profiler, as cProfile is one: what they see of the program's own code."""
    x, loss, train = model()
    lines, calls = [], []
    here = __file__

    def trace(frame, event, _):
        if frame.f_code.co_filename == here:
            lines.append(f"{event} {frame.f_code.co_name}")
        elif event == "call" and frame.f_back is None:
            calls.append(frame.f_code.co_filename.rsplit("/", 1)[-1])  # where a thread begins
        return trace if frame.f_code.co_filename == here else None

    def work(sess):
        return [sess.run([loss, train], {x: feed(k)})[0] for k in range(6)]

    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        threading.settrace(trace)
        sys.settrace(trace)
        try:
            values = work(sess)
        finally:
            sys.settrace(None)
            threading.settrace(None)
    record.value("values", values)
    record.value("lines", lines)
    record.value("beginnings", [name for name in calls if name.startswith("thread") or "stepd" in name])


def program_mocked(record):
    """Sessions in the hands of a mocking library: wrapped, specified, patched for some runs, made to fail once."""
    x, loss, train = model()
    with tf.Session() as sess:
        wrapped = mock.Mock(wraps=sess)
        wrapped.run(tf.global_variables_initializer())
        for k in range(6):
            record.value(f"wrapped {k}", wrapped.run([loss, train], feed_dict={x: feed(k)})[0])
        record.value("calls", [wrapped.run.call_count, len(wrapped.method_calls)])
        with mock.patch.object(session_lib.BaseSession, "run", autospec=True, side_effect=session_lib.BaseSession.run) as spy:
            for k in range(6):
                record.value(f"spied {k}", sess.run([loss, train], {x: feed(k)})[0])
            record.value("spy", [spy.call_count, spy.call_args_list[0].args[1][0] is loss])
        failing = [tf.errors.UnavailableError(None, None, "as the test wants it"), mock.DEFAULT, mock.DEFAULT]
        with mock.patch.object(tf.Session, "run", side_effect=failing, return_value="nothing"):
            with record.error("made to fail"):
                sess.run(loss)
            record.value("not run", sess.run(train))
        spec = mock.create_autospec(tf.Session)
        record.value("specified", sorted(name for name in dir(spec) if not name.startswith("_") and name in dir(tf.Session)))
        with record.error("wrong arguments"):
            spec().run(loss, nonsense=1)
        for k in range(4):
            record.value(f"last {k}", sess.run([loss, train], {x: feed(k)})[0])


def program_finalized(record):
    """What only the collector finds is finalized on the program's thread, and may take the lock under which its steps run."""
    x, loss, train = model()
    lock, local, gone = threading.RLock(), threading.local(), []
    local.gone = gone

    class Node:
        def __init__(self):
            self.me = self

        def __del__(self):
            with lock:
                local.gone.append(threading.current_thread().name)

    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(20):
            Node()
            with lock:
                record.value(f"{k}", sess.run([loss, train], {x: feed(k)})[0])
            record.value(f"collector {k}", gc.isenabled())
    gc.collect()
    record.value("gone", gone)
