"""Summaries and what the event files hold."""

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import summary_ops_v2


def program_writer(record):
    x = tf.placeholder(tf.float32, [8], name="x")
    step = tf.train.get_or_create_global_step()
    with tf.name_scope("watch"):
        tf.summary.scalar("mean", tf.reduce_mean(x))
        tf.summary.histogram("values", x)
        tf.summary.text("words", tf.as_string(x))
        tf.summary.image("picture", tf.reshape(tf.concat([x, x], 0), [1, 4, 4, 1]))
        tf.summary.audio("sound", tf.reshape(x, [1, 8]), 8)
    merged = tf.summary.merge_all()
    bump = tf.assign_add(step, 1)
    with tf.Session() as sess, tf.summary.FileWriter("log", sess.graph) as writer:
        sess.run(tf.global_variables_initializer())
        for k in range(9):
            summary, at, _ = sess.run([merged, step, bump], {x: np.linspace(0, k, 8)})
            record.value(f"{k}", summary)
            writer.add_summary(summary, k)
            if k % 4 == 0:
                meta = tf.RunMetadata()
                sess.run(merged, {x: np.ones(8)}, tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), meta)
                writer.add_run_metadata(meta, f"step{k}", k)
            del at
        writer.add_graph(sess.graph, 9)
        writer.add_meta_graph(tf.train.export_meta_graph())
        writer.add_session_log(tf.SessionLog(status=tf.SessionLog.START), 3)
    record.events("events", "log")
    record.graph("graph")


def program_writers_v2(record):
    writer = tf.compat.v2.summary.create_file_writer("log2", flush_millis=1000)
    step = tf.train.get_or_create_global_step()
    with writer.as_default(step=step), tf.compat.v2.summary.record_if(True):
        with tf.control_dependencies([summary_ops_v2.scalar("loss", tf.cast(step, tf.float32) * 0.5)]):
            summary_ops_v2.histogram("noise", tf.random_normal([4], seed=2))
    bump = tf.assign_add(step, 1)
    ops = tf.summary.all_v2_summary_ops()
    with tf.Session() as sess:
        sess.run([step.initializer, writer.init()])
        for k in range(8):
            record.value(f"{k}", sess.run(ops))
            sess.run(bump)
        sess.run(writer.flush())
        sess.run(writer.close())
    record.events("events", "log2")


def program_write_graph(record):
    v = tf.get_variable("v", [2], initializer=tf.ones_initializer())
    y = tf.reduce_sum(v * 3.0, name="y")
    with tf.Session() as sess:
        sess.run(v.initializer)
        for k in range(5):
            record.value(f"{k}", sess.run(y))
        for name, graph in (("graph.pb", sess.graph_def), ("graph.pbtxt", sess.graph)):
            tf.train.write_graph(graph, "out", name, as_text=name.endswith("txt"))
            with open(f"out/{name}", "rb") as file:
                record.value(name, file.read())
        frozen = tf.graph_util.convert_variables_to_constants(sess, tf.get_default_graph().as_graph_def(), ["y"])
        record.proto("frozen", frozen)
        record.value("freeze again", sess.run(y))
    with tf.Graph().as_default():
        (z,) = tf.import_graph_def(frozen, return_elements=["y:0"])
        with tf.Session() as sess:
            record.value("thawed", [sess.run(z) for _ in range(4)])
