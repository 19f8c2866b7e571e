"""What a step does beside what fails of values that it is given: averages, counters, calls of Python, files."""

import os

import numpy as np
import tensorflow.compat.v1 as tf
import tensorflow.compat.v2 as tf2
from tensorflow.python.framework import function


def _normalized(h, count):
    """(`h` behind `count` layers with batch normalization, their updates)."""
    updates = []
    for k in range(count):
        with tf.variable_scope(f"layer{k}", use_resource=True):
            w = tf.get_variable("w", [h.shape[-1], h.shape[-1]], initializer=tf.constant_initializer(0.1 * (k + 1)))
            mean, variance = tf.nn.moments(tf.matmul(h, w), [0])
            kept = tf.get_variable("kept", [h.shape[-1]], initializer=tf.zeros_initializer(), trainable=False)
            updates.append(kept.assign_sub((kept - mean) * 0.1))
            h = tf.tanh(tf.nn.batch_normalization(tf.matmul(h, w), mean, variance, None, None, 1e-3))
    return h, updates


def program_given(record):
    """Labels that are none, indices beyond a table, batches of two sizes; the program goes on after each."""
    x, y = tf.placeholder(tf.float32, [None, 8], name="x"), tf.placeholder(tf.float32, [None], name="y")
    label = tf.placeholder(tf.int64, [None], name="label")
    h, updates = _normalized(x + tf.gather(np.float32(0.1) * tf.range(12.0), label)[:, None], 4)
    average, averaging = tf.metrics.mean(tf.square(h))
    losses = [
        tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=h)),
        tf.reduce_mean(tf.square(tf.reduce_sum(h, 1) - y)),
    ]
    with tf.control_dependencies(updates):
        trains = [tf.train.GradientDescentOptimizer(0.01).minimize(loss) for loss in losses]
    rng = np.random.RandomState(7)
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        for k in range(30):
            labels = rng.randint(0, 8, 16)
            labels[3] = (labels[3], 9, 77)[k % 3]  # within, beyond the classes, beyond the table
            sizes = rng.randn(16 - (k % 5 == 1)).astype(np.float32)
            feeds = {x: rng.randn(16, 8), y: sizes, label: labels}
            try:
                record.value(f"{k} got", sess.run([trains[k % 2], losses[k % 2], averaging], feeds)[1:])
            except tf.errors.InvalidArgumentError as error:
                record.value(f"{k} failed", type(error).__name__)  # of an op and its gradient either is heard of plainly
            record.value(f"{k}", sess.run([average, *tf.global_variables()]))


def program_outside(record):
    """Calls of Python, files and checkpoints beside a check; counters and files that are not there beside updates."""
    x, path = tf.placeholder(tf.float32, [], name="x"), tf.placeholder(tf.string, [], name="path")
    h, _ = _normalized(tf.fill([8, 8], x * 0.1), 4)
    value = tf.reduce_sum(h) * 0.0 + 1.0
    calls = []
    v, count = (tf.get_variable(name, [], dtype, initializer=tf.zeros_initializer(), use_resource=True)
                for name, dtype in (("v", tf.float32), ("count", tf.int32)))  # fmt: skip
    table = tf.lookup.experimental.DenseHashTable(tf.int64, tf.float32, 0.0, empty_key=-1, deleted_key=-2)
    check, update = tf.check_numerics(tf.log(x), "bad"), v.assign_add(value)
    steps = [
        [check, tf.py_func(lambda a: calls.append(1) or a, [value], tf.float32)],
        [check, tf.io.write_file(path, tf.as_string(value))],
        [check, tf.raw_ops.SaveV2(prefix=path, tensor_names=["a"], shape_and_slices=[""], tensors=[value])],
        [check, table.insert(tf.cast(tf.abs(x) * 10.0, tf.int64), value)],
        [count.count_up_to(0), update],
        [tf.io.read_file(path), update],
        [tf.raw_ops.RestoreV2(prefix=path, tensor_names=["a"], shape_and_slices=[""], dtypes=[tf.float32]), update],
    ]
    size = table.size()
    os.makedirs("made", exist_ok=True)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(5 * len(steps)):
            with record.error(f"{k}"):
                sess.run(steps[k % len(steps)], {x: -0.1 * k - 0.1, path: f"made/{k}"})
            record.value(f"{k}", [*sess.run([v, size]), len(calls), len(os.listdir("made"))])


def program_unset(record):
    """Variables that get their values one after the other, and steps in between that need all: the others' updates are kept."""
    x = tf.placeholder(tf.float32, [None, 6], name="x")
    rng = np.random.RandomState(7)
    with tf.variable_scope("net", use_resource=True):
        w = tf.get_variable("w", [6, 5], initializer=tf.constant_initializer(0.1), partitioner=tf.fixed_size_partitioner(2))
        late = tf.get_variable("late", [5], initializer=tf.ones_initializer())
        table = tf.get_variable("table", [7, 5], initializer=tf.constant_initializer(0.2))
    plain, count = (tf.get_variable(name, [5], initializer=tf.zeros_initializer(), use_resource=False) for name in ("p", "count"))
    h = tf.matmul(x, w) + tf.reduce_sum(tf.nn.embedding_lookup(table, [1, 3, 3]), 0) + plain
    hot = tf.placeholder(tf.bool, [], name="hot")
    loss = tf.reduce_sum(tf.square(tf.cond(hot, lambda: h * late, lambda: h)))
    train = tf.train.AdamOptimizer(0.01).minimize(loss, var_list=[*w, table, plain])
    step = tf.group(train, tf.assign_add(count, tf.reduce_sum(tf.tanh(h), 0)))
    every = tf.global_variables()
    with tf.Session() as sess:
        for k, variable in enumerate(every):
            sess.run(variable.initializer)
            for what, ends in (("step", [step]), ("late", [step, late]), ("cold", [step, loss])):
                try:
                    sess.run(ends, {x: rng.randn(4, 6), hot: what == "late"})
                except tf.errors.OpError:
                    record.value(f"{k} {what}", "failed")  # of which variable, and how that is said, differs plainly, too
            there = [v for v in every if sess.run(tf.is_variable_initialized(v))]
            record.value(f"{k}", sess.run(there))


def program_cancelled(record):
    """Checks beside updates behind loops, calls that stay calls and, with two devices, transfers: plainly an error ends these."""
    x, n = tf.placeholder(tf.float32, [200, 200], name="x"), tf.placeholder(tf.int32, [], name="n")

    @function.Defun(tf.float32, noinline=True)
    def apart(a):
        return tf.sin(a) * 2.0

    def layers(h, name, depth=12):
        with tf.variable_scope(name, use_resource=True):
            w = tf.get_variable("w", [200, 200], initializer=tf.constant_initializer(0.006))
        for _ in range(depth):
            h = tf.tanh(tf.matmul(h, w))
        return h

    looped = tf.while_loop(lambda i, h: i < 600, lambda i, h: (i + 1, tf.tanh(h * 1.01)), [0, x])[1]
    called = apart(layers(x, "called", 240))  # both long enough for a check to come first, whatever else the machine does
    called.set_shape([200, 200])
    with tf.device("/cpu:0"):
        near = layers(x, "near")
    with tf.device("/cpu:1"):
        far = layers(near, "far")
    updates = []
    for name, value in (("looped", looped), ("called", called), ("far", far), ("here", layers(x, "here"))):
        with tf.variable_scope(name, use_resource=True):
            kept = tf.get_variable("kept", [200], initializer=tf.zeros_initializer())
        updates.append(kept.assign_add(tf.reduce_mean(value, 0)).op)
    check = tf.Assert(n < 3, ["too many", n], name="check")
    every = tf.global_variables()
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            for i, update in enumerate(updates):
                try:
                    sess.run([update, check], {x: np.full([200, 200], 0.1 * k), n: k % 4})
                except tf.errors.InvalidArgumentError as error:  # of two devices both say so, numbered
                    record.value(f"{k} {i}", error.message if i != 2 else "failed")
            record.value(f"{k}", sess.run(every))


def program_looked_up(record):
    """Checks, texts and the end of data beside a training step that looks words up in a table."""
    words, n = tf.placeholder(tf.string, [None], name="words"), tf.placeholder(tf.int32, [], name="n")
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["1", "2", "x"], tf.range(3)), 3)
    with tf.variable_scope("net", use_resource=True):
        embedding = tf.get_variable("embedding", [4, 8], initializer=tf.constant_initializer(0.3))
        w = tf.get_variable("w", [8, 8], initializer=tf.constant_initializer(0.1))
    h = tf.nn.embedding_lookup(embedding, table.lookup(words))
    for _ in range(6):
        h = tf.tanh(tf.matmul(h, w))
    train = tf.train.AdagradOptimizer(0.1).minimize(tf.reduce_mean(tf.square(h - 1.0)))
    following = tf.data.make_initializable_iterator(tf.data.Dataset.range(3))
    besides = [tf.Assert(n < 3, [n], name="check"), tf.string_to_number(words, name="numbers"), following.get_next()]
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.tables_initializer()])
        for k in range(24):
            if k % 12 == 0:
                sess.run(following.initializer)
            with record.error(f"{k}"):
                sess.run([train, besides[k % 3]], {words: ["1", "2", "x" if k % 4 == 3 else "1"], n: k // 3 % 4})
            record.value(f"{k}", sess.run(tf.global_variables()))


def program_refused(record):
    """What refuses its data beside a training step that does not need it: a histogram, a division by 0, a shape."""
    x, n = tf.placeholder(tf.float32, [8, 6], name="x"), tf.placeholder(tf.int32, [], name="n")
    scores = tf.placeholder(tf.float32, [None], name="scores")
    with tf.variable_scope("net", use_resource=True):
        first = tf.get_variable("first", [6, 5], initializer=tf.constant_initializer(np.linspace(-1, 1, 30)))
        second = tf.get_variable("second", [5, 1], initializer=tf.constant_initializer(0.3))
    loss = tf.reduce_mean(tf.square(tf.matmul(tf.tanh(tf.matmul(x, first)), second) - 1.0))
    train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    besides = [tf.summary.histogram("scores", scores), 100 // n, tf.ensure_shape(scores, [3])]
    suits = {scores: [1.0, 2.0, 3.0], n: 3}
    refused = [{scores: [1.0, np.nan, 3.0]}, {n: 0}, {scores: [1.0]}]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(24):
            with record.error(f"{k}"):
                fed = {x: np.random.RandomState(k).randn(8, 6), **suits, **(refused[k % 3] if k % 2 else {})}
                record.value(f"{k}", sess.run([train, besides[k % 3]], fed)[1])
            record.value(f"variables {k}", sess.run(tf.global_variables()))


def program_freed(record):
    """A variable that the program frees, and that a step asks for beside training."""
    x = tf.placeholder(tf.float32, [8, 6], name="x")
    with tf.variable_scope("net", use_resource=True):
        w = tf.get_variable("w", [6, 5], initializer=tf.constant_initializer(np.linspace(-1, 1, 30)))
        cache = tf.get_variable("cache", [50, 50], initializer=tf.ones_initializer(), trainable=False)
    train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_mean(tf.square(tf.tanh(tf.matmul(x, w)) - 1.0)))
    use, free = tf.reduce_sum(cache * 2.0), tf.raw_ops.DestroyResourceOp(resource=cache.handle)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(20):
            try:
                record.value(f"{k}", sess.run([train, use], {x: np.random.RandomState(k).randn(8, 6)}))
            except tf.errors.FailedPreconditionError as error:
                record.value(f"{k}", error.message[:60])
            record.value(f"w {k}", sess.run(w))
            if k % 4 == 1:
                sess.run(free)
            if k % 4 == 3:
                sess.run(cache.initializer)


def program_beside(record):
    """Checks of what is fed beside training on it: of batches of unknown size, in a branch, by branches of both generations."""
    x, y = tf.placeholder(tf.float32, [None, 4], name="x"), tf.placeholder(tf.float32, [None, 1], name="y")
    n = tf.placeholder(tf.int32, [], name="n")
    loss = tf.reduce_mean(tf.square(_normalized(x, 3)[0] - y))
    optimizer = tf.train.GradientDescentOptimizer(0.01)
    gradients = optimizer.compute_gradients(loss)
    with tf.variable_scope("taken", use_resource=True):
        w = tf.get_variable("w", [4, 4], initializer=tf.constant_initializer(0.2))
    tf.enable_control_flow_v2()
    taken = tf.switch_case(n, [lambda: tf.matmul(x, w), lambda: tf.tanh(tf.matmul(x, w))])
    tf.disable_control_flow_v2()
    trains = [
        optimizer.apply_gradients(gradients, tf.train.get_or_create_global_step()),
        tf.cond(n < 1, lambda: optimizer.apply_gradients(gradients), tf.no_op),
        optimizer.minimize(tf.reduce_sum(taken)),
    ]
    checks = [
        tf.debugging.assert_all_finite(tf.log(x), "x"),
        tf.Assert(tf.reduce_sum(x) > 0, [n]),
        tf.debugging.assert_greater(tf.reduce_min(y) * tf.reduce_sum(x), 0.0),
    ]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(18):
            value = (-1.0) ** k * (0.1 + 0.01 * k)
            with record.error(f"{k} checked"):
                sess.run([trains[k // 2 % 3], checks[k // 6]], {x: np.full([2, 4], value), y: np.full([2, 1], 0.3), n: k // 3 % 2})
            record.value(f"{k}", sess.run(tf.global_variables()))


def program_first(record):
    """Two checks of what is fed, one beside training and one that the training needs; only the former fails, only the latter, both."""
    x, y = tf.placeholder(tf.float32, [None, 4], name="x"), tf.placeholder(tf.int64, [None], name="y")
    h, _ = _normalized(x, 4)
    checked = tf.debugging.check_numerics(tf.sqrt(tf.reduce_min(x) + 2.0) + tf.reduce_mean(h), "deep")
    labelled = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=h))
    optimizer = tf.train.GradientDescentOptimizer(0.01)
    trains = [optimizer.minimize(tf.reduce_mean(tf.square(h)) * checked), optimizer.minimize(labelled)]
    first = tf.log(tf.reduce_min(x) + 1.0)
    beside = [tf.debugging.check_numerics(first, "first"), tf.debugging.assert_less(y, tf.constant(2, tf.int64))]
    config = tf.ConfigProto(inter_op_parallelism_threads=1)  # else plainly either fails first, now and then
    with tf.Session(config=config) as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(18):
            lowest, label = ((0.5, 1), (-1.5, 3), (-3.0, 5))[k % 3]  # both good, the deeper one good, none
            with record.error(f"{k} checked"):
                sess.run([trains[k // 3 % 2], beside[k // 3 % 2]], {x: np.full([2, 4], lowest), y: [0, label]})
            record.value(f"{k}", sess.run(tf.global_variables()))


def program_drawn(record):
    """Seeded draws behind what fails (a check of the inputs, an index beyond the table, the end of the next batches), beside
    statistics of the inputs or the training on the batch before."""
    x, ids = tf.placeholder(tf.float32, [None, 4], name="x"), tf.placeholder(tf.int32, [None], name="ids")
    finite = tf.where(tf.is_finite(x), x, tf.zeros_like(x))
    with tf.variable_scope("seen", use_resource=True):
        kept = tf.get_variable("kept", [4], initializer=tf.zeros_initializer(), trainable=False)
        w = tf.get_variable("w", [4, 4], initializer=tf.constant_initializer(0.2))
        table = tf.get_variable("table", [5, 4], initializer=tf.random_uniform_initializer(seed=5))
    seen = kept.assign_add(0.1 * (tf.reduce_mean(finite, 0) - kept))
    following = tf.data.make_initializable_iterator(tf.data.Dataset.range(8).map(lambda k: tf.fill([4], k)).batch(2))
    later = tf.cast(following.get_next(), tf.float32) * 0.1
    later += tf.random_normal(tf.shape(later), seed=7) * 0.01
    checked = tf.nn.dropout(tf.debugging.check_numerics(x, "inputs"), rate=0.3, seed=3)
    looked_up = tf.nn.embedding_lookup(table, ids)
    looked_up += tf.random_uniform(tf.shape(looked_up), seed=4)
    optimizer = tf.train.AdamOptimizer(0.01)

    def trained(value):
        return optimizer.minimize(tf.reduce_mean(tf.square(tf.tanh(tf.matmul(value, w)) - 0.3)))

    steps = [[trained(checked), seen], [trained(looked_up), seen], [later, trained(x)]]
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), following.initializer])
        for k in range(30):
            batch = np.sin(np.arange(12.0).reshape(3, 4) + k)
            batch[1, 1] = np.nan if k // 3 % 4 == 2 and k % 3 < 2 else batch[1, 1]
            with record.error(f"{k}"):
                sess.run(steps[k % 3], {x: batch, ids: [k % 5, 9 if k // 3 % 4 == 3 else 1]})
            if k % 15 == 14:
                sess.run(following.initializer)
            record.value(f"after {k}", sess.run(tf.global_variables()))


def program_summarized(record):
    """Summaries of TensorFlow 2's kind, and the step that an accumulator knows, beside checks and the end of data."""
    x = tf.placeholder(tf.float32, [None, 4], name="x")
    h, _ = _normalized(tf.where(tf.is_finite(x), x, tf.zeros_like(x)), 4)
    following = tf.data.make_initializable_iterator(tf.data.Dataset.range(3))
    accumulator = tf.ConditionalAccumulator(tf.float32, [])
    writer = tf2.summary.create_file_writer("told")
    with writer.as_default(step=tf.constant(1, tf.int64)):
        tf2.summary.write("mean", tf.reduce_mean(h))
        tf2.summary.write("largest", tf.reduce_max(h))
    told = [tf.summary.all_v2_summary_ops(), accumulator.set_global_step(tf.cast(tf.reduce_sum(tf.square(h)), tf.int64))]
    ends = [tf.debugging.check_numerics(x, "x"), following.get_next()]
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), following.initializer, writer.init()])
        for k in range(16):
            batch = np.sin(np.arange(8.0).reshape(2, 4) + k)
            batch[1, 1] = np.nan if k % 4 == 2 else batch[1, 1]
            with record.error(f"{k}"):
                sess.run([told, ends[k % 2]], {x: batch})
            sess.run(writer.flush())
            paths = [os.path.join("told", name) for name in sorted(os.listdir("told"))]
            values = [value for path in paths for event in tf.train.summary_iterator(path) for value in event.summary.value]
            for tag in ("mean", "largest"):
                record.value(f"{tag} {k}", [tf.make_ndarray(value.tensor) for value in values if value.tag == tag])
