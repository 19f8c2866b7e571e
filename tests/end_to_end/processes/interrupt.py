"""Ctrl-C in the middle of steps: the program catches it and goes on, to the bit."""

import os
import signal
import threading

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
v = tf.get_variable("v", [], initializer=tf.zeros_initializer())
step = tf.assign_add(v, 1.0)
queue = tf.FIFOQueue(1, tf.int32, shapes=[[]])
take, put = queue.dequeue(), queue.enqueue(5)
interrupts, done = 0, 0
with tf.Session() as sess:
    sess.run(v.initializer)
    main = threading.main_thread().ident
    stop = threading.Event()

    def tap():
        while not stop.wait(0.02):
            signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=tap)
    thread.start()
    while done < 150 or interrupts < 10:
        try:
            sess.run(step.op)
            done += 1
        except KeyboardInterrupt:
            interrupts += 1
    while True:
        try:
            stop.set()
            thread.join()
            break
        except KeyboardInterrupt:
            interrupts += 1
    # A step that an interrupt cuts off may have been done or not: at least those that returned are there.
    value = float(sess.run(v))
    print("steps are all there", value >= done, "and not too many", value <= done + interrupts)
    for k in range(10):
        assert float(sess.run(step)) == value + k + 1
    sess.run(put)
    print("the queue works", int(sess.run(take)))
print("ended well", os.getpid() > 0)
