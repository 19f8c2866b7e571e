"""Switches of TensorFlow's own that a program turns: kinds of variables, control flow of both generations; old layers."""

import numpy as np
import tensorflow.compat.v1 as tf
from training import dense


def program_kinds(record):
    """Variables and control flow of both kinds in one graph, one after the other, and optimizers over all of them."""
    x = tf.placeholder(tf.float32, [4, 3], name="x")
    h, regularized = x, []
    before = tf.resource_variables_enabled(), tf.control_flow_v2_enabled()
    try:
        for k in range(4):
            (tf.enable_resource_variables if k % 2 else tf.disable_resource_variables)()
            (tf.enable_control_flow_v2 if k // 2 else tf.disable_control_flow_v2)()
            with tf.variable_scope(f"part{k}"):
                h = dense(h, 3, "d", tf.tanh)
                big = tf.reduce_sum(h) > 0.0
                h = tf.cond(big, lambda h=h: h * 2.0 - tf.reduce_mean(h), lambda h=h: tf.sin(h) + 1.0)
                w = tf.get_variable("w", [3, 3], initializer=tf.orthogonal_initializer(seed=k))
                h = tf.while_loop(lambda i, _: i < 3, lambda i, v, w=w: (i + 1, tf.tanh(tf.matmul(v, w)) + 0.1 * v), [0, h])[1]
                regularized.append(tf.nn.l2_loss(w))
                record.value(f"kind {k}", [type(w).__name__, w.op.type, h.op.type])
        loss = tf.reduce_mean(tf.square(h - 0.5)) + 0.01 * tf.add_n(regularized)
        train = tf.train.AdamOptimizer(0.02).minimize(loss, tf.train.get_or_create_global_step())
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            for k in range(10):
                feed = {x: np.random.RandomState(k).randn(4, 3)}
                record.value(f"{k}", sess.run(loss, feed))  # not with the training: references may be written before it reads them
                sess.run(train, feed)
            record.value("all", sess.run(tf.global_variables()))
    finally:
        (tf.enable_resource_variables if before[0] else tf.disable_resource_variables)()
        (tf.enable_control_flow_v2 if before[1] else tf.disable_control_flow_v2)()
    record.graph("graph")


def program_layers(record):
    """tf.layers where this TensorFlow has them, by functions and by objects, shared, with regularizers and update ops."""
    if not hasattr(tf.layers, "dense"):
        record.value("this TensorFlow has no layers for graphs", tf.__version__)
        return
    x = tf.placeholder(tf.float32, [4, 8, 8, 2], name="x")
    training = tf.placeholder_with_default(False, [], name="training")
    y = tf.placeholder(tf.int32, [4], name="y")
    try:
        h = tf.layers.conv2d(
            x,
            4,
            3,
            padding="same",
            activation=tf.nn.relu,
            kernel_regularizer=tf.nn.l2_loss,
            name="c1",
            kernel_initializer=tf.glorot_uniform_initializer(seed=1),
        )
    except Exception as e:
        record.value("this TensorFlow has no layers for graphs", type(e).__name__)
        return
    h = tf.layers.batch_normalization(h, training=training, name="n1", fused=True)
    h = tf.layers.max_pooling2d(h, 2, 2)
    h = tf.layers.separable_conv2d(
        h,
        6,
        3,
        depthwise_initializer=tf.glorot_uniform_initializer(seed=2),
        pointwise_initializer=tf.glorot_uniform_initializer(seed=3),
    )
    h = tf.layers.batch_normalization(h, training=training, renorm=False, name="n2", fused=False)
    h = tf.layers.dropout(tf.layers.flatten(h), 0.3, seed=4, training=training)
    shared = tf.layers.Dense(5, tf.tanh, kernel_initializer=tf.glorot_uniform_initializer(seed=5), name="shared")
    h = shared(h) + shared(h * 0.5)
    logits = tf.layers.dense(h, 3, kernel_initializer=tf.glorot_uniform_initializer(seed=6))
    loss = tf.losses.sparse_softmax_cross_entropy(y, logits) + tf.losses.get_regularization_loss()
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train = tf.train.RMSPropOptimizer(0.01, momentum=0.9).minimize(loss, tf.train.get_or_create_global_step())
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(10):
            rng = np.random.RandomState(k)
            feed = {x: rng.randn(4, 8, 8, 2), y: rng.randint(0, 3, 4), training: True}
            record.value(f"{k}", sess.run(loss, feed))
            sess.run(train, feed)
            del feed[training]
            record.value(f"evaluated {k}", sess.run([loss, logits], feed))
        record.value("all", sess.run(tf.global_variables()))
    record.graph("graph")


def program_loops(record):
    """Loops with every setting: one iteration at a time, no gradient, values swapped out, shapes that grow, maximum counts; nested."""
    x = tf.placeholder(tf.float32, [3, 4], name="x")
    w = tf.get_variable("w", [4, 4], initializer=tf.orthogonal_initializer(0.9, seed=1), use_resource=True)
    parts = []
    for k, how in enumerate(
        [
            {"parallel_iterations": 1},
            {"swap_memory": True},
            {"maximum_iterations": 3},
            {"back_prop": False},
            {"parallel_iterations": 32, "swap_memory": True},
        ]
    ):

        def body(i, v, total):
            inner = tf.while_loop(lambda j, _: j < i, lambda j, u: (j + 1, tf.sin(u) * 1.1), [0, v], parallel_iterations=2)[1]
            return i + 1, tf.tanh(tf.matmul(inner, w)) + v * 0.5, total + tf.reduce_sum(inner)

        out = tf.while_loop(lambda i, v, t: tf.logical_and(i < 4, tf.reduce_max(v) < 50.0), body, (0, x * (k + 1.0), 0.0), **how)
        parts.append(out)
    grown = tf.while_loop(
        lambda i, v: i < 4,
        lambda i, v: (i + 1, tf.concat([v, v[:1] * 0.5], 0)),
        [0, x],
        [tf.TensorShape([]), tf.TensorShape([None, 4])],
    )[1]
    early = tf.while_loop(
        lambda i, a, b: i < 10,
        lambda i, a, b: tf.cond(tf.equal(i % 3, 0), lambda: (i + 2, a + b, b), lambda: (i + 1, b, a)),
        [0, x, x * 0.1],
    )
    loss = (
        tf.add_n([tf.reduce_mean(p[1]) + 0.01 * p[2] for p in parts if p is not parts[3]])
        + tf.reduce_sum(tf.matmul(tf.stop_gradient(grown), w)) * 0.01
    )
    grads = tf.gradients(loss, [w, x])
    second = tf.gradients(tf.reduce_sum(tf.square(tf.gradients(tf.reduce_sum(tf.matmul(tf.tanh(tf.matmul(x, w)), w)), w)[0])), w)
    train = tf.train.MomentumOptimizer(0.01, 0.9).apply_gradients([(grads[0] + 0.001 * second[0], w)])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(8):
            feed = {x: np.random.RandomState(k).randn(3, 4)}
            record.value(f"{k}", sess.run([parts, grown, early, loss, grads, second], feed))
            sess.run(train, feed)
        record.value("w", sess.run(w))
    record.graph("graph")


def program_asserted(record):
    """Every assertion, static and not, that holds and that fails, as control dependency and alone, in a branch and in a loop."""
    x = tf.placeholder(tf.float32, [None], name="x")
    n = tf.placeholder(tf.int32, [None], name="n")
    checks = {
        "positive": tf.assert_positive(x),
        "negative": tf.assert_negative(-x),
        "non_negative": tf.assert_non_negative(n),
        "equal": tf.assert_equal(n, n + 0 * tf.size(x), message="not the same"),
        "less": tf.assert_less(n, 100, data=[n, x], summarize=2),
        "less_equal": tf.assert_less_equal(x, 9.0),
        "greater": tf.assert_greater(x, -1.0),
        "none_equal": tf.assert_none_equal(x, 0.5),
        "near": tf.debugging.assert_near(x, tf.identity(x)),
        "rank": tf.assert_rank(n, 1),
        "at_least": tf.assert_rank_at_least(x, 1),
        "in": tf.assert_rank_in(x, (1, 2)),
        "integer": tf.debugging.assert_integer(n),
        "type": tf.debugging.assert_type(x, tf.float32),
        "finite": tf.debugging.assert_all_finite(x, "not finite"),
        "shapes": tf.debugging.assert_shapes([(x, ("N",)), (n, ("M",))]),
    }
    v = tf.get_variable("v", [], initializer=tf.zeros_initializer(), use_resource=True)
    held = [c for c in checks.values() if c is not None]
    with tf.control_dependencies(held):
        y = tf.identity(tf.reduce_sum(x), name="y")
        step = tf.assign_add(v, y)
    branch = tf.cond(tf.reduce_sum(x) > 3.0, lambda: tf.check_numerics(tf.log(x - 1.0), "in a branch"), lambda: x * 2.0)
    verified = tf.debugging.Assert(tf.reduce_all(x < 7.0), [x, n, "and words"], summarize=1)
    known = tf.ensure_shape(x, [2])
    with record.error("static"):
        tf.assert_equal(tf.constant([1, 2]), tf.constant([1, 3]), message="known at once")
    good = {x: [1.0, 2.0], n: [1, 2]}
    bad = [
        {x: [1.0, -2.0]},
        {n: [-1, 2]},
        {x: [0.25, 12.0]},
        {n: [300, 2]},
        {x: [0.5]},
        {x: [1.0, np.inf]},
        {x: [2.0, 3.0, np.nan]},
        {x: []},
    ]
    with tf.Session() as sess:
        sess.run(v.initializer)
        for k in range(3):
            for change in bad:
                record.value(f"good {k}", sess.run([y, branch, step], good)[:2])
                for name, check in checks.items():
                    if check is not None:
                        with record.error(f"{name} {k} {change}"):
                            record.value(name, sess.run(check, good | change))
                for name, what in (("branch", branch), ("verified", verified), ("known", known)):
                    with record.error(f"{name} {k}"):
                        record.value(name, sess.run(what, good | change))
            record.value(f"v {k}", sess.run(v))
    record.graph("graph")


def program_gradients(record):
    """Gradients bent by the program: stopped, custom, checkpointed, straight through, replaced, clipped by name, of recomputed blocks."""
    x = tf.placeholder(tf.float32, [4, 3], name="x")
    step = tf.train.get_or_create_global_step()

    @tf.custom_gradient
    def clipped(v):
        return tf.identity(v), lambda dy: tf.clip_by_value(dy, -0.01, 0.01)

    @tf.custom_gradient
    def log1pexp(v):
        e = tf.exp(v)
        return tf.log(1 + e), lambda dy: dy * (1 - 1 / (1 + e))

    @tf.custom_gradient
    def with_variables(v):
        with tf.variable_scope("inner", use_resource=True):
            w = tf.get_variable("w", [3, 3], initializer=tf.orthogonal_initializer(seed=7), use_resource=True)
        out = tf.matmul(v, w)
        return out, lambda dy, variables=None: (tf.matmul(dy, w, transpose_b=True), [tf.matmul(v, dy, transpose_a=True) * 0.5])

    @tf.RegisterGradient(f"Halved{id(record)}")
    def halved(op, dy):
        return dy * 0.5, dy * 2.0

    def block(k):
        def f(v):
            with tf.variable_scope("blocks", reuse=tf.AUTO_REUSE, use_resource=True):  # it is called again for the gradient
                w = tf.get_variable(f"block{k}", [3, 3], initializer=tf.orthogonal_initializer(seed=k))
            return tf.nn.relu(tf.matmul(v, w)) + v

        return f

    h = with_variables(clipped(x))
    for k in range(3):
        h = tf.recompute_grad(block(k))(h) if k != 1 else block(k)(h)
    with tf.get_default_graph().gradient_override_map({"AddV2": f"Halved{id(record)}"}):
        h = tf.raw_ops.AddV2(x=h, y=log1pexp(h))
    quantized = h + tf.stop_gradient(tf.round(h * 8.0) / 8.0 - h)
    target = tf.stop_gradient(tf.reduce_mean(quantized, 0, keepdims=True))
    loss = tf.reduce_mean(tf.square(quantized - target)) + 0.1 * tf.reduce_sum(tf.abs(quantized))
    variables = tf.trainable_variables()
    grads = tf.gradients(loss, variables, stop_gradients=[target], unconnected_gradients="zero")
    hess = tf.gradients(
        tf.add_n([tf.reduce_sum(g * g) for g in tf.gradients(tf.reduce_sum(tf.tanh(x @ variables[0])), [variables[0]])]),
        variables[0],
    )
    named = [(tf.clip_by_norm(g, 0.3) if "block" in v.name else g, v) for g, v in zip(grads, variables, strict=True)]
    train = tf.train.AdagradOptimizer(0.1).apply_gradients(named, step)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(10):
            feed = {x: np.random.RandomState(k).randn(4, 3)}
            record.value(f"{k}", sess.run([loss, grads, hess], feed))
            sess.run(train, feed)
        record.value("all", sess.run(variables))


def program_least_ops(record):
    """From how many ops on TensorFlow rewrites a graph, as the program says: one more than there are, no fewer, and always."""
    x = tf.placeholder(tf.float32, [None, 6])
    y = x
    for k in range(3):
        y = tf.tanh(tf.matmul(y, np.random.RandomState(k).randn(6, 6).astype("f")) * 0.7 * 0.3 + 0.1) + y
    count = len(tf.get_default_graph().get_operations())
    for name, least in (("more", count + 1), ("as many", count), ("always", -1)):
        config = tf.ConfigProto()
        config.graph_options.rewrite_options.min_graph_nodes = least
        with tf.Session(config=config) as sess:
            for k in range(8):
                record.value(f"{name} {k}", sess.run(y, {x: np.random.RandomState(k).randn(4, 6)}))
