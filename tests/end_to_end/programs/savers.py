"""Checkpoints, sharded checkpoints, MetaGraphs and SavedModels."""

import tensorflow.compat.v1 as tf


def model():
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    w = tf.get_variable("w", [3, 2], initializer=tf.random_normal_initializer(seed=1))
    b = tf.get_variable("b", [2], initializer=tf.zeros_initializer(), use_resource=True)
    y = tf.nn.softmax(tf.matmul(x, w) + b, name="y")
    loss = -tf.reduce_mean(tf.log(y[:, 0]))
    step = tf.train.get_or_create_global_step()
    train = tf.train.AdamOptimizer(0.1).minimize(loss, step, name="train")
    return x, y, loss, train


def program_saver(record):
    x, y, loss, train = model()
    feed = {x: [[1.0, 2.0, 3.0], [0.5, 0.1, -1.0]]}
    saver = tf.train.Saver(max_to_keep=2)
    sharded = tf.train.Saver(sharded=True, name="sharded")
    some = tf.train.Saver({"other/w": tf.trainable_variables()[0]}, name="some")
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(7):
            record.value(f"{k}", sess.run([loss, train], feed)[0])
            path = saver.save(sess, "ckpt/model", global_step=k)
            record.checkpoint(f"saved {k}", path)
        record.value("kept", saver.last_checkpoints)
        record.checkpoint("sharded", sharded.save(sess, "ckpt/sharded"))
        record.checkpoint("some", some.save(sess, "ckpt/some", write_meta_graph=False))
        before = sess.run(y, feed)
        for k in range(5):
            record.value(f"on {k}", sess.run([loss, train], feed)[0])
        sharded.restore(sess, "ckpt/sharded")
        record.value("back", sess.run(y, feed))
        record.value("the same", bool((before == sess.run(y, feed)).all()))
        for k in range(5):
            record.value(f"on again {k}", sess.run([loss, train], feed)[0])
        with record.error("no file"):
            saver.restore(sess, "ckpt/nothing")
    with open("ckpt/checkpoint") as file:
        record.value("state", file.read())
    record.graph("graph")


def program_meta_graph(record):
    x, y, loss, train = model()
    feed = {x: [[1.0, 2.0, 3.0]]}
    saver = tf.train.Saver()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(6):
            sess.run(train, feed)
        saver.save(sess, "model")
        record.value("trained", sess.run([y, loss], feed))
        record.proto("exported", tf.train.export_meta_graph("exported.meta", clear_devices=True))
    with tf.Graph().as_default():
        saver = tf.train.import_meta_graph("model.meta", import_scope="again")
        with tf.Session() as sess:
            saver.restore(sess, "model")
            for k in range(6):
                record.value(f"restored {k}", sess.run(["again/y:0", "again/train"], {"again/x:0": feed[x]})[0])
        record.graph("imported")
    with tf.Graph().as_default():
        tf.train.import_meta_graph("exported.meta", clear_devices=True)
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            for k in range(6):
                record.value(f"fresh {k}", sess.run(["y:0", "train"], {"x:0": feed[x]})[0])


def program_saved_model(record):
    x, y, _loss, train = model()
    feed = {x: [[1.0, 2.0, 3.0]]}
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(5):
            sess.run(train, feed)
        record.value("before", sess.run(y, feed))
        tf.saved_model.simple_save(sess, "export", {"x": x}, {"y": y})
    with open("export/saved_model.pb", "rb") as file:
        from tensorflow.core.protobuf import saved_model_pb2

        record.proto("saved model", saved_model_pb2.SavedModel.FromString(file.read()))
    with tf.Session(graph=tf.Graph()) as sess:
        record.proto("loaded", tf.saved_model.loader.load(sess, ["serve"], "export"))
        for k in range(6):
            record.value(f"{k}", sess.run("y:0", {"x:0": [[k, 2.0, 3.0]]}))


def program_tracked(record):
    """The object-based checkpoint, in graph mode."""
    w = tf.Variable([1.0, 2.0], use_resource=True, name="w")
    step = w.assign_add([0.5, 0.5])
    checkpoint = tf.train.Checkpoint(w=w)
    with tf.Session() as sess:
        sess.run(w.initializer)
        for k in range(5):
            record.value(f"{k}", sess.run(step))
        path = checkpoint.save("object/ckpt", session=sess)
        for k in range(4):
            record.value(f"on {k}", sess.run(step))
        checkpoint.restore(path).assert_consumed().run_restore_ops(sess)
        for k in range(4):
            record.value(f"back {k}", sess.run(step))
