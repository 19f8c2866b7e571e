"""A program by tf.app.run, in several lives: a scheduler ends it with SIGTERM, it saves and says so with its status, and goes on where it was."""

import os
import signal
import subprocess
import sys

import tensorflow.compat.v1 as tf

FLAGS = tf.app.flags.FLAGS
tf.app.flags.DEFINE_string("folder", "", "where checkpoints go; none: begin the lives")
tf.app.flags.DEFINE_integer("steps", 12, "how many steps there are")
tf.app.flags.DEFINE_integer("evicted_at", -1, "after which step the scheduler comes")


class Evicted(SystemExit):
    """Raised by the handler, out of whatever runs."""


def evict(*_):
    raise Evicted(75)


def train():
    v = tf.get_variable("v", [3], initializer=tf.ones_initializer())
    step = tf.train.get_or_create_global_step()
    loss = tf.reduce_sum(tf.square(v))
    update = tf.train.AdamOptimizer(0.1).minimize(loss, step)
    saver = tf.train.Saver(max_to_keep=2)
    with tf.Session() as sess:
        latest = tf.train.latest_checkpoint(FLAGS.folder)
        if latest:
            saver.restore(sess, latest)
        else:
            sess.run(tf.global_variables_initializer())
        signal.signal(signal.SIGTERM, evict)
        try:
            while sess.run(step) < FLAGS.steps:
                sess.run(update)
                print(sess.run(step), [float(x).hex() for x in sess.run(v)], flush=True)
                if sess.run(step) == FLAGS.evicted_at:
                    os.kill(os.getpid(), signal.SIGTERM)
        except Evicted:
            print("evicted", flush=True)
            raise
        finally:
            saver.save(sess, os.path.join(FLAGS.folder, "model"), global_step=int(sess.run(step)))


def main(argv):
    if FLAGS.folder:
        train()
        return
    folder = os.path.abspath("lives")
    for life, at in enumerate((5, 9, -1)):
        done = subprocess.run(
            [sys.executable, argv[0], f"--folder={folder}", f"--evicted_at={at}"], capture_output=True, text=True, check=False
        )
        print("life", life, done.returncode, done.stdout, flush=True)
    print(sorted(name for name in os.listdir(folder) if name.endswith(".index")))
    with tf.Session() as sess:
        print(sess.run(tf.constant(1) + 1))
    sys.exit(7)


if __name__ == "__main__":
    tf.disable_v2_behavior()
    tf.app.run()
