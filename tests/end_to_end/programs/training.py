"""Small models trained for a while with every optimizer; values to the bit."""

import numpy as np
import tensorflow.compat.v1 as tf

OPTIMIZERS = {
    "adam": lambda: tf.train.AdamOptimizer(0.01),
    "momentum": lambda: tf.train.MomentumOptimizer(0.01, 0.9, use_nesterov=True),
    "rmsprop": lambda: tf.train.RMSPropOptimizer(0.01, centered=True),
    "adagrad": lambda: tf.train.AdagradOptimizer(0.1),
    "adagrad_da": lambda: tf.train.AdagradDAOptimizer(0.1, tf.train.get_or_create_global_step()),
    "adadelta": lambda: tf.train.AdadeltaOptimizer(0.5),
    "ftrl": lambda: tf.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
    "proximal": lambda: tf.train.ProximalGradientDescentOptimizer(0.05, l2_regularization_strength=0.01),
    "proximal_adagrad": lambda: tf.train.ProximalAdagradOptimizer(0.05),
    "sgd": lambda: tf.train.GradientDescentOptimizer(0.05),
}


def images(n=8):
    return np.sin(np.arange(n * 64, dtype=np.float32)).reshape(n, 8, 8, 1)


def updated_after(loss):
    """A step whose updates wait for the loss; its gradients do not."""
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    gradients = optimizer.compute_gradients(loss)
    with tf.control_dependencies([loss]):
        return optimizer.apply_gradients(gradients)


def dense(inputs, units, name, activation=None):
    """A layer in plain ops, for TensorFlows without tf.layers."""
    with tf.variable_scope(name):
        w = tf.get_variable("w", [inputs.shape[-1], units], initializer=tf.glorot_uniform_initializer(seed=units))
        b = tf.get_variable("b", [units], initializer=tf.zeros_initializer())
        out = tf.nn.bias_add(tf.matmul(inputs, w), b)
        return activation(out) if activation else out


def convolution(x, filters, name):
    with tf.variable_scope(name):
        shape = [3, 3, x.shape[-1], filters]
        w = tf.get_variable("w", shape, initializer=tf.truncated_normal_initializer(stddev=0.1, seed=filters))
        b = tf.get_variable("b", [filters], initializer=tf.zeros_initializer())
        return tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, w, strides=1, padding="SAME"), b))


def normalized(x, training, name):
    """Batch normalization with its moving averages, by the fused kernel."""
    with tf.variable_scope(name):
        size = [x.shape[-1]]
        scale = tf.get_variable("scale", size, initializer=tf.ones_initializer())
        offset = tf.get_variable("offset", size, initializer=tf.zeros_initializer())
        mean = tf.get_variable("mean", size, initializer=tf.zeros_initializer(), trainable=False)
        variance = tf.get_variable("variance", size, initializer=tf.ones_initializer(), trainable=False)
    if not training:
        return tf.nn.fused_batch_norm(x, scale, offset, mean, variance, is_training=False)[0]
    y, m, v = tf.nn.fused_batch_norm(x, scale, offset)
    for average, now in ((mean, m), (variance, v)):
        tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, tf.assign_sub(average, (average - now) * 0.1))
    return y


def program_optimizers(record):
    x = tf.placeholder(tf.float32, [4, 5], name="x")
    step = tf.train.get_or_create_global_step()
    trains = {}
    for name, make in OPTIMIZERS.items():
        with tf.variable_scope(name):
            loss = tf.reduce_mean(tf.square(dense(dense(x, 6, "hidden", tf.nn.tanh), 1, "out") - 0.5))
            optimizer = make()
            grads, variables = zip(*optimizer.compute_gradients(loss, tf.trainable_variables(name)), strict=True)
            clipped, norm = tf.clip_by_global_norm(grads, 1.0)
            train = optimizer.apply_gradients(zip(clipped, variables, strict=True), global_step=step)
            trains[name] = [loss, norm, train]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(8):
            for name, fetches in trains.items():
                feed = {x: np.cos(np.arange(20.0) + k).reshape(4, 5)}
                record.value(f"{name} {k}", sess.run(fetches, feed)[:2])
        record.value("all", sess.run(tf.global_variables()))


def program_convolutional(record):
    x = tf.placeholder(tf.float32, [None, 8, 8, 1], name="x")
    y = tf.placeholder(tf.int64, [None], name="y")
    h = convolution(x, 4, "c1")
    h = normalized(h, True, "n1")
    h = tf.nn.max_pool2d(h, 2, 2, "SAME")
    h = tf.nn.relu(normalized(convolution(h, 8, "c2"), True, "n2"))
    h = tf.nn.dropout(tf.reshape(h, [-1, 128]), rate=0.5, seed=4)
    logits = dense(h, 10, "out")
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    loss += 1e-3 * tf.add_n([tf.nn.l2_loss(v) for v in tf.trainable_variables()])
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train = tf.train.AdamOptimizer(0.01).minimize(loss)
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), y), tf.float32))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(16):
            feed = {x: images() + k * 0.01, y: np.arange(8) % 10}
            record.value(f"{k}", sess.run([loss, accuracy, train], feed)[:2])
        record.value("all", sess.run(tf.global_variables()))
    record.graph("graph")


def program_pipeline(record):
    """Shuffling iterator, dropout, Adam, a decayed rate: the training loop of the users."""
    data = tf.data.Dataset.from_tensor_slices((images(32), np.arange(32) % 10)).shuffle(32, seed=1).repeat().batch(8)
    x, y = tf.data.make_one_shot_iterator(data.prefetch(2)).get_next()
    h = tf.nn.dropout(dense(tf.reshape(x, [8, 64]), 32, "h", tf.nn.relu), rate=0.3, seed=2)
    loss = tf.losses.sparse_softmax_cross_entropy(y, dense(h, 10, "out"))
    step = tf.train.get_or_create_global_step()
    rate = tf.train.exponential_decay(0.02, step, 5, 0.9)
    train = tf.train.AdamOptimizer(rate).minimize(loss, step)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(25):
            record.value(f"{k}", sess.run([loss, step, rate, train])[:3])
        record.value("all", sess.run(tf.global_variables()))


def program_embeddings(record):
    ids = tf.placeholder(tf.int64, [None, 3], name="ids")
    table = tf.get_variable("table", [50, 8], initializer=tf.random_uniform_initializer(-1, 1, seed=3))
    h = tf.reduce_mean(tf.nn.embedding_lookup(table, ids), 1)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.ones_like(h[:, 0]), logits=dense(h, 1, "o")[:, 0]))
    trains = [make(0.05).minimize(loss) for make in (tf.train.AdamOptimizer, tf.train.AdagradOptimizer, tf.train.RMSPropOptimizer)]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(15):
            feed = {ids: (np.arange(12).reshape(4, 3) * (k + 1)) % 50}
            record.value(f"{k}", sess.run([loss, trains[k % 3]], feed)[0])
        record.value("table", sess.run(table))


def program_rewrites(record):
    """Sums and fusions whose order of arithmetic the graph optimizer decides: the placement must not change their bits."""
    x = tf.placeholder(tf.float32, [16, 16], name="x")
    parts = [tf.sin(x * float(k + 1)) * (0.1 + k) for k in range(8)]
    tree = ((parts[0] + parts[1]) + (parts[2] + parts[3])) + ((parts[4] + parts[5]) + (parts[6] + parts[7]))
    chain = parts[0] + (parts[1] + (parts[2] + (parts[3] + parts[4])))
    added = tf.add_n([tf.tanh(p) for p in parts])
    w = tf.get_variable("w", [16, 16], initializer=tf.random_normal_initializer(seed=2))
    b = tf.get_variable("b", [16], initializer=tf.random_normal_initializer(seed=3))
    fused = tf.nn.relu(tf.nn.bias_add(tf.matmul(x, w), b))
    gelu = 0.5 * fused * (1.0 + tf.erf(fused / np.float32(np.sqrt(2.0))))
    image = tf.reshape(x, [1, 16, 16, 1])
    conv = convolution(image, 3, "c")
    frozen = normalized(conv, False, "n")
    folded = tf.matmul(tf.transpose(x), w * 2.0 * 3.0) + tf.pow(x, 2.0) / 3.0 + (x * 0.3 + x * 0.7)
    distributed = x * w + x * tf.transpose(w) + x * fused
    softened = tf.nn.softmax(tf.nn.leaky_relu(tf.matmul(fused, w) + b, 0.1))
    norm = tf.reduce_mean(tf.square(x - tf.reduce_mean(x, -1, keepdims=True)), -1)
    top, low = tf.reduce_max(tf.sin(x), 0), tf.reduce_min(tf.cos(x), 0)
    pushed = [
        top * 0.3 * 0.7,
        (top * low) * 0.3,
        (top + low) - 0.3,
        0.3 - (top - low),
        (top * 0.3) / 0.7,
        tf.matmul(x, w) + b - 0.7,
    ]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            feed = {x: np.cos(np.arange(256.0) * (k + 1)).reshape(16, 16)}
            record.value(f"sums {k}", sess.run([tree, chain, added, distributed], feed))
            record.value(f"fusions {k}", sess.run([fused, gelu, conv, frozen, folded, softened, norm], feed))
            record.value(f"constants {k}", sess.run(pushed, feed))
            record.value(f"everything {k}", sess.run([tree, chain, added, fused, gelu, conv, frozen, folded, softened], feed))


def program_residual(record):
    """Blocks with a shortcut, normalized in plain ops: sums of sums whose gradients ask for the shapes of all in between."""
    x, labels = tf.placeholder(tf.float32, [None, 8, 8, 3]), tf.placeholder(tf.int32, [None])
    hidden = convolution(x, 6, "in")
    for k in range(2):
        inner = convolution(hidden, 6, f"c{k}")
        with tf.variable_scope(f"n{k}"):
            scale = tf.get_variable("scale", [6], initializer=tf.ones_initializer())
            shift = tf.get_variable("shift", [6], initializer=tf.zeros_initializer())
            inner = tf.nn.batch_normalization(inner, *tf.nn.moments(inner, [0, 1, 2]), shift, scale, 1e-5)
        hidden = tf.nn.relu(inner + hidden)
    logits = dense(tf.reduce_mean(hidden, [1, 2]), 4, "out")
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    train = tf.train.GradientDescentOptimizer(0.05).minimize(loss)
    rng = np.random.RandomState(0)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(14):
            feed = {x: rng.rand(6, 8, 8, 3), labels: rng.randint(0, 4, 6)}
            record.value(f"loss {k}", sess.run([loss, train], feed)[0])


def program_adversaries(record):
    """Two players that share a graph, trained in turn."""
    z = tf.random_normal([8, 3], seed=1)
    real = tf.random_normal([8, 2], 2.0, 0.5, seed=2)
    with tf.variable_scope("generator"):
        fake = dense(dense(z, 8, "h", tf.nn.relu), 2, "out")

    def judge(t):
        with tf.variable_scope("judge", reuse=tf.AUTO_REUSE):
            return dense(dense(t, 8, "h", tf.nn.leaky_relu), 1, "out")

    yes, no = judge(real), judge(fake)
    sigmoid = tf.nn.sigmoid_cross_entropy_with_logits
    judge_loss = tf.reduce_mean(sigmoid(labels=tf.ones_like(yes), logits=yes) + sigmoid(labels=tf.zeros_like(no), logits=no))
    fool_loss = tf.reduce_mean(sigmoid(labels=tf.ones_like(no), logits=no))
    a = tf.train.AdamOptimizer(1e-2).minimize(judge_loss, var_list=tf.trainable_variables("judge"))
    b = tf.train.AdamOptimizer(1e-2).minimize(fool_loss, var_list=tf.trainable_variables("generator"))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(15):
            record.value(f"judge {k}", sess.run([judge_loss, a])[0])
            record.value(f"generator {k}", sess.run([fool_loss, b])[0])
