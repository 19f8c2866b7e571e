"""Sequences: encoders and decoders with attention, language models over long texts, speech by CTC, beams."""

import numpy as np
import tensorflow.compat.v1 as tf
from training import dense


class Gated:
    """A cell with gates and a state of two tensors, as dynamic_rnn needs it."""

    def __init__(self, units):
        self.units = units
        self.output_size, self.state_size = units, (units, units)

    def __call__(self, inputs, state, scope=None):
        c, h = state
        with tf.variable_scope("gated", reuse=tf.AUTO_REUSE):
            shape = [inputs.shape[-1] + self.units, 4 * self.units]
            w = tf.get_variable("w", shape, initializer=tf.glorot_uniform_initializer(seed=self.units))
            b = tf.get_variable("b", [4 * self.units], initializer=tf.zeros_initializer())
        i, j, f, o = tf.split(tf.nn.bias_add(tf.matmul(tf.concat([inputs, h], 1), w), b), 4, 1)
        c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j)
        h = tf.sigmoid(o) * tf.tanh(c)
        return h, (c, h)

    def zero_state(self, batch, dtype):
        return (tf.zeros([batch, self.units], dtype), tf.zeros([batch, self.units], dtype))


def program_translator(record):
    """An encoder, a decoder with attention in a while loop, taught with the right words and then left to itself."""
    words, units, longest = 11, 6, 7
    source = tf.placeholder(tf.int32, [None, None], name="source")
    lengths = tf.placeholder(tf.int32, [None], name="lengths")
    target = tf.placeholder(tf.int32, [None, 5], name="target")
    table = tf.get_variable("table", [words, 4], initializer=tf.random_uniform_initializer(-0.5, 0.5, seed=1))
    memory, state = tf.nn.dynamic_rnn(Gated(units), tf.nn.embedding_lookup(table, source), lengths, dtype=tf.float32)
    mask = tf.sequence_mask(lengths, tf.shape(source)[1], tf.float32)
    keys = tf.tensordot(memory, tf.get_variable("keys", [units, units], initializer=tf.glorot_uniform_initializer(seed=2)), 1)
    out = tf.get_variable("out", [2 * units, words], initializer=tf.glorot_uniform_initializer(seed=3))
    cell = Gated(units)

    def one(token, state):
        with tf.variable_scope("decoder", reuse=tf.AUTO_REUSE):
            h, state = cell(tf.nn.embedding_lookup(table, token), state)
        scores = tf.reduce_sum(keys * tf.expand_dims(h, 1), 2) + (mask - 1.0) * 1e9
        weights = tf.nn.softmax(scores)
        context = tf.reduce_sum(memory * tf.expand_dims(weights, 2), 1)
        return tf.matmul(tf.concat([h, context], 1), out), weights, state

    inputs = tf.TensorArray(tf.int32, 5, clear_after_read=False).unstack(tf.transpose(target))

    def taught(i, token, state, logits):
        scores, _, state = one(token, state)
        return i + 1, inputs.read(i), state, logits.write(i, scores)

    start = tf.zeros_like(lengths)
    logits = tf.while_loop(lambda i, *_: i < 5, taught, [0, start, state, tf.TensorArray(tf.float32, 5)], swap_memory=True)[
        -1
    ].stack()
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.transpose(target), logits=logits))
    gradients, variables = zip(*tf.train.AdamOptimizer().compute_gradients(loss), strict=True)
    clipped, norm = tf.clip_by_global_norm(gradients, 1.0)
    train = tf.train.AdamOptimizer(0.02).apply_gradients(list(zip(clipped, variables, strict=True)))

    def free(i, token, done, state, tokens, looked):
        scores, weights, state = one(token, state)
        token = tf.where(done, tf.ones_like(token), tf.argmax(scores, 1, output_type=tf.int32))
        return (
            i + 1,
            token,
            tf.logical_or(done, tf.equal(token, 1)),
            state,
            tokens.write(i, token),
            looked.write(i, tf.argmax(weights, 1)),
        )

    arrays = [tf.TensorArray(tf.int32, longest), tf.TensorArray(tf.int64, longest)]
    begin = [0, start, tf.cast(start, tf.bool), state, *arrays]
    last = tf.while_loop(lambda i, t, done, *_: tf.logical_and(i < longest, tf.logical_not(tf.reduce_all(done))), free, begin)
    steps, said, looked = last[0], last[4].gather(tf.range(last[0])), last[5].gather(tf.range(last[0]))
    rng = np.random.RandomState(3)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            longest_source = 3 + k % 3
            feed = {
                source: rng.randint(2, words, [3, longest_source]),
                lengths: rng.randint(1, longest_source + 1, 3),
                target: rng.randint(1, words, [3, 5]),
            }
            record.value(f"{k}", sess.run([loss, norm, train], feed)[:2])
            del feed[target]
            record.value(f"said {k}", sess.run([steps, said, looked], feed))
        record.value("all", sess.run(tf.trainable_variables()))
    record.graph("graph")


def program_language(record):
    """A long text in pieces: the state of one run is fed to the next; sampled words are fed back one by one."""
    text = np.array([(k * k) % 9 for k in range(240)]).reshape(4, 60)
    cell = Gated(5)
    x = tf.placeholder(tf.int32, [None, None], name="x")
    y = tf.placeholder(tf.int32, [None, None], name="y")
    keep = tf.placeholder_with_default(1.0, [], name="keep")
    hot = tf.one_hot(x, 9)
    state = cell.zero_state(tf.shape(x)[0], tf.float32)
    outputs, after = tf.nn.dynamic_rnn(cell, hot, initial_state=state, dtype=tf.float32)
    outputs = tf.nn.dropout(outputs, rate=1.0 - keep, seed=7)
    w = tf.get_variable("softmax", [5, 9], initializer=tf.glorot_uniform_initializer(seed=8))
    logits = tf.tensordot(outputs, w, 1)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    rate = tf.get_variable("rate", [], initializer=tf.constant_initializer(0.5), trainable=False)
    new_rate = tf.placeholder(tf.float32, [], name="new_rate")
    set_rate = rate.assign(new_rate)
    train = tf.train.GradientDescentOptimizer(rate).minimize(loss)
    next_word = tf.random.categorical(logits[:, -1] / 0.7, 1, seed=9)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for epoch in range(3):
            sess.run(set_rate, {new_rate: 0.5 / (epoch + 1)})
            values = sess.run(state, {x: text[:, :1]})
            for k in range(0, 40, 10):
                feed = {x: text[:, k : k + 10], y: text[:, k + 1 : k + 11], keep: 0.8, state[0]: values[0], state[1]: values[1]}
                cost, values, _ = sess.run([loss, after, train], feed)
                record.value(f"{epoch} {k}", [cost, values])
            word, values = np.array([[3]]), None
            for k in range(6):
                feed = {x: word} if values is None else {x: word, state: values}
                word, values = sess.run([next_word, after], feed)
                record.value(f"sampled {epoch} {k}", word)
    record.graph("graph")


def program_speech(record):
    """Sparse labels, CTC, greedy and beam decoding, the edit distance as the error rate."""
    frames = tf.placeholder(tf.float32, [None, 3, 4], name="frames")
    lengths = tf.placeholder(tf.int32, [3], name="lengths")
    labels = tf.sparse_placeholder(tf.int32, name="labels")
    outputs, _ = tf.nn.dynamic_rnn(Gated(6), frames, lengths, time_major=True, dtype=tf.float32)
    logits = tf.tensordot(outputs, tf.get_variable("w", [6, 5], initializer=tf.glorot_uniform_initializer(seed=4)), 1)
    losses = tf.nn.ctc_loss(labels, logits, lengths, ignore_longer_outputs_than_inputs=True)
    loss = tf.reduce_mean(losses)
    train = tf.train.MomentumOptimizer(0.05, 0.9).minimize(loss)
    greedy, score = tf.nn.ctc_greedy_decoder(logits, lengths)
    beams, log_probabilities = tf.nn.ctc_beam_search_decoder(logits, lengths, beam_width=4, top_paths=2)
    errors = tf.reduce_mean(tf.edit_distance(tf.cast(beams[0], tf.int32), labels))
    readable = tf.sparse.to_dense(beams[0], default_value=-1)
    rng = np.random.RandomState(5)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(10):
            steps = 6 + k % 3
            said = tf.SparseTensorValue(
                np.array([[0, 0], [0, 1], [1, 0], [2, 0], [2, 1]]), rng.randint(0, 4, 5).astype("i"), [3, 2]
            )
            feed = {frames: rng.randn(steps, 3, 4), lengths: [steps, steps - 1, 4], labels: said}
            record.value(f"{k}", sess.run([loss, losses, errors, train], feed)[:3])
            record.value(f"decoded {k}", sess.run([greedy, score, beams, log_probabilities, readable], feed))
            with record.error(f"labels without end {k}"):
                sess.run(losses, {**feed, lengths: [99, 1, 1]})
    record.graph("graph")


def program_beams(record):
    """A search by beams over a learnt chain, in one loop with gathers and top_k."""
    words, width = 7, 3
    table = tf.get_variable("table", [words, words], initializer=tf.random_normal_initializer(seed=6))
    pairs = tf.placeholder(tf.int32, [None, 2], name="pairs")
    logits = tf.gather(table, pairs[:, 0])
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=pairs[:, 1], logits=logits))
    train = tf.train.AdagradOptimizer(0.5).minimize(loss)
    first = tf.placeholder(tf.int32, [], name="first")
    start = [0, tf.fill([width], first), tf.concat([[0.0], tf.fill([width - 1], -1e9)], 0), tf.zeros([width, 0], tf.int32)]

    def body(i, token, score, path):
        scores = tf.reshape(tf.expand_dims(score, 1) + tf.nn.log_softmax(tf.gather(table, token)), [-1])
        score, index = tf.nn.top_k(scores, width)
        token = index % words
        return i + 1, token, score, tf.concat([tf.gather(path, index // words), tf.expand_dims(token, 1)], 1)

    shapes = [tf.TensorShape([]), tf.TensorShape([width]), tf.TensorShape([width]), tf.TensorShape([width, None])]
    _, _, score, path = tf.while_loop(lambda i, *_: i < 5, body, start, shape_invariants=shapes, back_prop=False)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            record.value(f"{k}", sess.run([loss, train], {pairs: [[j % words, (j * (k + 2)) % words] for j in range(10)]})[0])
            record.value(f"best {k}", sess.run([path, score], {first: k % words}))
            with record.error(f"no such word {k}"):
                sess.run(path, {first: words})


def program_tagger(record):
    """Bidirectional, over characters and words, with a dynamic program written as a scan for the likeliest tags."""
    tags, batch = 4, 2
    chars = tf.placeholder(tf.int32, [batch, None, 3], name="chars")
    truth = tf.placeholder(tf.int32, [batch, None], name="truth")
    lengths = tf.placeholder(tf.int32, [batch], name="lengths")
    table = tf.get_variable("chars", [10, 4], initializer=tf.random_normal_initializer(seed=1))
    words = tf.reduce_max(tf.nn.embedding_lookup(table, chars), 2)
    both, _ = tf.nn.bidirectional_dynamic_rnn(Gated(3), Gated(3), words, lengths, dtype=tf.float32)
    joined = tf.concat(both, 2)
    flat = dense(tf.reshape(joined, [-1, 6]), tags, "scores")
    scores = tf.reshape(flat, [batch, -1, tags])
    steps = tf.transpose(scores, [1, 0, 2])
    move = tf.get_variable("move", [tags, tags], initializer=tf.random_normal_initializer(seed=2))
    alphas = tf.scan(lambda a, s: tf.reduce_logsumexp(tf.expand_dims(a, 2) + move, 1) + s, steps[1:], steps[0])
    partition = tf.reduce_logsumexp(alphas[-1], 1)
    taken = tf.reduce_sum(tf.one_hot(truth, tags) * scores, [1, 2])
    taken += tf.reduce_sum(tf.gather_nd(move, tf.stack([truth[:, :-1], truth[:, 1:]], 2)), 1)
    loss = tf.reduce_mean(partition - taken)
    train = tf.train.AdamOptimizer(0.05).minimize(loss)
    best = tf.scan(lambda a, s: tf.reduce_max(tf.expand_dims(a, 2) + move, 1) + s, steps[1:], steps[0])
    rng = np.random.RandomState(1)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(9):
            n = 4 + k % 2
            feed = {chars: rng.randint(0, 10, [batch, n, 3]), truth: rng.randint(0, tags, [batch, n]), lengths: [n, n - 1]}
            record.value(f"{k}", sess.run([loss, partition, taken, train], feed)[:3])
            record.value(f"best {k}", sess.run([best, tf.get_default_graph().get_tensor_by_name("move:0")], feed))
    record.graph("graph")


def program_untrained_encoder(record):
    """An encoder and a decoder in loops, whose gradients wait for the step's number: TensorFlow trains the decoder only, silently."""
    x = tf.placeholder(tf.float32, [4, 5, 3], "x")
    step = tf.train.get_or_create_global_step()

    def unrolled(name, start, values):
        kernel = tf.get_variable(f"{name}/kernel", [6, 3], initializer=tf.random_normal_initializer(stddev=0.3, seed=len(name)))
        given = tf.TensorArray(tf.float32, 5).unstack(values)

        def body(at, state, written):
            state = tf.tanh(tf.matmul(tf.concat([state, given.read(at)], 1), kernel))
            return at + 1, state, written.write(at, state)

        _, state, written = tf.while_loop(lambda at, *_: at < 5, body, [0, start, tf.TensorArray(tf.float32, 5)])
        return state, written.stack()

    steps = tf.transpose(x, [1, 0, 2])
    thought, _ = unrolled("encoder", tf.zeros([4, 3]), steps)
    _, said = unrolled("decoder", thought, steps * 0.5)
    loss = tf.reduce_mean(tf.square(said - 0.2))
    with tf.control_dependencies([tf.assign_add(step, 1)]):
        train = tf.train.AdamOptimizer(0.02).minimize(loss)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(10):
            record.value(f"{k}", sess.run([loss, train], {x: np.cos(np.arange(60.0) + k).reshape(4, 5, 3)})[0])
        record.value("all", sess.run(tf.global_variables()))


def program_branches_left(record):
    """Normalization in a condition, whose updates a recurrent net's gradients wait for; and steps that are trained, under their loss,
    in a branch: what waits is dead in half of the steps."""
    training, x = tf.placeholder(tf.bool, [], "training"), tf.placeholder(tf.float32, [6, 3], "x")
    kernel = tf.get_variable("kernel", [3, 3], initializer=tf.random_normal_initializer(stddev=0.4, seed=3))
    mean = tf.get_variable("mean", [3], initializer=tf.zeros_initializer(), trainable=False)
    optimizer = tf.train.AdamOptimizer(0.02)
    updates = []

    def recurrent(values):
        return tf.scan(lambda state, value: tf.tanh(state + value), values, tf.zeros([3]))

    def updated():
        now = tf.reduce_mean(h, 0)
        updates.append(tf.assign(mean, 0.9 * mean + 0.1 * now))
        return h - now

    h = tf.matmul(x, kernel)
    loss = tf.reduce_mean(tf.square(recurrent(tf.cond(training, updated, lambda: h - mean)) - 0.2))
    with tf.control_dependencies(updates):
        awaiting = optimizer.minimize(loss)

    def trained():
        loss = tf.reduce_mean(tf.square(recurrent(tf.matmul(x, kernel)) - 0.1))
        with tf.control_dependencies([loss]):
            step = optimizer.minimize(loss)
        with tf.control_dependencies([step]):
            return tf.identity(loss)

    either = tf.cond(training, trained, lambda: tf.constant(0.0))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            feed = {x: np.cos(np.arange(18.0) + k).reshape(6, 3), training: k % 3 != 1}
            record.value(f"{k}", sess.run([loss, awaiting], feed)[0])
            record.value(f"in a branch {k}", sess.run(either, feed))
        record.value("all", sess.run(tf.global_variables()))
