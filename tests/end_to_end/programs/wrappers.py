"""Libraries that programs put around TensorFlow: ranks that meet inside a step, optimizers that are patched, servers that gather requests
into batches, models that feed what their variables begin with."""

import threading

import numpy as np
import tensorflow.compat.v1 as tf


class Ranks:
    """An allreduce among threads of one process, each with a graph and a session of its own: values meet in Python functions."""

    def __init__(self, size):
        self.size, self.condition, self.round, self.parts, self.results = size, threading.Condition(), {}, {}, {}

    def meet(self, name, rank, value, combine):
        with self.condition:
            turn = self.round[name, rank] = self.round.get((name, rank), -1) + 1
            parts = self.parts.setdefault((name, turn), {})
            parts[rank] = value
            if len(parts) == self.size:
                self.results[name, turn] = combine([parts[r] for r in range(self.size)])
                self.condition.notify_all()
            assert self.condition.wait_for(lambda: (name, turn) in self.results, 100), "the others did not come"
            return self.results[name, turn]


def distributed(optimizer, ranks, rank):
    """A copy of an optimizer whose class is made at run time, and whose gradients are means over all ranks."""

    def compute_gradients(self, *args, **kwargs):
        found = super(self.__class__, self).compute_gradients(*args, **kwargs)
        reduced = []
        for gradient, variable in found:
            name = variable.op.name
            function = lambda value, name=name: ranks.meet(name, rank, value, lambda all_: np.mean(all_, 0, np.float32))  # noqa: E731
            mean = tf.py_func(function, [gradient], gradient.dtype)
            mean.set_shape(gradient.shape)
            reduced.append((mean, variable))
        return reduced

    cls = type(optimizer.__class__.__name__, (optimizer.__class__,), {"compute_gradients": compute_gradients})
    made = cls.__new__(cls)
    made.__dict__.update(optimizer.__dict__)
    return made


class Broadcast(tf.train.SessionRunHook):
    """All ranks begin with what the first one has."""

    def __init__(self, ranks, rank):
        self.ranks, self.rank = ranks, rank

    def begin(self):
        variables = tf.global_variables()
        values = [
            tf.py_func(
                lambda v, n=v.op.name: self.ranks.meet(f"begin {n}", self.rank, v, lambda all_: all_[0]), [v.read_value()], v.dtype
            )
            for v in variables
        ]
        for value, v in zip(values, variables, strict=True):
            value.set_shape(v.shape)
        self.op = tf.group(*[v.assign(value) for v, value in zip(variables, values, strict=True)])

    def after_create_session(self, session, coord):
        session.run(self.op)


def program_ranks(record):
    """Two ranks as threads; a step of one does not end before the step of the other has begun."""
    ranks, values, failed = Ranks(2), [[], []], []

    def work(rank):
        with tf.Graph().as_default():
            x = tf.placeholder(tf.float32, [None, 3], "x")
            w = tf.get_variable("w", [3, 4], initializer=tf.random_normal_initializer(seed=rank), use_resource=True)
            u = tf.get_variable("u", [4, 2], initializer=tf.random_normal_initializer(seed=rank), use_resource=True)
            loss = tf.reduce_mean(tf.square(tf.matmul(tf.tanh(tf.matmul(x, w)), u) - 1.0))
            optimizer = distributed(tf.train.MomentumOptimizer(0.1, 0.9), ranks, rank)
            with tf.control_dependencies([loss]):
                train = optimizer.minimize(loss, tf.train.get_or_create_global_step())
            hooks = [Broadcast(ranks, rank), tf.train.StopAtStepHook(last_step=12)]
            config = tf.ConfigProto(inter_op_parallelism_threads=16, use_per_session_threads=True)
            with tf.train.MonitoredTrainingSession(hooks=hooks, config=config, log_step_count_steps=None) as sess:
                while not sess.should_stop():
                    values[rank].append(
                        sess.run([loss, train], {x: np.random.RandomState(10 * len(values[rank]) + rank).randn(4, 3)})[0]
                    )

    def guarded(rank):
        try:
            work(rank)
        except Exception as error:
            failed.append(repr(error))

    threads = [threading.Thread(target=guarded, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(110)
    record.value("failed", failed)
    record.value("values", values)


def program_requests(record):
    """A server: many threads ask one at a time, a queue gathers what they ask, one thread answers so many at once as there are;
    meanwhile the weights are trained by steps of another thread, now and then, while nobody asks."""
    asked, number = tf.placeholder(tf.float32, [3], "asked"), tf.placeholder(tf.int32, [], "number")
    queue = tf.FIFOQueue(8, [tf.float32, tf.int32], [[3], []], name="requests")
    put, close = queue.enqueue([asked, number]), queue.close()
    many, numbers = queue.dequeue_up_to(3)
    w = tf.get_variable("w", [3], initializer=tf.ones_initializer(), use_resource=True)
    answers = tf.reduce_sum(tf.round(many * w), 1)  # one by one, so that it does not matter who shares a batch
    train = w.assign_add([1.0, 2.0, -1.0])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for turn in range(3):
            told, condition, failed = {}, threading.Condition(), []

            def serve(count, told=told, condition=condition, failed=failed):
                try:
                    while len(told) < count:
                        found = sess.run([answers, numbers])
                        with condition:
                            told.update({int(n): float(a) for a, n in zip(*found, strict=True)})
                            condition.notify_all()
                except Exception as error:
                    failed.append(repr(error))

            def ask(client, told=told, condition=condition):
                for k in range(6):
                    me = client * 10 + k
                    sess.run(put, {asked: [client, k, 1.0], number: me})
                    with condition:
                        condition.wait_for(lambda me=me: me in told, 60)

            threads = [threading.Thread(target=ask, args=(c,)) for c in range(3)] + [threading.Thread(target=serve, args=(18,))]
            for thread in threads:
                thread.start()
            # dequeue_up_to waits for three while the queue is open: the threads ask three at a time
            for thread in threads:
                thread.join(100)
            record.value(f"answers {turn}", [sorted(told.items()), failed])
            for _ in range(4):
                record.value(f"weights {turn}", sess.run(train))
        sess.run(close)


def program_processes(record):
    """Gaussian processes: Cholesky factors, triangular solves, a search by Newton's method from Python; variables begin with what is fed
    into their initial values, and are begun anew with others while the session goes on."""
    rng = np.random.RandomState(1)
    xs = tf.placeholder(tf.float64, [None, 1], "xs")
    ys = tf.placeholder(tf.float64, [None, 1], "ys")
    initial = {
        name: tf.placeholder_with_default(np.float64(value), [], name=f"initial_{name}")
        for name, value in (("scale", 0.5), ("noise", 0.1), ("size", 1.0))
    }
    raw = {name: tf.Variable(tf.log(tf.expm1(value)), name=name, use_resource=True) for name, value in initial.items()}
    scale, noise, size = (tf.nn.softplus(raw[name]) for name in ("scale", "noise", "size"))

    def kernel(a, b):
        squares = (
            tf.reduce_sum(tf.square(a), 1)[:, None]
            + tf.reduce_sum(tf.square(b), 1)[None, :]
            - 2.0 * tf.matmul(a, b, transpose_b=True)
        )
        return size * tf.exp(-0.5 * tf.maximum(squares, 0.0) / tf.square(scale))

    full = kernel(xs, xs) + (noise + 1e-6) * tf.eye(tf.shape(xs)[0], dtype=tf.float64)
    factor = tf.linalg.cholesky(full)
    alpha = tf.linalg.triangular_solve(factor, ys, lower=True)
    bound = 0.5 * tf.reduce_sum(tf.square(alpha)) + tf.reduce_sum(tf.log(tf.linalg.diag_part(factor)))
    at = tf.constant(np.linspace(-1, 1, 3)[:, None])
    mean = tf.matmul(tf.linalg.triangular_solve(factor, kernel(xs, at), lower=True), alpha, transpose_a=True)
    variables = list(raw.values())
    gradients = tf.gradients(bound, variables)
    curvature = [tf.gradients(g, v)[0] for g, v in zip(gradients, variables, strict=True)]
    data = {xs: np.sort(rng.rand(9, 1) * 2 - 1, 0), ys: rng.randn(9, 1)}
    with tf.Session() as sess:
        for life in range(3):
            fed = {initial["scale"]: 0.3 + 0.2 * life, initial["noise"]: 0.2}
            sess.run(tf.variables_initializer(variables), fed)
            for k in range(8):
                value, slopes, bends = sess.run([bound, gradients, curvature], data)
                record.value(f"{life} {k}", [value, slopes, bends])
                for v, slope, bend in zip(variables, slopes, bends, strict=True):
                    v.load(sess.run(v) - np.clip(slope / (abs(bend) + 1.0), -0.3, 0.3), sess)
            sess.run(raw["noise"].initializer, {raw["noise"].initial_value: -1.5})
            record.value(f"mean {life}", sess.run([mean, noise], data))
            with record.error(f"not positive {life}"):
                sess.run(bound, {full: -np.eye(9), **data})


def program_spectra(record):
    """Sound: frames, Fourier transforms, mel filters, cepstra, a convolution over them, and the way back to a wave; a notch that is learnt."""
    wave = tf.placeholder(tf.float32, [2, 400], "wave")
    spectrum = tf.signal.stft(wave, 64, 32, 64)
    gain = tf.get_variable("gain", [33], initializer=tf.ones_initializer(), use_resource=True)
    kept = spectrum * tf.cast(tf.sigmoid(gain), tf.complex64)
    mel = tf.tensordot(tf.abs(kept), tf.signal.linear_to_mel_weight_matrix(8, 33, 8000, 100.0, 3800.0), 1)
    cepstra = tf.signal.mfccs_from_log_mel_spectrograms(tf.log(mel + 1e-3))[..., :5]
    kernel = tf.get_variable("kernel", [3, 5, 2], initializer=tf.glorot_uniform_initializer(seed=3), use_resource=True)
    logits = tf.reduce_mean(tf.nn.conv1d(cepstra, kernel, 1, "SAME"), 1)
    back = tf.signal.inverse_stft(kept, 64, 32, 64, window_fn=tf.signal.inverse_stft_window_fn(32))
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=[0, 1], logits=logits)) + 0.01 * tf.reduce_mean(
        tf.square(back)
    )
    train = tf.train.AdamOptimizer(0.05).minimize(loss)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(10):
            t = np.arange(400) / 8000.0
            fed = {wave: np.stack([np.sin(2 * np.pi * (300 + 50 * k) * t), np.random.RandomState(k).randn(400)])}
            record.value(f"{k}", sess.run([loss, logits, train], fed)[:2])
            if k % 4 == 3:
                record.value(f"back {k}", sess.run([back, cepstra], fed))
