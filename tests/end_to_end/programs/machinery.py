"""Pieces of composed programs that are more than arithmetic: loops, conditions, functions, Python, random draws, tables and queues.

As `pieces.py`. Those of STATEFUL keep what a step that fails may or may not have changed, so that programs whose steps fail have none.
"""

import contextlib

import numpy as np
import tensorflow.compat.v1 as tf
from pieces import BATCH, WIDTH, shaped
from tensorflow.python.framework import function
from tensorflow.python.ops import control_flow_util


@contextlib.contextmanager
def generation(second):
    """Loops and conditions of this generation."""
    known = control_flow_util.ENABLE_CONTROL_FLOW_V2
    control_flow_util.ENABLE_CONTROL_FLOW_V2 = second
    try:
        yield
    finally:
        control_flow_util.ENABLE_CONTROL_FLOW_V2 = known


def loop(c, h):
    weights, rounds = c.weight([WIDTH, WIDTH]), 1 + c.below(3)
    limit = tf.constant(rounds) if c.below(2) else tf.cast(tf.abs(h[0, 0]) * 3.0, tf.int32) + 1
    body = c.one_of([
        lambda t: tf.tanh(tf.matmul(t, weights)),
        lambda t: t * c.constant() + weights[:BATCH] * 0.1,
        lambda t: tf.sin(c.inner(t)),
    ])  # fmt: skip
    more = {"maximum_iterations": 4} if c.below(2) else {}
    with generation(c.below(2)):
        return tf.while_loop(
            lambda i, t: i < limit, lambda i, t: (i + 1, body(t)), (0, h), parallel_iterations=1 + c.below(10), **more
        )[1]


def nested(c, h):
    weights = c.weight([WIDTH])
    with generation(c.below(2)):

        def inner(j, t):
            return j + 1, tf.tanh(t * weights)

        def outer(i, t):
            t = tf.while_loop(lambda j, _: j < i + 1, inner, (0, t))[1]
            return i + 1, tf.cond(tf.reduce_sum(t) > 0.0, lambda: t * c.constant(), lambda: tf.sin(t))

        return tf.while_loop(lambda i, _: i < 2, outer, (0, h))[1]


def branch(c, h):
    weights = c.weight([WIDTH])
    chosen = tf.reduce_sum(h) > 0.0
    with generation(c.below(2)):
        if c.below(3) == 0:
            cases = [lambda k=k: c.inner(h * c.constant()) for k in range(3)]
            return tf.tanh(tf.switch_case(tf.cast(tf.abs(h[0, 0]) * 9.0, tf.int32) % 3, cases))
        return tf.cond(chosen, lambda: c.inner(h) * weights, lambda: tf.tanh(h) + weights * 0.1)


def gathered(c, h):
    """A loop over rows with TensorArrays."""
    with generation(c.below(2)):
        source = tf.TensorArray(tf.float32, BATCH, clear_after_read=False).unstack(h)
        target = tf.TensorArray(tf.float32, BATCH)
        weights = c.weight([WIDTH])
        _, target, last = tf.while_loop(
            lambda i, *_: i < BATCH,
            lambda i, into, s: (i + 1, into.write(i, tf.tanh(source.read(i) * weights + s)), tf.sin(source.read(i))),
            (0, target, tf.zeros([WIDTH])),
        )
        c.seen.append(last)
        return shaped(target.stack())


def mapped(c, h):
    weights = c.weight([WIDTH])
    with generation(c.below(2)):
        if c.below(2):
            return shaped(tf.map_fn(lambda row: tf.tanh(row * weights), h))
        return shaped(tf.scan(lambda before, row: tf.tanh(before * weights + row), h, initializer=tf.zeros([WIDTH])))


def recurrent(c, h):
    """A GRU by hand over two steps, unrolled or as `dynamic_rnn` makes it."""
    weights, start = c.weight([6, 3]), tf.zeros([BATCH, 3])
    steps = tf.reshape(h, [-1, 2, 3])

    def cell(x, state):
        gate = tf.sigmoid(tf.matmul(tf.concat([x, state], 1), weights))
        return gate * state + (1.0 - gate) * tf.tanh(x)

    if c.below(2):
        state, made = start, []
        for x in tf.unstack(steps, axis=1):
            state = cell(x, state)
            made.append(state)
        return shaped(tf.stack(made, 1))
    with generation(c.below(2)):
        times = tf.transpose(steps, [1, 0, 2])
        return shaped(tf.transpose(tf.scan(lambda state, x: cell(x, state), times, initializer=start), [1, 0, 2]))


def called(c, h):
    weights, noinline = c.weight([WIDTH]), c.below(4) == 0

    def compute(t, w):
        return tf.tanh(c.inner(t) * w)

    made = tf.function(compute, autograph=False, experimental_attributes={"_noinline": True} if noinline else None)
    out = made(h, weights)
    return made(out, weights) if c.below(2) else out


def defined(c, h):
    @function.Defun(tf.float32, tf.float32)
    def compute(t, w):
        return tf.sin(t * w) + t

    return shaped(tf.tanh(compute(h, c.weight([WIDTH]))))


def own_gradient(c, h):
    factor = c.constant()

    @tf.custom_gradient
    def compute(t):
        return tf.tanh(t * factor), lambda grad: grad * factor

    return compute(h)


def in_python(c, h):
    factor = np.float32(c.constant())
    made = tf.numpy_function(lambda t: t * factor, [h], tf.float32, stateful=bool(c.below(2)))
    c.seen.append(made)
    return tf.tanh(h + tf.stop_gradient(shaped(made)))


def waiting(c, h):
    """Control edges: what is computed beside must be done before."""
    others = [c.piece(h) for _ in range(1 + c.below(2))]
    with tf.control_dependencies(others):
        return tf.identity(h) * c.constant() if c.below(2) else c.piece(h)


def looked_up(c, h):
    with tf.control_dependencies(None):  # it is made before the first step
        keys = tf.constant([str(k) for k in range(5)])
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, tf.range(5, dtype=tf.int64)), 5)
    text = tf.as_string(tf.cast(tf.abs(h[:, 0]) * 7.0, tf.int32))
    found = table.lookup(text)
    c.seen += [text, found]
    return tf.tanh(h * tf.cast(found, tf.float32)[:, None] * 0.3)


def stateless(c, h):
    seed = tf.stack([c.below(100), tf.cast(tf.reduce_sum(h) * 9.0, tf.int32)])
    return tf.tanh(h + tf.random.stateless_normal([BATCH, WIDTH], seed) * 0.1)


def optimized(c, h):
    """A few steps of an optimizer in the graph, each with its gradient."""
    rate, found = c.constant() * 0.1, h
    for _ in range(1 + c.below(3)):
        found = found - rate * tf.gradients(tf.reduce_sum(tf.square(tf.tanh(found) - h)), found)[0]
    return tf.tanh(found)


def guarded(c, h):
    """Checks that hold for what is fed, unless the step is to fail."""
    way = c.below(3)
    if way == 0:
        return tf.debugging.check_numerics(h, "of a piece") * c.constant()
    checks = [tf.debugging.assert_less(tf.reduce_max(tf.abs(h)), 1e6, message="too much"), tf.debugging.assert_equal(tf.rank(h), 2)]
    if way == 1:
        checks.append(tf.Assert(tf.reduce_all(tf.abs(h) < 1e6), [h], summarize=2))
    with tf.control_dependencies(checks):
        return tf.identity(h)


# -- what keeps state


def dropped(c, h):
    if c.below(3) == 0:
        return h + tf.random_normal([BATCH, WIDTH], stddev=0.1, seed=c.below(50) + 1)
    return tf.nn.dropout(h, rate=0.3, seed=c.below(50) + 1)


def queued(c, h):
    kind = c.one_of([tf.FIFOQueue, lambda size, *rest: tf.PaddingFIFOQueue(size, *rest)])
    queue = kind(3, [tf.float32], [[BATCH, WIDTH]])
    with tf.control_dependencies([queue.enqueue([h])]):
        return shaped(tf.tanh(queue.dequeue()))


def read_in(c, h):
    rows = np.random.RandomState(c.below(100)).randn(11, WIDTH).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices(rows)
    if c.below(2):
        data = data.shuffle(5, seed=c.below(20) + 1)
    data = data.map(lambda row: row * 0.5).repeat().batch(BATCH, drop_remainder=True)
    if c.below(2):
        iterator = tf.data.make_one_shot_iterator(data)
    else:
        iterator = tf.data.make_initializable_iterator(data)
        c.starts.append(iterator.initializer)
    batch = iterator.get_next()
    c.seen.append(batch)
    return tf.tanh(h + batch)


def counted(c, h):
    """A metric's local variables."""
    value, update = tf.metrics.mean(tf.reduce_sum(h))
    with tf.control_dependencies([update]):
        c.seen.append(tf.identity(update))
    del value
    return h


PIECES = (
    loop, loop, nested, branch, branch, gathered, mapped, recurrent, called, called, defined, own_gradient, in_python, waiting, waiting,
    looked_up, stateless, optimized, guarded,
)  # fmt: skip
STATEFUL = (dropped, dropped, queued, read_in, counted)
