"""Steps that fail now and then, and after which the program goes on: what else they had to do is done."""

import os

import numpy as np
import tensorflow.compat.v1 as tf


def _trained(x, name, depth=4):
    """A step that trains `depth` layers on x [2, 4], with Adam and a counter."""
    h = x
    with tf.variable_scope(name, use_resource=True):
        for k in range(depth):
            w = tf.get_variable(f"w{k}", [4, 4], initializer=tf.constant_initializer(0.1 * (k + 1)))
            h = tf.tanh(tf.matmul(h, w))
        count = tf.get_variable("count", [], tf.int64, tf.zeros_initializer(), trainable=False)
    return tf.train.AdamOptimizer(0.01).minimize(tf.reduce_mean(tf.square(h - 0.3)), count)


def _three_times(record, train, ends, feed_of):
    """Each of `ends` beside training three times, and amiss at the third."""
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        for k in range(3 * len(ends)):
            with record.error(f"{k}"):
                sess.run([ends[k // 3], train], feed_of(k, k % 3 == 2))
            record.value(f"after {k}", sess.run(tf.global_variables()))


def program_branch(record):
    """A variable that is given its value late, and is read in a branch that is seldom taken, of both generations."""
    x, taken = tf.placeholder(tf.float32, [2, 4], name="x"), tf.placeholder(tf.bool, [], name="taken")
    steps = [_trained(x, "first"), _trained(x, "second")]
    own = tf.global_variables()
    with tf.variable_scope("late", use_resource=True):
        late = [tf.get_variable(f"teacher{k}", [4, 4], initializer=tf.ones_initializer(), trainable=False) for k in range(2)]
    scores = [tf.cond(taken, lambda: tf.reduce_sum(tf.matmul(x, late[0])), lambda: tf.constant(0.0))]
    tf.enable_control_flow_v2()
    scores.append(tf.cond(taken, lambda: tf.reduce_sum(tf.matmul(x, late[1])), lambda: tf.constant(0.0)))
    tf.disable_control_flow_v2()
    with tf.Session() as sess:
        sess.run(tf.variables_initializer(own))
        for k in range(24):
            with record.error(f"{k}"):
                feed = {x: np.sin(np.arange(8.0).reshape(2, 4) + k), taken: k % 8 in (4, 5)}
                record.value(f"{k}", sess.run([scores[k % 2], steps[k % 2]], feed)[0])
            record.value(f"after {k}", sess.run(own))
            if k == 15:
                sess.run([each.initializer for each in late])


def program_filed(record):
    """What was computed of each batch is written to a file while the next batch is fetched, and the data ends."""
    batch = tf.placeholder(tf.float32, [2, 4], name="batch")
    number = tf.placeholder(tf.int32, [], name="number")
    with tf.variable_scope("net", use_resource=True):
        w = tf.get_variable("w", [4, 4], initializer=tf.constant_initializer(0.2))
    h = batch
    for _ in range(6):
        h = tf.tanh(tf.matmul(h, w))
    following = tf.data.make_initializable_iterator(
        tf.data.Dataset.range(8).map(lambda k: tf.fill([4], tf.cast(k, tf.float32))).batch(2)
    )
    told = tf.io.write_file(tf.strings.join(["told", tf.as_string(number)]), tf.as_string(tf.reduce_sum(h)))
    element = following.get_next()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for epoch in range(4):
            sess.run(following.initializer)
            now = sess.run(element)
            for k in range(4):
                with record.error(f"{epoch} {k}"):
                    now = sess.run([element, told], {batch: now, number: 4 * epoch + k})[0]
            record.value(f"files {epoch}", sorted((name, open(name).read()) for name in os.listdir(".") if name.startswith("told")))


def program_unsuited(record):
    """What is given something that does not suit, and is fetched beside training: pictures, sizes, indices, ranges."""
    x, bad = tf.placeholder(tf.float32, [2, 4], name="x"), tf.placeholder(tf.bool, [], name="bad")
    train, ids = _trained(x, "net"), tf.placeholder(tf.int32, [None], name="ids")
    text, size = tf.placeholder(tf.string, [], name="text"), tf.placeholder(tf.int32, [], name="size")
    serialized = tf.io.serialize_many_sparse(tf.SparseTensor([[0, 0]], [1.0], [1, 2]))
    ends = [
        tf.image.decode_gif(text),
        tf.image.decode_bmp(text),
        tf.unravel_index(ids, [5]),
        tf.image.extract_glimpse(tf.ones([2, 8, 8, 1]), tf.stack([size, 2]), tf.zeros([2, 2])),
        tf.image.resize_area(tf.ones([1, 4, 4, 1]), tf.stack([size, 2])),
        tf.raw_ops.RaggedRange(starts=[0], limits=[5], deltas=[size], Tsplits=tf.int64),
        tf.quantization.quantize(x, tf.cast(1 - size, tf.float32) * 4.0, 1.0, tf.quint8),
        tf.io.deserialize_many_sparse(tf.where(bad, tf.constant([["a", "b", "c"]]), serialized), tf.float32),
        tf.math.segment_min(x, ids[:2]),
    ]

    def feed_of(k, amiss):
        wrong = {bad: amiss, text: b"", size: 0, ids: [3, 7]} if amiss else {bad: amiss, text: b"", size: 1, ids: [0, 1]}
        return {x: np.sin(np.arange(8.0).reshape(2, 4) + k), **wrong}

    _three_times(record, train, ends, feed_of)


def program_sized(record):
    """What is fed has another size than what it meets: products, sums, parts, variables, accumulators, tables; and places to write."""
    x, y = tf.placeholder(tf.float32, [2, 4], name="x"), tf.placeholder(tf.float32, [None, None], name="y")
    train, ids = _trained(x, "net"), tf.placeholder(tf.int32, [None], name="ids")
    with tf.variable_scope("", use_resource=True, initializer=tf.zeros_initializer()):
        kept, places = tf.get_variable("kept", [2, 4]), tf.get_variable("places", [5])
    empty = {"empty_key": 7, "deleted_key": -1}
    ends = [
        tf.matmul(y, tf.ones([4, 2])),
        y + tf.ones([2, 4]),
        tf.concat([y, tf.ones([2, 4])], 0),
        tf.stack([y, tf.ones([2, 4])]),
        tf.einsum("ij,kj->ik", y, tf.ones([3, 4])),
        tf.broadcast_to(y, [2, 4]),
        tf.image.non_max_suppression(tf.ones([2, 4]), y[:, 0], 2),
        tf.assign(kept, y),
        tf.assign_add(kept, y),
        tf.ConditionalAccumulator(tf.float32, [2, 4]).apply_grad(y),
        tf.lookup.experimental.DenseHashTable(tf.int32, tf.float32, 0.0, **empty).insert(ids, tf.cast(ids, tf.float32)),
        tf.scatter_add(places, ids, tf.ones_like(ids, tf.float32)),
        tf.scatter_nd_update(places, ids[:, None], tf.ones_like(ids, tf.float32)),
        tf.function(lambda given: tf.matmul(given, tf.ones([4, 2])))(y),
    ]

    def feed_of(k, amiss):
        wrong = {y: np.ones((3, 3)), ids: [3, 7]} if amiss else {y: np.ones((2, 4)), ids: [0, 1]}
        return {x: np.sin(np.arange(8.0).reshape(2, 4) + k), **wrong}

    _three_times(record, train, ends, feed_of)


def program_looped(record):
    """What refuses something in a loop of the first generation, beside training."""
    x, n = tf.placeholder(tf.float32, [2, 4], name="x"), tf.placeholder(tf.int32, [], name="n")
    train, ids = _trained(x, "net"), tf.placeholder(tf.int32, [None], name="ids")

    def checked(i, total):
        with tf.control_dependencies([tf.Assert(tf.logical_or(i < 1, n > 1), ["round", i])]):
            return i + 1, total + 1.0

    ends = [
        tf.while_loop(lambda i, _: i < 3, checked, (0, 1.0)),
        tf.while_loop(
            lambda i, _: i < 3, lambda i, c: (i + 1, tf.check_numerics(c * 0.5 / tf.cast(n - 1, tf.float32), "c")), (0, 1.0)
        ),
        tf.map_fn(lambda place: tf.gather(tf.range(5), place), ids),
        tf.cond(n > 0, lambda: tf.while_loop(lambda i, _: i < 3, checked, (0, 1.0)), lambda: (0, 0.0)),
    ]

    def feed_of(k, amiss):
        return {x: np.sin(np.arange(8.0).reshape(2, 4) + k), n: 1 if amiss else 2, ids: [3, 7] if amiss else [0, 1]}

    _three_times(record, train, ends, feed_of)


def program_kept(record):
    """What is fed is kept as it is beside checks, and training behind a look-up beside an accumulator that refuses."""
    x, ids = tf.placeholder(tf.float32, [2, 4], name="x"), tf.placeholder(tf.int32, [None], name="ids")
    y = tf.placeholder(tf.float32, [None, None], name="y")
    with tf.variable_scope("", use_resource=True, initializer=tf.ones_initializer()):
        table, last = tf.get_variable("table", [6, 4]), tf.get_variable("last", [2, 4])
        memory = tf.get_variable("memory", [6, 4])
    at = tf.cast(tf.clip_by_value(x[:, 0], 0, 5), tf.int32)
    loss = tf.reduce_sum(tf.square(tf.nn.embedding_lookup(table, at) - tf.sin(x)))
    train = [tf.train.AdagradOptimizer(0.1).minimize(loss), tf.assign(last, x).op, tf.scatter_add(memory, [0, 5], x).op]
    gathered = tf.ConditionalAccumulator(tf.float32, shape=[2, 4], shared_name="gathered")
    ends = [
        tf.check_numerics(1 / tf.reduce_min(y), "no batch"),
        tf.assert_less(ids, 4),
        tf.gather(tf.range(4), ids),
        gathered.apply_grad(y),
    ]

    def feed_of(k, amiss):
        shape = (2, 5) if amiss and k // 3 == 3 else (2, 4)
        fed = np.zeros(shape) if amiss and k // 3 == 0 else np.ones(shape)
        return {x: np.arange(8.0).reshape(2, 4) + k % 5, ids: [0, 5 if amiss else 3], y: fed}

    _three_times(record, train, ends, feed_of)


def program_mapped(record):
    """Look-ups and products in loops, one for each element of what is fed, of both generations."""
    x, ids = tf.placeholder(tf.float32, [2, 4], name="x"), tf.placeholder(tf.int32, [None], name="ids")
    y = tf.placeholder(tf.float32, [None, None], name="y")
    train, rows = _trained(x, "net"), tf.range(4.0)

    def looped():
        yield tf.map_fn(lambda at: tf.gather(rows, at), ids, tf.float32)
        yield tf.map_fn(lambda at: tf.gather(rows, at + 1), ids, tf.float32)
        yield tf.foldl(lambda total, at: total + rows[at], ids, 0.0)
        one = lambda total: total + tf.reduce_sum(tf.matmul(y, tf.ones([4, 2])))  # noqa: E731
        yield tf.while_loop(lambda i, _: i < 2, lambda i, total: (i + 1, one(total)), [0, 0.0])[1]

    ends = list(looped())
    tf.enable_control_flow_v2()
    ends += looped()
    tf.disable_control_flow_v2()

    def feed_of(k, amiss):
        return {x: np.cos(np.arange(8.0).reshape(2, 4) + k), ids: [0, 4 if amiss else 2], y: np.ones((2, 5 if amiss else 4))}

    _three_times(record, train, ends, feed_of)


def program_numbered(record):
    """Errors in bodies of loops and conditions of the second generation, in each other and in functions, in a graph that grows."""
    tf.enable_control_flow_v2()
    x, y = tf.placeholder(tf.float32, [2, 4], name="x"), tf.placeholder(tf.float32, [None, None], name="y")

    def summed(value, many):
        return value + tf.reduce_sum(tf.matmul(y, tf.ones([4, many])))

    def chosen(value, many):
        return tf.cond(value > 100.0, lambda: value, lambda: summed(value, many))

    with tf.name_scope("outer/inner"):
        nested = tf.while_loop(lambda i, _: i < 3, lambda i, value: (i + 1, chosen(value, 2)), [0, 0.0])[1]
    branch = chosen(tf.reduce_sum(x), 5)
    train, steps = _trained(x, "net"), [nested, branch]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(24):
            if k == 12:
                steps.append(chosen(tf.reduce_mean(x), 7))
            for n, step in enumerate(steps):
                with record.error(f"{k} {n}"):
                    fed = {x: np.sin(np.arange(8.0).reshape(2, 4) + k), y: np.ones((2, 4 + k % 2))}
                    record.value(f"{k} {n}", sess.run([step, train], fed)[0])
            record.value(f"after {k}", sess.run(tf.global_variables()))
    tf.disable_control_flow_v2()
