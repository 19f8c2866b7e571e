"""Lookup tables of every kind."""

from pathlib import Path

import tensorflow.compat.v1 as tf


def program_tables(record):
    Path("vocabulary.txt").write_text("the\nquick\nbrown\nfox\n")
    keys = tf.placeholder(tf.string, [None], name="keys")
    fixed = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b"], [1.5, 2.5]), -1.0)
    words = tf.lookup.StaticVocabularyTable(
        tf.lookup.TextFileInitializer(
            "vocabulary.txt", tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
        ),
        3,
    )
    back = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(tf.range(4, dtype=tf.int64), ["w", "x", "y", "z"]), "?")
    ids = words.lookup(keys)
    with tf.Session() as sess:
        with record.error("not initialized"):
            sess.run(fixed.lookup(keys), {keys: ["a"]})
        sess.run(tf.tables_initializer())
        sess.run(tf.tables_initializer())
        looked = fixed.lookup(keys)
        names = back.lookup(ids)
        for k in range(10):
            feed = {keys: ["a", "b", "fox", "nobody", str(k)]}
            record.value(f"{k}", sess.run([looked, ids, names, fixed.size(), words.size()], feed))
    record.graph("graph")


def program_mutable(record):
    keys = tf.placeholder(tf.string, [None], name="keys")
    values = tf.placeholder(tf.int64, [None], name="values")
    kinds = {
        "mutable": tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1),
        "dense": tf.lookup.experimental.DenseHashTable(tf.string, tf.int64, -1, empty_key="", deleted_key="-"),
    }
    with tf.Session() as sess:
        for name, table in kinds.items():
            insert, find, remove = table.insert(keys, values), table.lookup(keys), table.remove(keys)
            size, exported = table.size(), table.export()
            for k in range(9):
                given = [f"k{k}", "same", *(f"{k} {i}" for i in range(4))]
                sess.run(insert, {keys: given, values: [k * i for i in range(6)]})
                record.value(f"{name} {k}", sess.run([find, size], {keys: ["k0", f"k{k}", "same", "none"]}))
                if k % 3 == 2:
                    sess.run(remove, {keys: [f"k{k - 1}"]})
                    sess.run(insert, {keys: ["again"], values: [k]})
                record.value(f"{name} exported {k}", [one.tolist() for one in sess.run(exported)])


def program_late(record):
    """Tables that appear after the first runs, and a table shared by name between sessions' graphs."""
    keys = tf.placeholder(tf.int64, [None], name="keys")
    with tf.Session() as sess:
        for k in range(7):
            table = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(tf.constant([1, 2], tf.int64), tf.constant([k, k + 1], tf.int64)), 0
            )
            found = table.lookup(keys)
            with record.error(f"before {k}"):
                sess.run(found, {keys: [1]})
            sess.run(table.initializer)
            record.value(f"after {k}", sess.run(found, {keys: [1, 2, 3]}))


def program_told_apart(record):
    """The keys of a table that never changes in one run, and its values in another."""
    words = [f"w{k}" for k in range(20)]
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(words, tf.range(20)), -1)
    keys, values = table.export()
    with tf.Session() as sess:
        sess.run(tf.tables_initializer())
        for k in range(6):
            record.value(f"{k}", sorted(zip(sess.run(keys).tolist(), sess.run(values).tolist(), strict=True)))
