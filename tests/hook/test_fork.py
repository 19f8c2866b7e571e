"""A process that forks while it is attached: parent and child are two jobs, and gRPC works in both."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

PROGRAM = """
import os, select, sys
from stepd.hook.compat import Compatibility
from stepd.hook.env import Settings
from stepd.hook.observer import Observer

observer = Observer.create(Settings(socket=sys.argv[1]), Compatibility(True, "fine", "2.21.0"), {}, ["python", "fork.py"])
os.register_at_fork(
    before=observer.before_fork, after_in_parent=observer.after_fork, after_in_child=observer.after_fork_in_child
)
observer.announce()
sys.stdin.readline()  # attached
child = os.fork()
if child == 0:
    observer.announce()
    sys.stdin.readline()  # attached
    observer.stop()
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
sys.stdin.readline()
observer.stop()
"""


def test_parent_and_child_are_two_jobs(daemon: Any) -> None:
    daemon.start()
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", PROGRAM, str(daemon.socket)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        parent = daemon.next("hello")
        process.stdin.write(b"\n")
        hellos = [daemon.next("hello"), daemon.next("hello")]  # of the child, and of the parent again, in any order
        process.stdin.write(b"\n")
        assert process.stdout.readline() == b"7\n"
        process.stdin.write(b"\n")
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
    again = next(hello for hello in hellos if hello.pid == parent.pid)
    child = next(hello for hello in hellos if hello.pid != parent.pid)
    assert again.job_id == parent.job_id
    assert child.job_id != parent.job_id
    assert child.job_name == parent.job_name == "fork.py"
