"""The processes that stepd-run starts for one job: a daemon of its own, and the workers of --local-devices.

Each is tied to this process twice: the kernel kills it when this process ends, and it ends when a pipe that only this process
holds open is closed. Their output goes to files in a private folder that is removed with them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import MutableMapping
from pathlib import Path

from stepd.hook import sweep
from stepd.hook.local_devices import CLUSTER_FILE

DAEMON_SECONDS = 30.0
END_SECONDS = 5.0


_HOOK_ONLY = frozenset({"STEPD_ENABLE", "STEPD_SOCKET", "STEPD_LAUNCHER_PATH", "STEPD_LOCAL_DEVICES"})


class StartError(RuntimeError):
    """A companion could not be started; the text says why."""


class Companions:
    """See the module. The folder exists from the first start to `end`."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._mark = -1
        self._names: dict[int, str] = {}
        self._processes: list[subprocess.Popen[bytes]] = []
        # Nothing is ever written: a companion that reads the end of the file knows that we are gone.
        self._pipe, self._held = os.pipe2(os.O_CLOEXEC)

    @property
    def folder(self) -> Path:
        """The private folder (mode 0700). In /tmp and short: paths of Unix sockets hold 107 bytes."""
        if self._folder is None:
            sweep.sweep(Path("/tmp").glob("stepd-run-*"))  # of launchers that were killed
            self._folder = Path(tempfile.mkdtemp(prefix="stepd-run-", dir="/tmp"))
            self._mark = sweep.mark(self._folder)
        return self._folder

    def start_daemon(self, environ: MutableMapping[str, str], state_dir: str) -> None:
        """Start `stepd serve` on a private socket and point the job's STEPD_SOCKET at it.

        Does not wait for it: the hook attaches when it is up. A machine without the daemon's packages is told, and the job runs.
        """
        path = self.folder / "stepd.sock"
        state = Path(state_dir) if state_dir else self.folder / "state"
        serve = [sys.executable, "-m", "stepd.hook.companion", str(os.getpid()), str(self._pipe)]
        serve += ["-m", "stepd.daemon.main", "serve", "--socket", str(path), "--state-dir", str(state)]
        self._spawn(serve, "daemon", _without_hook(environ))
        environ["STEPD_SOCKET"] = str(path)

    def start_workers(self, environ: MutableMapping[str, str], count: int) -> None:
        """Start `count` workers, each on a core of its own, and tell the job where they are (STEPD_LOCAL_DEVICES)."""
        cores = sorted(os.sched_getaffinity(0))[:count]
        names = [f"worker-{index}.sock" for index in range(len(cores))]
        worker_environ = _without_hook(environ) | {"CUDA_VISIBLE_DEVICES": "-1"}
        for name, core in zip(names, cores, strict=True):
            arguments = [str(self.folder / name), str(core), str(os.getpid()), str(self._pipe)]
            self._spawn([sys.executable, "-m", "stepd.hook.local_worker", *arguments], name.removesuffix(".sock"), worker_environ)
        (self.folder / CLUSTER_FILE).write_text(json.dumps({"workers": names}), encoding="utf-8")
        environ["STEPD_LOCAL_DEVICES"] = str(self.folder)

    def look(self) -> None:
        """Tell of companions that ended by themselves: the program goes on without their help, and nobody would know."""
        for process in self._processes[:]:
            if process.poll() is not None:
                self._processes.remove(process)
                name = self._names[process.pid]
                log = (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
                sys.stderr.write(
                    f"stepd-run: the {name} ended with status {process.returncode}: {log[-1] if log else 'no message'}\n"
                )

    def end(self) -> None:
        """End all of them and remove the folder; a daemon gets some seconds to store what it knows."""
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + END_SECONDS
        for process in self._processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            os.close(self._mark)
            self._folder = None

    def _spawn(self, command: list[str], name: str, environ: dict[str, str]) -> None:
        log = self.folder / f"{name}.log"
        try:
            with log.open("ab") as output:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environ,
                    pass_fds=(self._pipe,),
                    start_new_session=True,  # Ctrl-C and hang-ups of the terminal are the job's affair
                )
        except OSError as error:
            raise StartError(f"cannot start {name}: {error}") from error
        self._processes.append(process)
        self._names[process.pid] = name


def _without_hook(environ: MutableMapping[str, str]) -> dict[str, str]:
    """The job's environment for a companion: no hook in it, and Python's path as it was."""
    clean = {name: value for name, value in environ.items() if name not in _HOOK_ONLY}
    boot = environ.get("STEPD_LAUNCHER_PATH", "")
    rest = [entry for entry in clean.pop("PYTHONPATH", "").split(os.pathsep) if entry and entry != boot]
    if rest:
        clean["PYTHONPATH"] = os.pathsep.join(rest)
    return clean
