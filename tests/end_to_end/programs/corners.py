"""What few programs do, and some do: compiled scopes, variables of every type and of changing shape, odd pools and rewriters."""

import numpy as np
import tensorflow.compat.v1 as tf
from training import dense


def waves(rows, columns, shift=0.0):
    return np.sin(np.arange(rows * columns, dtype=np.float32) + shift).reshape(rows, columns)


def program_compiled(record):
    """Scopes that XLA is asked to compile, functions that it must, beside plain ops."""
    from tensorflow.python.compiler.xla import jit

    x = tf.placeholder(tf.float32, [4, 6], name="x")
    with jit.experimental_jit_scope():
        h = tf.tanh(dense(x, 8, "a") * 1.7 + 0.3)
        h = tf.exp(-tf.square(h)) * tf.sin(h) + tf.reduce_mean(h, 1, keepdims=True)
    with jit.experimental_jit_scope(compile_ops=False):
        h = tf.nn.softmax(h)
    fused = tf.function(lambda v: tf.reduce_sum(tf.sqrt(tf.abs(tf.sin(v) * tf.cos(v) + 1.5)), 1), jit_compile=True)
    loss = tf.reduce_mean(tf.square(dense(h, 1, "b")[:, 0] - fused(h)))
    train = tf.train.AdamOptimizer(0.02).minimize(loss)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(14):
            record.value(f"{k}", sess.run([loss, h, train], {x: waves(4, 6, k)})[:2])
        record.value("all", sess.run(tf.global_variables()))


def program_computations(record):
    """A loss and its gradient that XLA compiles as one op, first alone, then beside a loop that was built before."""
    x = tf.placeholder(tf.float32, [4, 6], name="x")
    w = tf.get_variable("w", initializer=waves(6, 6) * 0.4, use_resource=True)
    h = tf.while_loop(lambda i, _: i < 3, lambda i, h: [i + 1, tf.tanh(tf.matmul(h, w)) + x], [0, x])[1]
    plain_loss = tf.reduce_mean(tf.square(h))
    plain = tf.train.GradientDescentOptimizer(0.1).minimize(plain_loss)

    def compiled(x, w):
        loss = tf.reduce_mean(tf.square(tf.nn.softplus(tf.tanh(tf.matmul(x, w)) * tf.exp(-x * x))))
        return [loss, tf.gradients(loss, [w])[0]]

    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(8):
            record.value(f"{k}", sess.run([plain_loss, plain], {x: waves(4, 6, k)})[0])
        loss, gradient = tf.xla.experimental.compile(compiled, [x, w])
        with tf.control_dependencies([loss, gradient]):
            train = w.assign_sub(0.05 * gradient)
        for k in range(8):
            with record.error(f"compiled {k}"):
                record.value(f"compiled {k}", sess.run([loss, gradient, train], {x: waves(4, 6, k)})[:2])
            with record.error(f"beside {k}"):
                record.value(f"beside {k}", sess.run([plain_loss, plain], {x: waves(4, 6, k)})[0])
        record.value("all", sess.run(tf.global_variables()))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(8):
            record.value(f"again {k}", sess.run([loss, gradient, train], {x: waves(4, 6, k)})[:2])


TYPES = (tf.float16, tf.bfloat16, tf.float64, tf.complex64, tf.complex128, tf.int8, tf.uint8, tf.int16, tf.uint16, tf.uint32,
         tf.uint64, tf.int64, tf.bool, tf.string)  # fmt: skip


def program_types(record):
    """Variables of every type, both kinds, changed every step, through savers and queues."""
    held, updates = [], []
    for use_resource in (False, True):
        for dtype in TYPES:
            start = np.array([[1, 0], [2, 3]])
            value = tf.constant(start.astype(str).tolist() if dtype == tf.string else start.astype(dtype.as_numpy_dtype), dtype)
            name = f"{dtype.name}_{use_resource}"
            v = tf.get_variable(name, initializer=value, use_resource=use_resource, trainable=False)
            held.append(v)
            new = tf.strings.join([v, "+"]) if dtype == tf.string else tf.logical_not(v) if dtype == tf.bool else v + value
            updates.append(tf.assign(v, new))
    queue = tf.FIFOQueue(9, [v.dtype.base_dtype for v in held[:6]], shapes=[v.shape for v in held[:6]])
    put, take = queue.enqueue([v + v for v in held[:6]]), queue.dequeue()
    saver = tf.train.Saver(held)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(10):
            sess.run(updates)
            record.value(f"{k}", sess.run(held))
            if k % 3 == 1:
                sess.run(put)
            if k % 4 == 2:
                path = saver.save(sess, "model", k)
            if k == 7:
                saver.restore(sess, path)
        record.value("left", [sess.run(take) for _ in range(sess.run(queue.size()))])
    record.checkpoint("saved", path)


def program_changing_shapes(record):
    """Variables without a fixed shape, that grow, shrink and become empty; sparse and batched writes to parts of them."""
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    v = tf.get_variable("v", initializer=tf.zeros([1, 3]), validate_shape=False, use_resource=False)
    r = tf.Variable(tf.zeros([1, 3]), shape=tf.TensorShape([None, 3]), use_resource=True, name="r")
    w = tf.get_variable("w", [6, 3], initializer=tf.zeros_initializer())
    grow = tf.group(tf.assign(v, tf.concat([v, x], 0), validate_shape=False), r.assign(tf.concat([r, x], 0)))
    empty = tf.group(tf.assign(v, tf.zeros([0, 3]), validate_shape=False), r.assign(tf.zeros([0, 3])))
    parts = [tf.scatter_nd_add(w, [[0, 1], [5, 2]], [1.0, 2.0]), tf.scatter_mul(w, [1, 2], tf.ones([2, 3]) * 0.5)]
    with tf.control_dependencies(parts):
        sliced = w[2:4, 1].assign(tf.reduce_sum(x) * tf.ones([2]))
    sums = [tf.reduce_sum(v), tf.reduce_sum(r), tf.shape(v), tf.shape(r)]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(16):
            sess.run(empty if k % 6 == 5 else grow, {x: waves(k % 3, 3, k)})
            record.value(f"{k}", sess.run(sums))
            record.value(f"parts {k}", sess.run(sliced, {x: waves(2, 3, k)}))
        record.value("end", sess.run([v, r, w]))


def program_pools(record):
    """Runs in the caller's thread, in pools by number, by the handler pool; with one inter-op thread; traced in between."""
    x = tf.placeholder(tf.float32, [None, 6], name="x")
    loss = tf.reduce_mean(tf.square(dense(dense(x, 5, "a", tf.nn.relu), 2, "b")))
    train = tf.train.RMSPropOptimizer(0.01).minimize(loss)
    here = tf.py_func(lambda a: np.float32(a.sum()), [x], tf.float32)
    config = tf.ConfigProto(inter_op_parallelism_threads=1)
    config.session_inter_op_thread_pool.add(num_threads=2)
    config.session_inter_op_thread_pool.add(num_threads=1, global_name="shared by name")
    with tf.Session(config=config) as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(16):
            options = tf.RunOptions(inter_op_thread_pool=(-1, 0, 1)[k % 3], report_tensor_allocations_upon_oom=k % 2 == 0)
            options.experimental.use_run_handler_pool = k % 5 == 4
            record.value(f"{k}", sess.run([loss, here, train], {x: waves(3, 6, k)}, options=options)[:2])
        with record.error("no such pool"):
            sess.run(loss, {x: waves(3, 6)}, options=tf.RunOptions(inter_op_thread_pool=7))
        for k in range(4):
            record.value(f"after {k}", sess.run([loss, train], {x: waves(3, 6, k)})[0])


def program_rewriters(record):
    """Rewriters that few switch on: recomputation, mixed precision, no pruning, many iterations; outlined control flow."""
    from tensorflow.core.protobuf import rewriter_config_pb2

    x = tf.placeholder(tf.float32, [4, 12], name="x")
    h = x
    for k in range(6):
        h = h + tf.nn.relu(dense(h, 12, f"layer{k}")) * 0.5
        h = tf.cond(tf.reduce_sum(h) > 3.0 * k, lambda h=h: tf.tanh(h), lambda h=h: h * 0.9)
    loss = tf.reduce_mean(tf.square(h))
    train = tf.train.AdamOptimizer(0.01).minimize(loss)
    init = tf.global_variables_initializer()
    Config = rewriter_config_pb2.RewriterConfig
    for name, rewrites in {
        "recompute": Config(memory_optimization=Config.RECOMPUTATION_HEURISTICS),
        "swap": Config(memory_optimization=Config.SWAPPING_HEURISTICS),
        "mixed": Config(auto_mixed_precision_onednn_bfloat16=Config.ON),
        "thrice": Config(meta_optimizer_iterations=3, min_graph_nodes=-1),
        "unpruned": Config(disable_model_pruning=True, common_subgraph_elimination=Config.OFF),
        "aggressive": Config(loop_optimization=Config.AGGRESSIVE, arithmetic_optimization=Config.AGGRESSIVE,
                             remapping=Config.AGGRESSIVE, constant_folding=Config.AGGRESSIVE),
    }.items():  # fmt: skip
        with tf.Session(config=tf.ConfigProto(graph_options=tf.GraphOptions(rewrite_options=rewrites))) as sess:
            sess.run(init)
            for k in range(7):
                record.value(f"{name} {k}", sess.run([loss, train], {x: waves(4, 12, k)})[0])


def program_deep(record):
    """A chain of thousands of ops, hundreds of variables, functions in functions, and tensors with nothing in them."""
    x = tf.placeholder(tf.float32, [None, 4], name="x")
    h = x
    for k in range(1500):
        h = tf.sin(h) + 0.001 if k % 2 else tf.negative(h)
    many = [tf.get_variable(f"v{k}", [2], initializer=tf.constant_initializer(k)) for k in range(200)]
    loss = tf.reduce_sum(h) + tf.add_n([tf.reduce_sum(v * v) for v in many]) * 1e-6
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    call = tf.function(lambda v: v * 2.0)
    for _ in range(12):
        call = tf.function(lambda v, inner=call: inner(v) + 1.0)
    called = call(tf.reduce_sum(x))
    nothing = [tf.zeros([0, 3]), tf.constant([], tf.string), tf.reduce_max(x[:, :0]), tf.concat([x[:0], x], 0)]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(6):
            record.value(f"{k}", sess.run([loss, called, *nothing, train], {x: waves(k % 2, 4, k)})[:6])
        record.value("all", sess.run(many))


def program_quantized(record):
    """Fake quantization with learned ranges, moving minima and maxima, and Python's own gradients in the middle."""
    x = tf.placeholder(tf.float32, [4, 6], name="x")
    low = tf.get_variable("low", [], initializer=tf.constant_initializer(-1.0))
    high = tf.get_variable("high", [], initializer=tf.constant_initializer(1.0))
    seen = tf.get_variable("seen", [], initializer=tf.zeros_initializer(), trainable=False)
    with tf.control_dependencies([tf.assign(seen, 0.9 * seen + 0.1 * tf.reduce_max(x))]):
        q = tf.quantization.fake_quant_with_min_max_vars(dense(x, 5, "a"), low, high, num_bits=4)
    python = tf.py_function(lambda a: tf.tanh(a) * 2.0, [q], tf.float32)
    python.set_shape([4, 5])
    loss = tf.reduce_mean(tf.square(dense(python, 2, "b") - 0.3))
    train = tf.train.MomentumOptimizer(0.05, 0.9).minimize(loss)
    eight = tf.quantize_v2(x, -1.0, 1.0, tf.quint8)
    back = tf.dequantize(eight[0], eight[1], eight[2])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            record.value(f"{k}", sess.run([loss, q, back, train], {x: waves(4, 6, k)})[:3])
        record.value("all", sess.run(tf.global_variables()))


def program_late_state(record):
    """State that comes and goes: variables initialized late and one by one, uninitialized again, local and metric, by other threads' init."""
    names = [f"v{k}" for k in range(6)]
    vs = [
        tf.get_variable(n, [3], initializer=tf.random_normal_initializer(seed=k), use_resource=k % 2 == 0)
        for k, n in enumerate(names)
    ]
    total = tf.add_n([tf.reduce_sum(v) for v in vs])
    report = tf.report_uninitialized_variables()
    ready = [tf.is_variable_initialized(v) for v in vs]
    with tf.Session() as sess:
        for k, v in enumerate(vs):
            record.value(f"report {k}", sess.run([report, *ready]))
            sess.run(v.initializer)
            record.value(f"v {k}", sess.run(v))
        record.value("total", [sess.run(total) for _ in range(4)])
        sess.run(tf.raw_ops.DestroyResourceOp(resource=vs[0].handle, ignore_lookup_error=True))
        for k in range(4):
            record.value(f"again {k}", sess.run([report, *ready]))
        with record.error("destroyed"):
            sess.run(vs[0])
        sess.run([vs[0].initializer, vs[3].initializer])
        record.value("end", sess.run(vs))


def program_few_ops(record):
    """Graphs of so few ops that TensorFlow leaves them as they are, before and after they grow."""
    for name, make in {
        "log": lambda x: tf.log(tf.nn.softmax(x)),
        "swish": lambda x: x * tf.sigmoid(x),
        "third": lambda x: x / 3.0,
        "sum": lambda x: tf.add_n([x] * 5),
    }.items():
        with tf.Graph().as_default():
            x = tf.placeholder(tf.float32, [6, 7])
            made = make(x)
            with tf.Session() as sess:
                for k in range(8):
                    record.value(f"{name} {k}", sess.run(made, {x: np.random.RandomState(k).randn(6, 7)}))
                    if k == 3:
                        more = tf.reduce_sum(tf.exp(made) * 0.3)
                    if k > 3:
                        record.value(f"{name} {k} more", sess.run([made, more], {x: np.random.RandomState(k).randn(6, 7)}))
