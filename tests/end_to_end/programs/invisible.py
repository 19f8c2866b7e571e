"""What a program may look at besides its values: logs, warnings, signals, environment, modules, threads."""

import inspect
import logging
import os
import signal
import subprocess
import sys
import threading
import warnings

import tensorflow.compat.v1 as tf


def work(sess):
    x = tf.get_variable("x", [2], initializer=tf.ones_initializer())
    step = tf.assign_add(x, [1.0, 2.0])
    sess.run(x.initializer)
    return [sess.run(step).tolist() for _ in range(10)]


def surroundings():
    return {
        "filters": [str(f[:4]) for f in warnings.filters],
        "handlers": [type(h).__name__ for h in logging.getLogger().handlers],
        "level": logging.getLogger().level,
        "disabled": logging.root.manager.disable,
        "tensorflow's": [type(h).__name__ for h in logging.getLogger("tensorflow").handlers],
        "signals": [str(signal.getsignal(s)) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1)],
        "environment": sorted(k for k in os.environ if not k.startswith("STEPD_")),
        "hook": [sys.excepthook is sys.__excepthook__, threading.excepthook is threading.__excepthook__],
        "limits": [sys.getrecursionlimit(), sys.getswitchinterval()],
        "trace": [sys.gettrace() is None, sys.getprofile() is None],
    }


def program_surroundings(record):
    before = surroundings()
    with tf.Session() as sess:
        record.value("values", work(sess))
    after = surroundings()
    record.value("before", before)
    record.value("after", after)
    record.graph("graph")


def program_child(record):
    """A child process sees the environment that plain gives it, and its output is its own."""
    with tf.Session() as sess:
        record.value("values", work(sess))
        code = "import os, sys; print(sorted(k for k in os.environ if not k.startswith('STEPD_')), sys.argv, 'tensorflow' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", code, "a"], capture_output=True, text=True, check=True)
        record.value("out", done.stdout)
        record.value("err", done.stderr)


def program_logs(record):
    """Log records that the program's own handlers see at the lowest level."""
    seen = []

    class Seen(logging.Handler):
        def emit(self, entry):
            seen.append((entry.name, entry.levelname))

    handler = Seen()
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        with warnings.catch_warnings(record=True) as caught, tf.Session() as sess:
            warnings.simplefilter("always")
            record.value("values", work(sess))
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    record.value("logs", sorted(seen))
    record.value("warnings", sorted(str(w.message)[:80] for w in caught))


def program_api(record):
    """The classes and signatures that a program can see."""
    record.value("names", [tf.Session.__name__, tf.Session.__module__, tf.InteractiveSession.__module__])
    record.value("bases", [c.__name__ for c in tf.Session.__mro__])
    for method in ("run", "partial_run", "make_callable", "close", "__init__", "list_devices", "__enter__"):
        function = getattr(tf.Session, method)
        record.value(method, [str(inspect.signature(function)), (function.__doc__ or "")[:60], function.__name__])
    with tf.Session() as sess:
        tf.constant(1.0)
        record.value("attributes", sorted(k for k in vars(sess)))
        record.value("a subclass", [type(s).__name__ for s in (sess,)])

    class Mine(tf.Session):
        def run(self, *args, **kwargs):
            return ["mine", super().run(*args, **kwargs)]

    one = tf.constant(2.0) * 2.0
    with Mine() as sess:
        for k in range(6):
            record.value(f"mine {k}", sess.run(one))


def program_threads(record):
    """Names of threads that a program would find, and files left open, after its sessions end."""
    with tf.Session() as sess:
        work(sess)
    names = [t.name for t in threading.enumerate() if not t.daemon]
    record.value("threads", names)
