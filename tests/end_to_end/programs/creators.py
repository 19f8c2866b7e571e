"""Session creators used directly, listeners of savers, hooks of the program's own, and savers in loops."""

from pathlib import Path

import numpy as np
import tensorflow.compat.v1 as tf


def model():
    x = tf.random_normal([4, 3], seed=5)
    w = tf.get_variable("w", [3, 1], initializer=tf.glorot_uniform_initializer(seed=1))
    seen = tf.get_variable(
        "seen", [], tf.int64, tf.zeros_initializer(), collections=[tf.GraphKeys.LOCAL_VARIABLES], trainable=False
    )
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - 1.0), name="loss")
    step = tf.train.get_or_create_global_step()
    train = tf.group(tf.train.AdamOptimizer(0.1).minimize(loss, step), tf.assign_add(seen, 2))
    return w, seen, loss, step, train


class Listener(tf.train.CheckpointSaverListener):
    def __init__(self, record, w, stop=None):
        self.record, self.w, self.stop = record, w, stop

    def begin(self):
        self.doubled = self.w * 2.0
        self.record.value("listener begins", tf.get_default_graph().finalized)

    def before_save(self, session, step):
        self.record.value("before save", [step, session.run(self.doubled)])

    def after_save(self, session, step):
        self.record.value("after save", [step, session.run(self.w), tf.train.latest_checkpoint("saved")])
        return self.stop is not None and step >= self.stop

    def end(self, session, step):
        self.record.value("listener ends", [step, session.run(self.doubled)])


def program_listeners(record):
    for stop in (None, 7):
        with tf.Graph().as_default():
            w, seen, loss, step, train = model()
            saver = tf.train.Saver(max_to_keep=2, keep_checkpoint_every_n_hours=0.0)
            saving = tf.train.CheckpointSaverHook("saved", save_steps=3, saver=saver, listeners=[Listener(record, w, stop)])
            secs = tf.train.CheckpointSaverHook("rarely", save_secs=3600, listeners=[Listener(record, w)], save_graph_def=False)
            hooks = [tf.train.StopAtStepHook(num_steps=11), saving]
            with tf.train.MonitoredTrainingSession(
                hooks=hooks,
                chief_only_hooks=[secs],
                save_checkpoint_secs=None,
                save_summaries_steps=None,
                log_step_count_steps=4,
                checkpoint_dir="saved",
            ) as sess:
                while not sess.should_stop():
                    record.value("loss", sess.run([loss, seen, train])[:1])
            record.checkpoint("saved", tf.train.latest_checkpoint("saved"))
            record.checkpoint("rarely", tf.train.latest_checkpoint("rarely"))
            tf.summary.FileWriterCache.clear()
            record.events("events", "saved")
            for path in Path("saved").glob("*tfevents*"):  # another writer's of the same second would have the same name
                path.unlink()
            record.graph("graph")


def program_creators(record):
    w, seen, loss, step, train = model()
    queue = tf.train.range_input_producer(5, shuffle=False).dequeue()
    told = []
    scaffold = tf.train.Scaffold(
        init_fn=lambda s, session: told.append(("init", session.run(w).shape)),
        local_init_op=tf.group(tf.local_variables_initializer(), tf.tables_initializer()),
    )
    for kind in (tf.train.ChiefSessionCreator, tf.train.ChiefSessionCreator, tf.train.WorkerSessionCreator):
        extra = {"checkpoint_dir": "made"} if kind is tf.train.ChiefSessionCreator else {"max_wait_secs": 1}
        creator = kind(scaffold, config=tf.ConfigProto(allow_soft_placement=True), **extra)
        if kind is tf.train.WorkerSessionCreator:
            with record.error("a worker waits for its chief"):
                creator.create_session()
            continue
        hooks = [tf.train.StopAtStepHook(num_steps=7), tf.train.CheckpointSaverHook("made", save_steps=3, scaffold=scaffold)]
        with tf.train.MonitoredSession(creator, hooks) as sess:
            record.value("first", sess.run_step_fn(lambda step_context: step_context.session.run([step, seen])))
            while not sess.should_stop():
                record.value("step", sess.run([loss, queue, train])[:2])
        record.value("told", [t[0] for t in told])
    with (
        record.error("singular"),
        tf.train.SingularMonitoredSession(
            hooks=[tf.train.StopAtStepHook(num_steps=5)], scaffold=scaffold, checkpoint_dir="made"
        ) as sess,
    ):
        raw = sess.raw_session()
        while not sess.should_stop():
            record.value("singular", sess.run([step, queue]))
            record.value("raw", raw.run(w))
            sess.run(train)
    with record.error("step fn"), tf.train.MonitoredSession(tf.train.ChiefSessionCreator(scaffold)) as sess:

        def twice(step_context):
            step_context.session.run(train)
            if step_context.session.run(step) > 4:
                step_context.request_stop()
            return step_context.run_with_hooks([loss, train])[0]

        while not sess.should_stop():
            record.value("twice", sess.run_step_fn(twice))
    record.graph("graph")


def program_kept(record):
    """Savers in loops: the last few, those of some steps for good, names with and without steps, states that are recovered."""
    v = tf.get_variable("v", initializer=np.arange(4, dtype="f"))
    p = tf.get_variable("p", [8, 2], partitioner=tf.fixed_size_partitioner(3), initializer=tf.random_normal_initializer(seed=2))
    step = tf.train.get_or_create_global_step()
    train = tf.group(tf.assign_add(v, v * 0.1), tf.assign_add(step, 1), *[tf.assign_sub(q, q * 0.2) for q in p])
    saver = tf.train.Saver(max_to_keep=3, pad_step_number=True)
    sharded = tf.train.Saver(max_to_keep=1, sharded=True)
    old = tf.train.Saver(write_version=tf.train.SaverDef.V1, max_to_keep=0)
    for folder in ("sharded", "old"):
        Path(folder).mkdir()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            sess.run(train)
            path = saver.save(sess, "kept/model", step, latest_filename="list", write_meta_graph=k % 5 == 0, write_state=k % 4 != 3)
            sharded.save(sess, "sharded/model", step, strip_default_attrs=True)
            old.save(sess, "old/model", k // 4)
            record.value(f"{k}", [path, saver.last_checkpoints, sharded.last_checkpoints])
            if k % 5 == 4:
                saver.restore(sess, saver.last_checkpoints[0])
                record.value(f"back {k}", sess.run([v, step, p.as_tensor()]))
        record.value("times", len(saver.last_checkpoints))
        again = tf.train.Saver(max_to_keep=2)
        again.recover_last_checkpoints(saver.last_checkpoints)
        again.save(sess, "kept/model", 99)
        record.value("again", again.last_checkpoints)
        record.proto("state", tf.train.get_checkpoint_state("kept"))
    import glob

    record.value("files", sorted(glob.glob("*/*")))
    record.checkpoint("last", tf.train.latest_checkpoint("kept"))
    record.checkpoint("sharded", tf.train.latest_checkpoint("sharded"))
    record.graph("graph")


def program_written(record):
    """A writer with a session's log, run metadata, graphs, text, images and histograms, closed and opened again."""
    x = tf.placeholder(tf.float32, [None], name="x")
    v = tf.get_variable("v", initializer=[1.0, 2.0, 3.0])
    y = v * tf.reduce_sum(x)
    tf.summary.histogram("y", y)
    tf.summary.scalar("s", tf.reduce_sum(y), family="fam")
    tf.summary.text("t", tf.as_string(y))
    tf.summary.image("i", tf.reshape(tf.sigmoid(tf.tile(y, [16])), [1, 4, 4, 3]))
    tf.summary.audio("a", tf.reshape(tf.tanh(y), [1, 3]), 8000)
    merged = tf.summary.merge_all()
    writer = tf.summary.FileWriter("logs", tf.get_default_graph(), filename_suffix=".mine")
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        writer.add_session_log(tf.SessionLog(status=tf.SessionLog.START), 0)
        for k in range(8):
            with tf.control_dependencies([merged]):
                fetched = y if k % 2 == 0 else tf.assign_add(v, [0.1, 0.2, 0.3])
            metadata = tf.RunMetadata() if k % 3 == 0 else None
            options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE) if metadata else None
            got, _ = sess.run([merged, fetched], {x: [k, 1.0]}, options, metadata)
            writer.add_summary(got, k)
            if metadata is not None:
                writer.add_run_metadata(metadata, f"step{k}", k)
            with record.error(f"again {k}"):
                if k == 6:
                    writer.add_run_metadata(metadata, "step6", k)
            writer.add_session_log(tf.SessionLog(status=tf.SessionLog.CHECKPOINT, checkpoint_path=f"c{k}"), k)
        writer.add_graph(sess.graph, 8)
        writer.add_meta_graph(tf.train.export_meta_graph(), 9)
        writer.close()
    record.events("events", "logs")
    record.graph("graph")
