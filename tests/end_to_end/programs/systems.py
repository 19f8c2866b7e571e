"""Training programs after the shape of larger systems: experts behind gates, actors in processes of their own, a toolbox's loop.

Each of them is small, and has the constructs for which the large ones are known.
"""

import multiprocessing

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.framework import function


def weights(name, shape, seed, resource=True):
    return tf.get_variable(name, shape, initializer=tf.truncated_normal_initializer(stddev=0.3, seed=seed), use_resource=resource)


def program_experts(record):
    """Experts to which examples are sent by gates with noise, values put together again by where they came from; gradients that are
    turned dense in functions that are not inlined, an optimizer with factored moments, activations of half precision."""

    @function.Defun(tf.float32, tf.float32, noinline=True, func_name="DenseGradientsBackwards")
    def backwards(before, gradient):
        del before
        return tf.convert_to_tensor(gradient)

    @function.Defun(
        tf.float32, noinline=True, grad_func=backwards, shape_func=lambda op: [op.inputs[0].get_shape()], func_name="DenseGradients"
    )
    def dense_gradients(x):
        return x

    ids = tf.placeholder(tf.int32, [6], "ids")
    y = tf.placeholder(tf.float32, [6, 3], "y")
    table = weights("table", [10, 4], 1)
    x = tf.gather(dense_gradients(table), ids)
    gates_in = tf.matmul(x, weights("gate", [4, 3], 2))
    noisy = gates_in + tf.random_normal(tf.shape(gates_in), seed=4) * (
        tf.nn.softplus(tf.matmul(x, weights("noise", [4, 3], 3))) + 1e-2
    )
    top_values, top_at = tf.nn.top_k(noisy, 2)
    gates = tf.reduce_sum(tf.one_hot(top_at, 3) * tf.expand_dims(tf.nn.softmax(top_values), -1), axis=1)
    where = tf.where(tf.transpose(gates) > 0.0)
    expert, example = tf.unstack(where, num=2, axis=1)
    sizes = tf.reduce_sum(tf.cast(gates > 0.0, tf.int32), 0)
    inputs = tf.split(tf.gather(x, example), sizes, 0, num=3)
    outputs = []
    for k, part in enumerate(inputs):
        with tf.device(f"/cpu:{k % 2}"), tf.variable_scope(f"expert{k}"):
            outputs.append(
                tf.cast(
                    tf.matmul(
                        tf.nn.relu(tf.cast(tf.matmul(part, weights("a", [4, 5], 5)), tf.float16)),
                        tf.cast(weights("b", [5, 3], 6), tf.float16),
                    ),
                    tf.float32,
                )
            )
    kept = tf.gather(tf.reshape(tf.transpose(gates), [-1]), expert * 6 + example)
    stitched = tf.unsorted_segment_sum(tf.concat(outputs, 0) * tf.expand_dims(kept, 1), example, 6)
    load = tf.reduce_sum(gates, 0)
    balance = tf.nn.moments(load, [0])[1] / (tf.square(tf.reduce_mean(load)) + 1e-6)
    loss = tf.reduce_mean(tf.square(stitched - y)) + 0.01 * balance
    variables = tf.trainable_variables()
    gradients = tf.gradients(loss, variables)
    slots = [
        (
            tf.get_variable(f"row{k}", [v.shape[0]], initializer=tf.zeros_initializer(), trainable=False, use_resource=True),
            tf.get_variable(f"column{k}", [v.shape[1]], initializer=tf.zeros_initializer(), trainable=False, use_resource=True),
        )
        for k, v in enumerate(variables)
    ]
    updates = []
    with tf.control_dependencies([loss, *gradients]):
        for v, g, (rows, columns) in zip(variables, gradients, slots, strict=True):
            squares = tf.square(g) + 1e-30
            new_rows = rows * 0.8 + tf.reduce_mean(squares, 1) * 0.2
            new_columns = columns * 0.8 + tf.reduce_mean(squares, 0) * 0.2
            update = g * tf.expand_dims(tf.rsqrt(new_rows / tf.reduce_mean(new_rows)), 1) * tf.expand_dims(tf.rsqrt(new_columns), 0)
            clipped = update / tf.maximum(1.0, tf.sqrt(tf.reduce_mean(tf.square(update))))
            with tf.control_dependencies([clipped]):
                updates += [v.assign_sub(0.05 * clipped), rows.assign(new_rows), columns.assign(new_columns)]
    train = tf.group(*updates)
    with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(14):
            rng = np.random.RandomState(k)
            record.value(f"{k}", sess.run([loss, sizes, gates, train], {ids: rng.randint(0, 10, 6), y: rng.randn(6, 3)})[:3])
        record.value("all", sess.run(tf.global_variables()))


def environment(pipe):
    """A world in a process of its own: it is told what to do and tells what it sees."""
    state = np.zeros(3, np.float32)
    while True:
        action = pipe.recv()
        if action is None:
            return
        state = np.float32(0.9) * state + np.float32([action, 1 - action, 0.5])
        pipe.send((state.copy(), np.float32(state.sum() - 2.0)))


def program_actors(record):
    """An actor whose world is another process, behind Python functions in a scan; what it lived through goes through a queue and a
    staging area to a learner that corrects for how old it is; all of it in one monitored session."""
    fork = multiprocessing.get_context("fork")  # before any session of this program, as such programs have to
    ours, theirs = fork.Pipe()
    process = fork.Process(target=environment, args=(theirs,), daemon=True)
    process.start()

    def act(action):
        ours.send(int(action))
        return ours.recv()

    def policy(x):
        with tf.variable_scope("policy", reuse=tf.AUTO_REUSE):
            hidden = tf.tanh(tf.matmul(tf.reshape(x, [-1, 3]), weights("a", [3, 6], 1)))
            return tf.matmul(hidden, weights("logits", [6, 2], 2)), tf.squeeze(tf.matmul(hidden, weights("value", [6, 1], 3)), -1)

    state = tf.get_local_variable("state", [3], initializer=tf.zeros_initializer(), use_resource=True)

    def step(previous, _):
        seen, *_ = previous
        logits, _ = policy(seen)
        action = tf.squeeze(tf.multinomial(logits, 1, seed=7, output_dtype=tf.int32))
        new, reward = tf.py_func(act, [action], [tf.float32, tf.float32])
        new.set_shape([3])
        reward.set_shape([])
        return new, action, reward, tf.reshape(logits, [2])

    first = (state.read_value(), tf.constant(0), tf.constant(0.0), tf.zeros([2]))
    lived = tf.scan(step, tf.range(5), first, parallel_iterations=1)
    with tf.control_dependencies([state.assign(lived[0][-1])]):
        lived = [tf.identity(t) for t in lived]
    queue = tf.FIFOQueue(2, [t.dtype for t in lived], [t.shape for t in lived], name="lives")
    put = queue.enqueue(lived)
    states, actions, rewards, old = queue.dequeue()
    logits, values = policy(states)
    log_now = -tf.nn.sparse_softmax_cross_entropy_with_logits(labels=actions, logits=logits)
    log_old = -tf.nn.sparse_softmax_cross_entropy_with_logits(labels=actions, logits=old)
    ratios = tf.minimum(1.0, tf.exp(tf.stop_gradient(log_now) - log_old))
    later = tf.concat([values[1:], values[-1:]], 0)
    deltas = ratios * (rewards + 0.9 * tf.stop_gradient(later) - tf.stop_gradient(values))
    backwards = [tf.reverse(t, [0]) for t in (ratios, deltas)]
    corrections = tf.scan(lambda a, e: e[1] + 0.9 * e[0] * a, backwards, tf.constant(0.0), parallel_iterations=1, back_prop=False)
    targets = tf.stop_gradient(tf.reverse(corrections, [0]) + values)
    loss = -tf.reduce_sum(log_now * tf.stop_gradient(rewards + targets - values)) + 0.5 * tf.reduce_sum(tf.square(targets - values))
    train = tf.train.RMSPropOptimizer(0.01, 0.9, 0.0, 0.1).minimize(loss, tf.train.get_or_create_global_step())
    with tf.train.SingularMonitoredSession() as sess:
        for k in range(10):
            sess.run(put)
            if k % 2:
                sess.run(put)
                record.value(f"first {k}", sess.run([loss, train])[0])
            record.value(f"{k}", sess.run([loss, rewards, actions, train])[:3])
        record.value("state", sess.run(state))
    ours.send(None)
    process.join(20)
    record.value("the world ended with", process.exitcode)


def program_toolbox(record):
    """The functions that reinforcement learning code is built of: compiled functions with updates and givens, initializers of what is
    new only, flat weights, running moments fed by Python, variables loaded and saved by name; several models in several graphs."""

    def single(graph):
        return tf.Session(graph=graph, config=tf.ConfigProto(inter_op_parallelism_threads=1, intra_op_parallelism_threads=1))

    done = set()

    def initialize(sess):
        new = set(tf.global_variables()) - done
        sess.run(tf.variables_initializer(sorted(new, key=lambda v: v.name)))
        done.update(new)

    def compiled(inputs, outputs, updates=(), givens=None):
        sess, group = tf.get_default_session(), tf.group(*updates)
        defaults = dict(givens or {})

        def call(*args, **named):
            fed = {
                **defaults,
                **dict(zip(inputs, args, strict=False)),
                **{t: named[t.op.name] for t in inputs if t.op.name in named},
            }
            return sess.run([*outputs, group], fed)[:-1]

        return call

    kept = []
    for number in range(2):
        graph = tf.Graph()
        with graph.as_default():
            tf.set_random_seed(number)
            sess = single(graph).__enter__()
            x, a = tf.placeholder(tf.float32, [None, 3], "x"), tf.placeholder(tf.float32, [None, 2], "a")
            clip = tf.placeholder(tf.float32, [], "clip")
            count, total, squares = (
                tf.get_variable(
                    n, s, tf.float64, tf.constant_initializer(1e-2 if n == "count" else 0.0), trainable=False, use_resource=True
                )
                for n, s in (("count", []), ("total", [3]), ("squares", [3]))
            )
            mean = tf.cast(total / count, tf.float32)
            deviation = tf.sqrt(tf.maximum(tf.cast(squares / count, tf.float32) - tf.square(mean), 1e-2))
            batch = tf.cast(x, tf.float64)
            moments = [
                total.assign_add(tf.reduce_sum(batch, 0)),
                squares.assign_add(tf.reduce_sum(tf.square(batch), 0)),
                count.assign_add(tf.cast(tf.shape(x)[0], tf.float64)),
            ]
            learn = compiled([x], [], moments)
            hidden = tf.tanh(tf.matmul(tf.clip_by_value((x - mean) / deviation, -5.0, 5.0), weights("a", [3, 4], 1)))
            middle = tf.matmul(hidden, weights("mean", [4, 2], 2))
            log_std = tf.get_variable("log_std", [1, 2], initializer=tf.zeros_initializer(), use_resource=True)
            normal = tf.distributions.Normal(middle, tf.exp(log_std) + tf.zeros_like(middle))
            wide = tf.distributions.Normal(tf.zeros_like(middle), tf.ones_like(middle))
            loss = -tf.reduce_mean(tf.minimum(tf.reduce_sum(normal.log_prob(a), -1), clip)) + 0.01 * tf.reduce_mean(
                tf.distributions.kl_divergence(normal, wide)
            )
            drawn = normal.sample(seed=9)
            variables = tf.trainable_variables()
            flat = tf.concat([tf.reshape(g, [-1]) for g in tf.gradients(loss, variables)], 0)
            theta = tf.placeholder(tf.float32, [None], "theta")
            sizes = [int(np.prod(v.shape.as_list())) for v in variables]
            parts = [tf.reshape(p, v.shape) for p, v in zip(tf.split(theta, sizes), variables, strict=True)]
            set_flat = compiled([theta], [], [v.assign(p) for v, p in zip(variables, parts, strict=True)])
            get_flat = compiled([], [tf.concat([tf.reshape(v, [-1]) for v in variables], 0)])
            gradient = compiled([x, a, clip], [loss, flat], givens={clip: 3.0})
            act = compiled([x], [drawn, normal.entropy()])
            initialize(sess)
            kept.append((sess, learn, gradient, get_flat, set_flat, act, variables))
    for k in range(12):
        sess, learn, gradient, get_flat, set_flat, act, variables = kept[k % 2]
        rng = np.random.RandomState(k)
        learn(rng.randn(5, 3) * 2.0)
        value, slope = gradient(rng.randn(5, 3), a=rng.randn(5, 2))
        set_flat(get_flat()[0] - 0.1 * slope)
        record.value(f"{k}", [value, slope, act(rng.randn(2, 3))])
        if k % 5 == 4:
            values = {v.name: sess.run(v) for v in variables}
            other = kept[(k + 1) % 2]
            with other[0].graph.as_default():
                for v in other[-1]:
                    v.load(values[v.name] * 0.5, other[0])
            record.value(f"loaded {k}", other[3]())
    for sess, *_ in reversed(kept):
        sess.__exit__(None, None, None)
