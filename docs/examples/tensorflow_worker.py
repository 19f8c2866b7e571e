"""One TensorFlow server on one core, for the demo's baselines: `tensorflow_worker.py CORE TASK PORT,PORT...`.

The same settings that stepd's local devices have: two threads for ops (one must be free to serve receives), one inside an op.
Ends when its standard input is closed.
"""

import os
import sys
import threading


def main() -> None:
    core, task, ports = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(",")
    os.sched_setaffinity(0, {core})  # before TensorFlow makes its threads
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=2, intra_op_parallelism_threads=1)
    cluster = tf.train.ClusterSpec({"worker": [f"localhost:{port}" for port in ports]})
    server = tf.distribute.Server(cluster, job_name="worker", task_index=task, config=config)
    threading.Thread(target=server.join, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
