"""Callables taken from a session before and after it did other things."""

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.core.protobuf import config_pb2


def build():
    x = tf.placeholder(tf.float32, [2, 2], name="x")
    w = tf.get_variable("w", [2, 2], initializer=tf.random_normal_initializer(seed=3))
    y = tf.nn.tanh(tf.matmul(x, w), name="y")
    noise = tf.nn.dropout(y, rate=0.5, seed=11)
    train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_sum(y * noise))
    return x, w, y, noise, train


def program_make_callable(record):
    x, w, y, noise, train = build()
    data = np.arange(4, dtype=np.float32).reshape(2, 2)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        single = sess.make_callable(y, feed_list=[x])
        nested = sess.make_callable({"y": y, "n": [noise, w]}, feed_list=[x])
        update = sess.make_callable(train, feed_list=[x])
        weights = sess.make_callable(w)
        several = sess.make_callable([y, train], feed_list=["x:0"], accept_options=True)
        for k in range(15):
            record.value(f"single {k}", single(data + k))
            record.value(f"nested {k}", nested(data))
            record.value(f"update {k}", update(data))
            record.value(f"weights {k}", weights())
            record.value(f"run {k}", sess.run([y, w], {x: data}))
            meta = tf.RunMetadata()
            options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
            record.value(f"options {k}", several(data, options=options, run_metadata=meta)[0])
            record.value(f"traced {k}", len(meta.step_stats.dev_stats) > 0)
            if k == 7:
                late = sess.make_callable([noise, y], feed_list=[x])
            if k > 7:
                record.value(f"late {k}", late(data))
        with record.error("too few"):
            single()
        with record.error("bad shape"):
            single(np.zeros((5, 5), np.float32))
        with record.error("bad type"):
            single([["a", "b"], ["c", "d"]])
    with record.error("after close"):
        single(data)
    record.graph("graph")


def program_connected(record):
    """What is fed is a value of the graph, as Keras feeds symbolic inputs: a variable's, a reference's, a sum, a constant."""
    x, start = tf.placeholder(tf.float32, [2, 2], name="x"), tf.random_normal_initializer(seed=5)
    w = tf.get_variable("w", [2, 2], initializer=tf.random_normal_initializer(seed=3))
    y = tf.nn.tanh(tf.matmul(x, w), name="y")
    train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_sum(y * y))
    held = tf.get_variable("held", [2, 2], initializer=start, use_resource=True)
    ref = tf.get_variable("ref", [2, 2], initializer=start, use_resource=False)
    total = tf.add_n([tf.tanh(held), held * 0.3, tf.sin(ref)])
    values = [held.read_value(), tf.identity(ref), total, tf.constant(1.5, shape=[2, 2])]
    written = tf.group(held.assign_add(tf.ones([2, 2])), ref.assign(ref * 0.5))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        steps = []
        for value in values:
            options = config_pb2.CallableOptions(fetch=["y:0", w.name], target=[train.name])
            options.tensor_connection.add(from_tensor=value.name, to_tensor=x.name)
            steps.append(sess._make_callable_from_options(options))
        for k in range(6):
            for number, step in enumerate(steps):
                record.value(f"{number} {k}", step())
            sess.run(written)
        record.value("variables", sess.run(tf.global_variables()))
        for ends in (
            {"from_tensor": "nowhere:0", "to_tensor": x.name},
            {"from_tensor": "held/Read/ReadVariableOp:0", "to_tensor": "none:0"},
        ):
            options = config_pb2.CallableOptions(fetch=["y:0"])
            options.tensor_connection.add(**ends)
            with record.error(f"unknown {sorted(ends.values())}"):
                sess._make_callable_from_options(options)()
        options = config_pb2.CallableOptions(fetch=["y:0"], feed=[x.name])
        options.tensor_connection.add(from_tensor=values[0].name, to_tensor=x.name)
        with record.error("fed and connected"):
            sess._make_callable_from_options(options)(np.ones((2, 2), np.float32))


def program_from_options(record):
    x, w, y, noise, train = build()
    data = np.ones((2, 2), np.float32)
    options = config_pb2.CallableOptions(feed=["x:0"], fetch=["y:0", noise.name, w.name], target=[train.name])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        early = sess._make_callable_from_options(options)
        for k in range(14):
            record.value(f"early {k}", early(data * k))
            record.value(f"run {k}", sess.run(y, {x: data}))
            if k == 6:
                late = sess._make_callable_from_options(options)
            if k > 6:
                record.value(f"late {k}", late(data * k))
                meta = tf.RunMetadata()
                record.value(f"with metadata {k}", late(data, run_metadata=meta))
        with record.error("bad shape"):
            early(np.zeros((5, 5), np.float32))
        wrong = config_pb2.CallableOptions(feed=["nowhere:0"], fetch=["y:0"])
        with record.error("unknown"):
            sess._make_callable_from_options(wrong)
        twice = config_pb2.CallableOptions(feed=["x:0", "x:0"], fetch=["y:0"])
        with record.error("fed twice"):
            sess._make_callable_from_options(twice)
        again = sess._make_callable_from_options(options)
        record.value("again", again(data))
        del early, late


def program_extended(record):
    x, w, y, _noise, train = build()
    data = np.ones((2, 2), np.float32)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        first = sess.make_callable([y, train], feed_list=[x])
        for k in range(10):
            record.value(f"first {k}", first(data))
            extra = tf.reduce_sum(y * w, name=f"extra{k}")
            record.value(f"extra {k}", sess.make_callable(extra, feed_list=[x])(data))
            record.value(f"run {k}", sess.run([extra, f"extra{k // 2}:0"], {x: data}))
    record.graph("graph")


def program_many(record):
    x, w, y, _noise, _train = build()
    data = np.ones((2, 2), np.float32)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(60):
            one = sess.make_callable(y, feed_list=[x])
            record.value(f"{k}", one(data * k))
            del one
        made = [sess.make_callable(w + float(k)) for k in range(20)]
        record.value("all", [one() for one in made])
    del made
