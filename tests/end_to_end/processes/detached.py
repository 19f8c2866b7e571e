"""A program that becomes a service after it has imported TensorFlow: two forks, a session of its own, every descriptor closed."""

import os
import sys
import tempfile

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
out = tempfile.mktemp(dir=os.getcwd())
read, write = os.pipe()
if os.fork():
    os.close(write)
    os.wait()
    os.read(read, 1)  # the service has ended when nobody holds the other end
    print(open(out).read())
    sys.exit(0)
os.setsid()
if os.fork():
    os._exit(0)
for number in range(3, 256):
    if number != write:
        try:
            os.close(number)
        except OSError:
            pass
nothing = os.open(os.devnull, os.O_RDWR)
for number in range(3):
    os.dup2(nothing, number)
with open(out, "w") as file:
    v = tf.get_variable("v", [2], initializer=tf.ones_initializer())
    step = tf.assign_add(v, [0.5, 0.25])
    with tf.Session() as sess:
        sess.run(v.initializer)
        for _ in range(12):
            print(sess.run(step).tolist(), file=file)
        tf.train.Saver().save(sess, "./v")
    print(sorted(name for name in os.listdir(".") if name.startswith("v.")), file=file)
os._exit(0)
