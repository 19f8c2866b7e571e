"""Every optimizer on dense, sparse and half-precision variables of both kinds; averages; what they write is read back."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

STEPS = 8


def rows(k):
    rng = np.random.RandomState(k)
    return rng.randint(0, 12, [4, 3]), rng.randn(4, 2).astype("f")


def every(step):
    train = tf.train
    return {
        "sgd": train.GradientDescentOptimizer(0.05),
        "momentum": train.MomentumOptimizer(0.05, 0.9),
        "nesterov": train.MomentumOptimizer(0.05, 0.9, use_nesterov=True),
        "adam": train.AdamOptimizer(0.01),
        "adagrad": train.AdagradOptimizer(0.1, initial_accumulator_value=0.2),
        "adagrad_da": train.AdagradDAOptimizer(0.1, step, l1_regularization_strength=0.001, l2_regularization_strength=0.01),
        "adadelta": train.AdadeltaOptimizer(0.5, 0.9),
        "ftrl": train.FtrlOptimizer(0.1, -0.5, l1_regularization_strength=0.001, l2_shrinkage_regularization_strength=0.01),
        "rmsprop": train.RMSPropOptimizer(0.01, 0.9, momentum=0.5),
        "centered": train.RMSPropOptimizer(0.01, 0.9, centered=True),
        "proximal": train.ProximalGradientDescentOptimizer(0.05, l1_regularization_strength=0.001),
        "proximal_adagrad": train.ProximalAdagradOptimizer(0.05, l2_regularization_strength=0.01),
    }


def lookups(record, use_resource):
    """One table, one dense layer for each optimizer; tables are read through gathers and sparse lookups."""
    ids = tf.placeholder(tf.int64, [4, 3], name="ids")
    y = tf.placeholder(tf.float32, [4, 2], name="y")
    step = tf.train.get_or_create_global_step()
    sparse = tf.sparse.from_dense(ids + 1)
    sparse = tf.SparseTensor(sparse.indices, sparse.values - 1, sparse.dense_shape)
    trains = {}
    for name, optimizer in every(step).items():
        with tf.variable_scope(name, use_resource=use_resource):
            table = tf.get_variable("table", [12, 4], initializer=tf.random_normal_initializer(seed=3))
            w = tf.get_variable("w", [4, 2], initializer=tf.glorot_uniform_initializer(seed=4))
            bag = tf.nn.embedding_lookup_sparse(table, sparse, None, combiner="sqrtn")
            h = tf.reduce_sum(tf.gather(table, ids), 1) * 0.5 + bag
            loss = tf.reduce_mean(tf.square(tf.matmul(tf.tanh(h), w) - y))
            grads = optimizer.compute_gradients(loss, [table, w])
            trains[name] = (loss, grads[0][0], optimizer.apply_gradients(grads, step), [table, w])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(STEPS):
            for name, (loss, grad, train, variables) in trains.items():
                feed = dict(zip((ids, y), rows(k), strict=True))
                record.value(f"{name} {k}", sess.run([loss, grad, train], feed)[:2])
                record.value(f"{name} variables {k}", sess.run(variables))
        record.value("all", {v.name: a for v, a in zip(tf.global_variables(), sess.run(tf.global_variables()), strict=True)})
    record.graph("graph")


def program_sparse_resource(record):
    lookups(record, True)


def program_sparse_reference(record):
    lookups(record, False)


def program_together(record):
    """All optimizers in one step; one variable of each, and one that several share, one after the other."""
    x = tf.placeholder(tf.float32, [3], name="x")
    step = tf.train.get_or_create_global_step()
    shared = tf.get_variable("shared", [3], initializer=tf.ones_initializer(), use_resource=True)
    trains, losses = [], []
    for k, (name, optimizer) in enumerate(every(step).items()):
        v = tf.get_variable(name, [3], initializer=tf.constant_initializer(0.1 * k), use_resource=True)
        with tf.control_dependencies(trains[-1:]):
            loss = tf.reduce_sum(tf.square(v - x) + tf.sin(shared.read_value() * x))
            with tf.control_dependencies([loss]):
                grads = optimizer.compute_gradients(loss, [v, shared], gate_gradients=k % 3)
            trains.append(optimizer.apply_gradients(grads, step if k % 4 == 0 else None))
        losses.append(loss)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(STEPS):
            record.value(f"{k}", sess.run([losses, trains[-1]], {x: [k, 1.0, -k]})[0])
            record.value(f"shared {k}", sess.run(shared))
        record.value("all", sess.run(tf.global_variables()))
    record.graph("graph")


def program_two_passes(record):
    """Two optimizers with a backward pass each of one loss, together and now and then alone, through rounds of a recurrent cell."""
    rng = np.random.RandomState(3)
    x = tf.placeholder(tf.float32, [7, 5], name="x")
    alone = tf.placeholder(tf.float32, [7, 5], name="alone")

    def trained(name, x):
        a, b = (tf.get_variable(name + v, [5, 6], initializer=tf.glorot_uniform_initializer(seed=6)) for v in "ab")
        weights = tf.constant(rng.randn(12, 24).astype("f") * 0.4)
        seen = tf.matmul(x, a) * 0.65 + tf.matmul(x, b) * 1.21
        output = state = tf.zeros([7, 6])
        for _ in range(3):
            gate, value, forget, out = tf.split(tf.matmul(tf.concat([seen, output], 1), weights), 4, 1)
            state = tf.sigmoid(forget + 1.0) * state + tf.sigmoid(gate) * tf.tanh(value)
            output = tf.sigmoid(out) * tf.tanh(state)
        loss = tf.reduce_mean(tf.square(tf.concat([seen, output, state], 1)))
        one = tf.train.GradientDescentOptimizer(0.1).minimize(loss, var_list=[a])
        return loss, one, tf.train.AdamOptimizer(0.01).minimize(loss, var_list=[b])

    together, apart = trained("together", x), trained("apart", alone)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(2 * STEPS):
            record.value(f"together {k}", sess.run(together, {x: rng.randn(7, 5)})[0])
            record.value(f"apart {k}", sess.run(apart[: k % 3 + 1], {alone: rng.randn(7, 5)})[0])
        record.value("all", sess.run(tf.global_variables()))
    record.graph("graph")


def counted_adam(count, used):
    """Adam by hand, as in Keras 2.3.1: its rate is made of `count`, which the same step counts in no order; `used` says of what."""
    x = tf.placeholder(tf.float32, [4, 3])
    rng = np.random.RandomState(11)
    weights = [
        tf.get_variable(f"w{k}", initializer=rng.randn(*shape).astype("f")) for k, shape in enumerate([(3, 6), (6,), (6, 2)])
    ]
    loss = tf.reduce_mean(tf.square(tf.matmul(tf.nn.relu(tf.matmul(x, weights[0]) + weights[1]), weights[2]) - 0.3))
    t = tf.cast(count.value, tf.float32) + 1.0
    rate = 0.05 * tf.sqrt(1.0 - tf.pow(0.99, t)) / (1.0 - tf.pow(0.9, t))
    updates = [count.write, used.assign(t)]
    for weight, grad in zip(weights, tf.tuple(tf.gradients(loss, weights)), strict=True):
        m, v = (tf.get_variable(f"{weight.op.name}/{k}", initializer=tf.zeros_like(weight.initial_value)) for k in "mv")
        m_t, v_t = 0.9 * m + 0.1 * grad, 0.99 * v + 0.01 * tf.square(grad)
        updates += [m.assign(m_t), v.assign(v_t), weight.assign(weight - rate * m_t / (tf.sqrt(v_t) + 1e-7))]
    return x, loss, tf.group(*updates)


class Count(NamedTuple):
    value: Any
    write: Any


def program_counted(record):
    """Counters beside what reads them. In the first 90 runs of a step plainly the read comes first, of these; later it may not."""
    for name, resource, steps in (("added", True, 24), ("next", True, 24), ("reference", False, 10)):
        with tf.Graph().as_default(), tf.variable_scope(name, use_resource=resource), tf.Session() as sess:
            n, used = tf.get_variable("n", [], tf.int64, tf.zeros_initializer()), tf.get_variable("used", initializer=0.0)
            count = Count(n, n.assign(n + 1) if name == "next" else tf.assign_add(n, 1))
            x, loss, train = counted_adam(count, used)
            sess.run(tf.global_variables_initializer())
            for k in range(steps):
                record.value(f"{name} loss {k}", sess.run([loss, train], {x: np.random.RandomState(k).randn(4, 3)})[0])
                record.value(f"{name} used {k}", sess.run(used))
            record.value(f"{name} all", sess.run(tf.global_variables()))


def program_velocities(record):
    """A sampler by hand (SGHMC) on reference variables: where it is, is made of the old velocities, which the same step writes."""
    data = np.random.RandomState(3).randn(20, 3).astype("f")
    wanted = data @ np.array([1.0, -2.0, 0.5], "f")
    for seed in range(8):
        config = tf.ConfigProto(inter_op_parallelism_threads=1)  # else plainly the slopes come first, now and then
        with tf.Graph().as_default(), tf.variable_scope("sampler", use_resource=False), tf.Session(config=config) as sess:
            tf.set_random_seed(seed + 1)
            at = tf.get_variable("at", initializer=0)
            chains = [tf.get_variable(f"chain{k}", [6, size], initializer=tf.zeros_initializer()) for k, size in ((0, 3), (1, 1))]
            speeds = [tf.get_variable(f"speed{k}", [size], initializer=tf.zeros_initializer()) for k, size in ((0, 3), (1, 1))]
            last = [tf.gather(chain, tf.maximum(at - 1, 0)) for chain in chains]
            left = tf.reduce_sum(data * last[0], 1) + last[1][0] - wanted
            density = -50.0 * tf.reduce_sum(tf.square(left)) - 0.5 * tf.add_n([tf.reduce_sum(tf.square(each)) for each in last])
            updates = []
            for chain, one, speed, slope in zip(chains, last, speeds, tf.gradients(density, last), strict=True):
                noise = 0.003 * tf.random_normal(one.shape)
                updates += [tf.scatter_update(chain, at, one + speed), speed.assign(0.95 * speed + 1e-4 * slope + noise).op]
            step, following = tf.group(*updates), at.assign_add(1)
            sess.run(tf.global_variables_initializer())
            for _ in range(6):
                sess.run(step)
                sess.run(following)
            record.value(f"{seed} all", sess.run([*chains, *speeds]))


def program_averages(record):
    """Moving averages with and without a debias, of variables and of tensors, kept in slots and swapped in to evaluate."""
    x = tf.placeholder(tf.float32, [4, 3], name="x")
    step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", [3, 2], initializer=tf.glorot_uniform_initializer(seed=1), use_resource=True)
    u = tf.get_variable("u", [2], initializer=tf.zeros_initializer(), use_resource=True)
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + u - 1.0))
    train = tf.train.MomentumOptimizer(0.1, 0.8).minimize(loss, step)
    plain = tf.train.ExponentialMovingAverage(0.9, name="plain")
    counted = tf.train.ExponentialMovingAverage(0.99, step, name="counted")
    debiased = tf.train.ExponentialMovingAverage(0.9, zero_debias=True, name="debiased")
    from tensorflow.python.training import moving_averages

    raw = tf.get_variable("raw", [], initializer=tf.zeros_initializer(), trainable=False, use_resource=True)
    biased = moving_averages.assign_moving_average(raw, loss, 0.7, zero_debias=True)
    weighted = moving_averages.weighted_moving_average(loss, 0.8, tf.reduce_sum(tf.abs(x)))
    with tf.control_dependencies([train]):
        applied = [plain.apply([w, u]), counted.apply([w, u]), debiased.apply([loss * 2.0])]
    averages = [e.average(v) for e in (plain, counted) for v in (w, u)]
    swapped = tf.group(*[tf.assign(v, plain.average(v)) for v in (w, u)])
    saver = tf.train.Saver(plain.variables_to_restore())
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(10):
            feed = {x: np.random.RandomState(k).randn(4, 3)}
            record.value(f"{k}", sess.run([loss, biased, weighted, applied], feed)[:3])
            record.value(f"averages {k}", sess.run(averages))
            if k % 4 == 3:
                path = saver.save(sess, "averages", k)
                sess.run(swapped)
                record.value(f"evaluated {k}", sess.run(loss, feed))
                saver.restore(sess, path)
                record.value(f"restored {k}", sess.run([w, u]))
        record.value("all", {v.name: a for v, a in zip(tf.global_variables(), sess.run(tf.global_variables()), strict=True)})
    record.graph("graph")


def program_older_checkpoint(record):
    """Slots that an older checkpoint has not: restored in part, initialized for the rest, by init_from_checkpoint and by hand."""

    def build(optimizer):
        x = tf.placeholder(tf.float32, [4, 3], name="x")
        w = tf.get_variable("w", [3, 2], initializer=tf.glorot_uniform_initializer(seed=1))
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - 1.0))
        return x, loss, optimizer.minimize(loss, tf.train.get_or_create_global_step()), optimizer

    path = ""
    for round_, make in enumerate(
        [
            lambda: tf.train.MomentumOptimizer(0.1, 0.9),
            lambda: tf.train.AdamOptimizer(0.1),
            lambda: tf.train.MomentumOptimizer(0.1, 0.9),
            lambda: tf.train.AdamOptimizer(0.1),
        ]
    ):
        with tf.Graph().as_default(), tf.Session() as sess:
            x, loss, train, optimizer = build(make())
            missing = tf.report_uninitialized_variables()
            if path and round_ % 2:
                there = {n for n, _ in tf.train.list_variables(path)}
                tf.train.init_from_checkpoint(path, {v.op.name: v for v in tf.global_variables() if v.op.name in there})
                sess.run(tf.global_variables_initializer())
            elif path:
                there = {n for n, _ in tf.train.list_variables(path)}
                old = [v for v in tf.global_variables() if v.op.name in there]
                with record.error(f"all {round_}"):
                    tf.train.Saver().restore(sess, path)
                tf.train.Saver(old).restore(sess, path)
                record.value(f"missing {round_}", sess.run(missing))
                sess.run(tf.variables_initializer([v for v in tf.global_variables() if v not in old]))
            else:
                sess.run(tf.global_variables_initializer())
            for k in range(5):
                record.value(f"{round_} {k}", sess.run([loss, train], {x: np.random.RandomState(k).randn(4, 3)})[0])
            record.value(
                f"slots {round_}",
                [optimizer.get_slot(v, n).op.name for n in optimizer.get_slot_names() for v in tf.trainable_variables()],
            )
            path = tf.train.Saver().save(sess, f"round{round_}")
            record.checkpoint(f"checkpoint {round_}", path)


def program_half(record):
    """Variables in half precision and bfloat16 with copies in float32, scaled losses, casts everywhere."""
    x = tf.placeholder(tf.float32, [4, 6], name="x")
    trains = []
    for kind in (tf.float16, tf.bfloat16):

        def in_full(getter, *args, dtype=None, kind=kind, **kwargs):
            kept = getter(*args, dtype=tf.float32, **kwargs)
            return tf.cast(kept, kind) if dtype == kind else kept

        with tf.variable_scope(kind.name, custom_getter=in_full, use_resource=True):
            h = tf.cast(x, kind)
            for k in range(3):
                w = tf.get_variable(f"w{k}", [6, 6], kind, tf.glorot_uniform_initializer(seed=k + 1))
                h = tf.nn.relu(tf.matmul(h, w)) + h * 0.5
            loss = tf.reduce_mean(tf.square(tf.cast(h, tf.float32) - 0.25))
            mine = tf.trainable_variables(kind.name)
            optimizer = tf.train.AdamOptimizer(0.01)
            grads = tf.gradients(loss * 128.0, mine, aggregation_method=tf.AggregationMethod.EXPERIMENTAL_ACCUMULATE_N)
            finite = tf.reduce_all([tf.reduce_all(tf.is_finite(g)) for g in grads])
            train = tf.cond(
                finite,
                lambda g=grads, m=mine, o=optimizer: o.apply_gradients([(a / 128.0, v) for a, v in zip(g, m, strict=True)]),
                tf.no_op,
            )
            trains += [[loss, finite, train]]
        own = tf.get_variable(f"own_{kind.name}", [4], kind, tf.ones_initializer(), use_resource=kind == tf.bfloat16)
        trains += [[tf.reduce_sum(own), tf.gradients(tf.reduce_sum(own * own), own), tf.assign_sub(own, own * tf.cast(0.1, kind))]]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(10):
            big = 1.0 if k != 6 else 1e4
            for i, fetches in enumerate(trains):
                if i % 2 == 0:
                    record.value(f"{i} {k}", sess.run(fetches, {x: np.random.RandomState(k).randn(4, 6) * big})[:2])
                else:
                    record.value(f"{i} {k}", str(sess.run(fetches[:2])))
                    sess.run(fetches[2])
        record.value("all", [str(v) for v in sess.run(tf.global_variables())])
    record.graph("graph")
