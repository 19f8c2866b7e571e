"""Data on its way into a step: files read again and again, pictures, words, sparse features, generators."""

import numpy as np
import tensorflow.compat.v1 as tf


def waves(rows, columns, shift=0.0):
    return np.sin(np.arange(rows * columns, dtype=np.float32) + shift).reshape(rows, columns)


def program_reread_files(record):
    """TFRecords written by the program itself, read through interleave, shuffle anew each epoch, and prefetch; fed mid-epoch."""
    for name in "abc":
        with tf.python_io.TFRecordWriter(f"{name}.tfrecord", tf.io.TFRecordOptions(compression_type="GZIP")) as writer:
            for i in range(9):
                feature = {
                    "i": tf.train.Feature(int64_list=tf.train.Int64List(value=[i])),
                    "w": tf.train.Feature(float_list=tf.train.FloatList(value=waves(1, i % 3 + 1, i)[0])),
                    "s": tf.train.Feature(bytes_list=tf.train.BytesList(value=[name.encode() * i])),
                }
                writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    spec = {"i": tf.FixedLenFeature([], tf.int64), "w": tf.VarLenFeature(tf.float32), "s": tf.FixedLenFeature([], tf.string)}
    pattern = tf.placeholder(tf.string, [None], name="files")
    data = tf.data.Dataset.from_tensor_slices(pattern)
    data = data.interleave(lambda f: tf.data.TFRecordDataset(f, "GZIP"), cycle_length=2, block_length=2)
    data = data.shuffle(8, seed=3, reshuffle_each_iteration=True).repeat(2).batch(4, drop_remainder=False)
    data = data.map(lambda s: tf.parse_example(s, spec), num_parallel_calls=2).prefetch(tf.data.experimental.AUTOTUNE)
    batches = tf.data.make_initializable_iterator(data)
    example = batches.get_next()
    weight = tf.get_variable("weight", [], initializer=tf.ones_initializer())
    total = tf.reduce_sum(tf.sparse_tensor_to_dense(example["w"])) * weight
    train = tf.train.GradientDescentOptimizer(0.001).minimize(tf.square(total))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for epoch, files in enumerate((["a.tfrecord", "b.tfrecord", "c.tfrecord"], ["c.tfrecord"], ["b.tfrecord", "a.tfrecord"])):
            sess.run(batches.initializer, {pattern: files})
            for k in range(100):
                try:
                    got = sess.run([example["i"], example["s"], example["w"], total, train])[:4]
                except tf.errors.OutOfRangeError:
                    break
                record.value(f"{epoch} {k}", got)
                if epoch == 0 and k == 5:  # begun anew in the middle of an epoch
                    sess.run(batches.initializer, {pattern: files[::-1]})
                    break
        with record.error("nothing there"):
            sess.run(batches.initializer, {pattern: ["missing.tfrecord"]})
            sess.run(total)


def program_augmented(record):
    """Images encoded, decoded and distorted at random in the graph and in a data set, and summed up in summaries."""
    pictures = (np.abs(waves(8, 12 * 10 * 3)) * 255).astype(np.uint8).reshape(8, 12, 10, 3)
    source = tf.placeholder(tf.uint8, [None, 12, 10, 3], name="pictures")
    encoded = tf.map_fn(tf.image.encode_png, source, dtype=tf.string)

    def distorted(png):
        image = tf.image.convert_image_dtype(tf.image.decode_png(png, channels=3), tf.float32)
        image.set_shape([12, 10, 3])
        image = tf.image.random_flip_left_right(image, seed=1)
        image = tf.image.random_brightness(image, 0.2, seed=2)
        image = tf.image.random_crop(tf.image.resize_image_with_crop_or_pad(image, 14, 12), [8, 8, 3], seed=3)
        return tf.image.per_image_standardization(tf.clip_by_value(image, 0.0, 1.0))

    together = tf.map_fn(distorted, encoded, dtype=tf.float32, parallel_iterations=1)
    resized = tf.image.resize_bicubic(together, [5, 7])
    boxes = tf.image.crop_and_resize(together, [[0.1, 0.1, 0.8, 0.9]], [0], [4, 4])
    summary = tf.summary.merge([tf.summary.image("seen", together, 2), tf.summary.histogram("values", resized)])
    jpeg = tf.image.decode_jpeg(tf.image.encode_jpeg(source[0], quality=90), dct_method="INTEGER_ACCURATE")
    with tf.Session() as sess:
        writer = tf.summary.FileWriter("logs", sess.graph)
        for k in range(8):
            feed = {source: np.roll(pictures, k, axis=0)[:3]}
            got = sess.run([together, resized, boxes, jpeg, summary], feed)
            writer.add_summary(got.pop(), k)
            record.value(f"{k}", got)
        writer.close()
    record.events("events", "logs")


def program_vocabulary(record):
    """Tables: static from a file and from tensors, mutable, dense; exported, cleared, initialized twice; text taken apart."""
    with open("words.txt", "w") as file:
        file.write("\n".join(["the", "cat", "sat", "on", "mat"]) + "\n")
    vocabulary = tf.lookup.StaticVocabularyTable(
        tf.lookup.TextFileInitializer("words.txt", tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64,
                                      tf.lookup.TextFileIndex.LINE_NUMBER), num_oov_buckets=3)  # fmt: skip
    counts = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)
    packed = tf.lookup.experimental.DenseHashTable(tf.int64, tf.float32, -1.0, empty_key=-1, deleted_key=-2, initial_num_buckets=4)
    text = tf.placeholder(tf.string, [None], name="text")
    tokens = tf.string_split(tf.regex_replace(tf.strings.lower(text), r"[^a-z ]+", " "))
    ids = vocabulary.lookup(tokens.values)
    unique, _, number = tf.unique_with_counts(tokens.values)
    with tf.control_dependencies([counts.lookup(unique)]):
        count = counts.insert(unique, counts.lookup(unique) + tf.cast(number, tf.int64))
    remember = packed.insert(ids, tf.cast(tf.strings.length(tokens.values), tf.float32))
    forget = packed.erase(ids[:1])
    exported, sizes = counts.export(), [counts.size(), packed.size(), vocabulary.size()]
    hashed = tf.string_to_hash_bucket_fast(tokens.values, 11)
    joined = tf.reduce_join(tf.strings.substr(tokens.values, 0, 1))
    with tf.Session() as sess:
        with record.error("not initialized"):
            sess.run(ids, {text: ["the cat"]})
        sess.run(tf.tables_initializer())
        for k, line in enumerate(["The cat sat.", "On the mat!", "a dog sat on the cat", "the the the", "mat", "dog & cat"] * 2):
            feed = {text: [line, "the end"]}
            record.value(f"{k}", sess.run([tokens, ids, hashed, joined, count, remember], feed)[:4])
            if k % 4 == 3:
                sess.run(forget, feed)
            keys, values = sess.run(exported)
            record.value(f"counts {k}", sorted(zip(keys.tolist(), values.tolist(), strict=True)))
            record.value(f"sizes {k}", sess.run(sizes))
            record.value(f"packed {k}", sess.run(packed.lookup(tf.range(8, dtype=tf.int64))) if k in (3, 11) else None)
        sess.run(tf.tables_initializer())
        record.value("again", sess.run([ids, *sizes], {text: ["cat zebra"]}))


def program_sparse_features(record):
    """embedding_lookup_sparse with every combiner, safe lookups, partitioned tables, lazy and sparse updates, rows by weights."""
    ids, weights = tf.sparse_placeholder(tf.int64, name="ids"), tf.sparse_placeholder(tf.float32, name="weights")
    table = tf.get_variable("table", [20, 4], initializer=tf.random_uniform_initializer(-1, 1, seed=4),
                            partitioner=tf.fixed_size_partitioner(3))  # fmt: skip
    found = [tf.nn.embedding_lookup_sparse(table, ids, weights, "div", combiner=c) for c in ("sum", "mean", "sqrtn")]
    safe = tf.nn.safe_embedding_lookup_sparse(table, ids, None, default_id=2, partition_strategy="div")
    wide = tf.get_variable("wide", [20, 1], initializer=tf.zeros_initializer())
    linear = tf.sparse_tensor_dense_matmul(tf.SparseTensor(ids.indices, weights.values, [3, 20]), wide)
    product = tf.sparse_reduce_sum(tf.sparse_add(weights, weights), 1)
    ordered = tf.sparse_reorder(tf.sparse_concat(1, [weights, weights]))
    loss = tf.add_n([tf.reduce_sum(tf.square(f)) for f in found]) + tf.reduce_sum(safe) + tf.reduce_sum(tf.square(linear - 1.0))
    steps = [
        tf.train.AdamOptimizer(0.02).minimize(loss),
        tf.train.FtrlOptimizer(0.05, l2_regularization_strength=0.01).minimize(loss),
        tf.train.AdagradOptimizer(0.1).minimize(loss),
    ]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            indices = np.array([[0, 0], [0, 3], [1, 1], [2, 0], [2, 2]], np.int64)
            values = np.array([(k * 7 + 3 * i) % 20 for i in range(5)], np.int64)
            feed = {
                ids: tf.SparseTensorValue(indices, values, [3, 20]),
                weights: tf.SparseTensorValue(indices, waves(1, 5, k)[0], [3, 20]),
            }
            record.value(f"{k}", sess.run([loss, product, ordered, steps[k % 3]], feed)[:3])
        record.value("all", sess.run(tf.global_variables()))


def program_generated(record):
    """from_generator with state of the program's, py_function in a map, and two iterators over one of them."""

    def numbers():
        for i in range(14):
            yield i, np.full([i % 3 + 1], i, np.float32)

    data = tf.data.Dataset.from_generator(numbers, (tf.int64, tf.float32), ([], [None]))
    data = data.map(lambda i, v: (i, v, tf.py_func(lambda a: np.float32(a.sum()), [v], tf.float32)))
    data = data.padded_batch(3, ([], [None], []))
    one, two = tf.data.make_initializable_iterator(data), tf.data.make_initializable_iterator(data)
    first, second = one.get_next(), two.get_next()
    w = tf.get_variable("w", [], initializer=tf.ones_initializer())
    train = tf.train.GradientDescentOptimizer(0.01).minimize(tf.reduce_sum(first[1]) * w)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run([one.initializer, two.initializer])
        for k in range(5):
            record.value(f"{k}", sess.run([first, train, w])[0])
            if k % 2 == 0:
                record.value(f"second {k}", sess.run(second))
        with record.error("end"):
            sess.run(first)
        sess.run(one.initializer)
        record.value("again", sess.run([first, second]))
        record.value("w", sess.run(w))


def program_interrupted_input(record):
    """Old input queues with a coordinator: a slow consumer, a producer that ends, one that raises, and join with its error."""
    queue = tf.FIFOQueue(4, [tf.int64, tf.float32], shapes=[[], [2]], name="q")
    number = tf.get_variable("number", [], tf.int64, initializer=tf.zeros_initializer(), use_resource=True, trainable=False)
    with tf.control_dependencies([tf.assign_add(number, 1)]):
        n = number.read_value()
        put = queue.enqueue([n, tf.stack([tf.cast(n, tf.float32), 1.0])])
    runner = tf.train.QueueRunner(queue, [put])
    (a, b), one, size = queue.dequeue_many(2), queue.dequeue(), queue.size()
    w = tf.get_variable("w", [2], initializer=tf.ones_initializer())
    train = tf.train.GradientDescentOptimizer(0.01).minimize(tf.reduce_sum(b * w))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        coordinator = tf.train.Coordinator()
        threads = runner.create_threads(sess, coordinator, start=True)
        for k in range(12):
            record.value(f"{k}", sess.run([a, b, train])[:2])
        coordinator.request_stop()
        sess.run(queue.close(cancel_pending_enqueues=True))
        coordinator.join(threads)
        record.value("w", sess.run(w))
        while sess.run(size):  # how many are left depends on the threads
            sess.run(one)
        with record.error("closed"):
            sess.run(one)
        with record.error("put"):
            sess.run(put)
