"""Data sets that are shuffled anew in each epoch, between two of them; mixed ones that end in turns; and files with headers."""

import tensorflow.compat.v1 as tf

Data = tf.data.Dataset


def numbers(seed=5):
    return Data.range(10).shuffle(5, seed=seed)


def read(record, label, data, one_shot):
    """All that a data set gives, beside a variable that is trained."""
    tf.reset_default_graph()
    tf.set_random_seed(9)
    iterator = tf.data.make_one_shot_iterator(data()) if one_shot else tf.data.make_initializable_iterator(data())
    element = iterator.get_next()
    v = tf.get_variable("v", initializer=1.0, use_resource=True)
    with tf.control_dependencies(tf.nest.flatten(element)):  # or the step that ends may have done it, or not
        update = v.assign(v * 1.1)
    with tf.Session() as sess:
        sess.run(v.initializer)
        if not one_shot:
            sess.run(iterator.initializer)
        for k in range(40):
            try:
                record.value(f"{label} {k}", sess.run([element, update]))
            except tf.errors.OutOfRangeError:
                record.value(f"{label} has ended", k)
                break
        record.value(f"{label}: v", sess.run(v))


def program_batched(record):
    """Behind a last batch that is not full the shuffle has ended, and the next epoch has not begun."""
    read(record, "batched", lambda: numbers().batch(4).repeat(3), one_shot=True)
    read(record, "filtered", lambda: numbers().map(lambda x: x + 1).filter(lambda x: x > 2).batch(4).repeat(3), one_shot=False)
    read(record, "padded", lambda: numbers().map(lambda x: tf.range(x)).padded_batch(3, [None]).repeat(2), one_shot=True)
    read(record, "full", lambda: numbers().batch(5).repeat(3), one_shot=True)
    read(record, "ahead", lambda: numbers().prefetch(3).batch(4).repeat(3).prefetch(2), one_shot=False)


def program_joined(record):
    """One of two ends before the other."""
    read(record, "one by one", lambda: numbers().concatenate(numbers(7)).batch(3).repeat(2), one_shot=True)
    read(record, "side by side", lambda: Data.zip((numbers(), numbers(8))).batch(4).repeat(2), one_shot=False)
    read(record, "kept", lambda: Data.range(10).cache().shuffle(5, seed=5).batch(4).repeat(3), one_shot=True)


def program_mixed(record):
    """One of those that are mixed ends before the others, and is looked for for ever by an iterator that is restored then."""

    def chosen(stop):
        return Data.choose_from_datasets(parts(), Data.range(2).repeat(), stop_on_empty_dataset=stop)

    def parts():
        return [Data.range(4), Data.range(100, 109)]

    read(record, "sampled", lambda: Data.sample_from_datasets(parts(), [0.6, 0.4], seed=3), one_shot=False)
    read(record, "again", lambda: Data.sample_from_datasets(parts(), seed=4).repeat(2).batch(3), one_shot=True)
    read(record, "chosen", lambda: chosen(stop=False), one_shot=True)
    read(record, "until one ends", lambda: chosen(stop=True), one_shot=False)


def program_files(record):
    """The list of files ends long before the epoch."""
    names = [f"lines{n}" for n in range(3)]
    for n, name in enumerate(names):
        with open(name, "w") as file:
            file.writelines(f"{n} {k}\n" for k in range(7))

    def turns():
        return Data.from_tensor_slices(names).shuffle(3, seed=2).interleave(tf.data.TextLineDataset, cycle_length=2)

    read(record, "by turns", lambda: turns().batch(4).repeat(3), one_shot=True)
    read(record, "by turns, shuffled", lambda: turns().shuffle(6, seed=4).batch(4).repeat(2), one_shot=False)


def program_headers(record):
    names = [f"table{n}.csv" for n in range(2)]
    for n, name in enumerate(names):
        with open(name, "w") as file:
            file.write("a,b\n" + "".join(f'{k + 10 * n},"x,{k}"\n' for k in range(6)))
    tables, text = tf.data.experimental.CsvDataset, [tf.string, tf.string]
    read(record, "with headers", lambda: tables(names, [tf.int32, tf.string], header=True).batch(4), one_shot=True)
    read(record, "all lines", lambda: tables(names, text).batch(4), one_shot=False)
