"""Networks drawn at random: chains of constant factors and terms, between branches of which many are added up. In which order
Grappler multiplies and adds there hangs on how many ops of the whole step are equal, and on what else is in it."""

import numpy as np
import tensorflow.compat.v1 as tf

WIDTH = 6
ACTIVATIONS = (tf.tanh, tf.sin, tf.sigmoid, tf.nn.softplus, tf.square, lambda t: tf.exp(-tf.square(t)))
OPTIMIZERS = (
    lambda: tf.train.GradientDescentOptimizer(0.01),
    lambda: tf.train.MomentumOptimizer(0.01, 0.9),
    lambda: tf.train.AdamOptimizer(0.01),
)


class Network:
    """What is drawn from `seed`; networks of even seeds have few different constants."""

    def __init__(self, seed):
        self.drawn = np.random.RandomState(seed)
        self.few = seed % 2 == 0
        self.weights = 0

    def below(self, number):
        return self.drawn.randint(number)

    def constant(self):
        return (0.5, 0.7, 0.3, 1.1)[self.below(4)] if self.few else round(float(self.drawn.uniform(0.1, 1.9)), 3)

    def dense(self, h):
        self.weights += 1
        start = np.random.RandomState(self.weights + 1 + 2 * WIDTH).randn(WIDTH, WIDTH).astype(np.float32) * 0.5
        return tf.matmul(h, tf.get_variable("w" + "x" * self.weights, initializer=start, use_resource=True))

    def chain(self, h):
        for _ in range(1 + self.below(5)):
            way = self.below(7)
            if way == 0:
                h = h * self.constant()
            elif way == 1:
                h = self.constant() * h
            elif way == 2:
                h = h / self.constant()
            elif way == 3:
                h = h + self.constant()
            elif way == 4:
                h = h - self.constant()
            elif way == 5:
                activation = ACTIVATIONS[self.below(len(ACTIVATIONS))]
                h = activation(h * self.constant()) * self.constant()
            else:
                h = h * tf.reduce_mean(h, 1, keepdims=True) * self.constant()
        return h

    def branch(self, h):
        way = self.below(5)
        if way == 0:
            return self.dense(h)
        if way == 1:
            return self.chain(tf.identity(h))
        if way == 2:
            return self.chain(tf.reshape(tf.reshape(h, [-1]), [-1, WIDTH]))
        return self.chain(h) if way == 3 else self.dense(self.chain(h))

    def block(self, h):
        way, number = self.below(6), 2 + self.below(3)
        first, *others = [self.branch(h) for _ in range(number)]
        if way < 3:
            return sum(others, first)
        if way == 3:
            return tf.add_n([first, *others])
        if way == 4:
            return tf.concat([first, *others], 1)[:, :WIDTH] + h
        for other in others:
            first = first * ACTIVATIONS[self.below(3)](other) * self.constant()
        return first

    def loss(self, x):
        h = self.dense(x)
        for _ in range(2 + self.below(3)):
            h = self.block(h)
            h = self.chain(ACTIVATIONS[self.below(3)](h))
        loss = tf.reduce_mean(tf.square(h)) * self.constant()
        if self.below(2):
            loss = loss + self.constant() * tf.add_n([tf.nn.l2_loss(v) for v in tf.trainable_variables()])
        return loss, h


def trained(record, seed):
    network, x = Network(seed), tf.placeholder(tf.float32, [4, WIDTH])
    loss, last = network.loss(x)
    variables = tf.trainable_variables()
    gradients = tf.gradients(loss, [*variables, x])
    train = OPTIMIZERS[network.below(3)]().apply_gradients(zip(gradients, variables, strict=False))
    fetches = [[loss, gradients], [train, loss], loss, last]
    if network.below(2):
        second = tf.gradients(tf.add_n([tf.reduce_sum(g * g) for g in gradients if g is not None]), variables)
        fetches.append([g for g in second if g is not None])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for step in range(3):
            for number, fetch in enumerate(fetches):
                found = sess.run(fetch, {x: np.random.RandomState(step).randn(4, WIDTH)})
                record.value(f"{number} {step}", [value for value in tf.nest.flatten(found) if value is not None])
        record.value("variables", sess.run(tf.global_variables()))


def program_momentum(record):
    trained(record, 33)


def program_adam(record):
    trained(record, 54)


def program_twice(record):
    trained(record, 89)
