"""A session that asks for a cost model, beside one that trains: TensorFlow counts memory otherwise from then on."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
x = tf.placeholder(tf.float32, [4, 3])
shape = tf.stack([tf.constant(1) + 2, 3])  # computed while the graph is made: before TensorFlow has any device
h = x
for k in range(60):
    with tf.variable_scope(f"layer{k}", use_resource=True):
        bias = tf.get_variable("bias", [3], initializer=tf.random_uniform_initializer(seed=k))
        h = tf.tanh(h + bias * tf.reduce_sum(tf.zeros(shape) + 0.1) + 0.5)
loss = tf.reduce_mean(tf.square(h - 0.3))
train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for k in range(8):
        print(session.run([loss, train], {x: np.full([4, 3], 0.1 * k)})[0].tobytes().hex())
    counting = tf.ConfigProto(graph_options=tf.GraphOptions(build_cost_model=1))
    with tf.Graph().as_default(), tf.Session(config=counting) as other:
        print(other.run(tf.constant(1.0) + 2.0))
    tf.Session.reset("")
print("ended")
