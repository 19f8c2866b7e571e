"""Installed in a process with a real TensorFlow, and taken off again: what is left of it, and what it never touched."""

from __future__ import annotations

import json
import os
import subprocess
import sys

PROGRAM = """
import gc, json, logging, os, signal, sys, threading, time, warnings
import tensorflow as tf
from tensorflow.python.client import session as session_module

base = session_module.BaseSession
own = {name: value for name, value in vars(base).items() if callable(value)}
def world():
    return {
        "root handlers": len(logging.root.handlers),
        "loggers": sorted(name for name in logging.root.manager.loggerDict if "stepd" in name),
        "filters": len(warnings.filters),
        "signals": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1)],
        "environ": sorted(os.environ),
        "threads": len(unseen.everybody() if "unseen" in globals() else threading.enumerate()),
        "excepthook": sys.excepthook is sys.__excepthook__,
    }

graph = tf.Graph()
with graph.as_default():
    one = tf.constant(1) + 0
tf.compat.v1.Session(graph=graph).run(one)
before = world()
os.environ["STEPD_ENABLE"] = "1"
before["environ"] = sorted(os.environ)
from stepd.hook import autostart, unseen
autostart.start()
autostart.start()  # idempotent
patched = [name for name, value in own.items() if vars(base)[name] is not value]
with tf.compat.v1.Session(graph=graph) as session:
    values = [int(session.run(one)) for _ in range(5)]
    threads = sorted(thread.name for thread in unseen.everybody() if thread.name.startswith("stepd"))
    met = [thread.name for thread in threading.enumerate() if thread.name.startswith("stepd")]
    autostart.stop()
    values.append(int(session.run(one)))
del session
gc.collect()
left = [name for name, value in own.items() if vars(base)[name] is not value]
told = {"patched": patched, "left": left, "values": values, "threads": threads, "met": met}
print(json.dumps(told | {"before": before, "after": world()}))
"""


def test_it_comes_off_as_it_went_on() -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("STEPD_")}
    environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "STEPD_SOCKET": "/nonexistent/stepd.sock"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "stepd" not in done.stderr
    seen = json.loads(done.stdout)
    assert "__init__" in seen["patched"]
    assert seen["left"] == []
    assert seen["values"] == [1] * 6
    assert "stepd-observer" in seen["threads"]
    assert seen["met"] == []
    assert seen["after"] == seen["before"]
