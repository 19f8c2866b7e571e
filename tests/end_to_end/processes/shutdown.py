"""The interpreter ends with sessions open, threads blocked in them and values in flight."""

import atexit
import sys
import threading

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
v = tf.get_variable("v", [], initializer=tf.zeros_initializer())
step = tf.assign_add(v, 1.0)
queue = tf.FIFOQueue(1, tf.int32, shapes=[[]])
take = queue.dequeue()
sess = tf.Session()
sess.run(v.initializer)
other = tf.InteractiveSession()
other.run(v.initializer)


def blocked():
    try:
        sess.run(take)
    except Exception as error:
        print("a thread was told", type(error).__name__, flush=True)


threading.Thread(target=blocked, daemon=True).start()
print([float(sess.run(step)) for _ in range(9)], [float(other.run(step)) for _ in range(9)])
call = sess.make_callable(step)
print([float(call()) for _ in range(5)])
atexit.register(lambda: print("at the end", float(sess.run(step)), flush=True))
if len(sys.argv) > 1:
    sys.exit(int(sys.argv[1]))
raise ValueError("the program's own end")
