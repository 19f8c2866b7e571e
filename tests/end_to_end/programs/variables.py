"""Variables: ref and resource, partitioned, local, uninitialized, scattered, counted, under several nodes of one name."""

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import gen_state_ops


def kinds(record, use_resource):
    v = tf.get_variable("v", [4, 2], initializer=tf.random_uniform_initializer(seed=1), use_resource=use_resource)
    c = tf.get_variable("c", [], tf.int32, tf.zeros_initializer(), trainable=False, use_resource=use_resource)
    scale = tf.get_variable(
        "scale",
        initializer=tf.cond(tf.is_variable_initialized(v), lambda: v.read_value(), lambda: v.initial_value) * 2.0,
        use_resource=use_resource,
    )
    rows = tf.placeholder(tf.int32, [None], name="rows")
    add = tf.scatter_add(v, rows, tf.ones([2, 2]) * 0.5)
    update = tf.scatter_update(v, rows, tf.zeros([2, 2]) + 0.25)
    with tf.control_dependencies([tf.assign_add(c, 1)]):
        picked = tf.gather(v, rows) * tf.cast(tf.identity(c), tf.float32)
    with tf.Session() as sess:
        for name in ("v", "scale"):
            with record.error(f"uninitialized {name}"):
                sess.run(f"{name}:0" if not use_resource else f"{name}/Read/ReadVariableOp:0")
        record.value("missing", sess.run(tf.report_uninitialized_variables()))
        sess.run([v.initializer, c.initializer])
        for k in range(4):
            with record.error(f"still uninitialized {k}"):
                sess.run(scale + 1.0)
        record.value("known", sess.run([tf.is_variable_initialized(t) for t in (v, c, scale)]))
        sess.run(scale.initializer)
        for k in range(9):
            record.value(f"add {k}", sess.run([add, c] if not use_resource else [add.op, c], {rows: [k % 4, 1]}))
            record.value(f"picked {k}", sess.run(picked, {rows: [0, k % 4]}))
            record.value(f"update {k}", sess.run(update.op, {rows: [k % 3, 3]}))
            record.value(f"all {k}", sess.run([v, scale, c]))
            v.load(np.full((4, 2), k, np.float32), sess)
            record.value(f"loaded {k}", sess.run(v))
    record.graph("graph")


def program_ref(record):
    kinds(record, False)


def program_resource(record):
    kinds(record, True)


def program_partitioned(record):
    for use in (False, True):
        with tf.variable_scope(f"scope{int(use)}", partitioner=tf.fixed_size_partitioner(3), use_resource=use):
            table = tf.get_variable("table", [10, 4], initializer=tf.truncated_normal_initializer(seed=8))
        ids = tf.placeholder(tf.int64, [None], name="ids")
        found = tf.nn.embedding_lookup(table, ids, partition_strategy="div")
        weighted = tf.nn.embedding_lookup_sparse(
            table, tf.SparseTensor([[0, 0], [0, 1], [1, 0]], ids[:3], [2, 2]), None, combiner="sqrtn"
        )
        loss = tf.reduce_sum(tf.square(found)) + tf.reduce_sum(weighted)
        train = tf.train.AdagradOptimizer(0.2, name=f"opt{int(use)}").minimize(loss)
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            for k in range(8):
                feed = {ids: [k % 10, 3, (k * 7) % 10, 3]}
                record.value(f"{use} {k}", sess.run([loss, found, train], feed)[:2])
                record.value(f"{use} whole {k}", sess.run(tf.convert_to_tensor(table)) if k == 0 else None)
            record.checkpoint(f"{use} saved", tf.train.Saver().save(sess, f"model{int(use)}"))
    record.graph("graph")


def program_local(record):
    labels = tf.placeholder(tf.int64, [4], name="labels")
    guesses = tf.placeholder(tf.int64, [4], name="guesses")
    accuracy, update = tf.metrics.accuracy(labels, guesses)
    area, update_area = tf.metrics.auc(tf.cast(labels, tf.bool), tf.cast(guesses, tf.float32))
    mean, update_mean = tf.metrics.mean(tf.cast(guesses, tf.float32) * 0.3)
    local = tf.get_local_variable("mine", [2], initializer=tf.ones_initializer())
    with tf.Session() as sess:
        with record.error("not yet"):
            sess.run(local + 1.0)
        sess.run(tf.local_variables_initializer())
        for k in range(12):
            feed = {labels: [0, 1, k % 2, 1], guesses: [0, k % 2, 1, 1]}
            sess.run([update, update_area, update_mean], feed)
            record.value(f"{k}", sess.run([accuracy, area, mean, local]))
    record.graph("graph")


def program_counters(record):
    c = tf.get_variable("c", [], tf.int32, tf.zeros_initializer(), use_resource=False)
    up = tf.count_up_to(c, 7)
    loose = tf.Variable(tf.zeros([0]), validate_shape=False, use_resource=False)
    grown = tf.assign(loose, tf.concat([loose, [1.0]], 0), validate_shape=False)
    shaped = tf.get_variable("shaped", [2, 2], initializer=tf.zeros_initializer(), use_resource=True)
    flat = tf.raw_ops.AssignVariableOp(resource=shaped.handle, value=tf.ones([2, 2]))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(7):
            record.value(f"{k}", sess.run([up, tf.size(grown)] if k == 0 else [up, grown]))
        with record.error("limit"):
            sess.run(up)
        for k in range(5):
            record.value(f"grown {k}", sess.run(grown))
            record.value(f"flat {k}", [sess.run(flat), sess.run(shaped)])


def program_averages(record):
    step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", [3], initializer=tf.zeros_initializer())
    average = tf.train.ExponentialMovingAverage(0.9, step)
    with tf.control_dependencies([tf.assign_add(w, [1.0, 2.0, 3.0])]):
        keep = average.apply([w])
    with tf.control_dependencies([keep]):
        train = tf.assign_add(step, 1)
    rate = tf.train.exponential_decay(0.1, step, 3, 0.5, staircase=True)
    smooth = tf.train.cosine_decay(1.0, step, 10)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            record.value(f"{k}", sess.run(train))
            record.value(f"after {k}", sess.run([w, average.average(w), rate, smooth, step]))
        saver = tf.train.Saver(average.variables_to_restore())
        record.checkpoint("saved", saver.save(sess, "model", global_step=step))


def program_temporary(record):
    """Temporaries, handles of resources passed on, variables without order but for control edges."""
    v = tf.get_variable("v", [2], initializer=tf.zeros_initializer(), use_resource=True)
    x = tf.placeholder(tf.float32, [2], name="x")
    tmp = tf.raw_ops.TemporaryVariable(shape=[2], dtype=tf.float32, var_name="scratch")
    filled = tf.raw_ops.Assign(ref=tmp, value=x * 3.0)
    total = tf.raw_ops.DestroyTemporaryVariable(ref=filled, var_name="scratch")
    passed = tf.identity(v.handle)
    reads = []
    for _ in range(3):
        with tf.control_dependencies(reads):
            with tf.control_dependencies([tf.raw_ops.AssignAddVariableOp(resource=passed, value=x)]):
                reads.append(tf.raw_ops.ReadVariableOp(resource=passed, dtype=tf.float32))
    with tf.Session() as sess:
        sess.run(v.initializer)
        for k in range(9):
            record.value(f"{k}", sess.run([total, reads], {x: [k, 1.0]}))


def program_assigned(record):
    """What reads after an assignment, averages of what was just trained: of reference variables they see the memory itself."""
    x = tf.placeholder(tf.float32, [3], name="x")
    v = tf.get_variable("v", [3], initializer=tf.ones_initializer())
    w = tf.get_variable("w", [40, 40], initializer=tf.glorot_uniform_initializer(seed=1))
    with tf.control_dependencies([tf.assign_add(v, x)]):
        seen = tf.identity(v) * 2.0
    loss = tf.reduce_sum(tf.square(tf.matmul(w, w))) * 0.01
    with tf.control_dependencies([loss]):
        train = tf.train.MomentumOptimizer(0.01, 0.9, use_locking=True).minimize(loss, var_list=[w])
    averages = tf.train.ExponentialMovingAverage(0.8)
    with tf.control_dependencies([train]):
        keep, after = averages.apply([w]), tf.reduce_sum(tf.matmul(w, w))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(10):
            record.value(f"seen {k}", sess.run(seen, {x: [k, 1, -1]}))
            record.value(f"trained {k}", sess.run([loss, after, keep])[:2])
            record.value(f"kept {k}", sess.run([v, w, averages.average(w)]))


def program_imported_twice(record):
    """A graph imported beside itself: its resource variables are the same ones, trained from both sides."""
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    w = tf.get_variable("w", [3, 2], initializer=tf.glorot_uniform_initializer(seed=1), use_resource=True)
    loss = tf.reduce_sum(tf.square(tf.nn.tanh(tf.matmul(x, w))), name="loss")
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
    meta = tf.get_default_graph().as_graph_def()
    other, train_other = tf.import_graph_def(meta, return_elements=["loss:0", "train"], name="again")
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(6):
            fed = np.random.RandomState(k).randn(4, 3)
            record.value(f"{k}", sess.run([loss, train], {x: fed})[0])
            record.value(f"again {k}", sess.run([other, train_other], {"again/x:0": fed})[0])
        record.value("w", sess.run(w))


def program_of_one_name(record):
    """A variable under two nodes of the graph, of both generations."""
    one, other = (tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="both", name=name) for name in ("one", "other"))
    start = tf.raw_ops.AssignVariableOp(resource=one, value=tf.constant([1.0, 2.0]))
    grow = tf.raw_ops.AssignAddVariableOp(resource=one, value=tf.constant([0.5, 0.25]))
    seen = tf.raw_ops.ReadVariableOp(resource=other, dtype=tf.float32) * 2.0
    memory, again = (gen_state_ops.variable_v2([2], tf.float32, shared_name="refs", name=name) for name in ("memory", "again"))
    start_memory, grow_memory = gen_state_ops.assign(memory, [1.0, 1.0]), gen_state_ops.assign_add(memory, [1.0, 3.0])
    with tf.Session() as sess:
        sess.run([start, start_memory])
        for k in range(8):
            sess.run([grow, grow_memory])
            record.value(f"{k}", sess.run([seen, again * 3.0]))
