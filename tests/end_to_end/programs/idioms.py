"""Patterns of graph-mode code: frozen graphs, warm starts, scopes, strings, samplers, losses, raw loops, old input functions."""

import numpy as np
import tensorflow.compat.v1 as tf


def program_frozen(record):
    """A trained graph is frozen, imported beside itself and run in the same session."""
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    w = tf.get_variable("w", [3, 2], initializer=tf.random_normal_initializer(seed=1), use_resource=False)
    y = tf.nn.softmax(tf.matmul(x, w), name="y")
    train = tf.train.AdagradOptimizer(0.3).minimize(-tf.reduce_mean(tf.log(y[:, 0])))
    feed = {x: [[1.0, 2.0, 3.0], [0.5, 0.1, -1.0]]}
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(6):
            sess.run(train, feed)
            frozen = tf.graph_util.convert_variables_to_constants(sess, sess.graph_def, ["y"])
            record.proto(f"frozen {k}", frozen)
            (again,) = tf.import_graph_def(frozen, {"x:0": x}, ["y:0"], name=f"frozen{k}")
            record.value(f"{k}", sess.run([y, again], feed))
            record.proto(f"session's {k}", sess.graph_def)
    record.graph("graph")


def program_warm_start(record):
    with tf.Graph().as_default(), tf.Session() as sess:
        a = tf.get_variable("old/a", [4], initializer=tf.random_normal_initializer(seed=2))
        b = tf.get_variable("old/b", [2, 2], initializer=tf.random_normal_initializer(seed=3))
        sess.run(tf.global_variables_initializer())
        path = tf.train.Saver([a, b]).save(sess, "first")
    record.value("listed", [(n, list(s)) for n, s in tf.train.list_variables(path)])
    with tf.variable_scope("new"):
        a = tf.get_variable("a", [4], initializer=tf.zeros_initializer())
        b = tf.get_variable("b", [2, 2], initializer=tf.zeros_initializer(), use_resource=True)
    c = tf.get_variable("c", [2], initializer=tf.ones_initializer())
    tf.train.init_from_checkpoint(path, {"old/": "new/"})
    step = tf.group(tf.assign_add(a, a), b.assign_add(b), tf.assign_add(c, c))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(8):
            record.value(f"{k}", sess.run([a, b, c]))
            sess.run(step)
        with record.error("other shape"):
            wrong = tf.get_variable("wrong", [9])
            tf.train.Saver({"old/a": wrong}).restore(sess, path)
        with record.error("no such variable"):
            tf.train.Saver({"old/z": a}).restore(sess, path)
    record.graph("graph")


def program_scopes(record):
    def doubled(getter, *args, **kwargs):
        return getter(*args, **kwargs) * 2.0

    def regularizer(t):
        return 0.01 * tf.nn.l2_loss(t)

    with tf.variable_scope("a", initializer=tf.constant_initializer(0.5), regularizer=regularizer) as scope:
        v = tf.get_variable("v", [2])
        with tf.variable_scope("b", custom_getter=doubled):
            u = tf.get_variable("u", [2])
    with tf.variable_scope(scope, reuse=True):
        same = tf.get_variable("v", [2])
    with tf.variable_scope("default", "name", [v]), tf.name_scope("inner"):
        t = tf.get_variable("t", [2], initializer=tf.ones_initializer())
    with record.error("exists"), tf.variable_scope("a"):
        tf.get_variable("v", [2])
    with record.error("does not exist"), tf.variable_scope("a", reuse=True):
        tf.get_variable("w", [2])
    template = tf.make_template("template", lambda x: x * tf.get_variable("scale", [], initializer=tf.ones_initializer()))
    one, two = template(v), template(t)
    loss = tf.add_n(tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)) + tf.reduce_sum(one + two) + tf.reduce_sum(u)
    train = tf.train.FtrlOptimizer(0.1).minimize(loss)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(9):
            # Not with the training: no gradient of a sum needs what these read, and plainly, too, they may come after the update.
            record.value(f"{k}", sess.run([loss, same, u, t]))
            sess.run(train)
    record.value("names", [w.name for w in tf.global_variables()])
    record.graph("graph")


def program_strings(record):
    text = tf.placeholder(tf.string, [None], name="text")
    words = tf.strings.split(text)
    replaced = tf.strings.regex_replace(text, r"(\w+) (\w+)", r"\2 \1")
    hashed = tf.strings.to_hash_bucket_fast(text, 97)
    parts = tf.strings.substr(text, 1, 2)
    numbers = tf.strings.to_number(tf.strings.regex_replace(text, r"\D", ""), tf.int64)
    joined = tf.strings.reduce_join(text, separator="|")
    upper = tf.strings.upper(tf.strings.strip(text))
    lengths = tf.strings.length(text, unit="UTF8_CHAR")
    formatted = tf.strings.format("lengths {}, hashes {}", [lengths, hashed])
    encoded = tf.io.decode_base64(tf.io.encode_base64(text))
    with tf.Session() as sess:
        for k in range(9):
            feed = {text: [f"ab {k}", f"é{k} xy", f"{k}{k} zz"]}
            record.value(f"{k}", sess.run([words, replaced, hashed, parts, joined, upper, lengths, formatted, encoded], feed))
            record.value(f"numbers {k}", sess.run(numbers, feed))
            with record.error(f"no number {k}"):
                sess.run(tf.strings.to_number(text), feed)


def program_examples(record):
    """Serialized examples, in batches, sparse and sequences."""
    serialized = tf.placeholder(tf.string, [None], name="serialized")
    parsed = tf.parse_example(
        serialized,
        {
            "dense": tf.FixedLenFeature([2], tf.float32),
            "sparse": tf.VarLenFeature(tf.int64),
            "missing": tf.FixedLenFeature([], tf.string, "none"),
        },
    )
    table = tf.get_variable("table", [20, 3], initializer=tf.random_uniform_initializer(seed=5))
    embedded = tf.nn.embedding_lookup_sparse(table, parsed["sparse"], None, combiner="mean")
    logits = tf.reduce_sum(embedded, 1) + tf.reduce_sum(parsed["dense"], 1)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.zeros_like(logits), logits=logits))
    train = tf.train.AdamOptimizer(0.1).minimize(loss)

    def example(k):
        feature = {
            "dense": tf.train.Feature(float_list=tf.train.FloatList(value=[k, 0.5])),
            "sparse": tf.train.Feature(int64_list=tf.train.Int64List(value=[k % 20, (k * 7) % 20][: 1 + k % 2])),
        }
        return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()

    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(10):
            record.value(f"{k}", sess.run([loss, parsed, embedded, train], {serialized: [example(k), example(k + 1)]})[:3])
        with record.error("not an example"):
            sess.run(loss, {serialized: [b"\xff\xff"]})
    record.graph("graph")


def program_raw_rnn(record):
    x = tf.placeholder(tf.float32, [5, 2, 3], name="x")
    inputs = tf.TensorArray(tf.float32, 5).unstack(x)
    w = tf.get_variable("w", [5, 2], initializer=tf.glorot_uniform_initializer(seed=1))

    def body(i, state, outputs):
        state = tf.tanh(tf.matmul(tf.concat([inputs.read(i), state], 1), w))
        state = tf.cond(tf.reduce_sum(state) > 0.2, lambda: state * 0.5, lambda: state)
        return i + 1, state, outputs.write(i, state)

    loop = tf.while_loop(lambda i, *_: i < 5, body, [0, tf.zeros([2, 2]), tf.TensorArray(tf.float32, 5)], parallel_iterations=4)
    outputs = loop[2].stack()
    loss = tf.reduce_mean(tf.square(outputs - 0.3))
    gradients, variables = zip(*tf.train.AdamOptimizer(0.05).compute_gradients(loss), strict=True)
    clipped, norm = tf.clip_by_global_norm(gradients, 0.5)
    train = tf.train.AdamOptimizer(0.05, name="second").apply_gradients(list(zip(clipped, variables, strict=True)))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(9):
            feed = {x: np.cos(np.arange(30.0) + k).reshape(5, 2, 3)}
            record.value(f"{k}", sess.run([loss, outputs, norm, train], feed)[:3])
    with record.error("second order"):
        tf.gradients(tf.reduce_sum(tf.square(gradients[0])), w)
    record.graph("graph")


def program_higher_gradients(record):
    x = tf.placeholder(tf.float32, [3], name="x")
    w = tf.get_variable("w", [3], initializer=tf.constant_initializer([0.5, -0.25, 2.0]))
    y = tf.reduce_sum(tf.sin(x * w) * tf.exp(w))
    (g,) = tf.gradients(y, w, grad_ys=tf.constant(2.0))
    stopped = tf.gradients(y + tf.reduce_sum(tf.stop_gradient(w * w)), [w, x], stop_gradients=[x])
    hessian = tf.hessians(y, w)[0]
    product = tf.gradients(tf.reduce_sum(g * tf.constant([1.0, 2.0, 3.0])), w)[0]
    none = tf.gradients(y, tf.constant(1.0))
    step = tf.assign_sub(w, 0.1 * g)
    with tf.Session() as sess:
        sess.run(w.initializer)
        for k in range(9):
            record.value(f"{k}", sess.run([y, g, stopped, hessian, product], {x: [k, 1.0, -0.5]}))
            sess.run(step, {x: [k, 1.0, -0.5]})
    record.value("none", none)


def program_losses(record):
    """A model with every kind of parameter sharing: tied weights, two optimizers, moving averages, switched branches."""
    x = tf.placeholder(tf.float32, [4, 6], name="x")
    labels = tf.placeholder(tf.int32, [4], name="labels")
    training = tf.placeholder_with_default(False, [], name="training")
    w = tf.get_variable("w", [6, 5], initializer=tf.variance_scaling_initializer(seed=1))
    hidden = tf.nn.leaky_relu(tf.matmul(x, w))
    mean, variance = tf.nn.moments(hidden, [0])
    moving = tf.get_variable("moving", [5], initializer=tf.zeros_initializer(), trainable=False)
    with tf.control_dependencies(
        [tf.cond(training, lambda: tf.assign(moving, moving * 0.9 + mean * 0.1), lambda: tf.identity(moving))]
    ):
        normed = tf.cond(training, lambda: (hidden - mean) * tf.rsqrt(variance + 1e-3), lambda: hidden - moving)
    back = tf.matmul(normed, w, transpose_b=True)
    out = tf.get_variable("out", [5, 3], initializer=tf.zeros_initializer())
    loss = tf.losses.sparse_softmax_cross_entropy(labels, tf.matmul(normed, out)) + 0.1 * tf.losses.mean_squared_error(x, back)
    total = tf.losses.get_total_loss()
    step = tf.train.get_or_create_global_step()
    rate = tf.train.piecewise_constant(step, [3, 6], [0.1, 0.05, 0.01])
    first = tf.train.RMSPropOptimizer(rate, momentum=0.5).minimize(loss, var_list=[w])
    second = tf.train.AdadeltaOptimizer(0.5).minimize(total, step, var_list=[out])
    top = tf.nn.in_top_k(tf.matmul(normed, out), labels, 1)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            feed = {x: np.cos(np.arange(24.0) * (k + 1)).reshape(4, 6), labels: [0, 1, 2, k % 3], training: k % 4 != 3}
            record.value(f"{k}", sess.run([loss, total, rate, first], feed)[:3])
            record.value(f"second {k}", sess.run([top, second, step], feed)[0:3:2])
            record.value(f"moving {k}", sess.run(moving))
    record.graph("graph")


def program_old_inputs(record):
    """slice_input_producer, fixed order; string records through a padding queue; a bounded number of epochs."""
    rows, marks = tf.train.slice_input_producer(
        [np.arange(12.0).reshape(6, 2), np.arange(6)], num_epochs=2, shuffle=False, capacity=4
    )
    batch = tf.train.batch([rows, marks], 3, num_threads=1, capacity=6, allow_smaller_final_batch=True)
    queue = tf.PaddingFIFOQueue(20, [tf.int32], [[None]])
    n = tf.placeholder(tf.int32, [], name="n")
    put, some = queue.enqueue([tf.range(n)]), queue.dequeue_many(2)
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess, coordinator)
        with record.error("end"):
            for k in range(20):
                record.value(f"batch {k}", sess.run(batch))
        coordinator.request_stop()
        coordinator.join(threads)
        for k in range(6):
            for m in (k, k + 1, 1):
                sess.run(put, {n: m})
            record.value(f"padded {k}", sess.run(some))
            record.value(f"left {k}", sess.run(queue.size()))
            record.value(f"taken {k}", sess.run(queue.dequeue()))


def program_moved_queues(record):
    """Queues with content of every type, full, closed and handed on, between many short runs."""
    x = tf.placeholder(tf.float32, [2], name="x")
    full = tf.FIFOQueue(3, [tf.float32, tf.string], shapes=[[2], []], name="full")
    loose = tf.FIFOQueue(50, [tf.float32], name="loose")
    mixed = tf.FIFOQueue(50, [tf.bool, tf.complex64, tf.uint8, tf.float64, tf.half], name="mixed")
    ranked = tf.PriorityQueue(20, [tf.string], [[]], name="ranked")
    v = tf.get_variable("v", [], initializer=tf.zeros_initializer())
    count = tf.assign_add(v, 1.0)
    put = full.enqueue([x, tf.as_string(x[0])])
    on = loose.enqueue([tf.concat([full.dequeue()[0], [3.0]], 0)])
    many = loose.enqueue([tf.zeros([tf.cast(x[0], tf.int32), 2])])
    put_mixed = mixed.enqueue(
        [x[0] > 1, tf.complex(x[0], x[1]), tf.cast(x[0], tf.uint8), tf.cast(x[1], tf.float64), tf.cast(x[0], tf.half)]
    )
    rank = ranked.enqueue([tf.cast(x[0], tf.int64) % 5, tf.as_string(x[1])])
    with tf.Session() as sess:
        sess.run(v.initializer)
        for k in range(12):
            sess.run([put, put_mixed, many], {x: [k, 1.0]})
            sess.run(rank, {x: [k, 2.0]}) if k < 5 else None
            if k >= 2:
                sess.run(on)
            record.value(f"count {k}", sess.run(count))
            record.value(f"sizes {k}", sess.run([full.size(), loose.size(), mixed.size(), ranked.size()]))
            if k % 3 == 2:
                record.value(f"loose {k}", [sess.run(loose.dequeue()) for _ in range(2)])
                record.value(f"mixed {k}", sess.run(mixed.dequeue()))
        sess.run(mixed.close())
        for k in range(4):
            record.value(f"closed {k}", sess.run(mixed.dequeue()))
        record.value("ranked", [sess.run(ranked.dequeue()) for _ in range(5)])
        with record.error("closed"):
            sess.run(put_mixed, {x: [1.0, 1.0]})
        with record.error("full"):
            for k in range(5):
                sess.run(put, {x: [k, 1.0]}, tf.RunOptions(timeout_in_ms=300))
        record.value("rest", [sess.run(full.dequeue()) for _ in range(3)])


def program_unordered(record):
    """A variable that is read and written without order: whatever it is, it is one of the two values."""
    v = tf.get_variable("v", [], initializer=tf.zeros_initializer(), use_resource=True)
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer(), use_resource=True)
    add, read = v.assign_add(1.0).op, v.read_value() * 1.0
    with tf.control_dependencies([w.assign_add(1.0).op]):
        ordered = w.read_value() * 1.0
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(9):
            seen = sess.run([read, add])[0]
            record.value(f"{k}", bool(seen in (k, k + 1)))
            record.value(f"then {k}", sess.run([v, ordered]))
