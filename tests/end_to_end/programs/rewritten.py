"""What Grappler makes of neighbours where they share a device, in last bits and otherwise: parts of concatenations and splits,
places of largest values, products that only some steps read."""

import numpy as np
import tensorflow.compat.v1 as tf


def weights(name, *shape):
    start = np.random.RandomState(len(name) + sum(shape)).randn(*shape).astype(np.float32)
    return tf.get_variable(name, initializer=start, use_resource=True)


def seen(record, fetches, x, steps=4):
    """Every fetch in a step of its own, by turns."""
    shape = [size or 4 for size in x.shape.as_list()]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(steps):
            for i, fetch in enumerate(fetches):
                value = sess.run(fetch, {x: np.random.RandomState(k).randn(*shape)})
                if not isinstance(fetch, tf.Operation):
                    record.value(f"{i} {k}", value)
        record.value("variables", sess.run(tf.global_variables()))


def program_parts(record):
    x = tf.placeholder(tf.float32, [3, 7])
    sides = [tf.matmul(x, weights(name, 7, n)) for name, n in (("a", 3), ("bb", 2))]
    joined = [tf.nn.relu(tf.concat([f(side) for side in sides], 1)) for f in (tf.sigmoid, tf.exp, lambda t: tf.tanh(tf.exp(t)))]
    flat = tf.nn.relu(tf.concat([tf.reshape(tf.exp(side), [-1]) for side in sides], 0))
    one, two = tf.split(tf.matmul(x, weights("c", 7, 10)), 2, 1)
    seen(record, [*joined, flat, tf.sigmoid(one) + 2.0 * tf.sigmoid(two)], x)


def program_places(record):
    x = tf.placeholder(tf.float32, [3, 7])
    logits = tf.matmul(x, weights("a", 7, 5))
    best = tf.identity(tf.argmax(tf.sigmoid(40.0 * logits), 1)) + 1
    most = tf.reduce_max(tf.sigmoid(logits), 1) * 2.0
    nearest = tf.one_hot(tf.argmax(-(tf.square(x) + 1.0), 1), 8)
    seen(record, [best, most, [nearest, tf.tanh(x) * 0.3 * 0.7]], x)


def program_read_elsewhere(record):
    x = tf.placeholder(tf.float32, [4, 8])
    h = tf.tanh(tf.matmul(x, weights("a", 8, 8)))
    scaled = h * tf.exp(tf.reduce_mean(h, 1, keepdims=True))
    shifted = h + tf.reduce_mean(h, 1, keepdims=True)
    last = [scaled * weights("g", 8), tf.nn.softsign(scaled)]
    seen(record, [*last, tf.nn.softsign(shifted + weights("gg", 8)), tf.nn.softsign(shifted)], x)


def program_gated(record):
    x = tf.placeholder(tf.float32, [4, 8])
    h = tf.matmul(x, weights("w", 8, 8))
    y = h * tf.rsqrt(tf.reduce_mean(h * h, 1, keepdims=True)) * weights("g", 8)
    optimizer = tf.train.GradientDescentOptimizer(0.01)
    pairs = optimizer.compute_gradients(tf.reduce_sum(tf.tanh(y)))
    with tf.control_dependencies([gradient for gradient, _ in pairs]):
        train = optimizer.apply_gradients(pairs)
    seen(record, [train, y], x, 6)


def program_unlearned(record):
    x = tf.placeholder(tf.float32, [4, 8])
    h = tf.tanh(tf.matmul(x, weights("w", 8, 8)))
    y = h * tf.nn.relu6(h + 3.0) * 0.16667
    mask = tf.constant(np.random.RandomState(1).rand(4, 8).astype(np.float32))
    soft = tf.nn.softmax(tf.matmul(x, weights("ww", 8, 8)) * 0.3 * mask)
    loss = tf.reduce_sum(tf.square(y)) + tf.reduce_sum(tf.square(soft))
    seen(record, [loss, tf.train.GradientDescentOptimizer(0.1).minimize(loss)], x, 6)


def program_logs(record):
    x = tf.placeholder(tf.float32, [4, 8])
    fetches = []
    for k in range(1, 5):
        z = tf.matmul(x, weights("a" * k, 8, 5))
        t = tf.nn.softplus(tf.matmul(x, weights("t" * (k + 5), 8, 5)))
        e = 1.0 + tf.nn.softplus(z)
        fetches += [tf.reduce_sum(t * tf.log(tf.nn.softmax(z)), 1), [tf.reduce_sum(t * tf.log(e), 1), tf.nn.softplus(e)]]
        fetches.append(tf.nn.max_pool2d(tf.nn.elu(tf.reshape(z, [4, 5, 1, 1])), [2, 1], [2, 1], "VALID"))
    seen(record, fetches, x)


def program_squashed(record):
    """Capsules: a vector by its length, of which an evaluation has no gradients."""
    x = tf.placeholder(tf.float32, [4, 8])
    u = tf.matmul(x, weights("w", 8, 5))
    s = tf.stop_gradient(u)
    size = tf.reduce_sum(tf.square(s), 1, keepdims=True)
    v = size / (1.0 + size) * s / tf.sqrt(size + 1e-7)
    agreed = u[:, None] * v[:, None]
    seen(record, [agreed, [agreed, tf.gradients(agreed, u)]], x, 6)


def program_minus_minus(record):
    """Sums that are written as differences, and powers whose gradients nobody wants."""
    x = tf.placeholder(tf.float32, [4, 8])
    a = tf.nn.softplus(tf.matmul(x, weights("a", 8, 6)))
    b = tf.exp(a * 0.1)
    d = a - (-b) + tf.pow(b, 2.0) / 3.0 * 0.7
    out = d / tf.sqrt(tf.pow(d, 2.0) + 1.0)
    train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(tf.square(out)))
    seen(record, [[out, train], out, [a, d]], x, 6)


def program_wide_and_deep(record):
    """One loss, differentiated for two optimizers, each of which has its own part of the variables."""
    x = tf.placeholder(tf.float32, [4, 8])
    wide = weights("wide", 20, 1)
    crossed = tf.nn.embedding_lookup(wide, tf.math.floormod(tf.cast(tf.abs(x) * 9.0, tf.int32), 20))
    deep = tf.matmul(tf.nn.relu(tf.matmul(x, weights("deep", 8, 6))), weights("last", 6, 1))
    logits = tf.reduce_sum(crossed, 1) + deep
    labels = tf.cast(x[:, :1] > 0.0, tf.float32)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)) + 0.001 * tf.reduce_sum(
        tf.abs(wide)
    )
    others = tf.trainable_variables()[1:]
    to_wide, to_deep = tf.gradients(loss, [wide]), tf.gradients(loss, others)
    with tf.control_dependencies([loss, *to_deep, *(tf.convert_to_tensor(g) for g in to_wide)]):
        steps = [
            tf.train.FtrlOptimizer(0.1).apply_gradients(zip(to_wide, [wide], strict=True)),
            tf.train.AdagradOptimizer(0.1).apply_gradients(zip(to_deep, others, strict=True)),
        ]
    seen(record, [[loss, *steps], [logits, tf.sigmoid(logits)]], x, 6)


def program_masked(record):
    """A softmax written out and masked by what is fed."""
    x = tf.placeholder(tf.float32, [4, 8])
    q, k = tf.matmul(x, weights("q", 8, 6)), tf.matmul(x, weights("k", 8, 6))
    kept = tf.cast(x[:, :4] > -0.5, tf.float32)
    w = tf.exp(tf.matmul(q, k, transpose_b=True) / tf.sqrt(6.0)) * kept * tf.linalg.band_part(tf.ones([4, 4]), -1, 0)
    w = w / (tf.reduce_sum(w, -1, keepdims=True) + 1e-8)
    loss = tf.reduce_mean(tf.square(tf.matmul(w, x) - x))
    seen(record, [[loss, tf.train.AdagradOptimizer(0.1).minimize(loss)], w, loss], x, 6)


def program_layer_norms(record):
    """A cell with layer normalization in plain ops, in a loop: one kernel in evaluations, where oneDNN has one."""
    x, y = tf.placeholder(tf.float32, [3, 5, 4]), tf.placeholder(tf.float32, [3, 6])

    def drawn(name, shape, seed):
        return tf.get_variable(name, shape, initializer=tf.glorot_uniform_initializer(seed=seed), use_resource=True)

    w, peep = drawn("w", [10, 12], 1), drawn("peep", [6, 1], 2)
    scale, offset = (
        tf.get_variable(n, [6], initializer=tf.constant_initializer(v), use_resource=True) for n, v in (("s", 1.1), ("o", 0.1))
    )
    steps = tf.TensorArray(tf.float32, 5).unstack(tf.transpose(x, [1, 0, 2]))

    def body(t, c, h):
        i, j = tf.split(tf.matmul(tf.concat([steps.read(t), h], 1), w), 2, 1)
        new = 0.9 * (c * tf.sigmoid(i + 1.0) + tf.tanh(j)) + 0.1 * c
        mean, variance = tf.nn.moments(new, [1], keepdims=True)
        normal = (new - mean) / tf.sqrt(variance + 1e-5) * scale + offset
        return t + 1, new, tf.tanh(normal) * tf.sigmoid(i + tf.squeeze(peep, 1) * new)

    _, c, h = tf.while_loop(lambda t, *_: t < 5, body, [0, tf.zeros([3, 6]), tf.zeros([3, 6])])
    loss = tf.reduce_mean(tf.square(h - y))
    variables = tf.trainable_variables()
    gradients = tf.gradients(loss, variables)
    with tf.control_dependencies([loss, *gradients]):
        train = tf.train.AdamOptimizer(0.02).apply_gradients(zip(gradients, variables, strict=True))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(9):
            feed = {x: np.random.RandomState(k).randn(3, 5, 4), y: np.random.RandomState(k + 20).randn(3, 6)}
            record.value(f"{k}", sess.run([loss, train], feed)[0])
            record.value(f"{k} evaluated", sess.run(loss, feed))
            if k % 3 == 2:
                record.value(f"{k} states", sess.run([c, h], feed))
        record.value("variables", sess.run(variables))


def program_through_constants(record):
    """Gradients that pass a constant's, which nobody wants, on their way from product to product: a mixture of normal distributions
    behind gelus, and a loop of the first generation that is given a constant."""
    x, y = tf.placeholder(tf.float32, [8, 6]), tf.placeholder(tf.float32, [8, 4])
    hidden = x
    for k in range(2):
        up = tf.matmul(hidden, weights(f"up{k}", 6, 10))
        up = 0.5 * up * (1.0 + tf.tanh(0.8 * (up + 0.044715 * tf.pow(up, 3.0))))
        hidden += tf.matmul(up, weights(f"down{k}", 10, 6))
    mean, raw = tf.split(tf.matmul(hidden, weights("out", 6, 8)), 2, 1)
    spread = 0.1 + 0.9 * tf.nn.softplus(raw)
    logits = -0.5 * tf.square((y - mean) / spread) - tf.log(spread)
    was_v2 = tf.control_flow_v2_enabled()
    tf.disable_control_flow_v2()
    share = -tf.log(tf.constant([2.0, 3.0, 4.0, 5.0]))

    def body(k, value):
        return k + 1, 0.1 * (share - tf.reduce_logsumexp((value - logits) / 0.5, 1, keepdims=True))

    _, dual = tf.while_loop(lambda k, _: k < 4, body, [0, tf.zeros_like(logits)])
    if was_v2:
        tf.enable_control_flow_v2()
    loss = tf.reduce_mean(tf.square(dual)) - tf.reduce_mean(logits)
    train = tf.train.AdamOptimizer(0.02).minimize(loss)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(9):
            feed = {x: np.random.RandomState(k).randn(8, 6), y: np.random.RandomState(k + 20).randn(8, 4)}
            record.value(f"{k}", sess.run([loss, train], feed)[0])
            record.value(f"{k} evaluated", sess.run([mean, spread, dual], feed))
        record.value("variables", sess.run(tf.trainable_variables()))


def program_nothing_between(record):
    """Ops that turn out to change nothing, between a layer and its bias, a product and a constant, a softmax and its logarithm."""
    x = tf.placeholder(tf.float32, [6, 33])
    w, b, v = weights("w", 33, 29), weights("b", 29), weights("v", 33)
    ways = [
        lambda t: tf.reshape(t, [6, -1]),
        lambda t: tf.tile(t, [1, 1]),
        lambda t: tf.pad(t, [[0, 0], [0, 0]]),
        lambda t: tf.transpose(tf.transpose(t)),
        lambda t: tf.transpose(t, [0, 1]),
        lambda t: tf.negative(-t),
        lambda t: tf.split(t, 1, 1)[0],
        lambda t: tf.reduce_mean(t, []),
        lambda t: tf.where(tf.ones(t.shape, tf.bool), t, t * t),
    ]
    for k, way in enumerate(ways):
        with tf.variable_scope(f"way{k}"):
            scaled = way(x * v) * 0.3
            layer = tf.tanh(tf.nn.bias_add(way(tf.matmul(scaled, w)), b))
            ways[k] = [scaled, layer, tf.log(way(tf.nn.softmax(layer))), (way(x + v) - 0.3) + 0.11]
    seen(record, [fetch for fetches in ways for fetch in fetches], x, 2)


def program_half_weights(record):
    """Weights that are used in half and in single precision: the casts' gradients are terms among others."""
    x = tf.placeholder(tf.float32, [4, 16])
    w, b = weights("w", 16, 8), weights("b", 8)
    half = tf.matmul(tf.cast(x, tf.float16), tf.cast(w, tf.float16)) + tf.cast(b, tf.float16)
    half, full = tf.cast(tf.tanh(half), tf.float32), tf.matmul(x, w) + b
    decay = 0.01 * (tf.nn.l2_loss(w) + tf.nn.l2_loss(b))
    loss = decay + tf.reduce_mean(tf.square(half - full) + tf.nn.softplus(full * b) + tf.exp(b) * half)
    with tf.control_dependencies([loss]):
        train = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
    seen(record, [train, loss], x, 8)


def program_inline(record):
    """Bodies of functions whose ops are rewritten with ops around the call."""
    x = tf.placeholder(tf.float32, [6, 17])
    w, b, v = weights("w", 17, 13), weights("b", 13), weights("v", 17)
    third, log = tf.function(lambda t: t * 0.3), tf.function(tf.log)
    biased = tf.function(lambda t, bias: tf.tanh(tf.nn.bias_add(t, bias)))
    fetches = [third(x * v), third(x + 1.0) * 0.7, third(tf.matmul(x, w) * b), biased(tf.matmul(x, w), b), log(tf.nn.softmax(x))]
    seen(record, fetches, x)


def program_filters(record):
    """Convolutions by constants, and sums of one value, that are scaled by a constant behind."""
    x = tf.placeholder(tf.float32, [2, 9, 9, 3])
    blur = tf.constant(np.random.RandomState(1).randn(3, 3, 3, 3).astype(np.float32))
    scaled = tf.nn.conv2d(x / 127.5, blur, [1, 1, 1, 1], "SAME") / 9.0
    total = tf.add_n([x * x] * 5)
    seen(record, [scaled, total * 0.7, total / 3.0, tf.nn.conv2d(x, blur, [1, 1, 1, 1], "SAME") * 0.3], x)


def program_stopped(record):
    """A layer twice, the second time behind what hands its input on, which waits for the first or for another layer, or does not."""
    x = tf.placeholder(tf.float32, [8, 6])
    w, b = tf.identity(weights("w", 6, 6)), tf.identity(weights("b", 6))  # read once
    fetches = []
    for hand_on in (tf.stop_gradient, tf.identity):
        for y, other in ((x, None), (tf.sin(x), w), (tf.cos(x), w * 2.0)):
            first = tf.tanh(tf.matmul(y, w if other is None else other) + b)
            with tf.control_dependencies([] if other is None else [first]):
                second = tf.tanh(tf.matmul(hand_on(y), w) + b)
            fetches += [second, (first, second)]
    seen(record, fetches, x)


def program_waiting(record):
    """Constants that wait for an update or a value, and go down into sums, products and convolutions all the same."""
    x = tf.placeholder(tf.float32, [8, 12])
    counter = tf.get_variable("counter", initializer=0.0, use_resource=True)
    a, b, rows = tf.sin(x), tf.cos(x), tf.reshape(tf.concat([tf.sin(x), tf.cos(x)], 1), [-1, 2, 4, 3])
    kernel = np.random.RandomState(3).randn(2, 2, 3, 4).astype(np.float32)
    fetches = []
    for before in (counter.assign_add(1.0), a):
        with tf.control_dependencies([before]):
            fetches += [a + b + 0.1, a * b * 0.3, 1.0 - (a - 0.3) - b, tf.nn.conv2d(rows, tf.constant(kernel), 1, "SAME") * 0.3]
    seen(record, fetches, x)


def program_handed_through(record):
    """Functions that hand on their argument between neighbours; gradients of twins of which one is multiplied by one."""
    x = tf.placeholder(tf.float32, [8, 6])
    w, b, v = weights("w", 6, 6), weights("b", 6), weights("v", 6)
    nothing, named = tf.function(lambda t: t), tf.function(tf.identity)
    fetches = []
    for way in (nothing, named):
        products = way(tf.sin(x) * tf.cos(x)) * 0.7, tf.log(way(tf.nn.softmax(x * v))), tf.square(way(x - tf.sin(x)))
        fetches += [*products, way(tf.sin(x) + tf.cos(x)) + 0.1, tf.tanh(tf.nn.bias_add(way(tf.matmul(tf.sin(x), w)), b))]
    t = tf.tanh(tf.sin(x))
    tails = [one + 0.2 + tf.sin(t) + 0.7 - 0.33 for one in (t + 0.1, (t + 0.1) * 1.0)]
    fetches += tf.gradients(sum(tf.reduce_sum(tf.sin(tail)) for tail in tails), t)
    seen(record, fetches, x)


def program_factors(record):
    """One constant factor after another, and their gradients: in which order they are multiplied hangs on how many ops of the whole
    step are equal."""
    x = tf.placeholder(tf.float32, [4, 8])
    h = 0.071 * tf.matmul(x, weights("w", 8, 8)) * 1.658 * 1.56 / 1.182
    h = 0.935 * tf.matmul(tf.tanh(tf.pow(h, 3) * 0.794 * 0.1), weights("ww", 8, 8))
    h = tf.pow(h + 0.321 * h[:, :], 3) * 1.458 * 0.1
    h = tf.tanh(tf.tanh(0.838 * (h + 1.564 * h[:, :])) * 0.9)
    loss = 0.7 * tf.reduce_mean(0.3 * tf.square(h))
    gradients = tf.gradients(loss, tf.trainable_variables())
    seen(record, [gradients, [loss, gradients]], x)


def program_some_gradients(record):
    """Steps that take some of the gradients of one loss: by turns (layers that are frozen), and one alone."""
    x, y = tf.placeholder(tf.float32, [None, 6]), tf.placeholder(tf.float32, [None, 6])
    h = tf.matmul(tf.matmul(x, weights("low", 6, 6)), weights("mid", 6, 6))
    h = tf.tanh(h * weights("a", 6) * 0.9 + weights("shift", 6))
    loss = tf.reduce_mean(tf.square(tf.matmul(h, weights("out", 6, 6)) - y))
    optimizer = tf.train.MomentumOptimizer(0.05, 0.9)
    gradients = optimizer.compute_gradients(loss)
    low = optimizer.apply_gradients([(g, v) for g, v in gradients if v.op.name in ("low", "mid")])
    top = optimizer.apply_gradients([(g, v) for g, v in gradients if v.op.name not in ("low", "mid")])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(8):
            feed = {x: np.sin(np.arange(18.0) + k).reshape(3, 6), y: np.cos(np.arange(18.0) - k).reshape(3, 6)}
            record.value(f"low {k}", sess.run([loss, low], feed)[0])
            record.value(f"top {k}", sess.run([loss, top], feed)[0])
            record.value(f"one {k}", sess.run(gradients[k % len(gradients)][0], feed))
        record.value("all", sess.run(tf.trainable_variables()))
