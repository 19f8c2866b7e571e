"""Tools of TensorFlow's own that take sessions apart: its profilers, its debugger's wrappers and hooks, converters, benchmarks, the command line of saved models."""

import contextlib
import io
import os
import re
from pathlib import Path

import numpy as np
import tensorflow.compat.v1 as tf


def model():
    x = tf.placeholder(tf.float32, [4, 3], name="x")
    w = tf.get_variable("w", [3, 4], initializer=tf.glorot_uniform_initializer(seed=1), use_resource=True)
    u = tf.get_variable("u", [4, 2], initializer=tf.glorot_uniform_initializer(seed=2), use_resource=True)
    hidden = tf.nn.relu(tf.matmul(x, w), name="hidden")
    out = tf.identity(tf.matmul(hidden, u), name="out")
    loss = tf.reduce_mean(tf.square(out - 0.5), name="loss")
    step = tf.train.get_or_create_global_step()
    return x, out, loss, tf.train.MomentumOptimizer(0.05, 0.9).minimize(loss, step)


def feed(k):
    return np.random.RandomState(k).randn(4, 3).astype("f")


def program_profile_context(record):
    """The profiler that puts itself in the place of every session's run: it traces some steps and writes profiles of others."""
    try:
        from tensorflow.python.profiler.profile_context import ProfileContext
    except ImportError:
        record.value("this TensorFlow has no such profiler", tf.__version__)
        return
    x, _, loss, train = model()
    with ProfileContext("profiles", trace_steps=[2, 5, 9], dump_steps=[5, 9]), tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            record.value(f"{k}", sess.run([loss, train], {x: feed(k)})[0])
    record.value("written", sorted(str(p) for p in Path("profiles").rglob("*") if p.is_file()))


def program_traced_shapes(record):
    """What the program's own traces say of its ops: one line each, of shapes that they may have."""
    x, _, loss, train = model()
    graph = tf.get_default_graph()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(12):
            metadata = tf.RunMetadata()
            sess.run([loss, train], {x: feed(k)}, tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), metadata)
            ops = {op.name: op for op in graph.get_operations()}
            told = [stats for device in metadata.step_stats.dev_stats for stats in device.node_stats if stats.node_name in ops]
            record.value(
                f"{k} several lines",
                sorted({stats.node_name for stats in told if len([s for s in told if s.node_name == stats.node_name]) > 1}),
            )
            for stats in told:
                for output in stats.output:
                    shape = tf.TensorShape([dim.size for dim in output.tensor_description.shape.dim])
                    known = ops[stats.node_name].outputs[output.slot : output.slot + 1]
                    if not (known and known[0].shape.is_compatible_with(shape)):
                        record.value(f"{k} {stats.node_name}", f"output {output.slot} of {shape}")


def program_model_analyzer(record):
    """tf.profiler: parameters and operations from the graph, and run metadata of some steps added up by op."""
    x, _, loss, train = model()
    profiler = tf.profiler.Profiler(tf.get_default_graph())
    quiet = tf.profiler.ProfileOptionBuilder
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(10):
            if k % 3 == 1:
                metadata = tf.RunMetadata()
                options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
                record.value(f"{k}", sess.run([loss, train], {x: feed(k)}, options, metadata)[0])
                profiler.add_step(k, metadata)
            else:
                record.value(f"{k}", sess.run([loss, train], {x: feed(k)})[0])
        graph = sess.graph
    options = quiet(quiet.trainable_variables_parameter()).with_empty_output().build()
    record.value("parameters", profiler.profile_name_scope(options).total_parameters)
    options = quiet(quiet.float_operation()).with_empty_output().build()
    record.value("operations", tf.profiler.profile(graph, options=options).total_float_ops)
    options = quiet(quiet.time_and_memory()).with_empty_output().build()
    kinds, by_op = set(), [profiler.profile_operations(options)]
    while by_op:  # the costliest first, each below the one before; none that took no whole microsecond
        kinds.add(by_op[0].name)
        by_op += by_op.pop(0).children
    record.value("kinds", sorted(kinds & {"MatMul", "ResourceApplyMomentum"}))
    names = set()
    nodes = [profiler.profile_name_scope(options)]
    while nodes:
        node = nodes.pop()
        names.add(node.name)
        nodes += node.children
    ours = {name for op in graph.get_operations() for name in op.name.split("/")}
    record.value(
        "other names",
        sorted(n for n in names if not set(n.split("/")) <= ours | {"_TFProfRoot", "replicate"} and not n.split("/")[-1][0] == "_"),
    )


def dumped(folder):
    """The tensors under a folder of the debugger's, without times and devices."""
    found = [re.sub(r"_\d{10,}(-\d+)?$", "", str(p.relative_to(folder))) for p in Path(folder).rglob("*") if p.is_file()]
    return sorted(
        {re.sub(r"^(run[^/]*/)?_tfdbg_device[^/]*/", "", name) for name in found if "_tfdbg_" not in name.rsplit("/", 1)[-1]}
    )


def program_debug_wrappers(record):
    """The debugger's sessions that dump all or ask a user, its hooks in a monitored session, and steps without it in between."""
    from tensorflow.python.debug.lib import debug_data
    from tensorflow.python.debug.wrappers import dumping_wrapper, framework, hooks

    x, _, loss, train = model()
    watched = framework.WatchOptions(debug_ops=["DebugIdentity"], node_name_regex_allowlist=r"(loss|hidden|out)$")
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(5):
            record.value(f"before {k}", sess.run([loss, train], {x: feed(k)})[0])
        wrapper = dumping_wrapper.DumpingDebugWrapperSession(sess, "dumps", watch_fn=lambda *_: watched)
        for k in range(3):
            record.value(f"dumping {k}", wrapper.run([loss, train], {x: feed(k)})[0])
        folders = sorted(os.listdir("dumps"))
        record.value("runs", len(folders))
        record.value("tensors", dumped("dumps"))
        dump = debug_data.DebugDumpDir(os.path.join("dumps", folders[0]))
        record.value("loaded", [sorted(dump.nodes())[:3], dump.get_tensors("loss", 0, "DebugIdentity")[0].shape])
        for k in range(5):
            record.value(f"after {k}", sess.run([loss, train], {x: feed(k)})[0])
    hook = hooks.DumpingDebugHook("hooked", watch_fn=lambda *_: watched)
    with tf.train.MonitoredSession(hooks=[hook, tf.train.StopAtStepHook(num_steps=4)]) as sess:
        while not sess.should_stop():
            record.value("hooked", sess.run([loss, train], {x: feed(3)})[0])
    record.value("hook's", dumped("hooked"))


def program_checked_numerics(record):
    """Checks that TensorFlow puts behind every op that the program makes from then on."""
    tf.debugging.enable_check_numerics()
    try:
        x, _, loss, train = model()
        bad = tf.log(x, name="bad")
    finally:
        tf.debugging.disable_check_numerics()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(8):
            record.value(f"{k}", sess.run([loss, train], {x: feed(k)})[0])
        try:
            sess.run(bad, {x: -np.ones((4, 3))})
        except tf.errors.InvalidArgumentError as error:
            record.value("refused", [type(error).__name__, error.op.name, "bad" in str(error)])
        for k in range(4):
            record.value(f"later {k}", sess.run([loss, train], {x: feed(k)})[0])
    record.graph("graph")


def program_converted(record):
    """A session that trains is converted for small devices, folded for inference and asked by the saved models' command line."""
    from tensorflow.python.tools import optimize_for_inference_lib

    x, out, loss, train = model()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(6):
            record.value(f"{k}", sess.run([loss, train], {x: feed(k)})[0])
            if k % 3 == 2:
                frozen = tf.graph_util.convert_variables_to_constants(sess, sess.graph_def, ["out"])
                record.proto(f"frozen {k}", frozen)
                record.proto(
                    f"folded {k}",
                    optimize_for_inference_lib.optimize_for_inference(frozen, ["x"], ["out"], tf.float32.as_datatype_enum),
                )
                converter = tf.lite.TFLiteConverter.from_session(sess, [x], [out])
                flat = converter.convert()
                runner = tf.lite.Interpreter(model_content=flat)
                runner.resize_tensor_input(runner.get_input_details()[0]["index"], [4, 3])
                runner.allocate_tensors()
                runner.set_tensor(runner.get_input_details()[0]["index"], feed(k))
                runner.invoke()
                record.value(f"small {k}", runner.get_tensor(runner.get_output_details()[0]["index"]))
        tf.saved_model.simple_save(sess, "export", {"x": x}, {"out": out})
        for k in range(4):
            record.value(f"later {k}", sess.run([loss, train], {x: feed(k)})[0])
    from tensorflow.python.tools import saved_model_cli

    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        saved_model_cli._show_all("export")
        inputs = {"x": np.ones((4, 3), np.float32)}
        saved_model_cli.run_saved_model_with_feed_dict("export", "serve", "serving_default", inputs, None, False)
    record.value("said", text.getvalue())


def program_benchmarked(record):
    """TensorFlow's own benchmark class runs a step many times, with traces of its own at the end."""
    x, _, loss, train = model()
    bench = tf.test.Benchmark()
    bench.report_benchmark = lambda **_: None  # it logs times, and how much memory was in use at once
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for k in range(3):
            with contextlib.redirect_stdout(io.StringIO()):
                result = bench.run_op_benchmark(
                    sess, train, {x: feed(k)}, burn_iters=2, min_iters=5, store_trace=True, name=f"b{k}"
                )
            record.value(f"{k}", [sorted(result), sess.run(loss, {x: feed(k)})])
            names = re.findall(r'"name": "([^"]+)"', result["extras"]["full_trace_chrome_format"])
            record.value(f"no name of another {k}", [name for name in names if "stepd" in name])
