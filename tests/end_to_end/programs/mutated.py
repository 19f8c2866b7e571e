"""Ops that the program changes after a session ran them: attributes, inputs, devices, control edges; and graphs that it closes."""

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.core.framework import attr_value_pb2


def changed(record, label, op, sess, fetch, change):
    """The value before the change, after it, in a new session, and after new ops were added."""
    for k in range(3):
        record.value(f"{label} before {k}", sess.run(fetch))
    with record.error(f"{label} change"):
        change(op)
    for k in range(4):
        with record.error(f"{label} after {k}"):
            record.value(f"{label} after {k}", sess.run(fetch))
    with record.error(f"{label} new session"), tf.Session() as other:
        for v in tf.global_variables():
            other.run(v.initializer)
        for k in range(4):
            record.value(f"{label} elsewhere {k}", other.run(fetch))
    more = tf.identity(fetch) + 1
    for k in range(4):
        with record.error(f"{label} more {k}"):
            record.value(f"{label} more {k}", sess.run([fetch, more]))
    record.value(f"{label} definition", str(op.node_def))


def program_inputs(record):
    a, b = tf.constant([1.0, 2.0], name="a"), tf.constant([5.0, 7.0], name="b")
    v = tf.get_variable("v", initializer=[0.5, 0.25], use_resource=True)
    y = tf.square(a, name="y") + v
    z = tf.multiply(y, 2.0, name="z")
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        changed(record, "input", y.op, sess, z, lambda op: op._update_input(0, b))
        other = tf.add(z, y, name="other")
        changed(record, "not run yet", other.op, sess, other, lambda op: op._update_input(1, a))
    record.graph("graph")


def program_attributes(record):
    x = tf.constant(np.arange(12, dtype="f").reshape(3, 4), name="x")
    w = tf.constant(np.arange(12, dtype="f").reshape(3, 4), name="w")
    y = tf.matmul(x, w, transpose_b=True, name="y")
    s = tf.reduce_sum(y, axis=0, keepdims=True, name="s")
    c = tf.constant(3.0, name="c")
    out = s * c
    with tf.Session() as sess:
        changed(record, "transposed", y.op, sess, out, lambda op: op._set_attr("transpose_b", attr_value_pb2.AttrValue(b=False)))
        changed(record, "kept", s.op, sess, out, lambda op: op._set_attr("keep_dims", attr_value_pb2.AttrValue(b=False)))
        seven = attr_value_pb2.AttrValue(tensor=tf.make_tensor_proto(7.0))
        changed(record, "constant", c.op, sess, out, lambda op: op._set_attr("value", seven))
        changed(record, "own", out.op, sess, out, lambda op: op._set_attr("_mine", attr_value_pb2.AttrValue(s=b"yes")))
        changed(record, "cleared", out.op, sess, out, lambda op: op._clear_attr("_mine"))
    record.graph("graph")


def program_placed(record):
    x = tf.constant(2.0, name="x")
    y = tf.square(x, name="y")
    z = y * 3.0
    with tf.Session() as sess:
        changed(record, "device", y.op, sess, z, lambda op: op._set_device("/cpu:0"))
        changed(record, "gone", y.op, sess, z, lambda op: op._set_device("/job:localhost/task:7/device:CPU:0"))
        changed(record, "back", y.op, sess, z, lambda op: op._set_device(""))
    record.graph("graph")


def program_edges(record):
    v = tf.get_variable("v", initializer=1.0, use_resource=True)
    add = tf.assign_add(v, 1.0)
    u = tf.get_variable("u", initializer=1.0, use_resource=True)
    late = tf.assign_add(u, 100.0, name="late")
    y = tf.identity(add, name="y")
    z = y * 2.0
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        changed(record, "edge", z.op, sess, z, lambda op: op._add_control_input(late.op))
        changed(record, "no edge", z.op, sess, z, lambda op: op._remove_all_control_inputs())
        record.value("v", sess.run([v, u]))
    record.graph("graph")


def program_shapes(record):
    x = tf.placeholder(tf.float32, None, name="x")
    y = x * 2.0
    with tf.Session() as sess:
        for k in range(3):
            record.value(f"{k}", sess.run(y, {x: np.ones([2, k], "f")}))
        x.set_shape([None, 2])
        for k in range(4):
            with record.error(f"narrowed {k}"):
                record.value(f"narrowed {k}", sess.run(y, {x: np.ones([2, k], "f")}))
        y.set_shape([3, 2])
        with record.error("narrowed y"):
            record.value("y", sess.run(y, {x: np.ones([2, 2], "f")}))
        z = y + 1.0
        with record.error("narrowed z"):
            record.value("z", sess.run(z, {x: np.ones([2, 2], "f")}))
    record.graph("graph")


def program_finalized(record):
    x = tf.placeholder(tf.float32, [2], name="x")
    v = tf.get_variable("v", initializer=[1.0, 2.0])
    train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_sum(tf.square(v * x)))
    init = tf.global_variables_initializer()
    saver = tf.train.Saver(max_to_keep=2)
    graph = tf.get_default_graph()
    graph.finalize()
    with tf.Session() as sess:
        sess.run(init)
        for k in range(10):
            sess.run(train, {x: [1.0, k]})
            record.value(f"{k}", sess.run(v))
            with record.error(f"closed {k}"):
                tf.constant(1.0)
            saver.save(sess, "model", global_step=k, write_meta_graph=False)
        record.value("kept", saver.last_checkpoints)
        with record.error("new saver"):
            tf.train.Saver()
        graph._unsafe_unfinalize()
        more = v * 2.0
        for k in range(4):
            record.value(f"more {k}", sess.run(more))
        graph.finalize()
        for k in range(4):
            sess.run(train, {x: [1.0, k]})
            record.value(f"again {k}", sess.run(more))
        record.value("is", graph.finalized)
    record.graph("graph")
