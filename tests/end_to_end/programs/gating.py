"""Gradients that wait for each other (GATE_OP, tf.tuple), and what a program hangs on the moments at which they are there."""

import numpy as np
import tensorflow.compat.v1 as tf
from training import dense, images, normalized

STEPS = 10


def batch(k, n=8):
    rng = np.random.RandomState(k)
    return rng.randn(n, 6).astype("f"), rng.randint(0, 3, n)


def inputs():
    return tf.placeholder(tf.float32, [8, 6], name="x"), tf.placeholder(tf.int32, [8], name="y")


def tower(x, name, use_resource=None, layers=4, activation=tf.tanh):
    with tf.variable_scope(name, use_resource=use_resource):
        for k in range(layers):
            x = dense(x, 6, f"h{k}", activation)
        return dense(x, 3, "out")


def cross_entropy(y, logits):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))


def train(record, sess, x, y, fetches, label="", steps=STEPS):
    for k in range(steps):
        record.value(f"{label}{k}", sess.run(fetches, dict(zip((x, y), batch(k), strict=True)))[:-1])


def program_gates(record):
    """Every gate, both kinds of variables, ways to add up gradients, gradients beside their forward ops, and a global step.

    Without a gate gradients read reference variables that the same step writes: those values are not repeatable plainly.
    """
    x, y = inputs()
    optimizer, trains = tf.train.MomentumOptimizer(0.05, 0.9), []
    step = tf.train.get_or_create_global_step()
    ways = [tf.AggregationMethod.DEFAULT, tf.AggregationMethod.EXPERIMENTAL_ACCUMULATE_N, tf.AggregationMethod.EXPERIMENTAL_TREE]
    gates = [optimizer.GATE_OP, optimizer.GATE_GRAPH, optimizer.GATE_NONE]
    for k, (gate, way) in enumerate(zip([*gates, *gates[:2]], [*ways, *ways[1:]], strict=True)):
        with tf.variable_scope(f"net{k}", use_resource=k < 3):
            shared = dense(x, 6, "shared", tf.tanh)
            losses = [cross_entropy(y, tower(shared, f"t{i}", layers=2)) for i in range(3)]
            loss = tf.add_n(losses) + 0.1 * losses[0]
        mine = [v for v in tf.trainable_variables() if v.op.name.startswith(f"net{k}/")]
        how = {"gate_gradients": gate, "aggregation_method": way, "colocate_gradients_with_ops": k % 2 == 1}
        trains.append((loss, losses, optimizer.minimize(loss, step, var_list=mine, **how)))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k, (loss, losses, op) in enumerate(trains):
            train(record, sess, x, y, [loss, losses, op], f"{k}/", 6)
        everything = [t[0] for t in trains], [t[2] for t in trains]
        for k in range(4):
            record.value(f"all {k}", sess.run(everything, dict(zip((x, y), batch(k), strict=True)))[0])
        record.value("variables", sess.run(tf.global_variables()))
    record.graph("graph")


def program_clipped(record):
    """Global norm, gradients that are read, summed up and written before they are applied, reads after the update, moving averages."""
    x, y = inputs()
    loss = cross_entropy(y, tower(x, "net", use_resource=False)) + cross_entropy(y, tower(x, "other", use_resource=True))
    step = tf.train.get_or_create_global_step()
    optimizer = tf.train.AdamOptimizer(0.01)
    gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
    sums = [tf.get_variable(f"sum{k}", v.shape, initializer=tf.zeros_initializer(), trainable=False, use_resource=k % 2 == 0)
            for k, v in enumerate(variables)]  # fmt: skip
    clipped, norm = tf.clip_by_global_norm(gradients, 0.5)
    summary = tf.summary.merge([tf.summary.histogram(f"g{k}", g) for k, g in enumerate(gradients)] + [tf.summary.scalar("n", norm)])
    with tf.control_dependencies(gradients):
        gathered = [s.assign_add(g) for s, g in zip(sums, clipped, strict=True)]
    with tf.control_dependencies(gathered):
        before = [tf.identity(v.read_value()) for v in variables]
        with tf.control_dependencies(before):
            applied = optimizer.apply_gradients(list(zip(clipped, variables, strict=True)), step)
    averages = tf.train.ExponentialMovingAverage(0.9, step)
    with tf.control_dependencies([applied]):
        averaged = averages.apply(list(variables))
        after = [v.read_value() for v in variables]
    with tf.control_dependencies([averaged]):
        means = [averages.average(v).read_value() for v in variables]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        train(record, sess, x, y, [loss, norm, gradients, before, after, means, summary, applied])
        train(record, sess, x, y, [loss, gathered, applied], "fewer ", 4)
        train(record, sess, x, y, [gradients[:2], tf.no_op()], "first gradients only ", 4)
        record.value("variables", sess.run(tf.global_variables()))
    record.graph("graph")


@tf.custom_gradient
def through_python(x):
    def grad(dy):
        seen = tf.py_func(lambda a: a * np.float32(0.5) if a.dtype == np.float32 else a, [dy], tf.float32)
        seen.set_shape(dy.shape)
        return seen

    return tf.tanh(x), grad


def program_paths(record):
    """Python, custom gradients, stopped ones, branches and loops of both generations in the path; a fed layer; a random one."""
    x, y = inputs()
    with tf.variable_scope("net", use_resource=True):
        h = through_python(dense(x, 6, "a"))
        h = dense(h, 6, "b", tf.tanh)
        h = tf.nn.dropout(h, rate=0.3, seed=5)
        h = tf.cond(tf.reduce_sum(h) > 0.0, lambda: dense(h, 6, "c", tf.tanh), lambda: dense(h, 6, "d", tf.sigmoid))
        w = tf.get_variable("loop", [6, 6], initializer=tf.orthogonal_initializer(seed=3))
        _, h = tf.while_loop(lambda i, _: i < 3, lambda i, v: (i + 1, tf.tanh(tf.matmul(v, w))), [0, h])
        middle = tf.placeholder_with_default(dense(h, 6, "e", tf.tanh), [8, 6], name="middle")
        h = dense(dense(tf.stop_gradient(middle) + middle, 6, "f", tf.nn.relu), 6, "g", tf.nn.softplus)
        loss = cross_entropy(y, dense(dense(h, 6, "i", tf.nn.elu), 3, "out"))
    op = tf.train.RMSPropOptimizer(0.01).minimize(loss, tf.train.get_or_create_global_step())
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        train(record, sess, x, y, [loss, h, op])
        for k in range(4):
            a, b = batch(k)
            record.value(f"fed {k}", sess.run([loss, op], {x: a, y: b, middle: a})[0])
        record.value("variables", sess.run(tf.global_variables()))
    record.graph("graph")


def program_rivals(record):
    """Two losses with optimizers of their own that share layers, alternating and in one step, one after the other by control edges."""
    x, _ = inputs()
    noise = tf.random_normal([8, 6], seed=4)
    fake = dense(tower(noise, "g", layers=3), 6, "g/last")
    with tf.variable_scope("judge"):
        real_logits = tower(x, "d", layers=3)
    with tf.variable_scope("judge", reuse=True):
        fake_logits = tower(fake, "d", layers=3)
    d_loss = tf.reduce_mean(tf.nn.softplus(fake_logits)) + tf.reduce_mean(tf.nn.softplus(-real_logits))
    g_loss = tf.reduce_mean(tf.nn.softplus(-fake_logits))
    own = {c: [v for v in tf.trainable_variables() if v.op.name.startswith(c)] for c in ("g", "judge")}
    d_train = tf.train.AdamOptimizer(0.01, 0.5).minimize(d_loss, var_list=own["judge"])
    with tf.control_dependencies([d_train]):
        g_train = tf.train.AdamOptimizer(0.01, 0.5).minimize(g_loss, var_list=own["g"])
    penalty = tf.add_n([tf.reduce_sum(tf.square(g)) for g in tf.gradients(tf.reduce_sum(real_logits), x)])
    late = tf.train.GradientDescentOptimizer(0.01).minimize(penalty, var_list=own["judge"])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            feed = {x: batch(k)[0]}
            record.value(f"d {k}", sess.run([d_loss, d_train], feed)[0])
            record.value(f"both {k}", sess.run([d_loss, g_loss, g_train], feed)[:2])
            record.value(f"penalty {k}", sess.run([penalty, late], feed)[0])
        record.value("variables", sess.run(tf.global_variables()))
    record.graph("graph")


def program_rows(record):
    """Embeddings whose gradients are rows, under tuples with dense ones; tied weights; batch normalization with its updates in between."""
    ids, y = tf.placeholder(tf.int32, [8, 5], name="ids"), tf.placeholder(tf.int32, [8], name="y")
    table = tf.get_variable("table", [20, 6], initializer=tf.random_uniform_initializer(-1, 1, seed=1))
    rows = tf.nn.embedding_lookup(table, ids)
    h = dense(tf.reduce_mean(rows, 1), 6, "a", tf.tanh)
    h = tf.reshape(normalized(tf.reshape(h, [8, 1, 1, 6]), True, "n"), [8, 6])
    h = dense(dense(h, 6, "b", tf.nn.relu), 6, "c", tf.tanh)
    logits = tf.matmul(h, tf.slice(table, [0, 0], [3, 6]), transpose_b=True)
    loss = cross_entropy(y, logits) + 0.01 * tf.nn.l2_loss(tf.gather(table, [1, 1, 2]))
    trains = {}
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        for name, made in (("adam", tf.train.AdamOptimizer(0.01)), ("momentum", tf.train.MomentumOptimizer(0.1, 0.9))):
            trains[name] = made.minimize(loss)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for name, op in trains.items():
            for k in range(STEPS):
                rng = np.random.RandomState(k)
                feed = {ids: rng.randint(0, 20, (8, 5)), y: rng.randint(0, 3, 8)}
                record.value(f"{name} {k}", sess.run([loss, op], feed)[0])
        with record.error("an id that is not there"):
            sess.run([loss, trains["adam"]], {ids: np.full((8, 5), 20), y: np.zeros(8)})
        record.value("variables", sess.run(tf.global_variables()))
    record.graph("graph")


def program_refused(record):
    """Checks in and around gradients: the same error of the same op, and the same variables afterwards."""
    x, y = inputs()
    h = dense(x, 6, "a", tf.tanh)
    with tf.control_dependencies([tf.debugging.assert_all_finite(h, "h")]):
        h = dense(h, 6, "b", tf.nn.softplus)
    h = dense(tf.log(h), 6, "c", tf.tanh)
    loss = cross_entropy(y, dense(tf.check_numerics(h, "before the last"), 3, "out"))
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    pairs = [(tf.check_numerics(g, f"gradient {k}"), v) for k, (g, v) in enumerate(optimizer.compute_gradients(loss))]
    op = optimizer.apply_gradients(pairs, tf.train.get_or_create_global_step())
    alone = optimizer.minimize(loss)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            a, b = batch(k)
            if k % 4 == 3:
                with record.error(f"not a number {k}"):
                    sess.run([loss, (op, alone)[k % 8 == 3]], {x: np.full_like(a, np.nan), y: b})
            elif k % 4 == 2:
                with record.error(f"no such class {k}"):
                    sess.run([loss, (op, alone)[k % 8 == 2]], {x: a, y: b + 7})
            record.value(f"{k}", sess.run([loss, op], {x: a, y: b})[0])
            record.value(f"alone {k}", sess.run([loss, alone], {x: a, y: b})[0])
            record.value(f"variables {k}", sess.run(tf.global_variables()))
    record.graph("graph")


def program_convolved(record):
    """Convolutions with biases and plain normalization, gradients added up over two steps in variables of both kinds, then applied."""
    x, y = tf.placeholder(tf.float32, [8, 8, 8, 1], name="x"), tf.placeholder(tf.int32, [8], name="y")
    h = x
    for k in range(3):
        with tf.variable_scope(f"c{k}", use_resource=k != 1):
            w = tf.get_variable("w", [3, 3, h.shape[-1], 4], initializer=tf.truncated_normal_initializer(stddev=0.3, seed=k))
            b = tf.get_variable("b", [4], initializer=tf.zeros_initializer())
            scale = tf.get_variable("s", [4], initializer=tf.ones_initializer())
            c = tf.nn.bias_add(tf.nn.conv2d(h, w, 1, "SAME"), b)
            mean, variance = tf.nn.moments(c, [0, 1, 2])
            h = tf.nn.relu(tf.nn.batch_normalization(c, mean, variance, None, scale, 1e-3)) + (h if k else 0.0)
    loss = cross_entropy(y, dense(tf.reshape(tf.nn.max_pool2d(h, 2, 2, "SAME"), [8, 64]), 3, "out"))
    step = tf.train.get_or_create_global_step()
    optimizer = tf.train.AdamOptimizer(0.01)
    pairs = optimizer.compute_gradients(loss)
    kept = [tf.get_variable(f"k{k}", v.shape, initializer=tf.zeros_initializer(), trainable=False, use_resource=k % 2 == 0)
            for k, (_, v) in enumerate(pairs)]  # fmt: skip
    gather = tf.group(*[s.assign_add(g) for s, (g, _) in zip(kept, pairs, strict=True)])
    apply = optimizer.apply_gradients([(s / 2.0, v) for s, (_, v) in zip(kept, pairs, strict=True)], step)
    with tf.control_dependencies([apply]):
        apply = tf.group(*[s.assign(tf.zeros(s.shape)) for s in kept])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            feed = {x: images() * (1 + 0.01 * k), y: np.arange(8) % 3}
            record.value(f"{k}", sess.run([loss, gather], feed)[0])
            if k % 2:
                record.value(f"step {k}", sess.run([step, apply])[0])
        record.value("variables", sess.run(tf.global_variables()))
    record.graph("graph")


def program_fed_between(record):
    """Training steps that are fed a layer's output, so that gradients do not need what they need in other steps; linear layers."""
    x, y = inputs()
    h, hidden = x, []
    for k in range(5):
        w = tf.get_variable(f"w{k}", [6, 6], initializer=tf.orthogonal_initializer(seed=k), use_resource=k % 2 == 0)
        h = tf.matmul(h, w, name=f"linear{k}")
        hidden.append(h)
    loss = cross_entropy(y, dense(h, 3, "out"))
    op = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(16):
            a, b = batch(k)
            feed = {x: a, y: b} | ({hidden[k % 5]: batch(k + 50)[0]} if k % 3 else {})
            record.value(f"{k}", sess.run([loss, op], feed)[0])
            record.value(f"variables {k}", sess.run(tf.global_variables()))
    record.graph("graph")


def program_backwards_only(record):
    """Numbers are all right on the way forth and are not on the way back: the first of a chain of checks says so, nothing is written.

    Of checks without an order any may be the first, plainly too.
    """
    x, y = inputs()
    h = x
    for k in range(5):
        h = dense(h, 6, f"h{k}", tf.tanh)
    root = tf.sqrt(tf.square(tf.nn.relu(h - 10.0)))  # its gradient at 0 is infinite, and times 0 no number
    fine = cross_entropy(y, dense(h, 3, "out"))
    bad = fine + tf.reduce_sum(root)
    optimizer, steps = tf.train.MomentumOptimizer(0.1, 0.9), []
    for loss in (fine, bad):
        pairs, checks = optimizer.compute_gradients(loss), []
        for gradient, variable in reversed(pairs):
            with tf.control_dependencies(checks[-1:]):
                checks.append(tf.check_numerics(gradient, f"gradient of {variable.op.name}"))
        with tf.control_dependencies(checks):
            steps.append((loss, optimizer.apply_gradients(pairs)))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            feed = dict(zip((x, y), batch(k), strict=True))
            record.value(f"{k}", sess.run(steps[0], feed)[0])
            with record.error(f"not a number {k}"):
                sess.run(steps[1], feed)
            record.value(f"variables {k}", sess.run(tf.global_variables()))
    record.graph("graph")
