"""A program that prints, warns, logs and fails as programs do: its streams and its status."""

import logging
import sys
import warnings

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(levelname)s %(name)s %(message)s")
warnings.warn("the program's own warning", stacklevel=1)
x = tf.placeholder(tf.float32, [None], name="x")
y = tf.reshape(x, [3], name="impossible")
z = tf.Print(x * 2.0, [x], "printed: ", name="printed")
with tf.Session() as sess:
    for k in range(7):
        print(sess.run(z, {x: [k, 1.0]}))
    logging.getLogger("mine").info("about to fail")
    sess.run(y, {x: [1.0, 2.0]})
