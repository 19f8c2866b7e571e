"""Training programs composed at random of pieces: `composed.s123` is the one of seed 123.

Variables are read before they are written, at one place each, so that nothing races. A third of the programs have steps that fail.
"""

import functools

import machinery
import numpy as np
import pieces
import tensorflow.compat.v1 as tf
from pieces import BATCH, WIDTH

OPTIMIZERS = (
    lambda: tf.train.GradientDescentOptimizer(0.05),
    lambda: tf.train.MomentumOptimizer(0.02, 0.9, use_nesterov=True),
    lambda: tf.train.AdamOptimizer(0.01),
    lambda: tf.train.AdagradOptimizer(0.05),
    lambda: tf.train.RMSPropOptimizer(0.01, momentum=0.5, centered=True),
    lambda: tf.train.FtrlOptimizer(0.05, l1_regularization_strength=0.01),
    lambda: tf.train.AdadeltaOptimizer(0.5),
)
RUNS = 18


class Composer:
    """What is drawn from `seed`, and what the pieces leave: `seen` may be fetched, `updates` are made as the variables are trained,
    `starts` run before the first step, `losses` are added up."""

    def __init__(self, seed):
        self.drawn = np.random.RandomState(seed)
        self.fails = seed % 3 == 0
        self.few = seed % 2 == 0  # few different constants, so that many ops are equal
        self.reads, self.seen, self.updates, self.starts, self.losses = [], [], [], [], []
        self.made = 0
        self.left = 26  # pieces

    def below(self, number):
        return int(self.drawn.randint(number))

    def one_of(self, choices):
        return choices[self.below(len(choices))]

    def constant(self):
        return (0.5, 0.7, 0.3, 1.1)[self.below(4)] if self.few else round(float(self.drawn.uniform(0.1, 1.9)), 3)

    def variable(self, shape, trainable=True, read=True):
        """A variable and what is read of it, the same wherever it is used."""
        self.made += 1
        start = np.random.RandomState(self.made).randn(*shape).astype(np.float32) * 0.5
        how = self.below(4)
        initial = tf.constant_initializer(start) if how else tf.random_normal_initializer(0.0, 0.4, seed=self.made)
        made = tf.get_variable(f"w{self.made}", shape, initializer=initial, use_resource=True, trainable=trainable)
        return made, self.reading(made.read_value()) if read else None

    def weight(self, shape):
        return self.variable(shape)[1]

    def reading(self, tensor):
        self.reads.append(tensor)
        return tensor

    def piece(self, h):
        """`h` through a piece, which may have others in it."""
        self.left -= 1
        if self.left < 0:
            return tf.tanh(h * self.constant())
        usual, other = pieces.PIECES, machinery.PIECES
        way = self.below(10)
        made = self.one_of(usual if way < 5 else other if way < 9 or self.fails else machinery.STATEFUL)
        with tf.name_scope(made.__name__):
            out = made(self, h)
        assert out.shape.is_compatible_with([BATCH, WIDTH]) and out.shape.rank == 2, made
        self.seen.append(out)
        return out

    def inner(self, t):
        """As `piece`, of what may stand in a loop, a condition or a function: nothing of it is seen from outside."""
        outside = self.seen, self.losses
        self.seen, self.losses = [], []
        plain = (
            pieces.scaled,
            pieces.sliced,
            pieces.chosen,
            pieces.summed,
            pieces.stacked,
            pieces.waves,
            pieces.sized,
            pieces.summed,
        )
        out = self.one_of(plain)(self, t)
        self.seen, self.losses = outside
        return out


def network(c, x):
    h = x
    for _ in range(3 + c.below(7)):
        h = c.piece(h)
        if c.below(5) == 0:
            h = pieces.small(h + x)
    return h


def training(c, last):
    """The loss, and the op that trains: it waits for all that is read, and for checks."""
    loss = tf.add_n([tf.reduce_mean(tf.square(last - c.constant())), *c.losses]) * c.constant()
    variables = tf.trainable_variables()
    if c.reads and c.below(3) == 0:
        loss = loss + 0.01 * tf.add_n([tf.nn.l2_loss(read) for read in c.reads])
    pairs = [(g, v) for g, v in zip(tf.gradients(loss, variables), variables, strict=True) if g is not None]
    if pairs and c.below(2):
        clipped, norm = tf.clip_by_global_norm([g for g, _ in pairs], 1.0)
        pairs = list(zip(clipped, [v for _, v in pairs], strict=True))
        c.seen.append(norm)
    c.seen += [tf.convert_to_tensor(g) for g, _ in pairs]
    step = tf.train.get_or_create_global_step()
    with tf.control_dependencies([*c.reads, loss, last, *[g for g, _ in pairs]]):
        trained = c.one_of(OPTIMIZERS)().apply_gradients(pairs, global_step=step) if pairs else tf.assign_add(step, 1)
        return loss, tf.group(trained, *[update() for update in c.updates])


def fetches(c, loss, train, last):
    """What the kinds of steps fetch."""
    summaries = tf.summary.merge([tf.summary.scalar("loss", loss), tf.summary.histogram("last", last)])
    kinds = [[train, loss], train, {"loss": loss, "last": last}, [summaries, loss]]
    for _ in range(3):
        some = [c.seen[k] for k in c.drawn.permutation(len(c.seen))[: 1 + c.below(4)]]
        kinds.append([train, *some] if c.below(2) else some)
    return [kinds[k] for k in c.drawn.permutation(len(kinds))[: 3 + c.below(3)]] + [[train, loss]]


def composed(record, seed):
    c = Composer(seed)
    x = tf.placeholder(tf.float32, [BATCH, WIDTH], "x")
    limit = [tf.debugging.assert_less(tf.reduce_max(x), 50.0, message="x is too large")] if c.fails else []
    with tf.control_dependencies(limit):
        last = network(c, tf.identity(x))
    loss, train = training(c, last)
    kinds = fetches(c, loss, train, last)
    saver = tf.train.Saver()
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer(), tf.tables_initializer(), *c.starts])
        for run in range(RUNS):
            number, feed = c.below(len(kinds)), np.random.RandomState(run).randn(BATCH, WIDTH)
            if c.fails and c.below(5) == 0:
                with record.error(f"{run} {number}"):
                    sess.run(kinds[number], {x: feed * 100.0})
                continue
            fed = {x: feed}
            if not c.fails and c.below(8) == 0:
                fed[last] = feed
            record.value(f"{run} {number}", sess.run(kinds[number], fed))
            if run == RUNS // 2 and c.below(2):
                more = tf.reduce_sum(tf.sin(last) * c.constant(), name="more")
                kinds.append([more, loss, train])
        record.value("variables", sess.run(tf.global_variables()))
        record.checkpoint("saved", saver.save(sess, "./model"))
    record.graph("graph")


def program_small(record):
    composed(record, 1)


def __getattr__(name):
    """program_s<seed>"""
    if not name.startswith("program_s") or not name[9:].isdigit():
        raise AttributeError(name)
    return functools.partial(composed, seed=int(name[9:]))
