"""A fork after the import of TensorFlow, before and after a session of the parent."""

import os
import sys

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def steps(name, n):
    with tf.Graph().as_default(), tf.Session() as sess:
        v = tf.get_variable("v", [], initializer=tf.zeros_initializer())
        step = tf.assign_add(v, 1.5)
        sess.run(v.initializer)
        print(name, [float(sess.run(step)) for _ in range(n)], flush=True)


def child(name):
    pid = os.fork()
    if pid == 0:
        steps(name, 8)
        sys.stdout.flush()
        os._exit(7)
    print(name, "ended with", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


child("a child before any session")
steps("the parent", 8)
child_of_python = os.fork()
if child_of_python == 0:
    print("a child that opens no session", flush=True)
    sys.exit(3)
print("ended with", os.waitstatus_to_exitcode(os.waitpid(child_of_python, 0)[1]), flush=True)
steps("the parent again", 8)
