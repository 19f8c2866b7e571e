"""tf.estimator and Keras in graph mode, where this TensorFlow has them."""

import numpy as np
import tensorflow.compat.v1 as tf


def inputs():
    data = tf.data.Dataset.from_tensor_slices({"x": np.sin(np.arange(60.0)).reshape(20, 3).astype("f"), "y": np.arange(20.0) % 3})
    return data.shuffle(20, seed=4).repeat().batch(4).map(lambda row: ({"x": row["x"]}, tf.cast(row["y"], tf.int32)))


def model_fn(features, labels, mode):
    w = tf.get_variable("w", [3, 4], initializer=tf.glorot_uniform_initializer(seed=1))
    u = tf.get_variable("u", [4, 3], initializer=tf.glorot_uniform_initializer(seed=2))
    hidden = tf.nn.relu(tf.matmul(features["x"], w))
    if mode == tf.estimator.ModeKeys.TRAIN:
        hidden = tf.nn.dropout(hidden, rate=0.25, seed=3)
    logits = tf.matmul(hidden, u)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"p": tf.nn.softmax(logits)})
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        accuracy = tf.metrics.accuracy(labels, tf.argmax(logits, 1))
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
    train = tf.train.AdamOptimizer(0.05).minimize(loss, tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)


class Losses(tf.train.SessionRunHook):
    def __init__(self, record):
        self.record = record

    def before_run(self, context):
        loss = context.session.graph.get_collection(tf.GraphKeys.LOSSES)[0]
        return tf.train.SessionRunArgs([loss, tf.train.get_global_step(context.session.graph)])

    def after_run(self, context, values):
        self.record.value("step", values.results)


def program_estimator(record):
    if not hasattr(tf, "estimator"):
        record.value("this TensorFlow has no Estimator", tf.__version__)
        return
    config = tf.estimator.RunConfig(
        "model", tf_random_seed=5, save_checkpoints_steps=6, save_summary_steps=4, log_step_count_steps=5
    )
    estimator = tf.estimator.Estimator(model_fn, config=config)
    estimator.train(inputs, steps=10, hooks=[Losses(record)])
    record.value("evaluated", estimator.evaluate(inputs, steps=5))
    estimator.train(inputs, max_steps=16, hooks=[Losses(record)])

    def one():
        return tf.data.Dataset.from_tensor_slices({"x": np.ones((8, 3), "f")}).batch(1)

    record.value("predicted", list(estimator.predict(one)))
    record.value("variables", {name: estimator.get_variable_value(name) for name in sorted(estimator.get_variable_names())})
    record.checkpoint("last", estimator.latest_checkpoint())
    specification = tf.estimator.TrainSpec(inputs, max_steps=24)
    tf.estimator.train_and_evaluate(
        estimator, specification, tf.estimator.EvalSpec(inputs, steps=3, throttle_secs=0, start_delay_secs=0)
    )
    record.value("at the end", estimator.evaluate(inputs, steps=5))


def program_canned_estimator(record):
    if not hasattr(tf, "estimator"):
        record.value("this TensorFlow has no Estimator", tf.__version__)
        return
    columns = [tf.feature_column.numeric_column("x", shape=[3])]
    config = tf.estimator.RunConfig(tf_random_seed=5)
    linear = tf.estimator.LinearClassifier(columns, n_classes=3, config=config, optimizer=lambda: tf.train.FtrlOptimizer(0.1))
    linear.train(inputs, steps=12)
    record.value("linear", linear.evaluate(inputs, steps=4))
    deep = tf.estimator.DNNRegressor([4, 3], columns, config=config, optimizer=lambda: tf.train.AdagradOptimizer(0.1))
    deep.train(inputs, steps=12)
    record.value("deep", deep.evaluate(inputs, steps=4))
    record.value("weights", [deep.get_variable_value(name) for name in sorted(deep.get_variable_names())])


def program_keras(record):
    """Keras on a session of the program's own, and a model that Keras fits in a session of its own."""
    if int(tf.__version__.split(".")[1]) > 15:
        record.value("this TensorFlow has no Keras for graphs", tf.__version__)
        return
    from keras import backend

    keras = tf.keras
    with tf.Graph().as_default():
        sess = tf.Session()
        backend.set_session(sess)
        with sess.as_default():
            tf.set_random_seed(3)
            inner = keras.layers.Dense(5, "relu", kernel_initializer=keras.initializers.GlorotUniform(seed=1))
            last = keras.layers.Dense(2, kernel_initializer=keras.initializers.GlorotUniform(seed=2))
            model = keras.Sequential([keras.layers.Input((3,)), inner, keras.layers.BatchNormalization(), last])
            model.compile(tf.train.AdamOptimizer(0.05), "mse", metrics=["mae"])
            x, y = np.sin(np.arange(48.0)).reshape(16, 3), np.cos(np.arange(32.0)).reshape(16, 2)
            history = model.fit(x, y, batch_size=4, epochs=4, shuffle=False, verbose=0)
            record.value("history", history.history)
            record.value("evaluated", model.evaluate(x, y, verbose=0))
            record.value("predicted", model.predict(x[:4]))
            record.value("weights", model.get_weights())
            model.set_weights([w * 0.5 for w in model.get_weights()])
            record.value("again", model.train_on_batch(x, y))
            model.save_weights("weights.h5")
            model.load_weights("weights.h5")
            record.value("loaded", model.predict(x[:2]))
        backend.clear_session()
