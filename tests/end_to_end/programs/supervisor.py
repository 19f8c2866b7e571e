"""The Supervisor of old, with its services."""

import tensorflow.compat.v1 as tf


def program_supervisor(record):
    for life in range(3):
        with tf.Graph().as_default():
            w = tf.get_variable("w", [2], initializer=tf.ones_initializer())
            step = tf.train.get_or_create_global_step()
            train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.square(w - 3.0)), step)
            tf.summary.scalar("w0", w[0])
            writer = tf.summary.FileWriter(f"events{life}")  # files of one second and one folder are one file
            sv = tf.train.Supervisor(logdir="log", save_model_secs=0, save_summaries_secs=0, summary_writer=writer)
            record.value(f"finalized {life}", tf.get_default_graph().finalized)
            with sv.managed_session() as sess:
                for k in range(8):
                    record.value(f"{life} {k}", sess.run([train, w, step])[1:])
                    sv.summary_computed(sess, sess.run(sv.summary_op))
                sv.saver.save(sess, sv.save_path, global_step=sv.global_step)
                record.value(f"stop {life}", sv.should_stop())
                sv.request_stop()
            record.checkpoint(f"saved {life}", tf.train.latest_checkpoint("log"))
            record.graph(f"graph {life}")
        record.events(f"events {life}", f"events{life}")


def program_manager(record):
    """SessionManager: prepare, recover, wait, ready ops."""
    v = tf.get_variable("v", [2], initializer=tf.ones_initializer())
    step = tf.assign_add(v, [1.0, 2.0])
    saver = tf.train.Saver()
    manager = tf.train.SessionManager(ready_op=tf.report_uninitialized_variables())
    sess = manager.prepare_session("", init_op=tf.global_variables_initializer(), saver=saver, checkpoint_dir="dir")
    for k in range(6):
        record.value(f"{k}", sess.run(step))
    saver.save(sess, "dir/model", global_step=6)
    sess.close()
    sess, recovered = manager.recover_session("", saver, checkpoint_dir="dir")
    record.value("recovered", recovered)
    for k in range(6):
        record.value(f"again {k}", sess.run(step))
    sess.close()
    with record.error("not ready"):
        manager.prepare_session("", init_op=tf.no_op(), saver=saver)
    coordinator = tf.train.Coordinator()
    ticks = []
    looper = tf.train.LooperThread(coordinator, None, target=lambda: ticks.append(1) or coordinator.request_stop())
    looper.start()
    coordinator.join([looper])
    record.value("ticks", ticks)


def program_coordinator(record):
    """Errors of runner threads reach the one who joins."""
    queue = tf.FIFOQueue(3, tf.float32, shapes=[[]])
    x = tf.check_numerics(queue_source(), "from the runner", name="checked")
    runner = tf.train.QueueRunner(queue, [queue.enqueue(x)])
    tf.train.add_queue_runner(runner)
    take = queue.dequeue()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess, coordinator)
        seen = []
        with record.error("the queue ends"):
            while True:
                seen.append(float(sess.run(take)))
        record.value("seen", seen)
        with record.error("joined"):
            coordinator.join(threads)


def queue_source():
    """1.0, 2.0, ... 6.0, then infinity."""
    n = tf.get_variable("n", [], initializer=tf.zeros_initializer(), use_resource=True)
    with tf.control_dependencies([n.assign_add(1.0)]):
        now = n.read_value()
    return tf.where(now > 6.0, now / 0.0, now)
