"""Children of every kind, after sessions have run: multiprocessing by fork and by spawn, a pool, a shell, os.exec."""

import multiprocessing
import os
import subprocess
import sys


def steps(n):
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    with tf.Graph().as_default(), tf.Session() as sess:
        v = tf.get_variable("v", [2], initializer=tf.ones_initializer())
        step = tf.assign_add(v, [0.5, 0.25])
        sess.run(v.initializer)
        return [sess.run(step).tolist() for _ in range(n)][-1]


def environment(_):
    return sorted(k for k in os.environ if not k.startswith("STEPD_") and "TF2" not in k)


def to_queue(queue, n):
    queue.put(steps(n) if n else len(environment(n)) > 3)


if __name__ == "__main__":
    import tensorflow as tf  # noqa: F401

    print("the parent", steps(7))
    known = environment(0)
    for method, count in (("fork", 0), ("spawn", 6)):  # plain TensorFlow hangs in a fork's sessions when the parent has had any
        context = multiprocessing.get_context(method)
        results = context.Queue()
        child = context.Process(target=to_queue, args=(results, count))
        child.start()
        print(method, results.get(timeout=120))
        child.join(60)
        print("ended with", child.exitcode)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print("pool", pool.map(steps, [3, 5]))
        seen = pool.map(environment, [0])[0]
        print("their environment", sorted(set(seen) ^ set(known)))
    out = subprocess.run(["sh", "-c", "env | grep -v ^STEPD_ | cut -d= -f1 | sort"], capture_output=True, text=True, check=True)
    print("a shell's environment", sorted(set(out.stdout.split()) ^ set(known) - {"_", "OLDPWD", "SHLVL", "PWD"}))
    print("the parent again", steps(9))
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-c", "import os; print('another program', len(os.listdir('/proc/self/task')))"])
