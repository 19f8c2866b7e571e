"""Errors of every kind, before and after good runs, with the words and ops that plain gives."""

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.framework import function


def program_kernels(record):
    x = tf.placeholder(tf.float32, [None, None], name="x")
    i = tf.placeholder(tf.int32, [None], name="i")
    with tf.name_scope("layer"):
        y = tf.matmul(x, tf.ones([3, 2]), name="product")
        g = tf.gather(tf.range(5), i, name="pick")
        r = tf.reshape(x, [7], name="shape")
        c = tf.linalg.cholesky(tf.concat([x, x], 0), name="factor")
        d = tf.floordiv(10, i, name="divide")
        s = tf.string_to_number(tf.as_string(i) + tf.constant("z"), name="number")
        t = tf.decode_raw(tf.constant("abc"), tf.int32, name="decode")
        f = tf.read_file(tf.as_string(x[0, 0]), name="read")
        n = tf.sparse.to_dense(tf.SparseTensor(tf.cast([i, i], tf.int64), tf.cast(i[:2], tf.float32), [2, 2]), name="dense")
        total = tf.reduce_sum(y, name="total")
    cases = {"product": y, "pick": g, "shape": r, "factor": c, "divide": d, "number": s, "decode": t, "read": f, "n": n}
    with tf.Session() as sess:
        for k in range(4):
            record.value(f"good {k}", sess.run([total, g], {x: [[k, 1.0, 2.0]], i: [1, 2]}))
            for name, tensor in cases.items():
                with record.error(f"{name} {k}"):
                    sess.run([tensor], {x: [[1.0, 2.0], [3.0, -9.0]], i: [0, 9]})
            record.value(f"good again {k}", sess.run(total, {x: [[k, 1.0, 2.0]]}))
    record.graph("graph")


def program_training(record):
    """A step that fails half way leaves the variables as plain leaves them."""
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    w = tf.get_variable("w", [3, 2], initializer=tf.ones_initializer())
    loss = tf.reduce_sum(tf.check_numerics(tf.matmul(x, w), "loss", name="check"))
    train = tf.train.AdamOptimizer(0.1).minimize(loss)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(10):
            record.value(f"{k}", sess.run([loss, train], {x: [[k, 1.0, 2.0]]})[0])
            with record.error(f"not a number {k}"):
                sess.run([loss, train], {x: [[float("nan"), 1.0, 2.0]]})
            record.value(f"w {k}", sess.run(w))


def program_states(record):
    v = tf.get_variable("v", [2], initializer=tf.zeros_initializer(), use_resource=False)
    u = tf.get_variable("u", [2], initializer=tf.zeros_initializer(), use_resource=True)
    iterator = tf.data.make_initializable_iterator(tf.data.Dataset.range(2))
    value = iterator.get_next(name="next")
    queue = tf.FIFOQueue(3, tf.int32, name="queue")
    with tf.Session() as sess:
        for k in range(4):
            with record.error(f"ref {k}"):
                sess.run(v)
            with record.error(f"ref update {k}"):
                sess.run(tf.assign_add(v, [1.0, 1.0], name=f"add{k}"))
            with record.error(f"resource {k}"):
                sess.run(u)
            with record.error(f"iterator {k}"):
                sess.run(value)
        sess.run([iterator.initializer, tf.global_variables_initializer()])
        record.value("values", [sess.run(value) for _ in range(2)])
        for k in range(3):
            with record.error(f"out of range {k}"):
                sess.run(value)
        sess.run(queue.close())
        with record.error("closed"):
            sess.run(queue.enqueue(1, name="put"))
        with record.error("empty"):
            sess.run(queue.dequeue(name="take"))
        record.value("v", sess.run([v, u]))


def program_placement(record):
    """Devices that do not exist, with and without soft placement; the session lives on."""
    with tf.device("/device:GPU:3"):
        a = tf.constant([1.0, 2.0], name="a")
    with tf.device("/cpu:0"):
        b = tf.constant([3.0], name="b") * 2.0
    three = {"CPU": 3}  # messages list the devices
    config = tf.ConfigProto(allow_soft_placement=False, device_count=three)
    with tf.Session(config=config) as sess, record.error("no such device"):
        sess.run(a)
    with tf.Session(config=tf.ConfigProto(allow_soft_placement=True, device_count=three)) as sess:
        for k in range(6):
            record.value(f"soft {k}", sess.run([a * 2.0, b]))
    with tf.Graph().as_default(), tf.Session(config=config) as sess:
        good = tf.constant(1.0) + 1.0
        for k in range(4):
            record.value(f"good {k}", sess.run(good))
        with tf.device("/job:worker/task:7"):
            bad = tf.constant(2.0, name="far") + 1.0
        with record.error("no such task"):
            sess.run(bad)
        with record.error("poisoned as in plain"):
            sess.run(good)
    with tf.Graph().as_default(), tf.Session(config=config) as sess, record.error("no kernel"):
        sess.run(tf.raw_ops.NcclAllReduce(input=[1.0], reduction="sum", num_devices=1, shared_name="x"))


def program_quoted(record):
    """A Python function of the graph runs a step itself, whose error TensorFlow quotes with its traceback."""
    x = tf.placeholder(tf.float32, [None], name="x")
    inner = tf.reshape(x, [3], name="inner") * 2.0
    # Threads of its own: those that all sessions share other programs may have left blocked, and a step inside a step needs two.
    with tf.Session(config=tf.ConfigProto(inter_op_parallelism_threads=4, use_per_session_threads=True)) as sess:
        outer = tf.py_func(lambda value: sess.run(inner, {x: value}), [x], tf.float32, name="outer")
        for k in range(6):
            record.value(f"{k}", sess.run(outer, {x: [1.0, 2.0, k]}))
            with record.error(f"{k} fails"):
                sess.run(outer, {x: [1.0, k]})


def program_unread(record):
    """Reference variables without a value that are given to an op as they are."""
    v = tf.get_variable("v", [3], initializer=tf.zeros_initializer(), use_resource=False)
    w = tf.get_variable("w", [3], initializer=tf.ones_initializer(), use_resource=False)
    total, saver = tf.reduce_sum(v._ref(), name="total"), tf.train.Saver([v])
    before, after = tf.exp(w, name="before"), tf.tanh(w, name="y")
    with tf.Session() as sess:
        sess.run(w.initializer)
        for k in range(6):
            with record.error(f"{k} saved"):
                saver.save(sess, "./unread")
            with record.error(f"{k} summed"):
                sess.run([total, w])
            with record.error(f"{k} fetched"):
                sess.run(v)
            with record.error(f"{k} fetched among others"):
                sess.run([after, v, before])


def program_ends(record):
    """Errors that number what is fetched, by name or, of a callable, as it is given: a variable without a value, a dead branch."""
    names = (("m", False), ("b", True), ("w", False), ("a", True), ("none", False), ("c", False))
    variables = [tf.get_variable(name, [2], initializer=tf.ones_initializer(), use_resource=resource) for name, resource in names]
    dead, taken = tf.raw_ops.Switch(data=tf.range(3.0), pred=tf.placeholder_with_default(True, [], name="taken"))
    fetched = [variable.value() if name == "b" else variable for (name, _), variable in zip(names, variables, strict=True)]
    empty = [variables[0], variables[4], variables[2], variables[5]]
    late = [variables[0], variables[2], dead * 2.0, variables[5], taken + 1.0]
    with tf.Session() as sess:

        def called(tensors):
            asked = [tf.convert_to_tensor(t) if isinstance(t, tf.Tensor) else t._ref() for t in tensors]
            return sess._make_callable_from_options(config_pb2.CallableOptions(fetch=[tensor.name for tensor in asked]))

        sess.run([variable.initializer for variable in variables if variable.op.name != "none"])
        callables = [called(empty), called(late)]
        for k in range(6):
            for n, run in enumerate([*(lambda each=each: sess.run(each) for each in (fetched, empty, late)), *callables]):
                with record.error(f"{k} {n}"):
                    record.value(f"{k} {n}", run())
        for n, run in enumerate([called(late), called(empty)]):
            with record.error(f"later {n}"):
                record.value(f"later {n}", run())


def program_without(record):
    """A session that asks for no CPU is refused, and the next one is not."""
    for k, number in enumerate((1, 0, -1, 2) * 2):
        with record.error(f"{k}"), tf.Session(config=tf.ConfigProto(device_count={"CPU": number})) as sess:
            record.value(f"{k}", sess.run(tf.constant([1.0, 2.0]) * k))


def _layers(h, count, resource):
    """`count` layers of as many units as `h` has."""
    for k in range(count):
        with tf.variable_scope(f"layer{k}", use_resource=resource):
            w = tf.get_variable("w", [h.shape[-1], h.shape[-1]], initializer=tf.constant_initializer(0.1 * (k + 1)))
            h = tf.tanh(tf.matmul(h, w) + tf.get_variable("b", [h.shape[-1]], initializer=tf.zeros_initializer()))
    return h


def program_ended(record):
    """A step trains on one batch and asks for the next: of an iterator or of Python. At the end of the data, too, it trains."""
    for k, resource in enumerate((True, False)):
        with tf.Graph().as_default(), tf.Session() as sess:
            x = tf.placeholder(tf.float32, [8, 6], name="x")
            train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_mean(tf.square(_layers(x, 4, resource) - 1.0)))
            data = tf.data.Dataset.range(3).map(lambda i: tf.fill([8, 6], tf.cast(i, tf.float32) + 0.5))
            iterator = tf.data.make_initializable_iterator(data)
            of_iterator = iterator.get_next()
            drawn = iter(range(100))

            def python(drawn=drawn):
                if (number := next(drawn)) % 4 == 3:
                    raise StopIteration
                return np.full([8, 6], number % 4 + 0.5, np.float32)

            of_python = tf.py_func(python, [], tf.float32)
            of_python.set_shape([8, 6])
            sess.run(tf.global_variables_initializer())
            for epoch in range(6):
                sess.run(iterator.initializer)
                following = of_python if epoch % 2 else of_iterator
                batch, ended = sess.run(following), False
                while not ended:
                    ended = True
                    with record.error(f"{k} {epoch} ends"):
                        batch = sess.run([following, train], {x: batch})[0]
                        ended = False
                record.value(f"{k} {epoch}", sess.run(tf.trainable_variables()))


def program_checked(record):
    """Checks that fail in a step that also trains, in no order with its updates: these come about."""
    x, y = tf.placeholder(tf.float32, [4, 3], name="x"), tf.placeholder(tf.float32, [4, 1], name="y")
    loss = tf.reduce_mean(tf.log(y) * _layers(x, 3, True))
    train = tf.train.AdamOptimizer(0.1).minimize(loss)
    steps = [
        [tf.check_numerics(loss, "loss"), train],
        [train, tf.check_numerics(tf.log(y), "log")],
        [tf.debugging.assert_less(tf.reduce_sum(loss), 1e3), train],
    ]
    with tf.Session() as sess:
        start = tf.global_variables_initializer()
        sess.run(start)
        for k in range(18):
            with record.error(f"{k}"):
                sess.run(steps[k % 3], {x: np.linspace(-1, 1, 12).reshape(4, 3) * (k % 5), y: np.full([4, 1], k // 3 % 2 * 2.0)})
            record.value(f"{k}", sess.run(tf.trainable_variables()))
            if k // 3 % 2 == 0:
                sess.run(start)


def program_beside(record):
    """What a step updates beside the end of data or what fails: tables, generators, accumulators, variables in functions."""
    x, n = tf.placeholder(tf.float32, [8, 6], name="x"), tf.placeholder(tf.int64, [], name="n")
    h = tf.reduce_sum(_layers(x, 6, True), 0)
    iterator = tf.data.make_initializable_iterator(tf.data.Dataset.range(1))

    def python(number):
        if number % 2:
            raise StopIteration("over")
        return np.float32(number)

    v, kept = (tf.get_variable(name, [6], initializer=tf.zeros_initializer(), use_resource=True) for name in ("v", "kept"))
    generator = tf.random.Generator.from_seed(9)
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, -1.0)
    sums = tf.ConditionalAccumulator(tf.float32, [6])
    with tf.control_dependencies([h]):
        drawn = generator.normal([3])
    called = tf.function(lambda a: v.assign_add(a))(h)
    updates = [drawn, table.insert(n, tf.reduce_sum(h)), sums.apply_grad(h), called, kept.assign_add(h)]
    ends = [
        iterator.get_next(),
        tf.function(lambda: iterator.get_next() + 1)(),
        tf.function(lambda a: tf.numpy_function(python, [a], tf.float32) + 1.0)(n),
        tf.py_func(python, [n], tf.float32, stateful=False),
    ]
    state = [v, kept, generator.state, table.lookup(n), table.size(), sums.num_accumulated()]
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), generator.state.initializer])
        for k in range(24):
            if k % 2 == 0:
                sess.run(iterator.initializer)
            feeds = {x: np.full([8, 6], 0.1 * k, np.float32), n: k}
            with record.error(f"{k}"):
                record.value(f"{k} got", sess.run([ends[k // 2 % 4], *updates], feeds))
            record.value(f"{k}", sess.run(state, feeds))


def program_called(record):
    """Functions that stay calls, and fail of what they are given."""
    z = tf.placeholder(tf.float32, [None, None], name="z")

    @function.Defun(tf.float32, noinline=True)
    def rows(q):
        return tf.reshape(q, [-1, 3]) * 2.0

    v = tf.get_variable("v", [3], initializer=tf.ones_initializer(), use_resource=True)
    train = v.assign_add(tf.tanh(tf.reduce_sum(tf.exp(rows(z) * 0.1)) * 0.01 + tf.zeros([3])))
    with tf.Session() as sess:
        sess.run(v.initializer)
        for k in range(20):
            with record.error(f"{k}"):
                sess.run(train, {z: np.ones([1, 3 + k % 2]) * 0.1 * k})
            record.value(f"{k}", sess.run(v))


def program_fetched_call(record):
    """A function with a check in it, whose result is fetched as it is, or read."""
    p = tf.placeholder(tf.float32, [], name="p")
    w = tf.get_variable("w", [4, 4], initializer=tf.ones_initializer(), use_resource=True)

    @tf.function(autograph=False)
    def root(a, b):
        return tf.debugging.check_numerics(tf.sqrt(a) * b, "no number")

    made = root(p, tf.reduce_sum(tf.tanh(w) * 0.5))
    with tf.Session() as sess:
        sess.run(w.initializer)
        for k in range(12):
            with record.error(f"{k}"):
                record.value(f"{k}", sess.run(made if k % 4 < 2 else made * 2.0, {p: 1.0 - 2 * (k % 2)}))
