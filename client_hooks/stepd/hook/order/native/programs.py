"""Small programs on which the native executor is compared with TensorFlow's own: values, errors, time-outs, cancellation, threads.

Each takes a function that makes sessions, and returns what the program saw, as plain values that can be compared.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

Sessions = Callable[[], Any]
"""Makes a session on the default graph; every op of the graph is given a priority when the session begins."""


def _numbers(seed: int, *shape: int) -> Any:
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


def _plain(values: Any) -> Any:
    if isinstance(values, (list, tuple)):
        return [_plain(value) for value in values]
    return values.tobytes() if isinstance(values, (np.ndarray, np.generic)) else values


def _error(call: Callable[[], Any]) -> tuple[str, str]:
    """(type, first line) of what a call raises."""
    import tensorflow.compat.v1 as tf

    try:
        call()
    except tf.errors.OpError as error:
        return type(error).__name__, error.message.splitlines()[0]
    return "", ""


def training(sessions: Sessions) -> Any:
    """Convolutions, dense layers, ref and resource variables, dropout, Adam."""
    import tensorflow.compat.v1 as tf

    tf.set_random_seed(1)
    x = tf.placeholder(tf.float32, [4, 8, 8, 3])
    branches = []
    for k in range(5):
        resource = bool(k % 2)
        kernel = tf.get_variable(f"k{k}", initializer=_numbers(k, 3, 3, 3, 4) * 0.1, use_resource=resource)
        dense = tf.get_variable(f"w{k}", initializer=_numbers(9 + k, 4, 5), use_resource=resource)
        branches.append(tf.matmul(tf.reduce_mean(tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME")), [1, 2]), dense))
    loss = tf.reduce_mean(tf.square(tf.nn.dropout(tf.concat(branches, 1), rate=0.2, seed=3)))
    step = tf.train.AdamOptimizer(0.01).minimize(loss)
    with sessions() as session:
        session.run(tf.global_variables_initializer())
        return _plain([session.run([loss, step], {x: _numbers(50 + n, 4, 8, 8, 3)})[0] for n in range(8)])


def loops_and_branches_v1(sessions: Sessions) -> Any:
    """Nested while loops with gradients, conditions with dead tensors on both sides, one in a loop."""
    import tensorflow.compat.v1 as tf

    enabled = tf.control_flow_v2_enabled()
    tf.disable_control_flow_v2()
    try:
        x = tf.placeholder(tf.float32, [3, 3])
        which = tf.placeholder(tf.bool, [])

        def inner(i: Any, v: Any) -> Any:
            _, w = tf.while_loop(lambda j, _: j < 3, lambda j, w: (j + 1, tf.tanh(tf.matmul(w, x))), [0, v])
            return i + 1, tf.cond(tf.equal(i % 2, 0), lambda: w * 2.0, lambda: w - 1.0)

        _, looped = tf.while_loop(lambda i, _: i < 4, inner, [0, x], parallel_iterations=4)
        branch = tf.cond(which, lambda: tf.linalg.inv(x + 5.0 * tf.eye(3)), lambda: tf.cond(x[0, 0] > 0, lambda: x, lambda: -x))
        gradient = tf.gradients(tf.reduce_sum(looped) + tf.reduce_sum(branch * 3.0), x)
        with sessions() as session:
            return _plain([
                session.run([looped, branch, *gradient], {x: _numbers(n, 3, 3), which: bool(n % 2)}) for n in range(6)
            ])  # fmt: skip
    finally:
        if enabled:
            tf.enable_control_flow_v2()


def loops_and_branches_v2(sessions: Sessions) -> Any:
    """The same by functions: While, If, PartitionedCall, with gradients."""
    import tensorflow.compat.v1 as tf

    enabled = tf.control_flow_v2_enabled()
    tf.enable_control_flow_v2()
    try:
        x = tf.placeholder(tf.float32, [3, 3])

        @tf.function  # type: ignore[untyped-decorator,unused-ignore]
        def called(v: Any) -> Any:
            return tf.linalg.inv(v + 9.0 * tf.eye(3)) + tf.reduce_mean(v)

        _, looped = tf.while_loop(lambda i, _: i < 4, lambda i, v: (i + 1, tf.tanh(tf.matmul(v, x))), [0, x])
        branch = tf.cond(x[0, 0] > 0, lambda: called(x), lambda: called(-x) * 2.0)
        gradient = tf.gradients(tf.reduce_sum(looped) + tf.reduce_sum(branch), x)
        with sessions() as session:
            return _plain([session.run([looped, branch, *gradient], {x: _numbers(n, 3, 3)}) for n in range(6)])
    finally:
        if not enabled:
            tf.disable_control_flow_v2()


def functions(sessions: Sessions) -> Any:
    """Calls that stay calls, with and without state, and If and While as asynchronous kernels: values, and errors from inside."""
    import tensorflow.compat.v1 as tf
    from tensorflow.python.ops import functional_ops

    x = tf.placeholder(tf.float32, [3, 3])
    count = tf.get_variable("count", initializer=0.0, use_resource=True)

    @tf.function(experimental_attributes={"_noinline": True})  # type: ignore[untyped-decorator,unused-ignore]
    def solved(v: Any) -> Any:
        return tf.linalg.inv(v + 9.0 * tf.eye(3)) + tf.reduce_mean(v)

    @tf.function(experimental_attributes={"_noinline": True})  # type: ignore[untyped-decorator,unused-ignore]
    def counted(v: Any) -> Any:
        return count.assign_add(tf.reduce_sum(v) * 0.0 + 1.0)

    def function(body: Callable[[Any], Any]) -> Any:
        return tf.function(body).get_concrete_function(tf.TensorSpec([3, 3], tf.float32))

    positive, twice, less = function(tf.linalg.inv), function(lambda v: v * 2.0), function(lambda v: tf.reduce_sum(v) < 50.0)
    branch = functional_ops.If(x[0, 0] > 0, [x], positive, twice)[0]
    (looped,) = functional_ops.While([tf.abs(x) + 1.0], less, twice)
    both = [solved(x), solved(tf.matmul(x, x)), branch, looped, counted(x)]
    with sessions() as session:
        session.run(tf.global_variables_initializer())
        found: list[Any] = [_plain(session.run(both, {x: _numbers(n, 3, 3)})) for n in range(6)]
        singular = np.ones((3, 3), np.float32)
        found.append(_error(lambda: session.run(branch, {x: singular}))[0])
        found.append(_plain(session.run([branch, looped], {x: _numbers(7, 3, 3)})))
    return found


def errors(sessions: Sessions) -> Any:
    """Wrong shapes, failed checks, uninitialized variables of both kinds, an index out of range; runs go on after them."""
    import tensorflow.compat.v1 as tf

    x = tf.placeholder(tf.float32, [None, None], name="x")
    product = tf.matmul(x, tf.constant(_numbers(1, 3, 3)), name="product")
    checked = tf.debugging.check_numerics(product, "not a number")
    ref = tf.get_variable("ref", initializer=1.0, use_resource=False)
    resource = tf.get_variable("resource", initializer=1.0, use_resource=True)
    gathered = tf.gather(tf.constant([1.0, 2.0]), tf.cast(x[0, 0], tf.int32), name="gathered")
    many = tf.add_n([tf.reduce_sum(tf.matmul(product, product)) for _ in range(10)])
    good = _numbers(2, 3, 3)
    with sessions() as session:
        found: list[Any] = [
            _error(lambda: session.run(product, {x: _numbers(0, 2, 2)})),
            _error(lambda: session.run(checked, {x: np.full((3, 3), np.nan, np.float32)})),
            _error(lambda: session.run(ref + 1.0)),
            _error(lambda: session.run(resource + 1.0)),
            _error(lambda: session.run(gathered, {x: [[7.0]]})),
            _error(lambda: session.run([many, product])),
            _error(lambda: session.run([many, product], {x: _numbers(0, 2, 2)})),
        ]
        found.append(_plain(session.run([many, checked], {x: good})))
        session.run(tf.global_variables_initializer())
        found.append(_plain(session.run([ref + 1.0, resource + 1.0])))
    return found


def queues_and_time_outs(sessions: Sessions) -> Any:
    """Asynchronous kernels: queues between two runs; runs that wait for ever and end by a time-out, by another op's error, by a
    closed queue, and by closing the session while they wait."""
    import tensorflow.compat.v1 as tf

    queue = tf.FIFOQueue(10, tf.float32, [2, 2], name="queue")
    value = tf.placeholder(tf.float32, [2, 2])
    put, taken = queue.enqueue(value), queue.dequeue(name="taken")
    inverted = tf.linalg.inv(taken)
    empty = tf.FIFOQueue(1, tf.float32, [], name="never")
    never = empty.dequeue()
    begun = tf.FIFOQueue(9, tf.float32, [], name="begun")
    tell, told = begun.enqueue(1.0), begun.dequeue()
    failing = tf.gather([1.0, 2.0], tf.cast(value[0, 0] * 0.0, tf.int32) + 7)
    busy = [tf.linalg.inv(value + float(k + 3) * tf.eye(2)) for k in range(6)]
    session = sessions()
    found: list[Any] = []
    getter = threading.Thread(target=lambda: found.append(_plain(session.run(inverted))))
    getter.start()
    session.run(put, {value: _numbers(1, 2, 2)})
    getter.join()
    options = tf.RunOptions(timeout_in_ms=50)
    found.append(_error(lambda: session.run([never, *busy], {value: _numbers(2, 2, 2)}, options=options))[0])
    found.append(_plain(session.run(busy, {value: _numbers(2, 2, 2)})))
    found.append(_error(lambda: session.run([never, failing, *busy], {value: _numbers(2, 2, 2)}))[0])
    found.append(_plain(session.run(busy, {value: _numbers(5, 2, 2)})))

    def while_it_waits(act: Callable[[], Any]) -> str:
        """What a run says that waits for ever when `act` is done."""
        said: list[str] = []
        run = partial(session.run, [never, tell, *busy], {value: _numbers(3, 2, 2)})
        waiter = threading.Thread(target=lambda: said.append(_error(run)[0]))
        waiter.start()
        session.run(told)
        act()
        waiter.join()
        return said[0]

    found.append(while_it_waits(partial(session.run, empty.close(cancel_pending_enqueues=True))))
    never = tf.FIFOQueue(1, tf.float32, [], name="never_again").dequeue()
    found.append(while_it_waits(session.close))
    return found


def many_threads(sessions: Sessions) -> Any:
    """Eight threads run two kinds of steps in one session."""
    import tensorflow.compat.v1 as tf

    x = tf.placeholder(tf.float32, [6, 6])
    parts = [tf.linalg.inv(x + float(k + 5) * tf.eye(6)) for k in range(8)]
    total = tf.add_n(parts)
    count = tf.get_variable("count", initializer=0.0, use_resource=True)
    with tf.control_dependencies(parts):
        add = count.assign_add(1.0, use_locking=True, read_value=False)
    seen: dict[int, Any] = {}
    with sessions() as session:
        session.run(tf.global_variables_initializer())

        def work(number: int) -> None:
            seen[number] = [_plain(session.run([total, *parts[:3]], {x: _numbers(number, 6, 6)})) for _ in range(20)]
            for _ in range(20):
                session.run(add, {x: _numbers(number, 6, 6)})

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [[seen[n] for n in sorted(seen)], float(session.run(count))]


def python_and_data(sessions: Sessions) -> Any:
    """Python functions, iterators to their end, strings, tensor arrays, partial runs, two devices, a traced run."""
    import tensorflow.compat.v1 as tf

    numbers = tf.data.make_one_shot_iterator(tf.data.Dataset.range(9).shuffle(5, seed=2).batch(2)).get_next()
    doubled = tf.py_func(lambda v: v * 2, [numbers], tf.int64)
    text = tf.strings.join([tf.as_string(doubled), tf.constant("!")])
    with tf.device("/cpu:1"):
        a = tf.placeholder(tf.float32, [3, 3])
        there = tf.linalg.inv(a)
    with tf.device("/cpu:0"):
        b = tf.placeholder(tf.float32, [3, 3])
        here = tf.matmul(there, b)
        array = tf.TensorArray(tf.float32, 3).unstack(here).stack()
    with sessions() as session:
        found: list[Any] = [[value.tolist() for value in session.run([doubled, text])] for _ in range(5)]
        found.append(_error(lambda: session.run([doubled, text]))[0])
        values = {a: _numbers(1, 3, 3), b: _numbers(2, 3, 3)}
        metadata = tf.RunMetadata()
        options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
        found.append(_plain(session.run([here, array], values, options=options, run_metadata=metadata)))
        labels = [node.timeline_label for device in metadata.step_stats.dev_stats for node in device.node_stats]
        traced = {label.partition(" = ")[2].partition("(")[0] for label in labels}
        found.append(sorted(traced & {"MatMul", "MatrixInverse"}))
        handle = session.partial_run_setup([there, here], [a, b])
        found.append(_plain(session.partial_run(handle, there, {a: values[a]})))
        found.append(_plain(session.partial_run(handle, here, {b: values[b]})))
    return found


PROGRAMS: tuple[Callable[[Sessions], Any], ...] = (
    training,
    loops_and_branches_v1,
    loops_and_branches_v2,
    functions,
    errors,
    queues_and_time_outs,
    many_threads,
    python_and_data,
)

SERVED = (training, loops_and_branches_v1, loops_and_branches_v2, functions, errors, many_threads)
"""Those that sessions of a server can run as direct ones do."""
