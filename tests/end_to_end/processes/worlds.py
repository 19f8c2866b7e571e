"""A program of the second TensorFlow that keeps sessions for its older parts: eager steps, functions and graphs by turns, with all
of the second version's behaviours on."""

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def hexes(values):
    return [float(x).hex() for x in np.asarray(values).ravel()]


class Modern(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = tf.Variable(np.arange(6, dtype=np.float32).reshape(3, 2) / 7.0)

    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def __call__(self, x):
        return tf.tanh(x @ self.w)


modern = Modern()
optimizer_slots = tf.Variable(tf.zeros([3, 2]))


@tf.function
def eager_step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(modern(x) - 0.5))
    gradient = tape.gradient(loss, modern.w)
    optimizer_slots.assign(0.9 * optimizer_slots + gradient)
    modern.w.assign_sub(0.1 * optimizer_slots)
    return loss


def older(x):
    w = v1.get_variable("w", [3, 2], initializer=v1.glorot_uniform_initializer(seed=1))
    y = tf.cond(tf.reduce_sum(x) > 0.0, lambda: tf.tanh(x @ w), lambda: tf.sin(x @ w))
    _, y = tf.while_loop(lambda k, _: k < 3, lambda k, y: (k + 1, y * 0.5 + 0.1), (0, y))
    return w, y


graph = tf.Graph()
with graph.as_default():
    x = v1.placeholder(tf.float32, [None, 3])
    w, y = older(x)
    loss = tf.reduce_mean(tf.square(y - 0.25))
    train = v1.train.AdamOptimizer(0.05).minimize(loss)
    data = v1.data.make_initializable_iterator(tf.data.Dataset.range(100).shuffle(10, seed=3).map(lambda n: n * 2))
    element = data.get_next()
    initialize = [v1.global_variables_initializer(), data.initializer]
    saver = v1.train.Saver()

sess = v1.Session(graph=graph)
sess.run(initialize)
for k in range(12):
    batch = np.random.RandomState(k).randn(4, 3).astype("f")
    found = sess.run([loss, y, element, train], {x: batch})
    value = eager_step(tf.constant(batch))
    mixed = modern(tf.constant(found[1] @ np.ones((2, 3), "f")))
    print(k, hexes(found[0]), int(found[2]), hexes(value), hexes(mixed[:1]))
with graph.as_default():
    saver.save(sess, "./older")
sess.close()
tf.saved_model.save(modern, "modern")
with tf.Graph().as_default(), v1.Session() as sess:
    v1.saved_model.load(sess, ["serve"], "modern")
    for k in range(6):
        print("served", hexes(sess.run("StatefulPartitionedCall:0", {"serving_default_x:0": np.full((1, 3), k, "f")})))
wrapped = v1.wrap_function(lambda x: older(x)[1], [tf.TensorSpec([None, 3])])
print("wrapped", hexes(wrapped(tf.ones([1, 3]))))
reader = tf.train.load_checkpoint("./older")
print(sorted(reader.get_variable_to_shape_map()), hexes(reader.get_tensor("w")))
print(tf.executing_eagerly(), v1.resource_variables_enabled(), v1.control_flow_v2_enabled())
