"""A child of a fork, in which no other thread is, leaves the block of its parent's session."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os, sys, threading
import tensorflow.compat.v1 as tf
from stepd.hook.engine import intercept
from stepd.hook.engine.settings import EngineSettings

tf.disable_v2_behavior()
intercept.install(None, EngineSettings())
v = tf.get_variable("v", initializer=1.0)
try:
    with tf.Session() as session:
        session.run(v.initializer)
        engine = intercept.engines.get(session._session)
        held, free = threading.Event(), threading.Event()

        def hold():
            with engine.lock, engine.in_use:
                held.set()
                free.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        child = os.fork()
        if child == 0:
            raise KeyError("the child is done")
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        free.set()
        thread.join()
        print(session.run(v))
except KeyError:
    os._exit(3)
"""


def test_it_does_not_wait_for_a_thread_that_is_not_there() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["3", "1.0"], done.stderr
