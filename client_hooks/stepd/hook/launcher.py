"""`stepd-run [options] CMD...`: runs a command with the hook, and with what the hook needs when nothing is there.

It sets STEPD_* variables, starts a daemon of the job's own when none is reachable, and worker processes with --local-devices. All
of that ends with the job, whatever ends it. Signals and the exit status pass through; where nothing has to be started the command
takes this process's place.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import shutil
import signal
import socket
import sys
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from stepd.hook.address import Address, first_present, places
from stepd.hook.companions import Companions, StartError
from stepd.hook.supervise import supervise

USAGE_ERROR = 2
NOT_FOUND = 127
NOT_EXECUTABLE = 126
ANSWER_SECONDS = 2.0
BOOT = Path(__file__).parent / "boot"


@dataclass(frozen=True)
class Options:
    """The command line. `socket` empty: the default places; `local_devices` 0: none."""

    command: tuple[str, ...]
    daemon: bool = True
    name: str = ""
    socket: str = ""
    log: str = ""
    local_devices: int = 0
    state_dir: str = ""


def parse(arguments: list[str]) -> Options:
    """The command line as options. Exits with status 2 and a message when it cannot be understood."""
    parser = argparse.ArgumentParser(
        prog="stepd-run",
        description="Run a TensorFlow training program under stepd. The program needs no change.",
        epilog="Everything after the options is the command, with its own options.",
    )
    parser.add_argument("--no-daemon", action="store_true", help="start no daemon, even when none is reachable")
    parser.add_argument("--name", default="", help="name of the job in `stepctl status` (default: the script's name)")
    parser.add_argument("--socket", default="", help="the daemon's socket, or host:port (default: STEPD_SOCKET)")
    parser.add_argument("--log", default="", help="file for the hook's log, or stderr (default: STEPD_LOG)")
    parser.add_argument(
        "--state-dir", default="", help="where a daemon that is started keeps its state (default: a temporary folder)"
    )
    parser.add_argument(
        "--local-devices",
        type=int,
        default=0,
        metavar="N",
        help="use N worker processes on this machine, each on a core of its own, as the devices of plain sessions",
    )
    parser.add_argument("--version", action="version", version=f"stepd {_version()}")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="CMD...", help="the program to run, with its arguments")
    parsed = parser.parse_args(arguments)
    command = parsed.command[1:] if parsed.command[:1] == ["--"] else parsed.command
    if not command:
        parser.error("which command shall be run?")
    cores = len(os.sched_getaffinity(0))
    if not 0 <= parsed.local_devices <= cores:
        parser.error(f"--local-devices {parsed.local_devices}: this process may use {cores} cores, one a device")
    return Options(
        command=tuple(command),
        daemon=not parsed.no_daemon,
        name=parsed.name,
        socket=parsed.socket,
        log=parsed.log,
        local_devices=parsed.local_devices,
        state_dir=parsed.state_dir,
    )


def prepare(options: Options, environ: MutableMapping[str, str]) -> None:
    """Set what the hook reads, and put the folder with stepd's sitecustomize first on PYTHONPATH."""
    environ["STEPD_ENABLE"] = "1"
    for name, value in (("STEPD_JOB_NAME", options.name), ("STEPD_SOCKET", options.socket), ("STEPD_LOG", options.log)):
        if value:
            environ[name] = value
    environ["STEPD_LAUNCHER_PATH"] = str(BOOT)
    environ["PYTHONPATH"] = os.pathsep.join([str(BOOT), *filter(None, [environ.get("PYTHONPATH", "")])])


def reachable(where: Address) -> bool:
    """Does something listen there?"""
    try:
        if where.path:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(ANSWER_SECONDS)
                connection.connect(where.path)
        else:
            host, _, port = where.target.rpartition(":")
            with socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECONDS):
                pass
    except (OSError, ValueError):
        return False
    return True


def main(arguments: list[str] | None = None) -> NoReturn:
    """The command `stepd-run`."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    program = shutil.which(options.command[0])
    if program is None:
        _complain(f"{options.command[0]}: command not found")
        raise SystemExit(NOT_FOUND)
    environ = dict(os.environ)
    prepare(options, environ)
    own_daemon = options.daemon and environ.get("STEPD_DAEMON", "1") != "0" and not _daemon_reachable(environ)
    if not own_daemon and not options.local_devices:
        _replace(program, options.command, environ)
    companions = Companions()
    try:
        if own_daemon:
            companions.start_daemon(environ, options.state_dir)
        if options.local_devices:
            companions.start_workers(environ, options.local_devices)
    except StartError as error:
        companions.end()
        _complain(str(error))
        raise SystemExit(1) from None
    # Without its workers the program cannot go on: it ends with the launcher. Without its daemon it can.
    status = supervise(program, options.command, environ, bool(options.local_devices), companions.look, companions.end)
    _leave(status)


def _daemon_reachable(environ: MutableMapping[str, str]) -> bool:
    where = first_present(places(environ.get("STEPD_SOCKET", ""), environ))
    return where is not None and reachable(where)


def _replace(program: str, command: tuple[str, ...], environ: MutableMapping[str, str]) -> NoReturn:
    try:
        os.execve(program, command, environ)
    except OSError as error:
        _complain(f"{command[0]}: {error.strerror}")
        raise SystemExit(NOT_EXECUTABLE) from None


def _leave(status: int) -> NoReturn:
    """End as the program ended: with its exit code, or by its signal."""
    if os.WIFSIGNALED(status):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # one core file is enough
        number = os.WTERMSIG(status)
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        os.kill(os.getpid(), number)
    raise SystemExit(os.waitstatus_to_exitcode(status))


def _complain(message: str) -> None:
    sys.stderr.write(f"stepd-run: {message}\n")


def _version() -> str:
    try:
        return importlib.metadata.version("stepd")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


if __name__ == "__main__":
    main()
