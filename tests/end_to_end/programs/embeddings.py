"""Words, users and items as vectors: sampled losses, partitioned tables, feature columns, sparse updates."""

import numpy as np
import tensorflow.compat.v1 as tf
from training import dense


def program_word2vec(record):
    """Skip-grams, noise contrastive estimation, nearest neighbours by cosine, the projector's files."""
    words, size = 30, 6
    center = tf.placeholder(tf.int32, [None], name="center")
    context = tf.placeholder(tf.int32, [None, 1], name="context")
    with tf.device("/cpu:0"):
        table = tf.get_variable("table", [words, size], initializer=tf.random_uniform_initializer(-1, 1, seed=1))
        embedded = tf.nn.embedding_lookup(table, center)
    w = tf.get_variable("nce_w", [words, size], initializer=tf.truncated_normal_initializer(stddev=0.4, seed=2))
    b = tf.get_variable("nce_b", [words], initializer=tf.zeros_initializer())
    sampled = tf.random.log_uniform_candidate_sampler(tf.cast(context, tf.int64), 1, 5, True, words, seed=3)
    nce = tf.reduce_mean(tf.nn.nce_loss(w, b, context, embedded, 5, words, sampled_values=sampled))
    counts = [k + 1 for k in range(words)]
    frequent = tf.nn.fixed_unigram_candidate_sampler(
        tf.cast(context, tf.int64), 1, 4, True, words, distortion=0.75, unigrams=counts, seed=4
    )
    softmax = tf.reduce_mean(tf.nn.sampled_softmax_loss(w, b, context, embedded, 4, words, sampled_values=frequent))
    learned = tf.nn.learned_unigram_candidate_sampler(tf.cast(context, tf.int64), 1, 4, True, words, seed=5)
    train = tf.train.GradientDescentOptimizer(0.5).minimize(nce + 0.1 * softmax)
    unit = table / tf.sqrt(tf.reduce_sum(tf.square(table), 1, keepdims=True))
    similar = tf.nn.top_k(tf.matmul(tf.nn.embedding_lookup(unit, [3, 7]), unit, transpose_b=True), 4)
    rng = np.random.RandomState(2)
    saver = tf.train.Saver([table])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(14):
            feed = {center: rng.randint(0, words, 8), context: rng.randint(0, words, [8, 1])}
            record.value(f"{k}", sess.run([nce, softmax, sampled, frequent, train], feed)[:4])
            record.value(f"learned {k}", sess.run(learned, feed))
            if k % 4 == 3:
                record.value(f"similar {k}", sess.run(similar))
        record.checkpoint("table", saver.save(sess, "table", 14))
    record.graph("graph")


def program_factors(record):
    """Users and items in partitioned tables, biases, updates by lazily chosen rows, evaluation on all pairs."""
    users = tf.placeholder(tf.int64, [None], name="users")
    items = tf.placeholder(tf.int64, [None], name="items")
    stars = tf.placeholder(tf.float32, [None], name="stars")
    split = tf.fixed_size_partitioner(3)
    with tf.variable_scope("factors", partitioner=split):
        p = tf.get_variable("users", [14, 4], initializer=tf.random_normal_initializer(stddev=0.3, seed=1))
        q = tf.get_variable("items", [11, 4], initializer=tf.random_normal_initializer(stddev=0.3, seed=2), use_resource=True)
    bias = [tf.get_variable(f"bias_{i}", [5], initializer=tf.zeros_initializer()) for i in range(3)]
    u, v = tf.nn.embedding_lookup(p, users, "div"), tf.nn.embedding_lookup(q, items, "div", max_norm=1.5)
    guess = tf.reduce_sum(u * v, 1) + tf.nn.embedding_lookup(bias, users, "mod")
    loss = tf.reduce_mean(tf.square(stars - guess)) + 0.02 * (tf.nn.l2_loss(u) + tf.nn.l2_loss(v))
    step = tf.train.get_or_create_global_step()
    optimizers = [
        tf.train.AdamOptimizer(0.05),
        tf.train.MomentumOptimizer(0.05, 0.9),
        tf.train.FtrlOptimizer(0.1),
        tf.train.AdagradOptimizer(0.1),
    ]
    trains = [o.minimize(loss, step) for o in optimizers]
    scores = tf.matmul(tf.convert_to_tensor(p), tf.convert_to_tensor(q), transpose_b=True)
    top = tf.nn.top_k(scores, 3)
    touched = tf.unique_with_counts(users)
    rng = np.random.RandomState(4)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(16):
            feed = {users: rng.randint(0, 14, 6), items: rng.randint(0, 11, 6), stars: rng.rand(6) * 5}
            record.value(f"{k}", sess.run([loss, guess, touched, trains[k % 4]], feed)[:3])
            if k % 5 == 4:
                record.value(f"top {k}", sess.run(top))
        record.checkpoint("saved", tf.train.Saver().save(sess, "factors"))
    record.graph("graph")


def program_columns(record):
    """Feature columns, where this TensorFlow has them for graphs: crossed, hashed, bucketized, embedded, indicators, weighted."""
    fc = tf.feature_column
    price = fc.numeric_column("price", shape=(2,), normalizer_fn=lambda t: t / 10.0)
    ages = fc.bucketized_column(fc.numeric_column("age"), [18.0, 30.0, 50.0])
    color = fc.categorical_column_with_vocabulary_list("color", ["red", "green", "blue"], num_oov_buckets=1)
    city = fc.categorical_column_with_hash_bucket("city", 12)
    number = fc.categorical_column_with_identity("number", 5, default_value=0)
    crossed = fc.crossed_column(["color", "city"], 20)
    weighted = fc.weighted_categorical_column(color, "weight")
    # Not in order of the columns: the layers sort by name.
    deep = [price, ages, fc.indicator_column(color), fc.embedding_column(city, 3, initializer=tf.random_normal_initializer(seed=1)),
            fc.embedding_column(crossed, 2, initializer=tf.random_normal_initializer(seed=2)), *fc.shared_embedding_columns([number], 2, initializer=tf.random_normal_initializer(seed=3))]  # fmt: skip
    serialized = tf.placeholder(tf.string, [None], name="serialized")
    specification = fc.make_parse_example_spec([*deep, weighted])
    features = tf.parse_example(serialized, specification)
    try:
        wide = fc.linear_model(features, [ages, city, weighted], sparse_combiner="mean")
        inputs = fc.input_layer(features, deep)
    except (ImportError, AttributeError) as error:
        record.value("this TensorFlow has no feature columns for graphs", type(error).__name__)
        return
    logits = wide + dense(dense(inputs, 5, "hidden", tf.nn.relu), 1, "out")
    labels = tf.placeholder(tf.float32, [None, 1], name="labels")
    loss = tf.losses.sigmoid_cross_entropy(labels, logits)
    train = tf.group(
        tf.train.FtrlOptimizer(0.2).minimize(loss, var_list=tf.trainable_variables("linear_model")),
        tf.train.AdagradOptimizer(0.1).minimize(
            loss, var_list=[v for v in tf.trainable_variables() if "linear_model" not in v.name]
        ),
    )

    def example(k):
        f = tf.train.Feature
        values = {
            "price": f(float_list=tf.train.FloatList(value=[k, 2.0 * k])),
            "age": f(float_list=tf.train.FloatList(value=[10.0 + 7 * k])),
            "color": f(bytes_list=tf.train.BytesList(value=[[b"red", b"green", b"blue", b"mauve"][k % 4]])),
            "city": f(bytes_list=tf.train.BytesList(value=[b"town%d" % (k % 3), b"village"])),
            "number": f(int64_list=tf.train.Int64List(value=[k % 5])),
            "weight": f(float_list=tf.train.FloatList(value=[0.5 + k])),
        }
        return tf.train.Example(features=tf.train.Features(feature=values)).SerializeToString()

    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.tables_initializer()])
        for k in range(10):
            feed = {serialized: [example(k), example(k + 1), example(2 * k)], labels: [[1.0], [0.0], [float(k % 2)]]}
            record.value(f"{k}", sess.run([loss, inputs, wide, train], feed)[:3])
        record.value("all", sess.run(tf.trainable_variables()))
    record.graph("graph")


def program_bag(record):
    """Bags of words: a vocabulary in a file, ids by a table, ragged and sparse bags, weights by how rare a word is."""
    with open("vocabulary.txt", "w") as file:
        file.write("\n".join(["the", "cat", "dog", "ran", "sat", "mat"]))
    line, number = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
    ids = tf.lookup.StaticVocabularyTable(tf.lookup.TextFileInitializer("vocabulary.txt", tf.string, line, tf.int64, number), 2)
    back = tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer("vocabulary.txt", tf.int64, number, tf.string, line), "?")
    words = back.lookup(tf.constant([0, 5, 9], tf.int64))
    text = tf.placeholder(tf.string, [None], name="text")
    tokens = tf.strings.split(text, result_type="RaggedTensor")
    found = tf.ragged.map_flat_values(ids.lookup, tokens)
    sparse = found.to_sparse()
    table = tf.get_variable("table", [8, 4], initializer=tf.random_normal_initializer(seed=1))
    weights = tf.SparseTensor(sparse.indices, 1.0 / (1.0 + tf.cast(sparse.values, tf.float32)), sparse.dense_shape)
    bags = tf.nn.embedding_lookup_sparse(table, sparse, weights, combiner="sqrtn")
    mean = tf.reduce_mean(tf.ragged.map_flat_values(tf.gather, table, found), 1)
    logits = dense(tf.concat([bags, mean], 1), 2, "out")
    labels = tf.placeholder(tf.int32, [None], name="labels")
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    train = tf.train.AdamOptimizer(0.1).minimize(loss)
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.tables_initializer()])
        for k in range(12):
            feed = {text: ["the cat sat", "a dog ran", "mat " * (k % 3 + 1)], labels: [0, 1, k % 2]}
            record.value(f"{k}", sess.run([loss, bags, mean, train], feed)[:3])
            record.value(f"tokens {k}", sess.run([tokens, found, words], feed))
        with record.error("again, without its table"), tf.Session() as other:
            other.run(found, {text: ["the"]})
    record.graph("graph")
