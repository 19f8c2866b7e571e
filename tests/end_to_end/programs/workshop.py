"""What users do around a model: configs, hooks, frozen graphs, timelines, threads, averages; and what they keep of results."""

import os
import threading

import numpy as np
import tensorflow.compat.v1 as tf
from training import dense


def waves(rows, columns, shift=0.0):
    return np.sin(np.arange(rows * columns, dtype=np.float32) + shift).reshape(rows, columns)


def model(rate=0.05):
    x = tf.placeholder(tf.float32, [None, 5], name="x")
    y = dense(tf.nn.dropout(dense(x, 6, "hidden", tf.nn.relu), rate=0.3, seed=9), 2, "out")
    loss = tf.reduce_mean(tf.square(y - tf.constant([0.5, -0.5])), name="loss")
    return x, y, loss, tf.train.AdamOptimizer(rate).minimize(loss, tf.train.get_or_create_global_step())


CONFIGS = {
    "no optimizer": {"graph_options": tf.GraphOptions(optimizer_options=tf.OptimizerOptions(opt_level=-1))},
    "devices": {"device_count": {"CPU": 2}, "allow_soft_placement": False},
    "threads": {"inter_op_parallelism_threads": 1, "intra_op_parallelism_threads": 1, "use_per_session_threads": True},
    "infer": {"graph_options": tf.GraphOptions(infer_shapes=True, place_pruned_graph=True)},
    "cost": {"graph_options": tf.GraphOptions(build_cost_model=2)},
    "pools": {"session_inter_op_thread_pool": [{"num_threads": 2}, {"num_threads": 1}]},
}


def program_configs(record):
    """One model under many session configs, with rewriters switched off one by one."""
    from tensorflow.core.protobuf import rewriter_config_pb2

    configs = {name: tf.ConfigProto(**fields) for name, fields in CONFIGS.items()}
    off = rewriter_config_pb2.RewriterConfig.OFF
    for name in ("constant_folding", "arithmetic_optimization", "dependency_optimization", "remapping", "disable_meta_optimizer"):
        rewrites = rewriter_config_pb2.RewriterConfig(**{name: True if name.startswith("disable") else off})
        configs[name] = tf.ConfigProto(graph_options=tf.GraphOptions(rewrite_options=rewrites))
    x, y, loss, train = model()
    init = tf.global_variables_initializer()
    tf.get_default_graph().finalize()
    for name, config in configs.items():
        with tf.Session(config=config) as sess:
            sess.run(init)
            for k in range(7):
                record.value(f"{name} {k}", sess.run([loss, y, train], {x: waves(3, 5, k)})[:2])
    with record.error("finalized"):
        tf.constant(1.0)
    record.graph("graph")


def program_watched(record):
    """MonitoredSession with hooks of the program's own: they add fetches, feeds and options, ask to stop, and raise once."""
    x, y, loss, train = model()
    shift = tf.placeholder_with_default(0.0, [], name="shift")
    shifted = loss + shift
    step = tf.train.get_global_step()

    class Extra(tf.train.SessionRunHook):
        def __init__(self):
            self.seen = []

        def begin(self):
            self.norm = tf.norm(tf.trainable_variables()[0] - 1.0, name="norm")
            self.asked = tf.norm(y, name="asked")  # what is read beside the training step waits for nothing that it writes

        def after_create_session(self, session, coord):
            self.seen.append(session.run(self.norm))

        def before_run(self, context):
            asked = {"norm": self.asked, "step": step}
            return tf.train.SessionRunArgs(asked, {shift: float(len(self.seen))})

        def after_run(self, context, values):
            self.seen.append(values.results["norm"])
            if len(self.seen) == 9:
                context.request_stop()

        def end(self, session):
            self.seen.append(session.run(self.norm))

    class Trips(tf.train.SessionRunHook):
        tripped = False

        def before_run(self, context):
            options = tf.RunOptions(timeout_in_ms=60000)
            return tf.train.SessionRunArgs(step, options=options)

        def after_run(self, context, values):
            if values.results >= 4 and not Trips.tripped:
                Trips.tripped = True
                raise tf.errors.UnavailableError(None, None, "a worker was lost")

    for turn in range(2):
        extra = Extra()
        hooks = [extra, Trips(), tf.train.StepCounterHook(3, output_dir="logs"), tf.train.NanTensorHook(loss)]
        tf.get_default_graph()._unsafe_unfinalize()
        with tf.train.MonitoredTrainingSession(checkpoint_dir="model", hooks=hooks, save_checkpoint_steps=3,
                                               save_summaries_steps=None, log_step_count_steps=None) as sess:  # fmt: skip
            k = 0
            while not sess.should_stop():
                record.value(f"{turn} {k}", sess.run({"l": shifted, "t": train}, {x: waves(3, 5, k)})["l"])
                k += 1
        record.value(f"extra {turn}", extra.seen)
    record.checkpoint("last", tf.train.latest_checkpoint("model"))


def program_frozen_and_loaded(record):
    """Freeze, strip and load again beside the session that goes on training; a saved model in the same session."""
    x, y, loss, train = model()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(6):
            record.value(f"{k}", sess.run([loss, train], {x: waves(3, 5, k)})[0])
            frozen = tf.graph_util.convert_variables_to_constants(sess, sess.graph_def, [y.op.name])
            small = tf.graph_util.remove_training_nodes(tf.graph_util.extract_sub_graph(frozen, [y.op.name]))
            record.proto(f"frozen {k}", small)
            with tf.Graph().as_default() as other, tf.Session(graph=other) as reader:
                (out,) = tf.import_graph_def(small, return_elements=[y.name], name="loaded")
                record.value(f"read {k}", [reader.run(out, {"loaded/x:0": waves(2, 5, k + j)}) for j in range(3)])
            if k == 3:
                tf.saved_model.simple_save(sess, "export", {"x": x}, {"y": y})
        record.value("signature", sorted(tf.saved_model.load(sess, ["serve"], "export", import_scope="again").signature_def))
        for k in range(4):
            record.value(
                f"loaded {k}", sess.run([loss, "again/" + y.name, train], {x: waves(3, 5, k), "again/x:0": waves(3, 5, k)})[:2]
            )
        record.proto("sub", tf.graph_util.extract_sub_graph(sess.graph_def, [loss.op.name]))
    record.graph("graph")


def program_timelines(record):
    """The program's own traces: made at some steps, written as timelines, and no name in them that the program does not know."""
    from tensorflow.python.client import timeline

    x, y, loss, train = model()
    known = {op.name for op in tf.get_default_graph().get_operations()}
    writer = tf.summary.FileWriter("logs")
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            if k % 3 == 1:
                options, metadata = (
                    tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE, output_partition_graphs=True),
                    tf.RunMetadata(),
                )
                record.value(f"{k}", sess.run([loss, train], {x: waves(3, 5, k)}, options, metadata)[0])
                stats = [s for d in metadata.step_stats.dev_stats for s in d.node_stats]
                trace = timeline.Timeline(metadata.step_stats).generate_chrome_trace_format(show_memory=True)
                graphs = {n.name for g in metadata.partition_graphs for n in g.node}
                record.value(f"trace {k}", [loss.op.name in {s.node_name for s in stats}, "stepd" in trace, loss.op.name in graphs,
                                            any("stepd" in n for n in graphs)])  # fmt: skip
                writer.add_run_metadata(metadata, f"step {k}", k)
            else:
                record.value(f"{k}", sess.run([loss, train], {x: waves(3, 5, k)})[0])
    writer.close()
    record.value("known", len(known))
    record.events("events", "logs")


def program_own_threads(record):
    """A session of each thread on one graph, and threads that share one: each hears what belongs to it."""
    x, y, loss, train = model()
    total = tf.get_variable("total", [], initializer=tf.zeros_initializer(), use_resource=True)
    add = tf.assign_add(total, tf.reduce_sum(x), use_locking=True)
    init = tf.global_variables_initializer()
    graph, seen = tf.get_default_graph(), {}

    def work(number):
        with graph.as_default(), tf.Session() as sess:
            sess.run(init)
            seen[number] = [sess.run([loss, train], {x: waves(3, 5, number + k)})[0] for k in range(9)]
            seen[number].append(sess.run(tf.trainable_variables()))

    def share(sess, number):
        for k in range(12):
            got = sess.run(y, {x: waves(2, 5, 99)}).shape
            sess.run(add, {x: np.full([1, 5], number + 1, np.float32)})
            seen.setdefault(f"shared {number}", []).append(got)

    run_all([threading.Thread(target=work, args=(n,)) for n in range(3)])
    with tf.Session() as sess:
        sess.run(init)
        run_all([threading.Thread(target=share, args=(sess, n)) for n in range(3)])
        record.value("total", sess.run(total))
    for key in sorted(map(str, seen)):
        record.value(key, seen[int(key) if key.isdigit() else key])


def run_all(threads):
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def program_swapped_averages(record):
    """Averages swapped in for evaluation by a Saver with a map of names, and slots that are read, reset and restored."""
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    prediction = dense(dense(x, 4, "hidden", tf.nn.tanh), 1, "out")
    loss = tf.reduce_mean(tf.square(prediction - tf.reduce_sum(x, 1, keepdims=True)))
    step = tf.train.get_or_create_global_step()
    optimizer = tf.train.AdamOptimizer(0.05)
    train = optimizer.minimize(loss, step)
    average = tf.train.ExponentialMovingAverage(0.9, step)
    with tf.control_dependencies([train]):
        both = average.apply(tf.trainable_variables())
    slots = [optimizer.get_slot(v, name) for v in tf.trainable_variables() for name in optimizer.get_slot_names()]
    reset = tf.variables_initializer(slots)
    everything, averaged = tf.train.Saver(), tf.train.Saver(average.variables_to_restore(tf.trainable_variables()))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            feed = {x: waves(4, 3, k)}
            record.value(f"{k}", sess.run([loss, both], feed)[0])
            if k % 4 == 3:
                path = everything.save(sess, "model", global_step=step)
                averaged.restore(sess, path)
                record.value(f"averaged {k}", sess.run([loss, prediction], feed))
                everything.restore(sess, path)
                record.value(f"restored {k}", sess.run([loss, *slots[:2]], feed))
            if k == 6:
                sess.run(reset)
        record.value("slots", sess.run(slots))
    record.checkpoint("last", path)
    record.graph("graph")


def program_held_results(record):
    """What was fetched stays as it was, whatever runs later; what is fed is read when the run is made, and never written to."""
    x = tf.placeholder(tf.float32, [300, 300], name="x")
    v = tf.get_variable("v", [300, 300], initializer=tf.zeros_initializer())
    r = tf.get_variable("r", [300, 300], initializer=tf.zeros_initializer(), use_resource=True)
    grow = tf.group(tf.assign_add(v, x), tf.assign_add(r, x * 2.0))
    passed, view, doubled = tf.identity(x), tf.reshape(x, [90000]), x + x
    strings = tf.as_string(tf.slice(v, [0, 0], [1, 3]))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        given = waves(300, 300)
        kept, before = [], given.copy()
        for k in range(8):
            got = sess.run([v, r, passed, view, doubled, strings, x], {x: given})
            kept.append((got, [np.copy(g) for g in got]))
            sess.run(grow, {x: given})
            given += 1.0  # the program's own array, changed in place
            record.value(f"{k}", got)
        record.value("unchanged", [all(np.array_equal(a, b) for a, b in zip(got, copies, strict=True)) for got, copies in kept])
        record.value("given", bool(np.array_equal(given, before + 8.0)))
        first = kept[0][0]
        record.value("flags", [[bool(g.flags.writeable), bool(g.flags.owndata)] for g in first if isinstance(g, np.ndarray)])
        first[2][0, 0] = 77.0
        record.value("written", [float(sess.run(passed, {x: given})[0, 0]), float(given[0, 0])])
        fortran, strided = np.asfortranarray(given), np.repeat(given, 2, axis=1)[:, ::2]
        record.value("layouts", sess.run([doubled, view], {x: fortran}) + sess.run([doubled, view], {x: strided}))
        read_only = given.copy()
        read_only.setflags(write=False)
        record.value("read only", sess.run([passed, doubled], {x: read_only}))


def program_printed(record):
    """tf.Print and tf.print beside training: the values pass through; what goes to stderr is not the program's to see."""
    import sys

    x = tf.placeholder(tf.float32, [3], name="x")
    w = tf.get_variable("w", [3], initializer=tf.ones_initializer())
    shown = tf.Print(w * x, [w, x], "shown: ", first_n=2, summarize=2)
    out = tf.print("sum", tf.reduce_sum(shown), {"w": w}, output_stream="file://" + os.path.abspath("printed.txt"))
    with tf.control_dependencies([out]):
        loss = tf.reduce_sum(tf.square(shown - 2.0))
    train = tf.train.GradientDescentOptimizer(0.05).minimize(loss)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(9):
            record.value(f"{k}", sess.run([loss, shown, train], {x: [1.0, k, -1.0]})[:2])
    record.value("printed", sorted(open("printed.txt").read().splitlines()))
    sys.stdout.flush()
