"""Signal handlers of the program: an alarm that raises out of a step, one that runs a step itself, one that saves and ends."""

import os
import signal
import sys
import threading

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
v = tf.get_variable("v", [], initializer=tf.zeros_initializer(), use_resource=True)
w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
step, other = v.assign_add(1.0), tf.assign_add(w, 1.0)
queue = tf.FIFOQueue(100, tf.int32, shapes=[[]])
n = tf.placeholder(tf.int32, [])
put, take, size = queue.enqueue(n), queue.dequeue(), queue.size()
saver = tf.train.Saver()


class LateError(Exception):
    pass


def raises(*_):
    raise LateError


with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    signal.signal(signal.SIGALRM, raises)
    done = late = 0
    put_in = []
    main = threading.main_thread().ident
    stop = threading.Event()

    def tap():
        while not stop.wait(0.015):
            signal.pthread_kill(main, signal.SIGALRM)

    thread = threading.Thread(target=tap)
    thread.start()
    while done < 120 or late < 8:
        try:
            if done % 5 == 0 and len(put_in) < 60:
                sess.run(put, {n: done})
                put_in.append(done)
            sess.run(step.op)
            done += 1
        except LateError:
            late += 1
    while thread.is_alive():
        try:
            stop.set()
            thread.join()
        except LateError:
            late += 1
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    value = float(sess.run(v))
    print("all steps that returned are there", done <= value <= done + late)
    # An element whose run was broken off may be there or not, perhaps twice with the second attempt; what returned is there, in order.
    taken = [int(sess.run(take)) for _ in range(int(sess.run(size)))]
    print("elements are in order", taken == sorted(taken), "and all there", set(put_in) <= set(taken))
    for k in range(10):
        assert float(sess.run(step)) == value + k + 1

    inside = []
    signal.signal(signal.SIGUSR1, lambda *_: inside.append(float(sess.run(other))))
    for k in range(12):
        if k % 4 == 1:
            os.kill(os.getpid(), signal.SIGUSR1)
        sess.run(step)
    print("steps from a handler", inside)

    def save_and_end(*_):
        print("saved", os.path.basename(saver.save(sess, os.path.join(os.getcwd(), "last"))), float(sess.run(w)), flush=True)
        sys.exit(9)

    signal.signal(signal.SIGTERM, save_and_end)
    for k in range(20):
        sess.run(step)
        if k == 7:
            os.kill(os.getpid(), signal.SIGTERM)
