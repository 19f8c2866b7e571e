"""Queues, staging areas, barriers, accumulators, readers and the threads that fill them."""

import re
import threading

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import data_flow_ops


def program_kinds(record):
    x = tf.placeholder(tf.float32, [2], name="x")
    n = tf.placeholder(tf.int64, [], name="n")
    queues = {
        "fifo": tf.FIFOQueue(50, [tf.float32, tf.int64], shapes=[[2], []]),
        "padding": tf.PaddingFIFOQueue(50, [tf.float32, tf.int64], shapes=[[None], []]),
        "shuffle": tf.RandomShuffleQueue(50, 1, [tf.float32, tf.int64], shapes=[[2], []], seed=7),
    }
    priority = tf.PriorityQueue(50, [tf.float32], shapes=[[2]])
    with tf.Session() as sess:
        for name, queue in queues.items():
            put, many = queue.enqueue([x * 2.0, n]), queue.enqueue_many([tf.stack([x, x]), tf.stack([n, n])])
            take, batch, size = queue.dequeue(), queue.dequeue_many(2), queue.size()
            for k in range(9):
                sess.run(put, {x: [k, 1.0], n: k})
                sess.run(many, {x: [k, 2.0], n: -k})
                record.value(f"{name} {k}", sess.run(take))
                record.value(f"{name} batch {k}", sess.run(batch) if name != "shuffle" or k else None)
                record.value(f"{name} size {k}", sess.run([size, queue.is_closed()]))
            sess.run(queue.close())
            with record.error(f"{name} closed"):
                sess.run(put, {x: [0.0, 0.0], n: 1})
            with record.error(f"{name} drained"):
                for _ in range(40):
                    sess.run(take)
        for k in range(8):
            sess.run(priority.enqueue([n, x]), {x: [k, 1.0], n: (k * 5) % 8})
        record.value("priority", [sess.run(priority.dequeue()) for _ in range(8)])
    record.graph("graph")


def program_runners(record):
    """The input pipeline of old: producers, batches, coordinator threads that block on full queues."""
    source = tf.train.range_input_producer(10, num_epochs=None, shuffle=True, seed=4, capacity=3)
    value = tf.cast(source.dequeue(), tf.float32)
    batch = tf.train.batch([value, value * value], 4, num_threads=1, capacity=6)
    mixed = tf.train.shuffle_batch([batch[0]], 2, 12, 6, num_threads=1, seed=3, enqueue_many=True)
    w = tf.get_variable("w", [], initializer=tf.ones_initializer())
    train = tf.train.GradientDescentOptimizer(1e-3).minimize(tf.reduce_mean(tf.square(mixed * w - 1.0)))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess, coordinator)
        seen = []
        for k in range(25):
            seen.append(sess.run([mixed, train])[0].shape)
        record.value("shapes", seen)
        record.value("finite", bool(np.isfinite(sess.run(w))))
        coordinator.request_stop()
        coordinator.join(threads, stop_grace_period_secs=20)
        record.value("threads", [t.is_alive() for t in threads])
    record.graph("graph")


def program_epochs(record):
    """A single producer, so that the order is the program's: nothing may be lost or read twice."""
    source = tf.train.range_input_producer(7, num_epochs=3, shuffle=False, capacity=2)
    batch = tf.train.batch([source.dequeue()], 1, num_threads=1, capacity=2)
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess, coordinator)
        seen = []
        with record.error("end"):
            while not coordinator.should_stop():
                seen.append(int(sess.run(batch)[0]))
        record.value("seen", seen)
        coordinator.request_stop()
        coordinator.join(threads)


def program_blocked(record):
    """Threads blocked in enqueue and dequeue while the main thread goes on."""
    small = tf.FIFOQueue(1, tf.int32, shapes=[[]])
    result = tf.FIFOQueue(1, tf.int32, shapes=[[]])
    n = tf.placeholder(tf.int32, [], name="n")
    put, take = small.enqueue(n * 1), small.dequeue()
    square = result.enqueue(take * take)
    get = result.dequeue()
    v = tf.get_variable("v", [], tf.int32, tf.zeros_initializer())
    step = tf.assign_add(v, 1)
    with tf.Session() as sess:
        sess.run(v.initializer)

        def feeder():
            for k in range(20):
                sess.run(put, {n: k})

        def worker():
            for _ in range(20):
                sess.run(square)

        threads = [threading.Thread(target=feeder), threading.Thread(target=worker)]
        for thread in threads:
            thread.start()
        for k in range(20):
            record.value(f"step {k}", sess.run(step))
            record.value(f"square {k}", sess.run(get))
        for thread in threads:
            thread.join(20)
        record.value("alive", [t.is_alive() for t in threads])


def program_cancelled(record):
    """A blocked dequeue is woken by close(cancel), and by the session's own end."""
    queue = tf.FIFOQueue(1, tf.int32, shapes=[[]], name="waiting")
    take, one = queue.dequeue(name="take"), tf.constant(1) + 1
    errors = []

    def wait(sess):
        try:
            sess.run(take)
        except tf.errors.OpError as error:
            errors.append((type(error).__name__, error.op.name if error.op is not None else None))

    sess = tf.Session()
    thread = threading.Thread(target=wait, args=(sess,))
    thread.start()
    for k in range(9):
        record.value(f"{k}", sess.run(one))
    sess.run(queue.close(cancel_pending_enqueues=True))
    thread.join(20)
    record.value("closed queue", [str(errors), thread.is_alive()])
    sess.close()
    sess = tf.Session()
    thread = threading.Thread(target=wait, args=(sess,))
    thread.start()
    for k in range(9):
        record.value(f"again {k}", sess.run(one))
    while thread.is_alive() and len(errors) < 2:
        sess.close()
        thread.join(0.05)
    record.value("closed session", [errors[1][0], thread.is_alive()])


def program_staging(record):
    x = tf.placeholder(tf.float32, [2], name="x")
    area = data_flow_ops.StagingArea([tf.float32, tf.int32], [[2], []], capacity=4)
    put, get, size = area.put([x * 2.0, tf.constant(3)]), area.get(), area.size()
    table = data_flow_ops.MapStagingArea([tf.float32], [[2]], ordered=True)
    store = table.put(tf.constant(1, tf.int64), [x], [0])
    fetch = table.get(tf.constant(1, tf.int64))
    with tf.Session() as sess:
        for k in range(12):
            sess.run(put, {x: [k, 1.0]})
            sess.run(store, {x: [k, 2.0]})
            record.value(f"map {k}", sess.run(fetch))
            if k % 2:
                record.value(f"{k}", sess.run([get, size]) if k == 99 else [sess.run(get), sess.run(size)])
                record.value(f"second {k}", sess.run(get))


def program_accumulators(record):
    x = tf.placeholder(tf.float32, [2], name="x")
    step = tf.placeholder(tf.int64, [], name="step")
    dense = tf.ConditionalAccumulator(tf.float32, [2])
    sparse = tf.SparseConditionalAccumulator(tf.float32, [4, 2])
    apply = dense.apply_grad(x * 0.5, step)
    apply_sparse = sparse.apply_indexed_slices_grad(tf.IndexedSlices([x, x], tf.constant([0, 2], tf.int64)), step)
    take, take_sparse, count = dense.take_grad(2), sparse.take_indexed_slices_grad(2), dense.num_accumulated()
    with tf.Session() as sess:
        for k in range(8):
            for j in range(2):
                sess.run([apply, apply_sparse], {x: [k, j], step: 0 if k < 3 else k})
                record.value(f"count {k} {j}", sess.run(count))
            sess.run([dense.set_global_step(k)]) if k == 5 else None
            if sess.run(count) >= 2:
                record.value(f"taken {k}", sess.run(take))
                record.value(f"sparse {k}", sess.run(take_sparse))
    barrier = data_flow_ops.Barrier(tf.float32, shapes=[[]])
    keys = tf.placeholder(tf.string, [None])
    values = tf.placeholder(tf.float32, [None])
    insert = barrier.insert_many(0, keys, values)
    with tf.Session() as sess:
        for k in range(8):
            sess.run(insert, {keys: [f"a{k}", f"b{k}"], values: [k, -k]})
            record.value(f"ready {k}", sess.run([barrier.ready_size(), barrier.incomplete_size()]))
            record.value(f"barrier {k}", sess.run(barrier.take_many(2)))


def program_readers(record):
    from pathlib import Path

    for k in range(3):
        Path(f"part{k}.txt").write_text("".join(f"{k},{j}\n" for j in range(4)))
    with tf.python_io.TFRecordWriter("data.tfrecord") as writer:
        for k in range(6):
            feature = {"k": tf.train.Feature(int64_list=tf.train.Int64List(value=[k, k * k]))}
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    names = tf.train.string_input_producer([f"part{k}.txt" for k in range(3)], num_epochs=1, shuffle=False)
    reader = tf.TextLineReader()
    key, line = reader.read(names)
    columns = tf.decode_csv(line, [[0], [0]])
    records = tf.train.string_input_producer(["data.tfrecord"], num_epochs=2, shuffle=False)
    _, example = tf.TFRecordReader().read(records)
    parsed = tf.parse_single_example(example, {"k": tf.FixedLenFeature([2], tf.int64)})
    path = tf.placeholder(tf.string, [])
    whole = tf.read_file(path)
    with tf.Session() as sess:
        sess.run(tf.local_variables_initializer())
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess, coordinator)
        for k in range(12):
            record.value(f"{k}", sess.run([key, columns]))
            record.value(f"record {k}", sess.run(parsed))
        record.value(
            "produced", sess.run([reader.num_records_produced(), reader.num_work_units_completed(), whole], {path: "part1.txt"})
        )
        with record.error("end"):
            sess.run(line)
        coordinator.request_stop()
        coordinator.join(threads)


def program_shared(record):
    """One resource under two graph nodes, by shared_name."""
    first = tf.FIFOQueue(20, tf.int32, shapes=[[]], shared_name="pool", name="first")
    second = tf.FIFOQueue(20, tf.int32, shapes=[[]], shared_name="pool", name="second")
    n = tf.placeholder(tf.int32, [], name="n")
    put, take = first.enqueue(n + 0), second.dequeue()
    with tf.Session() as sess:
        for k in range(9):
            sess.run(put, {n: k})
            sess.run(put, {n: -k})
            record.value(f"{k}", sess.run([take, second.size()][0:1]))
            record.value(f"size {k}", sess.run(second.size()))
        chosen = tf.QueueBase.from_list(tf.constant(0), [first, second])
        record.value("from list", sess.run(chosen.dequeue()))


def program_sparse_maps(record):
    """Resources that some ops find by the name of another node."""
    ids = tf.placeholder(tf.int64, [2], name="ids")
    sparse = tf.SparseTensor(tf.constant([[0, 0], [1, 1]], tf.int64), ids, [2, 3])
    from tensorflow.python.ops import sparse_ops

    handles = sparse_ops._add_many_sparse_to_tensors_map(sparse)
    back = sparse_ops._take_many_sparse_from_tensors_map(handles.op, handles, rank=1)
    with tf.Session() as sess:
        for k in range(10):
            record.value(f"{k}", sess.run(back, {ids: [k, k + 1]}))


def program_prefetched(record):
    """Batches that one thread makes and another puts into a second queue: each waits for the one before it, most of the time."""
    counter = tf.get_variable("counter", [], tf.int64, initializer=tf.zeros_initializer(), use_resource=False)
    batch = tf.train.batch([tf.count_up_to(counter, 40)], 4, capacity=8)
    queue = tf.FIFOQueue(4, [tf.int64], [batch.shape], name="prefetch")
    tf.train.add_queue_runner(tf.train.QueueRunner(queue, [queue.enqueue(batch)]))
    element = queue.dequeue()
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess, coordinator)
        with record.error("the end"):
            for k in range(20):
                record.value(f"batch {k}", sess.run(element))
        coordinator.request_stop()
        coordinator.join(threads)


def program_numbers(record):
    """By which numbers errors call queues that the program gives no name: in one session again and again, and in the next."""
    queues = [tf.FIFOQueue(4, [tf.float32], name="some/files"), tf.PaddingFIFOQueue(4, [tf.float32], [[None]], name="batches")]
    iterator = tf.data.make_initializable_iterator(tf.data.Dataset.range(40))
    x = tf.placeholder(tf.float32, [3], name="x")
    value = [iterator.get_next(), tf.exp(tf.sin(x)) * 2.0]
    first = None
    for k in range(3):
        with tf.Session() as sess:
            sess.run(iterator.initializer)
            for queue in queues:
                sess.run(queue.close())
            for j in range(8):
                record.value(f"{k} {j}", sess.run(value, {x: [0.1 * j] * 3}))
                for queue in queues:
                    with record.error(f"{queue.name} {k} {j}"):
                        sess.run(queue.dequeue())
                try:
                    sess.run(queues[j % 2].dequeue())
                except tf.errors.OutOfRangeError as e:
                    number = int(re.search(r"'_(\d+)_(?:some/files|batches)' is closed", e.message)[1])
                    first = number if first is None else first
                    record.value(f"number {k} {j}", number - first)
