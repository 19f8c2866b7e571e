"""What a run may fetch and feed: nests, composite tensors, strings, names, nothing at all."""

import collections

import numpy as np
import tensorflow.compat.v1 as tf

Pair = collections.namedtuple("Pair", ["left", "right"])


def program_nests(record):
    x = tf.placeholder(tf.float32, [3], name="x")
    w = tf.get_variable("w", [3], initializer=tf.constant_initializer(2.0))
    y, z = x * w, tf.reduce_sum(x + w)
    step = tf.assign_add(w, x)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            feed = {x: np.arange(3, dtype=np.float32) * (k + 1)}
            record.value(f"list {k}", sess.run([y, [z, [w, y]]], feed))
            record.value(f"dict {k}", sess.run({"b": y, "a": (z, {"c": w})}, feed))
            record.value(f"pair {k}", sess.run(Pair(y, Pair(z, [])), feed))
            record.value(f"ordered {k}", sess.run(collections.OrderedDict([("q", z), ("p", y)]), feed))
            record.value(f"twice {k}", sess.run([y, y, y.op, "Sum:0", "Sum"], feed))
            record.value(f"operation {k}", sess.run(step.op, feed))
            record.value(f"variable {k}", sess.run(w))
        record.value("nothing", [sess.run([]), sess.run({}), sess.run(())])
    record.graph("graph")


def program_composites(record):
    indices = tf.placeholder(tf.int64, [None, 2], name="indices")
    values = tf.placeholder(tf.float32, [None], name="values")
    sparse = tf.SparseTensor(indices, values * 2.0, [4, 4])
    slices = tf.IndexedSlices(values, tf.range(tf.size(values)), tf.constant([9]))
    bare = tf.IndexedSlices(values, tf.range(tf.size(values)))
    ragged = tf.ragged.constant([[1.0, 2.0], [], [3.0]]) * 3.0
    fed_sparse = tf.sparse_placeholder(tf.float32, name="fed")
    fed_ragged = tf.ragged.placeholder(tf.int32, 1, name="ragged")
    dense = tf.sparse.to_dense(fed_sparse)
    total = tf.reduce_sum(fed_ragged, axis=1)
    with tf.Session() as sess:
        for k in range(8):
            feed = {indices: [[0, k % 4], [1, 1]], values: [k + 0.5, -1.0]}
            record.value(f"sparse {k}", sess.run(sparse, feed))
            record.value(f"slices {k}", sess.run([slices, bare], feed))
            record.value(f"ragged {k}", sess.run({"r": ragged}))
            value = tf.SparseTensorValue([[0, 1], [2, 0]], [1.5, k], [3, 2])
            record.value(f"fed sparse {k}", sess.run(dense, {fed_sparse: value}))
            record.value(f"fed triple {k}", sess.run(dense, {fed_sparse: ([[1, 1]], [2.0], [3, 2])}))
            fed = tf.ragged.constant_value([[1, k], [], [5, 6, 7]], dtype=np.int32)
            record.value(f"fed ragged {k}", sess.run([total, fed_ragged], {fed_ragged: fed}))


def program_names(record):
    with tf.name_scope("outer"):
        a = tf.placeholder_with_default(tf.constant([1.0, 2.0]), [2], name="a")
        b = tf.multiply(a, 3.0, name="b")
        c = tf.add(b, a, name="c")
    text = tf.string_join([tf.as_string(c), tf.constant("é"), tf.constant(b"\x00\xff")], name="text")
    with tf.Session() as sess:
        for k in range(10):
            record.value(f"default {k}", sess.run(["outer/c:0", "outer/b", text]))
            record.value(f"by name {k}", sess.run("outer/c:0", {"outer/a:0": [k, 1]}))
            record.value(f"in the middle {k}", sess.run([c, b, text], {b: [9.0, k]}))
            record.value(f"a constant {k}", sess.run(c, {"outer/Const:0": [k, k]}))
            record.value(f"fed and fetched {k}", sess.run([a, c], {a: [k, 0]}))
            with sess.as_default():
                record.value(f"eval {k}", c.eval({a: [0, k]}))


def program_dtypes(record):
    kinds = [tf.bool, tf.int8, tf.uint8, tf.int16, tf.int32, tf.int64, tf.float16, tf.bfloat16, tf.float32]
    kinds += [tf.float64, tf.complex64, tf.complex128, tf.string, tf.uint16, tf.uint32, tf.uint64]
    fed = [tf.placeholder(kind, name="in_" + kind.name) for kind in kinds]
    out = [tf.stack([t, t]) for t in fed]
    empty = tf.zeros([0, 3]) + 1.0
    quantized = tf.quantize_v2(tf.constant([0.0, 0.5, 1.0]), 0.0, 1.0, tf.quint8)
    with tf.Session() as sess:
        for k in range(7):
            feeds = {t: (["ab", "c"] if t.dtype == tf.string else [k % 2, 1]) for t in fed}
            record.value(f"all {k}", sess.run(out, feeds))
            record.value(f"fed {k}", sess.run(fed, feeds))
            record.value(f"others {k}", sess.run([empty, quantized]))


def program_conversions(record):
    class Squared:
        def __init__(self, tensor):
            self.tensor = tensor

    tf_session = __import__("tensorflow.python.client.session", fromlist=["register_session_run_conversion_functions"])
    tf_session.register_session_run_conversion_functions(
        Squared,
        lambda s: ([s.tensor], lambda values: values[0] ** 2),
        lambda s, value: [(s.tensor, value)],
        lambda s: [s.tensor],
    )
    x = tf.placeholder(tf.float32, name="x")
    y = x + 1.0
    with tf.Session() as sess:
        for k in range(6):
            record.value(f"converted {k}", sess.run(Squared(y), {Squared(x): float(k)}))
            record.value(f"nested {k}", sess.run({"a": [Squared(y), y]}, {x: float(k)}))


def program_bad(record):
    x = tf.placeholder(tf.float32, [2], name="x")
    y = tf.multiply(x, 2.0, name="y")
    fixed = tf.constant(3.0, name="fixed")
    with tf.Graph().as_default():
        foreign = tf.constant(1.0, name="foreign")
    with tf.Session() as sess:
        for k in range(4):
            with record.error(f"missing feed {k}"):
                sess.run(y)
            with record.error(f"wrong shape {k}"):
                sess.run(y, {x: [1.0, 2.0, 3.0]})
            with record.error(f"wrong type {k}"):
                sess.run(y, {x: ["a", "b"]})
            with record.error(f"fed a tensor {k}"):
                sess.run(y, {x: fixed})
            with record.error(f"unknown name {k}"):
                sess.run("nowhere:0")
            with record.error(f"unknown output {k}"):
                sess.run("y:3")
            with record.error(f"foreign {k}"):
                sess.run(foreign)
            with record.error(f"foreign feed {k}"):
                sess.run(y, {foreign: 1.0})
            with record.error(f"none {k}"):
                sess.run(None)
            with record.error(f"number {k}"):
                sess.run([y, 3], {x: [1.0, 2.0]})
            with record.error(f"unhashable {k}"):
                sess.run(y, [x])
            record.value(f"well {k}", sess.run(y, {x: [1.0, k]}))
    with record.error("closed"):
        sess.run(y, {x: [1.0, 2.0]})
    record.graph("graph")
