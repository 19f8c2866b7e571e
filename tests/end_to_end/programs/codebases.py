"""Training programs after the shape of code that many people run: language models, growing nets, generators of text.

Each of them is small, and has the constructs for which the large ones are known.
"""

import numpy as np
import tensorflow.compat.v1 as tf


def weights(name, shape, seed, resource=True):
    return tf.get_variable(name, shape, initializer=tf.truncated_normal_initializer(stddev=0.3, seed=seed), use_resource=resource)


class DecayedAdam(tf.train.Optimizer):
    """An optimizer written in ops on variables, with weight decay beside the moments and no slots of TensorFlow's own."""

    def __init__(self, rate, decay, exclude=("bias", "norm")):
        super().__init__(False, "DecayedAdam")
        self.rate, self.decay, self.exclude = rate, decay, exclude

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        updates = []
        for gradient, variable in grads_and_vars:
            if gradient is None:
                continue
            name_of = variable.op.name
            zeros = {
                "shape": variable.shape.as_list(),
                "trainable": False,
                "initializer": tf.zeros_initializer(),
                "use_resource": True,
            }
            m, v = tf.get_variable(f"{name_of}/adam_m", **zeros), tf.get_variable(f"{name_of}/adam_v", **zeros)
            new_m = tf.multiply(0.9, m) + tf.multiply(0.1, gradient)
            new_v = tf.multiply(0.999, v) + tf.multiply(0.001, tf.square(gradient))
            update = new_m / (tf.sqrt(new_v) + 1e-6)
            if not any(word in name_of for word in self.exclude):
                update += self.decay * variable
            with tf.control_dependencies([new_m, new_v]):
                new = variable - self.rate * update
            updates += [variable.assign(new), m.assign(new_m), v.assign(new_v)]
        return tf.group(*updates, name=name)


def attention(x, width, heads, seed):
    """Self-attention with heads, as pieces that are reshaped and transposed by what is known at run time."""
    batch, length = tf.shape(x)[0], tf.shape(x)[1]

    def part(name, k):
        flat = tf.matmul(tf.reshape(x, [-1, width]), weights(name, [width, width], seed + k))
        return tf.transpose(tf.reshape(flat, [batch, length, heads, width // heads]), [0, 2, 1, 3])

    q, k, v = part("q", 1), part("k", 2), part("v", 3)
    scores = tf.multiply(tf.matmul(q, k, transpose_b=True), 1.0 / np.sqrt(width // heads))
    mixed = tf.matmul(tf.nn.softmax(scores), v)
    joined = tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), [batch * length, width])
    return tf.reshape(tf.matmul(joined, weights("o", [width, width], seed + 4)), [batch, length, width])


def normed(x, name):
    """Layer normalization by moments and batch_normalization."""
    gamma = tf.get_variable(f"{name}_norm_gamma", [x.shape[-1]], initializer=tf.ones_initializer(), use_resource=True)
    beta = tf.get_variable(f"{name}_norm_beta", [x.shape[-1]], initializer=tf.zeros_initializer(), use_resource=True)
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, beta, gamma, 1e-6)


def encoder(ids, mask, width=8):
    table = weights("table", [20, width], 1)
    x = tf.reshape(tf.gather(table, tf.reshape(ids, [-1])), [tf.shape(ids)[0], -1, width])
    x = normed(x + tf.slice(weights("positions", [16, width], 2), [0, 0], [tf.shape(ids)[1], -1]), "in")
    for layer in range(2):
        with tf.variable_scope(f"layer_{layer}"):
            x = normed(x + attention(x, width, 2, 10 * layer), "attention")
            cubic = x + 0.044715 * tf.pow(x, 3)
            x = normed(x + 0.5 * cubic * (1.0 + tf.tanh(0.7978845608 * cubic)), "out")
    return x * tf.cast(tf.expand_dims(mask, -1), tf.float32), table


def program_masked_words(record):
    """Words that are masked are guessed with the embedding's own table, a warm-up by comparison, decay, accumulation by tf.cond; then a
    classifier starts from that checkpoint by a map of names, in a monitored session with a scaffold."""

    def batch(k):
        rng = np.random.RandomState(k)
        return (
            rng.randint(0, 20, (3, 6)),
            np.ones((3, 6), int),
            np.stack([rng.choice(6, 2, False) for _ in range(3)]),
            rng.randint(0, 20, (3, 2)),
        )

    with tf.Graph().as_default():
        ids, mask = tf.placeholder(tf.int32, [None, None], "ids"), tf.placeholder(tf.int32, [None, None], "mask")
        where, words = tf.placeholder(tf.int32, [None, 2], "where"), tf.placeholder(tf.int32, [None, 2], "words")
        with tf.variable_scope("net"):
            x, table = encoder(ids, mask)
        offsets = tf.reshape(tf.range(0, tf.shape(ids)[0]) * tf.shape(ids)[1], [-1, 1])
        chosen = tf.gather(tf.reshape(x, [-1, 8]), tf.reshape(where + offsets, [-1]))
        bias = tf.get_variable("bias", [20], initializer=tf.zeros_initializer(), use_resource=True)
        log_probs = tf.nn.log_softmax(tf.nn.bias_add(tf.matmul(chosen, table, transpose_b=True), bias))
        loss = -tf.reduce_mean(tf.reduce_sum(log_probs * tf.one_hot(tf.reshape(words, [-1]), 20), -1))
        step = tf.train.get_or_create_global_step()
        decayed = tf.train.polynomial_decay(0.02, step, 12, end_learning_rate=0.0, power=1.0)
        warm = tf.cast(tf.less(tf.cast(step, tf.int32), 3), tf.float32)
        rate = (1.0 - warm) * decayed + warm * 0.02 * tf.cast(step, tf.float32) / 3.0
        variables = tf.trainable_variables()
        optimizer = DecayedAdam(rate, 0.01)
        gradients = tf.gradients(loss, variables)
        local = [
            tf.get_variable(f"sum_{k}", v.shape.as_list(), initializer=tf.zeros_initializer(), trainable=False, use_resource=True)
            for k, v in enumerate(variables)
        ]
        every = 2

        def gathered():
            added = [s.assign_add(tf.convert_to_tensor(g)) for s, g in zip(local, gradients, strict=True)]
            return tf.group(*added)

        def applied():
            means = [(s + tf.convert_to_tensor(g)) / every for s, g in zip(local, gradients, strict=True)]
            clipped, _ = tf.clip_by_global_norm(means, 1.0)
            with (
                tf.control_dependencies(clipped),
                tf.control_dependencies([optimizer.apply_gradients(list(zip(clipped, variables, strict=True)))]),
            ):
                return tf.group(*[s.assign(tf.zeros_like(s)) for s in local])

        tensors = [tf.convert_to_tensor(g) for g in gradients]
        with tf.control_dependencies([*tensors, loss, rate]):
            either = tf.cond(tf.equal(tf.floormod(step, every), every - 1), applied, gathered)
        with tf.control_dependencies([either]):
            train = tf.group(step.assign_add(1))
        saver = tf.train.Saver([*variables, step])
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            for k in range(12):
                record.value(f"{k}", sess.run([loss, rate, train], dict(zip((ids, mask, where, words), batch(k), strict=True)))[:2])
            saver.save(sess, "pre/model", step)
            record.value("trained", sess.run(variables))
        record.graph("pretraining")
    tf.reset_default_graph()
    ids, mask = tf.placeholder(tf.int32, [None, None], "ids"), tf.placeholder(tf.int32, [None, None], "mask")
    with tf.variable_scope("net"):
        x, _ = encoder(ids, mask)
    pooled = tf.tanh(tf.matmul(tf.squeeze(x[:, 0:1, :], axis=1), weights("pool", [8, 8], 91)))
    loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=ids[:, 1] % 2, logits=tf.matmul(pooled, weights("head", [8, 2], 92)))
    )
    there = dict(tf.train.list_variables(tf.train.latest_checkpoint("pre")))
    assignment = {v.op.name: v.op.name for v in tf.trainable_variables() if v.op.name in there}
    record.value("taken", sorted(assignment))
    tf.train.init_from_checkpoint(tf.train.latest_checkpoint("pre"), assignment)
    step = tf.train.get_or_create_global_step()
    with tf.control_dependencies([loss]):
        train = tf.group(
            DecayedAdam(0.01, 0.01).apply_gradients(
                list(zip(tf.gradients(loss, tf.trainable_variables()), tf.trainable_variables(), strict=True))
            ),
            step.assign_add(1),
        )
    hooks = [tf.train.StopAtStepHook(last_step=8)]
    with tf.train.MonitoredTrainingSession(
        checkpoint_dir="fine", hooks=hooks, save_checkpoint_steps=4, save_summaries_steps=None, log_step_count_steps=None
    ) as sess:
        while not sess.should_stop():
            record.value("fine", sess.run([loss, train], dict(zip((ids, mask), batch(3)[:2], strict=True)))[0])
    record.checkpoint("fine", tf.train.latest_checkpoint("fine"))


def program_growing(record):
    """A picture net that grows by a variable: branches within branches that read it, averages of weights by assignment, statistics that
    the program gathers in variables inside conditions, a scaled loss; resolutions change between runs of one session."""
    lod = tf.get_variable("lod", [], initializer=tf.zeros_initializer(), trainable=False, use_resource=True)
    codes = tf.placeholder(tf.float32, [None, 4], "codes")
    moments = {}

    def tracked(name, value):
        v = moments[name] = tf.get_variable(
            f"stats_{name}", [3], initializer=tf.zeros_initializer(), trainable=False, use_resource=True
        )
        value = tf.cast(value, tf.float32)
        return v.assign_add(tf.stack([1.0, value, tf.square(value)]))

    def net(scope):
        with tf.variable_scope(scope):
            x = tf.nn.leaky_relu(tf.matmul(codes, weights("first", [4, 8], 1)))
            x = tf.reshape(x, [-1, 2, 2, 2])
            kernel = weights("grow", [3, 3, 2, 2], 2), weights("more", [3, 3, 2, 2], 3)

            def upscaled(t):
                return tf.image.resize_nearest_neighbor(t, [t.shape[1] * 2, t.shape[2] * 2])

            def level(t, at):
                bigger = tf.nn.leaky_relu(tf.nn.conv2d(upscaled(t), kernel[at], 1, "SAME"))
                blended = lambda: bigger + (upscaled(t) - bigger) * tf.clip_by_value(lod - (1.0 - at), 0.0, 1.0)  # noqa: E731
                if at == 1:
                    return tf.cond(lod < 1.0, blended, lambda: upscaled(t))
                return tf.cond(lod < 2.0, lambda: level(blended(), 1), lambda: upscaled(upscaled(t)))

            return tf.identity(level(x, 0), name="pictures")

    pictures = net("net")
    with tf.variable_scope("averaged"):
        slow = net("net")
    wanted = tf.placeholder(tf.float32, [None, 8, 8, 2], "wanted")
    loss = tf.reduce_mean(tf.square(pictures - wanted))
    scale = tf.get_variable("scale", [], initializer=tf.constant_initializer(8.0), trainable=False, use_resource=True)
    mine, theirs = (tf.trainable_variables(s) for s in ("net/", "averaged/"))
    gradients = [g / tf.exp(scale * 0.6931472) for g in tf.gradients(loss * tf.exp(scale * 0.6931472), mine)]
    fine = tf.reduce_all(tf.stack([tf.reduce_all(tf.is_finite(g)) for g in gradients]))
    optimizer = tf.train.AdamOptimizer(0.02, 0.0, 0.99)
    with tf.control_dependencies([loss, pictures, fine]):
        trained = tf.cond(
            fine,
            lambda: tf.group(optimizer.apply_gradients(list(zip(gradients, mine, strict=True))), scale.assign_add(0.0005)),
            lambda: tf.group(scale.assign_sub(1.0)),
        )
    with tf.control_dependencies([trained]):
        averaged = tf.group(*[s.assign(s + (v.read_value() - s) * 0.1) for v, s in zip(mine, theirs, strict=True)])
    with tf.control_dependencies([loss]):
        noted = tf.cond(tf.less(lod, 1.5), lambda: tf.identity(tracked("loss", loss)), lambda: tf.zeros([3]))
    shown = {}
    with tf.Session() as sess, tf.control_dependencies(None):
        sess.run(tf.global_variables_initializer())
        value = tf.placeholder(tf.float32, [], "new_lod")
        setter = lod.assign(value)
        for k in range(14):
            rng = np.random.RandomState(k)
            sess.run(setter, {value: max(0.0, 2.2 - 0.2 * k)})
            fed = {codes: rng.randn(3, 4), wanted: rng.randn(3, 8, 8, 2) * (np.inf if k == 5 else 1.0)}
            record.value(f"{k}", sess.run([loss, fine, noted, trained], fed)[:3])
            sess.run(averaged, {**fed, wanted: np.zeros((3, 8, 8, 2))})
            if k % 4 == 3:
                record.value(f"pictures {k}", sess.run([pictures, slow], {codes: fed[codes]}))
                for v in mine:  # setters that are made when they are first asked for
                    if v.op.name not in shown:
                        shown[v.op.name] = (tf.placeholder(tf.float32, v.shape), None)
                        shown[v.op.name] = (shown[v.op.name][0], v.assign(shown[v.op.name][0]))
                sess.run(
                    [setter for _, setter in shown.values()],
                    {p: np.clip(sess.run(v), -0.5, 0.5) for (p, _), v in zip(shown.values(), mine, strict=True)},
                )
        record.value("all", sess.run(tf.global_variables()))


def program_sampler(record):
    """A decoder that keeps what it computed for earlier words: trained on whole texts, sampled by a loop whose state grows, with
    top-k and temperatures, on the same session and between its steps."""
    words = 12

    def net(ids, past, reuse):
        with tf.variable_scope("lm", reuse=reuse):
            table, positions = weights("table", [words, 8], 1), weights("positions", [24, 8], 2)
            done = 0 if past is None else tf.shape(past)[-2]
            x = tf.gather(table, ids) + tf.gather(positions, done + tf.range(tf.shape(ids)[1]))
            presents, n = [], tf.shape(ids)[1]
            for layer in range(2):
                with tf.variable_scope(f"h{layer}"):
                    flat = tf.reshape(x, [-1, 8])
                    qkv = tf.reshape(tf.matmul(flat, weights("qkv", [8, 24], 3 + layer)), [tf.shape(ids)[0], -1, 24])
                    q, k, v = tf.split(qkv, 3, axis=2)
                    presents.append(tf.stack([k, v], axis=1))
                    if past is not None:
                        before_k, before_v = tf.unstack(past[:, layer], axis=1)
                        k, v = tf.concat([before_k, k], axis=1), tf.concat([before_v, v], axis=1)
                    i = tf.range(n)[:, None]
                    j = tf.range(tf.shape(k)[1])
                    mask = tf.cast(i >= j - tf.shape(k)[1] + n, tf.float32)
                    scores = tf.matmul(q, k, transpose_b=True) * 0.35
                    x = x + tf.matmul(tf.nn.softmax(scores * mask - 1e10 * (1.0 - mask)), v)
            logits = tf.reshape(tf.matmul(tf.reshape(x, [-1, 8]), table, transpose_b=True), [tf.shape(ids)[0], -1, words])
            return logits, tf.stack(presents, axis=1)

    context = tf.placeholder(tf.int32, [2, None], "context")
    logits, _ = net(context, None, False)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=context[:, 1:], logits=logits[:, :-1]))
    k, temperature = tf.placeholder(tf.int32, [], "k"), tf.placeholder_with_default(1.0, [], "temperature")

    def top(values):
        found, _ = tf.nn.top_k(values, k=k)
        return tf.where(values < found[:, -1, tf.newaxis], tf.ones_like(values) * -1e10, values)

    def body(past, previous, output):
        step_logits, presents = net(previous[:, tf.newaxis], past, True)
        kept = tf.cond(tf.equal(k, 0), lambda: step_logits[:, -1], lambda: top(step_logits[:, -1])) / temperature
        drawn = tf.multinomial(kept, num_samples=1, output_dtype=tf.int32, seed=5)
        return [tf.concat([past, presents], axis=-2), tf.squeeze(drawn, axis=[1]), tf.concat([output, drawn], axis=1)]

    _, first = net(context[:, :-1], None, True)
    _, _, sampled = tf.while_loop(
        lambda *_: True,
        body,
        [first, context[:, -1], context],
        maximum_iterations=7,
        back_prop=False,
        parallel_iterations=1,
        shape_invariants=[tf.TensorShape([None, 2, 2, None, 8]), tf.TensorShape([None]), tf.TensorShape([None, None])],
    )
    train = tf.train.AdamOptimizer(0.01).minimize(loss)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for at in range(16):
            record.value(f"{at}", sess.run([loss, train], {context: np.random.RandomState(at % 3).randint(0, words, (2, 9))})[0])
            if at % 3 == 2:
                record.value(f"sampled {at}", sess.run(sampled, {context: [[1, 2], [3, at % 12]], k: at % 4, temperature: 0.7}))
