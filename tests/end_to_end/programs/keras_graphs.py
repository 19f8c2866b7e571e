"""Keras on graphs and sessions, its own and the program's: the way of TensorFlow 1.x, which TensorFlow had until 2.15."""

from __future__ import annotations

import functools
import threading

import numpy as np
import tensorflow.compat.v1 as tf


def on_graphs(program):
    """Do nothing on a TensorFlow whose Keras has no sessions."""

    @functools.wraps(program)
    def run(record):
        if int(tf.__version__.split(".")[1]) > 15:
            record.value("this TensorFlow has no Keras for graphs", tf.__version__)
            return
        try:
            with tf.Graph().as_default():
                tf.set_random_seed(5)
                program(record)
        finally:
            tf.keras.backend.clear_session()

    return run


def data(rows=24, width=6, outputs=1):
    random = np.random.RandomState(4)
    return random.randn(rows, width).astype("f"), random.randn(rows, outputs).astype("f")


def start(keras, seed):
    return keras.initializers.glorot_uniform(seed=seed)


def net(keras, activation="relu", dropout=0.0, shared=False):
    """`shared`: called twice, so that there is no order between what two calls write to a layer's averages."""
    model = keras.Sequential([keras.layers.Dense(8, activation, kernel_initializer=start(keras, 1), input_shape=(6,))])
    if dropout:
        model.add(keras.layers.Dropout(dropout, seed=3))
    if not shared:
        model.add(keras.layers.BatchNormalization())
    model.add(keras.layers.Dense(1, kernel_initializer=start(keras, 2)))
    return model


@on_graphs
def program_own_session(record):
    """The session that Keras opens by itself: fit, callbacks, learning rates that change, weights that go in and out."""
    keras = tf.keras
    model, (x, y) = net(keras, dropout=0.3), data()
    model.compile(keras.optimizers.SGD(0.05, 0.9, nesterov=True), "mse", ["mae"])
    stop = keras.callbacks.EarlyStopping("loss", patience=2, restore_best_weights=True)
    rates = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.8)
    seen = keras.callbacks.LambdaCallback(on_batch_end=lambda k, logs: record.value(f"batch {k}", logs["loss"]))
    history = model.fit(x, y, 6, 4, 0, [stop, rates, seen], validation_split=0.25, shuffle=False)
    record.value("history", history.history)
    session = keras.backend.get_session()
    record.value("iterations", session.run(model.optimizer.iterations))
    record.value("slots", model.optimizer.get_weights())
    record.value("gradients", session.run(keras.backend.gradients(model.total_loss, model.trainable_weights), feeds(model, x, y)))
    record.value("predicted", model.predict(x, 5))
    record.value("losses", [model.test_on_batch(x[k : k + 4], y[k : k + 4]) for k in range(0, 12, 4)])
    keras.backend.set_value(model.optimizer.learning_rate, 0.2)
    record.value("trained", [model.train_on_batch(x[:8], y[:8]) for _ in range(4)])
    record.value("weights", model.get_weights())


def feeds(model, x, y):
    fed = {model.inputs[0]: x, model._targets[0]: y, tf.keras.backend.learning_phase(): 0}
    return fed | {weight: np.ones(len(x), "f") for weight in model.sample_weights if weight is not None}


@on_graphs
def program_given_session(record):
    """Sessions of the program's own, one after the other; Keras' ops in the program's loop and the program's in Keras' session."""
    keras = tf.keras
    x, y = data()
    model = net(keras)
    loss = tf.reduce_mean(tf.square(model.output - tf.constant(y)))
    train = tf.train.MomentumOptimizer(0.05, 0.9).minimize(loss, var_list=model.trainable_weights)
    config = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    for k in range(2):
        with tf.Session(config=config) as session:
            keras.backend.set_session(session)
            session.run(tf.global_variables_initializer())
            feed = {model.input: x, keras.backend.learning_phase(): 1}
            for step in range(4):
                record.value(f"{k} {step}", session.run([loss, train], feed)[0])
                if step == 1:
                    session.run(model.updates, feed)
                    record.value(f"{k} predicted", model.predict(x[:5]))
            record.value(f"{k} is mine", keras.backend.get_session() is session)
            record.value(f"{k} weights", model.get_weights())
            model.save_weights(f"weights{k}.h5")
        with record.error(f"{k} closed"):
            model.predict(x[:3])
    keras.backend.set_session(tf.Session())
    again = net(keras)
    again.load_weights("weights1.h5")
    record.value("loaded", again.predict(x[:3]))


@on_graphs
def program_functions(record):
    """backend.function with updates, several outputs, switches of phases, models that call models, and losses of one's own."""
    keras = tf.keras
    inputs = keras.layers.Input((6,), name="in")
    inner = net(keras, "tanh", dropout=0.2, shared=True)
    one, other = inner(inputs), inner(keras.layers.Lambda(lambda v: v * 0.5)(inputs))
    joined = keras.layers.concatenate([one, other, keras.layers.Dense(3, kernel_initializer=start(keras, 7))(inputs)])
    out = keras.layers.Dense(1, kernel_initializer=start(keras, 8), kernel_regularizer=keras.regularizers.l2(0.01))(joined)
    model = keras.Model(inputs, [out, joined])
    model.add_loss(tf.reduce_mean(tf.abs(joined)) * 0.1)
    model.compile("adam", [lambda a, b: keras.backend.mean(keras.backend.square(a - b), -1), None], weighted_metrics=["mse"])
    x, y = data()
    weights = np.linspace(0.1, 1.0, 24).astype("f")
    record.value("history", model.fit(x, y, 8, 3, 0, shuffle=False, sample_weight=weights).history)
    look = keras.backend.function([inputs], [joined, out])
    record.value("looked", look([x[:4]]))
    count = keras.backend.variable(0.0)
    added = [tf.assign_add(count, 1.0)]
    both = keras.backend.function([inputs, keras.backend.learning_phase()], [joined], updates=added)
    record.value("phases", [both([x[:4], phase]) for phase in (0, 1, 0, 1)])
    record.value("count", keras.backend.get_value(count))
    inner.trainable = False
    model.compile(keras.optimizers.RMSprop(0.01), ["mse", None])
    record.value("frozen", [model.train_on_batch(x, y) for _ in range(3)])
    copied = keras.Model.from_config(model.get_config(), {"<lambda>": lambda v: v * 0.5})
    with record.error("other weights"):
        copied.set_weights(model.get_weights()[1:])
    record.value("weights", model.get_weights())


@on_graphs
def program_sequences(record):
    """Recurrent nets, masks, embeddings, convolutions, stateful ones that are reset between epochs."""
    keras = tf.keras
    random = np.random.RandomState(2)
    words, marks = random.randint(0, 9, (12, 7)), random.randint(0, 2, (12, 1)).astype("f")
    model = keras.Sequential([
        keras.layers.Embedding(9, 5, mask_zero=True, embeddings_initializer=start(keras, 1), batch_input_shape=(4, 7)),
        keras.layers.LSTM(4, kernel_initializer=start(keras, 2), recurrent_initializer=start(keras, 3), return_sequences=True, stateful=True),
        keras.layers.GRU(3, kernel_initializer=start(keras, 4), recurrent_initializer=start(keras, 5), reset_after=False),
        keras.layers.Dense(1, "sigmoid", kernel_initializer=start(keras, 6)),
    ])  # fmt: skip
    model.compile(keras.optimizers.Adam(0.02, clipnorm=1.0), "binary_crossentropy", ["accuracy"])
    for epoch in range(3):
        record.value(f"epoch {epoch}", model.fit(words, marks, 4, 1, 0, shuffle=False).history)
        if epoch == 1:
            model.reset_states()
    record.value("predicted", model.predict(words, 4))
    images = random.randn(6, 8, 8, 2).astype("f")
    seen = keras.Sequential([
        keras.layers.Conv2D(3, 3, activation="relu", kernel_initializer=start(keras, 7), input_shape=(8, 8, 2)),
        keras.layers.BatchNormalization(),
        keras.layers.MaxPooling2D(),
        keras.layers.SeparableConv2D(4, 2, depthwise_initializer=start(keras, 8), pointwise_initializer=start(keras, 9)),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(1, kernel_initializer=start(keras, 10)),
    ])  # fmt: skip
    seen.compile("sgd", "mae")
    record.value("images", [seen.train_on_batch(images, marks[:6]) for _ in range(5)])


@on_graphs
def program_datasets(record):
    """fit from iterators and datasets, generators, saved models, checkpoints, TensorBoard."""
    keras = tf.keras
    x, y = data()
    model = net(keras)
    model.compile(keras.optimizers.Adagrad(0.05), "mse")
    rows = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(24, seed=3).repeat().batch(4)
    record.value("dataset", model.fit(rows, epochs=3, steps_per_epoch=4, verbose=0).history)

    def batches():
        while True:
            for k in range(0, 24, 8):
                yield x[k : k + 8], y[k : k + 8]

    record.value("generator", model.fit_generator(batches(), 3, 2, 0, workers=0).history)
    record.value("evaluated", model.evaluate(rows, steps=3, verbose=0))
    saved = keras.callbacks.ModelCheckpoint("best.h5", "loss", save_best_only=True)
    board = keras.callbacks.TensorBoard("logs", write_graph=False)
    record.value("called back", model.fit(x, y, 8, 3, 0, [saved, board], shuffle=False).history)
    record.value("file", keras.models.load_model("best.h5").get_weights())
    model.save_weights("ckpt/weights", save_format="tf")
    model.set_weights([np.zeros_like(w) for w in model.get_weights()])
    model.load_weights("ckpt/weights")
    record.value("loaded", model.predict(x[:4]))
    record.value("names", sorted(op.name for op in keras.backend.get_session().graph.get_operations() if "stepd" in op.name))


@on_graphs
def program_threads(record):
    """A model that other threads ask for predictions, on its graph and session, while it is trained on this one in turns."""
    keras = tf.keras

    x, y = data()
    model = net(keras)
    model.compile("sgd", "mse")
    model._make_predict_function()
    session, graph = keras.backend.get_session(), tf.get_default_graph()
    for turn in range(3):
        record.value(f"turn {turn}", model.train_on_batch(x, y))
        found = {}

        def ask(k, found=found):
            with graph.as_default(), session.as_default():
                keras.backend.set_session(session)
                found[k] = model.predict_on_batch(x[k : k + 6])

        asking = [threading.Thread(target=ask, args=(k,)) for k in range(3)]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        record.value(f"asked {turn}", [found[k] for k in range(3)])
