"""What ops own, worked on by roundabout ways: in conditions and functions, through ops of the same name, in a value's own memory."""

import os

import numpy as np
import tensorflow.compat.v1 as tf


def stepping():
    """A step of a training loop that goes on beside."""
    x = tf.constant(np.arange(12, dtype="f").reshape(3, 4) / 7)
    w = tf.get_variable("w", [4, 4], initializer=tf.ones_initializer())
    hidden = tf.nn.relu(tf.matmul(tf.tanh(tf.matmul(x, w)) * 0.3, w) - 0.2)
    gradient = tf.matmul(x, hidden, transpose_a=True)
    with tf.control_dependencies([gradient]):
        return tf.assign_add(w, gradient * 0.01).op, tf.reduce_sum(hidden)


def program_iterators(record):
    """Made again in a condition; made by another op of its name."""
    step = stepping()
    train, test = (tf.data.Dataset.range(k, k + 100) for k in (0, 1000))
    one = tf.data.Iterator.from_structure(tf.int64, [])
    first, testing = one.make_initializer(train), tf.placeholder(tf.bool, [])
    again = tf.cond(testing, lambda: tf.group(one.make_initializer(test)), lambda: tf.group(one.make_initializer(train)))
    shared = [tf.data.Iterator.from_structure(tf.int64, [], shared_name="shared") for _ in range(2)]
    made = [iterator.make_initializer(data) for iterator, data in zip(shared, (train, test), strict=True)]
    elements = [one.get_next(), shared[0].get_next()]
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), first])
        sess.run(made[1])
        sess.run(made[0])
        for k in range(12):
            if k == 4:
                sess.run(again, {testing: True})
            record.value(f"step {k}", sess.run(step)[1])
            record.value(f"{k}", sess.run(elements))


def program_tables(record):
    """Pairs of a table that has shrunk, by an import, or by another op of its name; in the order in which it keeps them."""
    step = stepping()
    keys = tf.placeholder(tf.int64, [None], name="keys")
    ops = tf.raw_ops
    shrunk = ops.MutableHashTableV2(key_dtype=tf.int64, value_dtype=tf.int64)
    put = ops.LookupTableInsertV2(table_handle=shrunk, keys=keys, values=keys)
    load = ops.LookupTableImportV2(table_handle=shrunk, keys=keys, values=keys * 2)
    here, there = (ops.MutableHashTableV2(key_dtype=tf.int64, value_dtype=tf.int64, shared_name="named") for _ in range(2))
    put_here = ops.LookupTableInsertV2(table_handle=here, keys=keys, values=keys)
    remove = ops.LookupTableRemoveV2(table_handle=here, keys=keys)
    pairs = [ops.LookupTableExportV2(table_handle=table, Tkeys=tf.int64, Tvalues=tf.int64)[0] for table in (shrunk, there)]
    few = [0, 1, 13, 26, 14, 2]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run([put, put_here], {keys: range(1000)})
        sess.run(remove, {keys: range(1000)})
        sess.run([load, put_here], {keys: few})
        for k in range(10):
            record.value(f"step {k}", sess.run(step)[1])
            if k > 4:
                record.value(f"pairs {k}", sess.run(pairs))


def program_functions(record):
    """Variables that are only in functions, called by a step and by a data set."""
    step = stepping()
    ops = tf.raw_ops

    def inner(name, dtype):
        return ops.VarHandleOp(dtype=dtype, shape=[], shared_name=name)

    @tf.function
    def begin(x):
        ops.AssignVariableOp(resource=inner("inner", tf.float32), value=x)
        return x

    @tf.function
    def add(x):
        added = ops.AssignAddVariableOp(resource=inner("inner", tf.float32), value=x)
        with tf.control_dependencies([added]):  # of two handles TensorFlow does not know that they are one variable
            return ops.ReadVariableOp(resource=inner("inner", tf.float32), dtype=tf.float32)

    def count(x):
        zero = lambda: ops.AssignVariableOp(resource=inner("seen", tf.int64), value=tf.zeros([], tf.int64))  # noqa: E731
        begun = tf.cond(ops.VarIsInitializedOp(resource=inner("seen", tf.int64)), tf.no_op, zero)
        with tf.control_dependencies([begun]):
            added = ops.AssignAddVariableOp(resource=inner("seen", tf.int64), value=x)
        with tf.control_dependencies([added]):
            return ops.ReadVariableOp(resource=inner("seen", tf.int64), dtype=tf.int64)

    begins, adds = begin(tf.constant(3.0)), add(tf.constant(1.0))
    iterator = tf.data.make_initializable_iterator(tf.data.Dataset.range(1, 100).map(count))
    element = iterator.get_next()
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), iterator.initializer, begins])
        for k in range(10):
            record.value(f"step {k}", sess.run(step)[1])
            record.value(f"{k}", sess.run([adds, element]))


def program_data(record):
    """A table that is only in a function of a data set; regions of a pool that are drawn once, when the step is built."""
    step = stepping()
    ops = tf.raw_ops

    def count(x):
        table = ops.MutableHashTableV2(key_dtype=tf.int64, value_dtype=tf.int64, shared_name="inside")
        put = ops.LookupTableInsertV2(table_handle=table, keys=[x], values=[x])
        with tf.control_dependencies([put]):
            return ops.LookupTableSizeV2(table_handle=table)

    iterator = tf.data.make_initializable_iterator(tf.data.Dataset.range(1, 100).map(count))
    element = iterator.get_next()
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), iterator.initializer])
        for k in range(10):
            record.value(f"step {k}", sess.run(step)[1])
            record.value(f"{k}", sess.run(element))
    image = tf.constant(np.arange(400, dtype="f").reshape(1, 20, 20, 1))
    ratio = [1.0, 1.44, 1.73, 1.0]
    pooled = ops.FractionalMaxPool(value=image, pooling_ratio=ratio, deterministic=True, pseudo_random=True).output
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        first = sess.run([pooled, step])[0]
        for k in range(10):
            record.value(f"regions {k}", np.array_equal(first, sess.run([pooled, step])[0]))


def program_in_place(record):
    """Ops that write into the memory of a constant, which keeps it."""
    step = stepping()
    row, value = tf.placeholder(tf.int32, [1]), tf.placeholder(tf.float32, [1])
    kept = tf.raw_ops.InplaceAdd(x=tf.constant(np.zeros([3], "f")), i=row, v=value) * 2.0
    copied = tf.raw_ops.InplaceUpdate(x=tf.raw_ops.DeepCopy(x=tf.constant(np.ones([3], "f"))), i=row, v=value) * 3.0
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(10):
            record.value(f"step {k}", sess.run(step)[1])
            record.value(f"{k}", sess.run([kept, copied], {row: [k % 3], value: [1.0]}))


def program_named_alike(record):
    """Two queues, of which the name of one's op is the name that the other shares; and a queue's handle as text."""
    step = stepping()
    one = tf.queue.FIFOQueue(40, [tf.int32], name="files")
    other = tf.queue.FIFOQueue(40, [tf.int32], name="other", shared_name="files")
    value = tf.placeholder(tf.int32, [])
    puts = [one.enqueue(value), other.enqueue(value * 10)]
    sizes, taken = [one.size(), other.size()], [one.dequeue(), other.dequeue()]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            record.value(f"step {k}", sess.run(step)[1])
            sess.run(puts, {value: k})
            record.value(f"sizes {k}", sess.run(sizes))
            if k % 3 == 2:
                record.value(f"taken {k}", sess.run(taken))


def program_told(record):
    """The handle of a queue that bears no name, as text: with the number by which the session knows it."""
    step = stepping()
    queue = tf.queue.FIFOQueue(40, [tf.int32], name="kept")
    put, text = queue.enqueue(tf.constant(1) + 1), tf.strings.format("{}", queue.queue_ref)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        first = sess.run(text)
        for k in range(10):
            record.value(f"step {k}", sess.run([step, put])[0][1])
            record.value(f"same {k}", sess.run(text) == first)


def program_unnamed(record):
    """Two handles without a name stand for one variable; a temporary variable is known by its op's name."""
    (train, loss), ops = stepping(), tf.raw_ops
    x = tf.placeholder(tf.float32, [3])
    one, same = (ops.VarHandleOp(dtype=tf.float32, shape=[3], name=name) for name in ("one", "same"))
    begin = ops.AssignVariableOp(resource=one, value=tf.ones([3]))
    with tf.control_dependencies([tf.exp(x)]):
        add = ops.AssignAddVariableOp(resource=same, value=tf.sin(x))
        temporary = ops.TemporaryVariable(shape=[3], dtype=tf.float32)
    with tf.control_dependencies([add]):
        seen = tf.tanh(ops.ReadVariableOp(resource=one, dtype=tf.float32))
    filled = ops.Assign(ref=temporary, value=tf.cos(x))
    taken = tf.exp(ops.DestroyTemporaryVariable(ref=filled, var_name=temporary.op.name))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        with record.error("not there"):
            sess.run(seen, {x: [1.0, 2.0, 3.0]})
        sess.run(begin)
        for k in range(10):
            record.value(f"step {k}", sess.run([loss, train])[0])
            record.value(f"{k}", sess.run([seen, taken], {x: [k, 2.0, 3.0]}))


def program_files(record):
    """Kernels that read a file when they are made, and so only for the first step of a session: it changes, and is gone."""
    train, loss = stepping()
    with open("words", "w") as words:
        words.writelines(f"w{k},{k + 1}\n" for k in range(8))
    np.arange(3, dtype="f").tofile("numbers")
    x = tf.placeholder(tf.int64, [2, 1])
    numbers = tf.raw_ops.ImmutableConst(dtype=tf.float32, shape=[3], memory_region_name="numbers")
    counted = tf.nn.fixed_unigram_candidate_sampler(x, 1, 3, False, 8, vocab_file="words")[1]
    ends = [tf.exp(counted) + 1, tf.exp(numbers * tf.cast(x[0, 0], tf.float32)) * 2]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            if k == 4:
                with open("words", "w") as words:
                    words.writelines(f"w{k},{9 - k}\n" for k in range(8))
                os.replace("numbers", "old")  # what is mapped stays
                (np.arange(3, dtype="f") + 5).tofile("numbers")
            if k == 8:
                os.remove("words")
                os.remove("numbers")
            record.value(f"step {k}", sess.run([loss, train])[0])
            record.value(f"{k}", sess.run(ends, {x: [[1], [2]]}))
