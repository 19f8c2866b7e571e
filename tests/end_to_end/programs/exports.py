"""Trained models handed on: frozen by the tool, saved for serving with assets and signatures, transformed, loaded elsewhere."""

import os

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.tools import freeze_graph, optimize_for_inference_lib
from training import convolution, dense, images, normalized


def program_freeze_tool(record):
    """GraphDef as text, a checkpoint, freeze_graph, a new session; the folded graph says what the trained one said."""
    x = tf.placeholder(tf.float32, [None, 8, 8, 1], name="x")
    h = convolution(x, 3, "c")
    y = tf.nn.softmax(dense(tf.reshape(normalized(h, False, "n"), [-1, 192]), 4, "out"), name="y")
    loss = -tf.reduce_mean(tf.log(y[:, 1]))
    train = tf.train.AdamOptimizer(0.05).minimize(loss)
    saver = tf.train.Saver()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(8):
            record.value(f"{k}", sess.run([loss, train], {x: images(3) + k})[0])
        tf.train.write_graph(sess.graph_def, "out", "graph.pbtxt")
        path = saver.save(sess, "out/model")
        record.value("trained", sess.run(y, {x: images(2)}))
        inference = tf.graph_util.extract_sub_graph(sess.graph_def, ["y"])
        record.proto("inference", inference)
    record.value("text", len(open("out/graph.pbtxt").read()))
    freeze_graph.freeze_graph(
        "out/graph.pbtxt", "", False, path, "y", "save/restore_all", "save/Const:0", "out/frozen.pb", True, ""
    )
    with open("out/frozen.pb", "rb") as file:
        frozen = tf.GraphDef.FromString(file.read())
    record.proto("frozen", frozen)
    small = optimize_for_inference_lib.optimize_for_inference(frozen, ["x"], ["y"], tf.float32.as_datatype_enum)
    record.proto("small", small)
    for name, graph_def in (("frozen", frozen), ("small", small)):
        with tf.Graph().as_default() as graph:
            tf.import_graph_def(graph_def, name=name)
            with tf.Session(graph=graph) as sess:
                for k in range(6):
                    record.value(f"{name} {k}", sess.run(f"{name}/y:0", {f"{name}/x:0": images(2) + k}))
            record.graph(name)


def program_served(record):
    """SavedModelBuilder with two MetaGraphs, an asset, a table, a main op and three signatures; loaded by tags, trained further there."""
    with open("words.txt", "w") as file:
        file.write("no\nyes\nmaybe\n")
    text = tf.placeholder(tf.string, [None], name="text")
    asset = tf.constant("words.txt", name="asset")
    tf.add_to_collection(tf.GraphKeys.ASSET_FILEPATHS, asset)
    rows = tf.lookup.TextFileInitializer(
        asset, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
    )
    table = tf.lookup.StaticVocabularyTable(rows, 1)
    w = tf.get_variable("w", [4, 3], initializer=tf.random_normal_initializer(seed=1))
    u = tf.get_variable("u", [3, 1], initializer=tf.random_normal_initializer(seed=2), use_resource=True)
    score = tf.identity(tf.sigmoid(tf.matmul(tf.nn.embedding_lookup(w, table.lookup(text)), u)), name="score")
    loss = tf.reduce_mean(tf.square(score - 1.0), name="loss")
    train = tf.train.AdamOptimizer(0.1).minimize(loss, name="train")
    sm = tf.saved_model
    signature = sm.signature_def_utils
    maps = {
        sm.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY: sm.predict_signature_def({"text": text}, {"score": score}),
        "regress": sm.regression_signature_def(text, tf.identity(score, name="regressed")),
        "train": signature.build_signature_def(
            {"text": sm.utils.build_tensor_info(text)}, {"loss": sm.utils.build_tensor_info(loss)}, "train"
        ),
    }
    builder = sm.Builder("model")
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.tables_initializer()])
        for k in range(6):
            record.value(f"{k}", sess.run([loss, train], {text: ["yes", "no", "what"]})[0])
        builder.add_meta_graph_and_variables(
            sess,
            [sm.tag_constants.TRAINING],
            signature_def_map=maps,
            assets_collection=[asset],
            main_op=tf.tables_initializer(),
            strip_default_attrs=True,
        )
        builder.add_meta_graph([sm.tag_constants.SERVING], signature_def_map=maps)
        builder.save()
        record.value("files", sorted(os.path.relpath(os.path.join(d, f), "model") for d, _, fs in os.walk("model") for f in fs))
    for tags in ([sm.tag_constants.SERVING], [sm.tag_constants.TRAINING]):
        with tf.Graph().as_default(), tf.Session() as sess:
            meta = sm.load(sess, tags, "model")
            record.value(f"signatures {tags}", sorted(meta.signature_def))
            out = meta.signature_def["regress"].outputs["outputs"].name
            for k in range(6):
                record.value(f"loaded {tags} {k}", sess.run(out, {"text:0": ["maybe", "yes", str(k)]}))
                record.value(f"trained {tags} {k}", sess.run(["loss:0", "train"], {"text:0": ["maybe"]})[0])
            record.graph(f"loaded {tags}")
    with record.error("no such tags"), tf.Graph().as_default(), tf.Session() as sess:
        sm.load(sess, ["nothing"], "model")
    record.graph("graph")


def program_grafted(record):
    """A trained part of one graph is imported into another with inputs of its own, and trained on with new ends."""
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.placeholder(tf.float32, [None, 6], name="x")
        bottom = tf.identity(dense(dense(x, 5, "a", tf.nn.tanh), 4, "b", tf.nn.tanh), name="bottom")
        train = tf.train.AdagradOptimizer(0.2).minimize(tf.reduce_mean(tf.square(bottom - 0.3)))
        sess.run(tf.global_variables_initializer())
        for k in range(6):
            record.value(f"first {k}", sess.run([bottom, train], {x: np.sin(np.arange(12.0) + k).reshape(2, 6)})[0])
        meta = tf.train.export_meta_graph(export_scope=None)
        tf.train.Saver(tf.trainable_variables()).save(sess, "bottom", write_meta_graph=False)
    rows = tf.placeholder(tf.float32, [None, 3], name="rows")
    tf.train.import_meta_graph(meta, import_scope="old", input_map={"x:0": tf.concat([rows, rows * 2.0], 1)})
    features = tf.stop_gradient(tf.get_default_graph().get_tensor_by_name("old/bottom:0"))
    loss = tf.reduce_mean(tf.square(dense(features, 2, "top") - 1.0))
    train = tf.train.AdamOptimizer(0.1).minimize(loss, var_list=tf.trainable_variables("top"))
    old = {v.op.name[len("old/") :]: v for v in tf.trainable_variables("old")}
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        tf.train.Saver(old).restore(sess, "bottom")
        for k in range(8):
            record.value(f"{k}", sess.run([loss, features, train], {rows: np.cos(np.arange(6.0) + k).reshape(2, 3)})[:2])
        constants = tf.graph_util.convert_variables_to_constants(sess, sess.graph_def, [loss.op.name])
        record.proto("constants", constants)
    record.graph("graph")
