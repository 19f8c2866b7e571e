"""Input from files, by queues and by datasets, an epoch at a time."""

import glob

import numpy as np
import tensorflow.compat.v1 as tf
from training import dense


def write_records(files=3, each=8):
    """TFRecord files; names in the order of their numbers."""
    for f in range(files):
        with tf.python_io.TFRecordWriter(f"part-{f}.tfrecord") as writer:
            for k in range(each):
                number = f * each + k
                feature = {
                    "image": tf.train.Feature(
                        bytes_list=tf.train.BytesList(value=[np.sin(np.arange(6.0) + number).astype("f").tobytes()])
                    ),
                    "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[number % 3])),
                    "tags": tf.train.Feature(int64_list=tf.train.Int64List(value=list(range(number % 4)))),
                }
                writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    return sorted(glob.glob("part-*.tfrecord"))


def parse(serialized):
    features = {
        "image": tf.FixedLenFeature([], tf.string),
        "label": tf.FixedLenFeature([], tf.int64),
        "tags": tf.VarLenFeature(tf.int64),
    }
    row = tf.parse_single_example(serialized, features)
    image = tf.reshape(tf.decode_raw(row["image"], tf.float32), [6])
    return image, tf.cast(row["label"], tf.int32), row["tags"]


def classifier(x, y):
    loss = tf.losses.sparse_softmax_cross_entropy(y, dense(dense(x, 5, "h", tf.nn.tanh), 3, "out"))
    return loss, tf.train.AdamOptimizer(0.02).minimize(loss)


def program_file_queues(record):
    """string_input_producer, a reader, batches in order by one thread; two epochs to the end, each element once."""
    names = write_records()
    queue = tf.train.string_input_producer(names, num_epochs=2, shuffle=True, seed=3)
    key, value = tf.TFRecordReader().read(queue)
    image, label, _ = parse(value)
    keys, x, y = tf.train.batch([key, image, label], 5, capacity=10, num_threads=1, allow_smaller_final_batch=True)
    loss, train = classifier(x, y)
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess, coordinator)
        taken = []
        try:
            while not coordinator.should_stop():
                got = sess.run([keys, y, loss, train])
                taken += [k.decode() for k in got[0]]
                record.value(f"{len(taken)}", got[1:3])
        except tf.errors.OutOfRangeError as error:
            record.note_error("the end", error)
        finally:
            coordinator.request_stop()
            coordinator.join(threads)
        record.value("taken", taken)
    record.graph("graph")


def program_shuffled_queues(record):
    """shuffle_batch, whose order is the threads' affair: nothing lost, nothing twice, whatever the order."""
    names = write_records()
    queue = tf.train.string_input_producer(names, num_epochs=3, shuffle=False)
    rows = []
    for _ in range(2):
        key, value = tf.TFRecordReader().read(queue)
        rows.append([key, parse(value)[1]])
    keys, labels = tf.train.shuffle_batch_join(rows, 4, capacity=16, min_after_dequeue=6, allow_smaller_final_batch=True, seed=1)
    total = tf.get_variable("total", [], tf.int32, tf.zeros_initializer())
    add = tf.assign_add(total, tf.reduce_sum(labels))
    with tf.train.MonitoredTrainingSession() as sess:
        taken = []
        while not sess.should_stop():
            taken += sess.run([keys, add])[0].tolist()
            last = len(taken)
    record.value("taken", [last, sorted(k.decode() for k in taken)])
    record.graph("graph")


def program_epochs(record):
    """Files by interleave, a parallel map, shuffle and prefetch; the iterator is initialized anew at each epoch, training and validation by turns."""
    names = tf.placeholder(tf.string, [None], name="names")
    seed = tf.placeholder(tf.int64, [], name="seed")

    def row(serialized):
        image, label, tags = parse(serialized)
        return image + tf.cast(tf.reduce_sum(tags.values), tf.float32) * 0.01, label

    files = tf.data.Dataset.from_tensor_slices(names)
    data = files.interleave(tf.data.TFRecordDataset, cycle_length=2, block_length=2, num_parallel_calls=2)
    data = data.map(row, num_parallel_calls=3).shuffle(10, seed=seed).batch(5).prefetch(2)
    iterator = tf.data.make_initializable_iterator(data)
    x, y = iterator.get_next()
    loss, train = classifier(x, y)
    paths = write_records()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        with record.error("before the first epoch"):
            sess.run(loss)
        for epoch in range(3):
            sess.run(iterator.initializer, {names: paths[:2], seed: epoch})
            steps = 0
            while True:
                try:
                    record.value(f"{epoch} {steps}", sess.run([loss, y, train])[:2])
                    steps += 1
                except tf.errors.OutOfRangeError:
                    break
            sess.run(iterator.initializer, {names: paths[2:], seed: 9})
            held = []
            with record.error(f"all of validation {epoch}"):
                while True:
                    held.append(sess.run(loss))
            record.value(f"validation {epoch}", held)
        with record.error("no such file"):
            sess.run(iterator.initializer, {names: ["nothing.tfrecord"], seed: 1})
            sess.run(loss)
    record.graph("graph")


def program_lengths(record):
    """Sequences by length in padded batches, grouped in windows, filtered, counted, enumerated, zipped with random numbers."""
    data = tf.data.Dataset.range(30).map(lambda n: (tf.range(n % 7 + 1), n))
    data = data.filter(lambda row, n: tf.not_equal(n % 5, 3))
    padded = data.padded_batch(4, ([None], []), (tf.constant(-1, tf.int64), tf.constant(0, tf.int64)))
    grouped = data.apply(
        tf.data.experimental.group_by_window(lambda row, n: n % 2, lambda _, w: w.padded_batch(3, ([None], [])), 3)
    )
    noise = tf.data.experimental.RandomDataset(seed=4).map(lambda n: tf.cast(n % 97, tf.int32))
    both = tf.data.Dataset.zip(
        (padded.repeat(), grouped.repeat(), noise, tf.data.Dataset.range(100).window(3).flat_map(lambda w: w.batch(3)))
    )
    both = both.enumerate().take(14)
    element = tf.data.make_one_shot_iterator(both).get_next()
    table = tf.get_variable("table", [32, 3], initializer=tf.random_normal_initializer(seed=1))
    ids = tf.maximum(element[1][0][0], 0)
    loss = tf.reduce_mean(tf.square(tf.reduce_sum(tf.nn.embedding_lookup(table, ids), 1) - 1.0))
    train = tf.train.AdagradOptimizer(0.1).minimize(loss)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(14):
            record.value(f"{k}", sess.run([element, loss, train])[:2])
        with record.error("the end"):
            sess.run(element)
    record.graph("graph")


def program_switched_inputs(record):
    """One model fed by handles of training, validation and of a dataset made of text lines; evaluation every few steps, with metrics."""
    with open("rows.csv", "w") as file:
        file.write("a,b,c\n" + "".join(f"{k}.5,{k % 4},{k % 3}\n" for k in range(12)))
    lines = tf.data.TextLineDataset("rows.csv").skip(1).map(lambda t: tf.decode_csv(t, [[0.0], [0.0], [0]]))
    lines = lines.map(lambda a, b, c: (tf.stack([a, b, a * 0.1, b * 0.1, a - b, b - a]), c)).batch(4)
    rows = tf.data.Dataset.from_tensor_slices((np.sin(np.arange(72.0)).reshape(12, 6).astype("f"), (np.arange(12) % 3).astype("i")))
    training = rows.shuffle(12, seed=2).repeat().batch(3)
    handle = tf.placeholder(tf.string, [], name="handle")
    types, shapes = tf.data.get_output_types(training), tf.data.get_output_shapes(training)
    x, y = tf.data.Iterator.from_string_handle(handle, types, shapes).get_next()
    hidden = dense(tf.ensure_shape(x, [None, 6]), 5, "h", tf.nn.tanh)
    logits = dense(hidden, 3, "out")
    loss = tf.losses.sparse_softmax_cross_entropy(y, logits)
    train = tf.train.AdamOptimizer(0.02).minimize(loss)
    with tf.variable_scope("metrics"):
        metrics = {
            "accuracy": tf.metrics.accuracy(y, tf.argmax(logits, 1)),
            "mean": tf.metrics.mean(loss),
            "recall": tf.metrics.recall(tf.equal(y, 1), tf.equal(tf.argmax(logits, 1), 1)),
            "auc": tf.metrics.auc(tf.equal(y, 1), tf.nn.softmax(logits)[:, 1], num_thresholds=20),
            "class": tf.metrics.mean_per_class_accuracy(y, tf.argmax(logits, 1), 3),
        }
    values, updates = {k: m[0] for k, m in metrics.items()}, [m[1] for m in metrics.values()]
    reset = tf.variables_initializer(tf.local_variables("metrics"))
    iterators = [tf.data.make_one_shot_iterator(training), tf.data.make_initializable_iterator(lines)]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        handles = sess.run([i.string_handle() for i in iterators])
        with record.error("metrics before their reset"):
            sess.run(tf.local_variables("metrics")[0])
        for k in range(10):
            record.value(f"{k}", sess.run([loss, y, train], {handle: handles[0]})[:2])
            if k % 4 == 3:
                sess.run([iterators[1].initializer, reset])
                while True:
                    try:
                        sess.run(updates, {handle: handles[1]})
                    except tf.errors.OutOfRangeError:
                        break
                record.value(f"metrics {k}", sess.run(values))
    record.graph("graph")
