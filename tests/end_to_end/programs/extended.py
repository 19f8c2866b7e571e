"""Graphs that grow between the runs of a session."""

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.framework import function


def program_ops(record):
    x = tf.placeholder(tf.float32, [3], name="x")
    total = tf.get_variable("total", [3], initializer=tf.zeros_initializer())
    y = x
    with tf.Session() as sess:
        sess.run(total.initializer)
        for k in range(14):
            y = tf.tanh(y + float(k), name="layer")
            record.value(f"new {k}", sess.run(y, {x: [1.0, k, -1.0]}))
            with tf.control_dependencies([tf.assign_add(total, y)]):
                after = tf.identity(total)
            record.value(f"after {k}", sess.run(after, {x: [1.0, 2.0, 3.0]}))
            record.value(f"old {k}", sess.run([total, "layer:0"], {x: [0.0, 1.0, 0.0]}))
    record.graph("graph")


def program_variables(record):
    x = tf.placeholder(tf.float32, [4, 2], name="x")
    hidden = x
    with tf.Session() as sess:
        for k in range(7):
            use = bool(k % 2)
            w = tf.get_variable(f"w{k}", [2, 2], initializer=tf.orthogonal_initializer(seed=k), use_resource=use)
            hidden = tf.nn.softplus(tf.matmul(hidden, w))
            sess.run(w.initializer)
            loss = tf.reduce_mean(tf.square(hidden - 1.0))
            optimizer = tf.train.AdamOptimizer(0.1, name=f"adam{k}")
            train = optimizer.minimize(loss)
            sess.run(tf.variables_initializer(optimizer.variables()))
            for j in range(4):
                record.value(f"loss {k} {j}", sess.run([loss, train], {x: np.full((4, 2), 0.5 + j)})[0])
            record.value(f"gradients {k}", sess.run(tf.gradients(loss, [w, x]), {x: np.ones((4, 2))}))
    record.graph("graph")


def program_control_edges(record):
    v = tf.get_variable("v", [], initializer=tf.zeros_initializer(), use_resource=True)
    with tf.control_dependencies([v.assign_add(1.0)]):
        read = tf.identity(v.read_value(), name="read")
    other = tf.get_variable("other", [], initializer=tf.zeros_initializer(), use_resource=True)
    bump = other.assign_add(10.0)
    late = tf.multiply(read, 2.0, name="late")
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(6):
            record.value(f"before {k}", sess.run([late, other]))
        fresh = tf.multiply(read, 3.0, name="fresh")
        fresh.op._add_control_input(bump.op)
        for k in range(6):
            record.value(f"fresh {k}", sess.run([fresh, late]))
            record.value(f"other {k}", sess.run(other))
    record.graph("graph")


def functions(k):
    @function.Defun(tf.float32, func_name=f"body{k}")
    def body(t):
        return tf.sin(t) * float(k)

    @tf.function
    def traced(t):
        return tf.reduce_sum(t) + float(k)

    return body, traced


def program_functions(record):
    x = tf.placeholder(tf.float32, [2], name="x")
    with tf.Session() as sess:
        record.value("start", sess.run(x + 1.0, {x: [1.0, 2.0]}))
        for k in range(8):
            body, traced = functions(k)
            y, z = body(x), traced(x)
            record.value(f"new functions {k}", sess.run([y, z], {x: [0.5, k]}))
            (g,) = tf.gradients(y, x)
            record.value(f"their gradients {k}", sess.run([g, y], {x: [0.5, k]}))
            looped = tf.while_loop(lambda i, _: i < 3, lambda i, t: (i + 1, t * 2.0), [0, x])[1]
            record.value(f"loop {k}", sess.run(looped, {x: [1.0, k]}))
    record.graph("graph")


def program_scopes(record):
    """Names that meet existing scopes."""
    with tf.Session() as sess:
        with tf.variable_scope("v"):
            part = tf.get_variable("piece", [2], initializer=tf.ones_initializer())
        sess.run(part.initializer)
        for k in range(4):
            record.value(f"part {k}", sess.run(part))
        plain = tf.get_variable("v", [2], initializer=tf.zeros_initializer())
        sess.run(plain.initializer)
        step = tf.assign_add(plain, part)
        for k in range(8):
            record.value(f"v {k}", sess.run([step, part]))
        deep = tf.constant(1.0, name="a/b/c") + 1.0
        shallow = tf.constant(2.0, name="a/b") + deep
        for k in range(5):
            record.value(f"deep {k}", sess.run([deep, shallow]))
        saver = tf.train.Saver()
        record.checkpoint("saved", saver.save(sess, "model", global_step=3))
    record.graph("graph")


def program_late_stateful(record):
    """A dequeue and a random op whose inputs are copied nodes that already ran."""
    base = tf.constant([1.0, 2.0]) * 2.0
    queue = tf.FIFOQueue(100, tf.float32, shapes=[[2]])
    doubled = tf.multiply(queue.dequeue(), base)
    put = queue.enqueue(tf.placeholder_with_default([3.0, 4.0], [2]))
    with tf.Session() as sess:
        for k in range(30):
            sess.run(put)
        for k in range(7):
            record.value(f"dequeued {k}", sess.run(doubled))
        second = tf.FIFOQueue(100, tf.float32, shapes=[[2]])
        move = second.enqueue(doubled)
        noise = tf.random_uniform(tf.shape(doubled), seed=4) + doubled
        for k in range(7):
            sess.run(move)
            record.value(f"noise {k}", sess.run(noise))
            record.value(f"sizes {k}", sess.run([second.size(), queue.size()]))
            record.value(f"moved {k}", sess.run(second.dequeue()))
