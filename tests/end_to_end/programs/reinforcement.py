"""Learning by acting: replay and target networks, environments behind py_func, actors in threads with parameters in common."""

import threading
from collections import deque

import numpy as np
import tensorflow.compat.v1 as tf
from training import dense, updated_after


class Walk:
    """A line of seven places; the right end pays, every step costs a little."""

    def __init__(self, seed):
        self.random, self.place, self.steps = np.random.RandomState(seed), 3, 0

    def reset(self):
        self.place, self.steps = 3, 0
        return self.see()

    def see(self):
        return np.eye(7, dtype=np.float32)[self.place]

    def step(self, action):
        slip = self.random.rand() < 0.1
        self.place = int(np.clip(self.place + (1 if (action == 1) != slip else -1), 0, 6))
        self.steps += 1
        done = self.place in (0, 6) or self.steps >= 12
        return self.see(), np.float32(1.0 if self.place == 6 else -0.05), done


def network(x, scope, outputs, reuse=None):
    with tf.variable_scope(scope, reuse=reuse):
        return dense(dense(x, 8, "h", tf.nn.relu), outputs, "out")


def program_deep_q(record):
    """Two copies of a network, a memory to sample from, clipped errors, a copy every few steps and a slow one at every step."""
    seen = tf.placeholder(tf.float32, [None, 7], name="seen")
    after = tf.placeholder(tf.float32, [None, 7], name="after")
    action = tf.placeholder(tf.int32, [None], name="action")
    reward = tf.placeholder(tf.float32, [None], name="reward")
    done = tf.placeholder(tf.bool, [None], name="done")
    explore = tf.placeholder(tf.float32, [], name="explore")
    q = network(seen, "q", 2)
    best = tf.argmax(network(after, "q", 2, True), 1, output_type=tf.int32)
    rows = tf.range(tf.size(best))
    later = tf.gather_nd(network(after, "target", 2), tf.stack([rows, best], 1))
    wanted = tf.stop_gradient(reward + 0.9 * tf.where(done, tf.zeros_like(later), later))
    error = tf.reduce_sum(q * tf.one_hot(action, 2), 1) - wanted
    loss = tf.reduce_mean(tf.where(tf.abs(error) < 1.0, 0.5 * tf.square(error), tf.abs(error) - 0.5))
    mine, theirs = tf.trainable_variables("q"), tf.global_variables("target")
    optimizer = tf.train.AdamOptimizer(0.01)
    train = optimizer.apply_gradients([(tf.clip_by_norm(g, 10.0), v) for g, v in optimizer.compute_gradients(loss, mine)])
    hard = tf.group(*[b.assign(a) for a, b in zip(mine, theirs, strict=True)], name="copy")
    with tf.control_dependencies([train]):
        soft = tf.group(*[b.assign(0.95 * b + 0.05 * a) for a, b in zip(mine, theirs, strict=True)])
    drawn = tf.random_uniform([tf.shape(seen)[0]], 0, 2, tf.int32, seed=3)
    dice = tf.random_uniform([tf.shape(seen)[0]], seed=4)
    act = tf.where(dice < explore, drawn, tf.argmax(q, 1, output_type=tf.int32))
    world, memory, rng = Walk(1), deque(maxlen=40), np.random.RandomState(2)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(hard)
        place = world.reset()
        for k in range(45):
            (a,) = sess.run(act, {seen: [place], explore: max(0.1, 1.0 - k / 20)})
            new, r, end = world.step(a)
            memory.append((place, a, r, new, end))
            place = world.reset() if end else new
            if len(memory) >= 8:
                batch = [memory[i] for i in rng.choice(len(memory), 8)]
                feed = dict(zip((seen, action, reward, after, done), map(np.array, zip(*batch, strict=True)), strict=True))
                record.value(f"{k}", sess.run([loss, error, soft if k % 3 else train], feed)[:2])
            if k % 15 == 14:
                sess.run(hard)
        record.value("learnt", sess.run(q, {seen: np.eye(7)}))
        record.value("target", sess.run(theirs))
    record.graph("graph")


def program_policy_gradient(record):
    """Whole episodes inside one run: the world is a Python function in a while loop; then one step on what was collected."""
    world = Walk(5)
    w = tf.get_variable("w", [7, 2], initializer=tf.zeros_initializer(), use_resource=True)

    def see(_):
        return world.reset()

    def act(action):
        place, reward, done = world.step(action)
        return place, reward, np.bool_(done)

    def body(i, place, done, places, actions, rewards):
        place.set_shape([7])
        logits = tf.matmul(tf.expand_dims(place, 0), w)
        action = tf.random.categorical(logits, 1, seed=6, dtype=tf.int32)[0, 0]
        new, reward, done = tf.py_func(act, [action], [tf.float32, tf.float32, tf.bool], name="act")
        new.set_shape([7])
        reward.set_shape([])
        done.set_shape([])
        return i + 1, new, done, places.write(i, place), actions.write(i, action), rewards.write(i, reward)

    first = tf.py_func(see, [tf.constant(0)], tf.float32, name="see")
    first.set_shape([7])
    arrays = [
        tf.TensorArray(t, 0, dynamic_size=True, element_shape=s) for t, s in ((tf.float32, [7]), (tf.int32, []), (tf.float32, []))
    ]
    out = tf.while_loop(
        lambda i, p, done, *_: tf.logical_not(done), body, [0, first, False, *arrays], parallel_iterations=1, back_prop=False
    )
    places, actions, rewards = (a.stack() for a in out[3:])
    fed = [tf.placeholder(t, s) for t, s in ((tf.float32, [None, 7]), (tf.int32, [None]), (tf.float32, [None]))]
    log = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=fed[1], logits=tf.matmul(fed[0], w))
    loss = tf.reduce_mean(log * (fed[2] - tf.reduce_mean(fed[2])))
    train = tf.train.AdamOptimizer(0.1).minimize(loss)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            seen, done, got = sess.run([places, actions, rewards])
            future = np.cumsum(got[::-1])[::-1]
            record.value(f"episode {k}", [seen, done, got])
            record.value(f"{k}", sess.run([loss, train], dict(zip(fed, [seen, done, future], strict=True)))[0])
        record.value("w", sess.run(w))
    record.graph("graph")


def program_actors(record):
    """Workers in threads, each with a network of its own on one session: gradients of theirs to the common one, weights back. They take turns."""
    workers = 3
    with tf.variable_scope("common"):
        common = network(tf.placeholder(tf.float32, [None, 7]), "net", 3)
    shared = tf.trainable_variables("common")
    optimizer = tf.train.RMSPropOptimizer(0.01)
    locals_, parts = [], []
    for k in range(workers):
        with tf.variable_scope(f"worker_{k}"):
            x = tf.placeholder(tf.float32, [None, 7], name="x")
            a = tf.placeholder(tf.int32, [None], name="a")
            r = tf.placeholder(tf.float32, [None], name="r")
            out = network(x, "net", 3)
            policy, value = tf.nn.softmax(out[:, :2]), out[:, 2]
            chosen = tf.reduce_sum(policy * tf.one_hot(a, 2), 1)
            gain = tf.stop_gradient(r - value)
            entropy = -tf.reduce_sum(policy * tf.log(policy + 1e-6))
            loss = tf.reduce_sum(tf.square(r - value)) - tf.reduce_sum(tf.log(chosen + 1e-6) * gain) - 0.01 * entropy
            mine = tf.trainable_variables(f"worker_{k}")
            clipped, norm = tf.clip_by_global_norm(tf.gradients(loss, mine), 5.0)
            push = optimizer.apply_gradients(list(zip(clipped, shared, strict=True)))
            pull = [m.assign(s) for m, s in zip(mine, shared, strict=True)]
            parts.append((x, a, r, policy, loss, norm, push, pull))
            locals_.append(mine)
    turns = [threading.Event() for _ in range(workers)]
    sess = tf.Session()
    sess.run(tf.global_variables_initializer())
    coordinator = tf.train.Coordinator()
    notes = []

    def work(k):
        x, a, r, policy, loss, norm, push, pull = parts[k]
        world = Walk(k)
        for _ in range(6):
            turns[k].wait()
            turns[k].clear()
            sess.run(pull)
            place, seen, done, got = world.reset(), [], [], []
            for _ in range(4):
                p = sess.run(policy, {x: [place]})[0]
                action = int(world.random.rand() < p[1])
                new, reward, end = world.step(action)
                seen, done, got = [*seen, place], [*done, action], [*got, reward]
                place = world.reset() if end else new
            notes.append(sess.run([loss, norm, push], {x: seen, a: done, r: got})[:2])
            turns[(k + 1) % workers].set()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(workers)]
    for thread in threads:
        thread.start()
    turns[0].set()
    coordinator.join(threads)
    record.value("notes", notes)
    record.value("common", sess.run([shared, common.op.inputs[1]]))
    record.value("locals", sess.run(locals_))
    sess.close()
    record.graph("graph")


def program_trust_region(record):
    """Products of the curvature with vectors, conjugate gradients from Python, weights set from one flat vector, a line search."""
    x = tf.placeholder(tf.float32, [None, 7], name="x")
    gain = tf.placeholder(tf.float32, [None], name="gain")
    old = tf.placeholder(tf.float32, [None, 2], name="old")
    policy = tf.nn.softmax(network(x, "policy", 2))
    variables = tf.trainable_variables("policy")
    surrogate = -tf.reduce_mean(policy[:, 1] / old[:, 1] * gain)
    divergence = tf.reduce_mean(tf.reduce_sum(old * (tf.log(old) - tf.log(policy)), 1))
    flat = tf.concat([tf.reshape(v, [-1]) for v in variables], 0)
    vector = tf.placeholder(tf.float32, [flat.shape[0]], name="vector")
    gradient = tf.concat([tf.reshape(g, [-1]) for g in tf.gradients(surrogate, variables)], 0)
    first = tf.concat([tf.reshape(g, [-1]) for g in tf.gradients(divergence, variables)], 0)
    product = tf.concat([tf.reshape(g, [-1]) for g in tf.gradients(tf.reduce_sum(first * vector), variables)], 0)
    pieces = tf.split(vector, [int(np.prod(v.shape.as_list())) for v in variables])
    put = [v.assign(tf.reshape(p, v.shape)) for v, p in zip(variables, pieces, strict=True)]
    rng = np.random.RandomState(3)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(4):
            feed = {x: rng.rand(6, 7), gain: rng.randn(6)}
            feed[old] = sess.run(policy, feed)
            g, before, loss = sess.run([gradient, flat, surrogate], feed)
            direction, residual = np.zeros_like(g), -g
            p, rr = residual.copy(), residual @ residual
            for _ in range(4):
                z = sess.run(product, {**feed, vector: p}) + 0.1 * p
                alpha = rr / (p @ z)
                direction, residual = direction + alpha * p, residual - alpha * z
                rr, last = residual @ residual, rr
                p = residual + rr / last * p
            for i in range(4):
                sess.run(put, {vector: before + direction * 0.5**i})
                after = sess.run([surrogate, divergence], feed)
                record.value(f"search {k} {i}", after)
                if after[0] < loss and after[1] < 0.05:
                    break
            record.value(f"{k}", [g, direction, sess.run(flat)])
    record.graph("graph")


def program_heads(record):
    """An actor and two critics on one trunk, each of which flattens what is flat already."""
    seen = tf.placeholder(tf.float32, [6, 5], name="seen")
    aimed = tf.placeholder(tf.float32, [6, 3], name="aimed")
    trunk = dense(seen, 8, "trunk", tf.nn.tanh)
    acting, judging = tf.reshape(trunk, [-1, 8]), tf.reshape(trunk, [-1, 8])
    mean, spread = dense(acting, 3, "mean"), dense(acting, 4, "spread")[:, 1:]
    judged = [dense(judging, 3, "first"), dense(judging, 5, "second")[:, 2:]]
    loss = tf.reduce_mean(tf.square((aimed - mean) * tf.exp(-spread)) + spread)
    loss += tf.add_n([tf.reduce_mean(tf.square(one - aimed)) for one in judged])
    train = updated_after(loss)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            draw = np.random.RandomState(k)
            record.value(f"{k}", sess.run([loss, train], {seen: draw.randn(6, 5), aimed: draw.randn(6, 3)})[0])
        record.value("all", sess.run(tf.global_variables()))
    record.graph("graph")


def program_multi_step(record):
    """Several steps of the optimizer in a loop, in a condition: now and then, as of policies. Within the branch gradients of what
    comes in by the condition always come."""
    x, due = tf.placeholder(tf.float32, [4, 6]), tf.placeholder(tf.bool, ())
    with tf.variable_scope("policy", use_resource=False):
        w = tf.get_variable("w", [6, 3], initializer=tf.orthogonal_initializer(seed=1))
        b = tf.get_variable("b", [3], initializer=tf.zeros_initializer())
    optimizer = tf.train.GradientDescentOptimizer(0.1)

    def step(k, total):
        logits = tf.nn.bias_add(tf.matmul(tf.tanh(x), w), b)
        loss = tf.reduce_mean(tf.square(tf.nn.softmax(logits) - 0.2) * 3.0)
        with tf.control_dependencies([optimizer.apply_gradients(optimizer.compute_gradients(loss, [w, b]))]):
            return k + 1, total + loss

    done = tf.cond(due, lambda: tf.while_loop(lambda k, _: k < 3, step, [0, 0.0]), lambda: (0, 0.0))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            fed = np.cos(np.arange(24.0) * (k + 1)).reshape(4, 6)
            record.value(f"{k}", [*sess.run(done, {x: fed, due: k % 3 != 1}), *sess.run([w, b])])
