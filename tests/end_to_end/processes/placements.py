"""A program that has TensorFlow print where every op lies, as TensorFlow does: for the whole graph, whenever it has grown."""

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
x = tf.placeholder(tf.float32, [2], name="x")
w = tf.get_variable("w", [2], initializer=tf.ones_initializer())
y = tf.multiply(x, w, name="y")
train = tf.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(tf.square(y)))
with tf.Session(config=tf.ConfigProto(log_device_placement=True, allow_soft_placement=True)) as sess:
    sess.run(tf.global_variables_initializer())
    for k in range(6):
        sess.run([y, train], {x: [1.0, k]})
    more = tf.while_loop(lambda z: tf.reduce_sum(z) < 100.0, lambda z: z * 2.0 + 1.0, [y])
    for k in range(6):
        print(sess.run([more, train], {x: [1.0, k]})[0])
with tf.Session(config=tf.ConfigProto(log_device_placement=True)) as sess:
    sess.run(tf.global_variables_initializer())
