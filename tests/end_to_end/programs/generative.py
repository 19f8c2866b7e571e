"""Models that make things: adversaries with two optimizers, variational and denoising autoencoders."""

import numpy as np
import tensorflow.compat.v1 as tf
from training import convolution, dense, images, normalized, updated_after


def program_wasserstein(record):
    """A critic that is trained several times for each step of the generator, with a gradient penalty, clipping, averages and summaries."""
    noise = tf.placeholder_with_default(tf.random_normal([8, 4], seed=1), [8, 4], name="noise")
    real = tf.placeholder(tf.float32, [8, 64], name="real")

    def generator(z):
        with tf.variable_scope("generator", reuse=tf.AUTO_REUSE):
            return dense(dense(z, 12, "h", tf.nn.relu), 64, "out", tf.nn.tanh)

    def critic(t):
        with tf.variable_scope("critic", reuse=tf.AUTO_REUSE):
            return dense(dense(t, 12, "h", tf.nn.leaky_relu), 1, "out")

    fake = generator(noise)
    mixed = fake + tf.random_uniform([8, 1], seed=2) * (real - fake)
    (slope,) = tf.gradients(critic(mixed), mixed)
    penalty = tf.reduce_mean(tf.square(tf.sqrt(tf.reduce_sum(tf.square(slope), 1) + 1e-8) - 1.0))
    critic_loss = tf.reduce_mean(critic(fake)) - tf.reduce_mean(critic(real)) + 10.0 * penalty
    generator_loss = -tf.reduce_mean(critic(fake))
    mine, yours = tf.trainable_variables("critic"), tf.trainable_variables("generator")
    step = tf.train.get_or_create_global_step()
    # The loss first: neither gradient needs its value, and plainly, too, it would be that of before or after the update.
    with tf.control_dependencies([critic_loss]):
        train_critic = tf.train.RMSPropOptimizer(5e-3).minimize(critic_loss, var_list=mine)
    with tf.control_dependencies([train_critic]):
        train_critic = tf.group(*[v.assign(tf.clip_by_value(v, -0.5, 0.5)) for v in mine])
    train_generator = tf.train.AdamOptimizer(5e-3, beta1=0.5).minimize(generator_loss, step, var_list=yours)
    averages = tf.train.ExponentialMovingAverage(0.9, step)
    with tf.control_dependencies([train_generator]):
        train_generator = averages.apply(yours)
    tf.summary.scalar("critic", critic_loss)
    tf.summary.image("made", tf.reshape(fake, [8, 8, 8, 1]), max_outputs=2)
    merged = tf.summary.merge_all()
    with tf.Session() as sess, tf.summary.FileWriter("log", sess.graph) as writer:
        sess.run(tf.global_variables_initializer())
        for k in range(6):
            for i in range(3 if k else 5):
                record.value(
                    f"critic {k} {i}", sess.run([critic_loss, penalty, train_critic], {real: images().reshape(8, 64) + k})[:2]
                )
            _, loss = sess.run([train_generator, generator_loss])
            now = sess.run(step)
            record.value(f"generator {k}", [loss, now])
            writer.add_summary(sess.run(merged, {real: images().reshape(8, 64), noise: np.full((8, 4), 0.25)}), now)
            record.value(f"made {k}", sess.run(fake, {noise: np.linspace(-1, 1, 32).reshape(8, 4)}))
        record.value("averages", sess.run([averages.average(v) for v in yours]))
    record.events("events", "log")
    record.graph("graph")


def program_variational(record):
    """Reparametrized noise, a bound of two terms, and samples that are decoded from fed codes."""
    x = tf.placeholder(tf.float32, [None, 64], name="x")
    weight = tf.placeholder_with_default(1.0, [], name="weight")
    hidden = dense(x, 16, "encoder", tf.nn.softplus)
    mean, log_variance = dense(hidden, 3, "mean"), dense(hidden, 4, "variance")[:, 1:]
    code = mean + tf.exp(0.5 * log_variance) * tf.random_normal(tf.shape(mean), seed=4)
    logits = dense(dense(code, 17, "decoder", tf.nn.softplus), 64, "out")
    seen = tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(labels=x, logits=logits), 1)
    divergence = -0.5 * tf.reduce_sum(1.0 + log_variance - tf.square(mean) - tf.exp(log_variance), 1)
    loss = tf.reduce_mean(seen + weight * divergence)
    train = tf.train.AdamOptimizer(0.01).minimize(loss)
    sampled = tf.nn.sigmoid(logits)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            feed = {x: (images(4 + k % 3).reshape(-1, 64) > 0).astype("f"), weight: min(1.0, k / 6)}
            record.value(f"{k}", sess.run([loss, seen, divergence, train], feed)[:3])
            record.value(f"decoded {k}", sess.run(sampled, {code: np.eye(3) * k}))
        record.value("all", sess.run(tf.global_variables()))
    record.graph("graph")


def program_denoising(record):
    """Convolutions down and up again, noise on the input, pictures of what was learnt, a part of the model saved and put elsewhere."""
    clean = tf.placeholder(tf.float32, [None, 8, 8, 1], name="clean")
    noisy = clean + 0.1 * tf.random_normal(tf.shape(clean), seed=5)
    h = normalized(convolution(noisy, 4, "down"), True, "norm")
    h = tf.nn.max_pool2d(h, 2, 2, "SAME")
    filters = tf.get_variable("up/w", [3, 3, 3, 4], initializer=tf.truncated_normal_initializer(stddev=0.1, seed=6))
    up = tf.nn.relu(tf.nn.conv2d_transpose(h, filters, tf.stack([tf.shape(h)[0], 8, 8, 3]), 2))
    back = convolution(tf.image.resize_nearest_neighbor(up, [8, 8]), 1, "out")
    loss = tf.losses.mean_squared_error(clean, back) + 0.1 * tf.losses.absolute_difference(clean, back)
    distance = tf.reduce_mean(tf.image.psnr(clean, back, 2.0))
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train = tf.train.MomentumOptimizer(0.05, 0.9).minimize(loss)
    encoder = tf.train.Saver(
        [v for v in tf.global_variables() if v.op.name.startswith(("down", "norm")) and "Momentum" not in v.name]
    )
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(10):
            record.value(f"{k}", sess.run([loss, distance, train], {clean: images(5) * (1 + 0.1 * k)})[:2])
        record.checkpoint("encoder", encoder.save(sess, "encoder", write_meta_graph=False))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        encoder.restore(sess, "encoder")
        for k in range(6):
            record.value(f"again {k}", sess.run([loss, h, back, train], {clean: images(3)})[:3])
    record.graph("graph")


def program_spectral(record):
    """A critic whose filters are divided by their largest singular value, in the shape of a matrix, for what is real and what is made."""
    shapes = {"first": [9, 4], "second": [2, 2, 2]}
    x, z = (tf.placeholder(tf.float32, [None, 9], name=name) for name in ("real", "made"))

    def filters(name):
        shape = shapes[name]
        w = tf.get_variable(name, shape, initializer=tf.truncated_normal_initializer(stddev=0.3, seed=len(name)))
        u = tf.get_variable(
            f"{name}_u", [1, shape[-1]], initializer=tf.truncated_normal_initializer(seed=len(name) + 1), trainable=False
        )
        matrix = tf.reshape(w, [-1, shape[-1]])
        v = tf.stop_gradient(tf.nn.l2_normalize(tf.matmul(u, matrix, transpose_b=True)))
        u = tf.stop_gradient(tf.nn.l2_normalize(tf.matmul(v, matrix)))
        return tf.reshape(matrix / tf.matmul(tf.matmul(v, matrix), u, transpose_b=True), shape), u

    def critic(t):
        with tf.variable_scope("critic", reuse=tf.AUTO_REUSE):
            h = tf.nn.leaky_relu(tf.matmul(t, filters("first")[0]))
            h = tf.nn.conv1d(tf.reshape(h, [-1, 2, 2]), filters("second")[0], 1, "SAME")
            return tf.reduce_sum(h, [1, 2])

    loss = tf.reduce_mean(tf.nn.relu(1.0 - critic(x))) + tf.reduce_mean(tf.nn.relu(1.0 + critic(z)))
    train = updated_after(loss)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            feed = {x: images(2 + k % 3)[:, :3, :3].reshape(-1, 9), z: np.random.RandomState(k).randn(2 + k % 3, 9)}
            record.value(f"{k}", sess.run([loss, train], feed)[0])
        record.value("all", sess.run(tf.global_variables()))
    record.graph("graph")
