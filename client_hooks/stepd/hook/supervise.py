"""Runs the job as a child of stepd-run so that nobody can tell: signals go to it, its end is our end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from typing import NoReturn

from stepd.hook.local_worker import die_with_parent

# Sent to us by somebody who means the job. Those of a terminal reach the whole process group by themselves. Stop and continue
# keep their default meaning: the shell sends them to the group.
FORWARDED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGWINCH,
    signal.SIGPIPE,
)
_EXEC_FAILED = 126


def supervise(
    program: str,
    command: tuple[str, ...],
    environ: Mapping[str, str],
    dies_with_us: bool,
    child_ended: Callable[[], None],
    ended: Callable[[], None],
) -> int:
    """Run `program` with arguments `command` until it ends; returns its wait status, after `ended` was called.

    Args:
        dies_with_us: the kernel kills the job when this process is killed.
        child_ended: called when a child of this process ended, maybe another one.
        ended: stops what was started for the job; called in any case.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*FORWARDED, signal.SIGCHLD})
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        _become(program, command, environ, before, parent if dies_with_us else 0)
    try:
        return _wait(child, child_ended)
    finally:
        ended()


def _become(
    program: str,
    command: tuple[str, ...],
    environ: Mapping[str, str],
    mask: set[int | signal.Signals],
    parent: int,
) -> NoReturn:
    try:
        if parent:
            die_with_parent(parent)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # what Python changed, and an executed program would inherit
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.execve(program, command, dict(environ))
    except OSError as error:
        os.write(2, f"stepd-run: {command[0]}: {error.strerror}\n".encode())
    os._exit(_EXEC_FAILED)


def _wait(child: int, child_ended: Callable[[], None]) -> int:
    watched = {*FORWARDED, signal.SIGCHLD}
    while True:
        received = signal.sigwaitinfo(watched)
        if received.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended == child:
                return status
            child_ended()
        elif received.si_code <= 0:  # by kill() and the like; the kernel's own (a terminal's) have reached the job already
            os.kill(child, received.si_signo)
