"""Programs drawn at random from what a session can be asked: steps of every kind, errors, checkpoints, callables, partial runs, threads,
graphs that grow, several sessions. Each act is in some order with what it reads and writes, so that plain runs repeat themselves."""

import os
import threading

import numpy as np
import tensorflow.compat.v1 as tf

ACTS = 30  # of a session


class Model:
    """What `drawn` builds on the current graph. `carried`: of what a restart can carry alone."""

    def __init__(self, drawn, carried):
        self.drawn, self.carried = drawn, carried
        self.resource = self.chance(0.6)
        width = self.width = int(drawn.randint(3, 7))
        tf.set_random_seed(int(drawn.randint(1000)))
        self.x = tf.placeholder(tf.float32, self.pick([[None, width], [4, width]]), name="x")
        self.y = tf.placeholder_with_default(tf.zeros([4]), [4], name="y")
        self.row = tf.placeholder(tf.float32, [width], name="row")
        self.number, self.truth = tf.placeholder(tf.int32, [], name="number"), tf.placeholder(tf.bool, [], name="truth")
        self.step = tf.train.get_or_create_global_step()
        self.tensors = []
        self.train = self.network()
        self.inputs()
        self.state()

    def pick(self, choices):
        return choices[self.drawn.randint(len(choices))]

    def chance(self, share):
        return self.drawn.rand() < share

    def network(self):
        h = self.x
        for k in range(self.drawn.randint(1, 4)):
            with tf.variable_scope(f"layer{k}", use_resource=self.resource), tf.device(self.pick([None, None, "/cpu:0"])):
                w = tf.get_variable("w", [self.width, self.width], initializer=tf.glorot_uniform_initializer(seed=k + 1))
                h = tf.matmul(h, w) + tf.get_variable("b", [self.width], initializer=tf.zeros_initializer())
            h = self.pick([tf.nn.relu, tf.tanh, tf.nn.elu, tf.sigmoid, tf.nn.leaky_relu])(h)
            if self.chance(0.4) and not self.carried:
                h = tf.nn.dropout(h, rate=0.3, seed=self.pick([None, 5]))
            if self.chance(0.3):
                mean, variance = tf.nn.moments(h, [0])
                h = tf.nn.batch_normalization(h, mean, variance, None, None, 1e-3)
            self.tensors.append(h)
        self.prediction = tf.reduce_mean(h, 1)
        self.loss = tf.reduce_mean(self.pick([tf.square, tf.abs])(self.prediction - self.y))
        if self.chance(0.5):
            self.loss += 0.01 * tf.add_n([tf.nn.l2_loss(v) for v in tf.trainable_variables()])
        optimizer = self.pick(
            [tf.train.AdamOptimizer, tf.train.RMSPropOptimizer, tf.train.GradientDescentOptimizer, tf.train.FtrlOptimizer]
        )
        gradients, variables = zip(*optimizer(0.05).compute_gradients(self.loss), strict=True)
        if self.chance(0.5):
            gradients, norm = tf.clip_by_global_norm(gradients, 0.5)
            self.tensors.append(norm)
        self.tensors += [self.prediction, self.loss, *tf.gradients(self.loss, tf.trainable_variables()[:2])]
        return optimizer(0.05).apply_gradients(zip(gradients, variables, strict=True), self.step)

    def inputs(self):
        data, ways = tf.data.Dataset.range(37), [
            lambda d: d.shuffle(7, seed=3), lambda d: d.map(lambda i: i * 2 + 1), lambda d: d.batch(4), lambda d: d.repeat(2), lambda d: d.skip(1),
            lambda d: d.filter(lambda i: tf.reduce_all(i % 5 > 0)), lambda d: d.prefetch(2), lambda d: d.take(20), lambda d: d.cache(),
        ]  # fmt: skip
        for _ in range(self.drawn.randint(1, 5)):
            data = self.pick(ways)(data)
        self.endless = tf.data.make_one_shot_iterator(data.repeat()).get_next()
        size = tf.constant(5, tf.int64) if self.carried else tf.cast(self.number, tf.int64) + 1
        squares = tf.data.Dataset.range(size).map(lambda i: i * i).shuffle(3, seed=9).repeat(2)
        self.iterator = tf.data.make_initializable_iterator(squares)
        self.square = self.iterator.get_next()
        components = [tf.float32, tf.int32], [[self.width], []]
        shuffled = not self.carried and self.chance(0.5)
        self.queue = tf.RandomShuffleQueue(6, 0, *components, seed=2) if shuffled else tf.FIFOQueue(6, *components)
        self.put, self.take, self.size = self.queue.enqueue([self.row, self.number]), self.queue.dequeue(), self.queue.size()

    def state(self):
        self.count = tf.get_variable("count", [], tf.int32, initializer=tf.zeros_initializer(), use_resource=True, trainable=False)
        self.counted = self.count.assign_add(1)
        self.either = tf.cond(self.truth, lambda: self.count.assign_add(10) + 0, lambda: self.count.read_value() * 2)
        self.local = tf.get_local_variable("local", [2], initializer=tf.ones_initializer(), use_resource=self.resource)
        noise = tf.constant(1.0) if self.carried else tf.random_uniform([], seed=4)
        self.loop = tf.while_loop(
            lambda k, total: k < self.number,
            lambda k, total: (k + 1, total + noise + tf.cast(self.count.read_value(), tf.float32)),
            [tf.constant(0), tf.constant(0.0)],
            parallel_iterations=1,
        )[1]
        self.draws = [tf.random.stateless_normal([3], [1, 2])]
        if not self.carried:
            self.draws += [tf.random_normal([3]), tf.random_uniform([2], seed=3), tf.random_shuffle(tf.range(9), seed=1)]
        self.python = tf.py_func(lambda value: np.float32(value.sum() * 2), [self.x], tf.float32)
        self.checked = tf.check_numerics(tf.log(self.x - 1e9 * tf.cast(self.number, tf.float32)), "no logarithms")
        with tf.control_dependencies([tf.Assert(self.number < 3, ["too many", self.number])]):
            self.asserted = tf.identity(self.prediction)
        self.average = tf.train.ExponentialMovingAverage(0.9, self.step).apply(tf.trainable_variables())
        self.summary = tf.summary.merge([tf.summary.scalar("loss", self.loss), tf.summary.histogram("prediction", self.prediction)])
        self.start, self.saver = (
            [tf.global_variables_initializer(), tf.local_variables_initializer()],
            tf.train.Saver(max_to_keep=2),
        )


class Actor:
    """Acts on the sessions of one `model`."""

    def __init__(self, record, model):
        self.record, self.model, self.callables = record, model, []
        self.open, self.added = [], []  # sessions; variables that came later
        self.acts = sorted(name for name in dir(self) if name.startswith("act_"))

    def act(self, label, session):
        name = self.model.pick([*self.acts, *["act_train"] * 4])
        with session.as_default():
            try:
                self.record.value(f"{label} {name}", getattr(self, name)(session))
            except (tf.errors.OpError, RuntimeError, ValueError) as error:
                self.record.note_error(f"{label} {name}", error)

    def fed(self):
        model = self.model
        feeds = {model.x: np.random.RandomState(model.drawn.randint(99)).randn(4, model.width).astype(np.float32)}
        return feeds | ({model.y: np.full(4, model.drawn.rand(), np.float32)} if model.chance(0.6) else {})

    def element(self):
        model = self.model
        return {model.row: np.full(model.width, model.drawn.rand(), np.float32), model.number: model.drawn.randint(9)}

    def some(self, count):
        return [self.model.pick(self.model.tensors) for _ in range(count)]

    def act_train(self, session):
        model = self.model
        return session.run(model.pick([[model.train, model.loss], {"train": model.train, "rest": [model.prediction]}]), self.fed())

    def act_fetch(self, session):
        return session.run(self.some(3), self.fed())

    def act_data(self, session):
        return session.run(self.model.pick([self.model.endless, self.model.square, [self.model.square, self.model.endless]]))

    def act_begin_data(self, session):
        return session.run(self.model.iterator.initializer, {self.model.number: self.model.drawn.randint(4)})

    def act_train_on_the_last(self, session):
        return session.run([self.model.square, self.model.train], self.fed())

    def act_put(self, session):
        room = session.run(self.model.size) < 6
        return session.run(self.model.put, self.element()) if room else "full"

    def act_take(self, session):
        return session.run(self.model.take) if session.run(self.model.size) else "empty"

    def act_wait(self, session):
        """A thread waits for an element while others train and put it."""
        if session.run(self.model.size):
            return "not empty"
        taken = []
        thread = threading.Thread(target=lambda: taken.append(session.run(self.model.take)))
        thread.start()
        loss = session.run(self.model.loss, self.fed())
        session.run(self.model.put, self.element())
        thread.join()
        return loss, taken

    def act_draw(self, session):
        return session.run([self.model.pick(self.model.draws) for _ in range(2)])

    def act_count(self, session):
        return session.run([self.model.counted])

    def act_branch(self, session):
        return session.run(self.model.either, {self.model.truth: self.model.chance(0.5)})

    def act_loop(self, session):
        return session.run(self.model.loop, {self.model.number: self.model.drawn.randint(5)})

    def act_python(self, session):
        return session.run(self.model.python, self.fed())

    def act_check(self, session):
        model = self.model
        return session.run(model.pick([model.checked, model.asserted]), self.fed() | {model.number: model.drawn.randint(5)})

    def act_check_and_train(self, session):
        model = self.model
        return session.run([model.train, model.checked], self.fed() | {model.number: model.drawn.randint(2)})

    def act_summary(self, session):
        return session.run(self.model.summary, self.fed())

    def act_average(self, session):
        return session.run([self.model.average, self.model.step])

    def act_variables(self, session):
        return session.run([*tf.global_variables(), self.model.local])

    def act_start_local(self, session):
        return session.run(self.model.start[1])

    def act_save(self, session):
        prefix = self.model.saver.save(session, os.path.abspath("saved"), self.model.drawn.randint(50), write_meta_graph=False)
        self.record.checkpoint("saved", prefix)

    def act_restore(self, session):
        kept = self.model.saver.last_checkpoints
        return self.model.saver.restore(session, kept[-1]) if kept else "nothing saved"

    def act_grow(self, session):
        model, number = self.model, len(tf.get_default_graph().get_operations())
        (given,) = self.some(1)
        way = model.drawn.randint(6)
        if way == 0:
            variable = tf.get_variable(
                f"new{number}", [2], initializer=tf.ones_initializer(), use_resource=model.chance(0.5), trainable=False
            )
            self.added.append(variable)
            for each in self.open:  # of two variables without a value either is named
                each.run(variable.initializer)
            new = variable * 2.0 + tf.reduce_mean(given)
        elif way == 1:
            new = tf.gradients(tf.reduce_sum(given), model.x, unconnected_gradients="zero")[0]
        elif way == 2:
            start = [tf.constant(0), tf.constant(1.0)]
            new = tf.while_loop(lambda k, a: k < 3, lambda k, a: (k + 1, a * 0.5 + tf.reduce_sum(given)), start)[1]
        elif way == 3:
            new = tf.cond(tf.reduce_sum(given) > 0, lambda: tf.reduce_max(given), lambda: tf.reduce_min(given))
        elif way == 4:
            new = tf.map_fn(lambda each: each * 2.0, tf.reshape(given, [-1]))
        else:
            new, model.train = tf.square(given), tf.train.GradientDescentOptimizer(0.01).minimize(model.loss)
        model.tensors.append(new)
        return session.run(new, self.fed())

    def act_make_callable(self, session):
        self.callables.append((session, session.make_callable(self.some(2), [self.model.x])))
        return self.callables[-1][1](self.fed()[self.model.x])

    def act_call(self, session):
        known = [made for owner, made in self.callables if owner is session]
        return self.model.pick(known)(self.fed()[self.model.x]) if known else "none made"

    def act_in_parts(self, session):
        model, (first,) = self.model, self.some(1)
        handle = session.partial_run_setup([first, model.loss], [model.x, model.y])
        feeds = {model.y: np.zeros(4, np.float32)} | self.fed()
        parts = [handle, session.partial_run(handle, first, feeds), session.run(model.counted)]
        return [*parts, None if first is model.loss else session.partial_run(handle, model.loss)]


def act(record, seed, carried):
    """Several sessions on one graph, of which some are closed, and some of these used all the same."""
    drawn = np.random.RandomState(seed)
    with tf.Graph().as_default():
        actor, sessions = Actor(record, Model(drawn, carried)), []
        for life in range(2):
            config = tf.ConfigProto(inter_op_parallelism_threads=int(drawn.randint(2)), allow_soft_placement=bool(drawn.randint(2)))
            sessions.append(tf.Session(config=config))
            sessions[-1].run([actor.model.start, [variable.initializer for variable in actor.added]])
            actor.open.append(sessions[-1])
            sessions[-1].run(actor.model.iterator.initializer, {actor.model.number: 3})
            for k in range(ACTS):
                number = -1 if actor.model.chance(0.7) else drawn.randint(len(sessions))
                actor.act(f"{seed} {life} {k}", sessions[number])
            if actor.model.chance(0.4):
                actor.open.pop().close()
        for session in sessions:
            session.close()
        record.graph(f"{seed} graph")


def program_carried(record):
    """With what a restart can carry alone."""
    for seed in range(3):
        act(record, seed, True)


def program_anything(record):
    for seed in range(3, 6):
        act(record, seed, False)
