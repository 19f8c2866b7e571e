"""A process that forks: parent and child are two jobs where gRPC is new to the child, else the child runs on without the daemon."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PROGRAM = """
import os, sys
from stepd.hook.compat import Compatibility
from stepd.hook.env import Settings
from stepd.hook.observer import Observer

observer = Observer.create(Settings(socket=sys.argv[1]), Compatibility(True, "fine", "2.21.0"), {}, ["python", "fork.py"])
os.register_at_fork(
    before=observer.before_fork, after_in_parent=observer.after_fork, after_in_child=observer.after_fork_in_child
)
if "attached" in sys.argv:
    observer.announce()
    sys.stdin.readline()  # the daemon has heard of the parent
child = os.fork()
if child == 0:
    observer.announce()
    if "attached" not in sys.argv:
        sys.stdin.readline()  # the daemon has heard of the child
    observer.stop()
    os._exit(7)
observer.announce()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
sys.stdin.readline()
observer.stop()
"""


@contextmanager
def forking(*arguments: str) -> Iterator[Any]:
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", PROGRAM, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    try:
        yield process
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()


def test_parent_and_child_are_two_jobs(daemon: Any) -> None:
    daemon.start()
    with forking(str(daemon.socket)) as process:
        hellos = [daemon.next("hello"), daemon.next("hello")]  # in any order
        process.stdin.write(b"\n")
        assert process.stdout.readline() == b"7\n"
        process.stdin.write(b"\n")
    parent = next(hello for hello in hellos if hello.pid == process.pid)
    child = next(hello for hello in hellos if hello.pid != process.pid)
    assert child.job_id != parent.job_id
    assert child.job_name == parent.job_name == "fork.py"


def test_a_child_of_an_attached_process_runs_on_and_the_parent_attaches_again(daemon: Any) -> None:
    """In the child, gRPC could wait for ever for a lock that a thread of the parent's held."""
    daemon.start()
    with forking(str(daemon.socket), "attached") as process:
        first = daemon.next("hello")
        process.stdin.write(b"\n")
        assert process.stdout.readline() == b"7\n"
        again = daemon.next("hello")
        process.stdin.write(b"\n")
    assert (again.pid, again.job_id) == (process.pid, first.job_id) == (first.pid, first.job_id)
