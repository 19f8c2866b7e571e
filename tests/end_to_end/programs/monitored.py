"""MonitoredTrainingSession with every standard hook, and its recovery."""

import tensorflow.compat.v1 as tf


def model():
    x = tf.random_uniform([4, 3], seed=5)
    w = tf.get_variable("w", [3, 1], initializer=tf.glorot_uniform_initializer(seed=1))
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - 1.0), name="loss")
    step = tf.train.get_or_create_global_step()
    train = tf.train.AdamOptimizer(0.1).minimize(loss, step)
    tf.summary.scalar("loss", loss)
    return w, loss, step, train


class Witness(tf.train.SessionRunHook):
    def __init__(self, record, fetches):
        self.record, self.fetches = record, fetches

    def begin(self):
        self.record.value("begin", tf.get_default_graph().finalized)

    def after_create_session(self, session, coord):
        self.record.value("created", [type(session).__name__, tf.get_default_graph().finalized])

    def before_run(self, context):
        self.record.value("original", str(context.original_args.fetches))
        return tf.train.SessionRunArgs(self.fetches, options=tf.RunOptions(report_tensor_allocations_upon_oom=True))

    def after_run(self, context, values):
        self.record.value("after", values.results)

    def end(self, session):
        self.record.value("end", session.run(self.fetches))


def program_hooks(record):
    w, loss, step, train = model()
    hooks = [
        Witness(record, {"w": w, "step": step}),
        tf.train.StopAtStepHook(last_step=14),
        tf.train.NanTensorHook(loss),
        tf.train.LoggingTensorHook({"loss": loss}, every_n_iter=5),
        tf.train.CheckpointSaverHook("hooks", save_steps=4),
        # At every step: which step it takes for the third depends on a read beside the write that plainly, too, is now before it
        # and now after it.
        tf.train.SummarySaverHook(save_steps=1, output_dir="hooks", summary_op=tf.summary.merge_all()),
        tf.train.StepCounterHook(every_n_steps=5, output_dir="hooks"),
        tf.train.ProfilerHook(save_steps=1, output_dir="profile"),
        tf.train.FinalOpsHook({"final": w * 2.0}),
        tf.train.FeedFnHook(dict),
        tf.train.GlobalStepWaiterHook(0),
    ]
    with tf.train.MonitoredTrainingSession(hooks=hooks, checkpoint_dir="ckpt", save_checkpoint_steps=5) as sess:
        while not sess.should_stop():
            record.value("loss", sess.run([loss, train])[0])
    record.value("final", hooks[8].final_ops_values)
    record.checkpoint("last", tf.train.latest_checkpoint("ckpt"))
    record.checkpoint("of the hook", tf.train.latest_checkpoint("hooks"))
    record.events("events", "ckpt")
    record.events("events of the hooks", "hooks")
    record.graph("graph")


def program_resumed(record):
    for restart in range(3):
        with tf.Graph().as_default():
            w, loss, step, train = model()
            hooks = [tf.train.StopAtStepHook(num_steps=6)]
            with tf.train.MonitoredTrainingSession(hooks=hooks, checkpoint_dir="ckpt") as sess:
                while not sess.should_stop():
                    record.value(f"{restart}", sess.run([step, loss, w, train])[:3])
            record.graph(f"graph {restart}")


def program_recovery(record):
    """A hook raises AbortedError: the session is made anew from the checkpoint and the loop goes on."""
    w, loss, step, train = model()
    aborts = [4, 9, 11]

    class Aborts(tf.train.SessionRunHook):
        def after_run(self, context, values):
            if aborts and values.results == aborts[0]:
                aborts.pop(0)
                raise tf.errors.AbortedError(None, None, "preempted")

        def before_run(self, context):
            return tf.train.SessionRunArgs(step)

        def after_create_session(self, session, coord):
            record.value("created", session.run(step))

    hooks = [Aborts(), tf.train.StopAtStepHook(last_step=16)]
    with tf.train.MonitoredTrainingSession(hooks=hooks, checkpoint_dir="ckpt", save_checkpoint_steps=3) as sess:
        while not sess.should_stop():
            result = sess.run([step, loss, train])
            record.value("step", result[:2] if result is not None else None)
    record.value("aborts left", aborts)
    record.checkpoint("last", tf.train.latest_checkpoint("ckpt"))


def program_other_errors(record):
    w, loss, step, train = model()
    x = tf.placeholder(tf.float32, [2], name="x")
    bad = tf.check_numerics(x, "the user's", name="bad")
    for kind in ("python", "kernel", "range", "stop"):
        with record.error(kind), tf.train.MonitoredTrainingSession() as sess:
            for k in range(6):
                record.value(f"{kind} {k}", sess.run([loss, train])[0])
            if kind == "python":
                raise KeyError("mine")
            if kind == "kernel":
                sess.run(bad, {x: [float("inf"), 0.0]})
            if kind == "range":
                raise tf.errors.OutOfRangeError(None, None, "end of input")
            sess._coordinated_creator.coord.request_stop()
            record.value("should stop", sess.should_stop())


def program_scaffold(record):
    w, loss, step, train = model()
    local = tf.get_local_variable("local", [2], initializer=tf.ones_initializer())
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [1]), 0)
    found = table.lookup(tf.constant(["a", "b"]))
    fed = tf.placeholder_with_default([0.5, 0.5], [2])
    from_feed = tf.get_variable("from_feed", initializer=fed * 1.0)
    scaffold = tf.train.Scaffold(
        init_feed_dict={fed: [3.0, 4.0]},
        init_fn=lambda _, sess: record.value("init_fn", sess.run(w)),
        ready_op=tf.report_uninitialized_variables(),
        saver=tf.train.Saver(max_to_keep=1),
    )
    config = tf.ConfigProto(allow_soft_placement=True)
    with tf.train.MonitoredTrainingSession(scaffold=scaffold, checkpoint_dir="c", config=config) as sess:
        for k in range(8):
            record.value(f"{k}", sess.run([loss, local, found, from_feed, train])[:4])
            record.value(f"step_fn {k}", sess.run_step_fn(lambda step_context: step_context.session.run(step)))
            record.value(f"with hooks {k}", sess.run_step_fn(lambda step_context: step_context.run_with_hooks(loss)))
    with tf.train.SingularMonitoredSession(checkpoint_dir="c") as sess:
        record.value("singular", [sess.run([w, step]), sess.raw_session().run(w)])
        for k in range(6):
            record.value(f"singular {k}", sess.run([loss, train])[0])


def program_queue_input(record):
    source = tf.train.range_input_producer(6, num_epochs=2, shuffle=False, capacity=2)
    value = source.dequeue()
    total = tf.get_variable("total", [], tf.int32, tf.zeros_initializer())
    with tf.control_dependencies([tf.assign_add(total, value)]):
        train = tf.assign_add(tf.train.get_or_create_global_step(), 1)
    with tf.train.MonitoredTrainingSession() as sess:
        while not sess.should_stop():
            record.value("value", sess.run([value, train])[0])
    record.graph("graph")
