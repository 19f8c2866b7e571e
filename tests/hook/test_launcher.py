"""stepd-run as a process: transparent to signals and exit codes, and nothing that it starts outlives the job."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepd.hook import launcher

SECONDS = 60.0
RUN = [sys.executable, "-m", "stepd.hook.launcher"]
# Says that it is there, then waits for its end.
WAITS = "import sys, time; print('up', flush=True); time.sleep(600)"


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("STEPD_")}
    return subprocess.run([*RUN, *arguments], env=clean | environ, capture_output=True, text=True, timeout=SECONDS, check=False)


class Family:
    """A running stepd-run with its children, each watched by a pidfd."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen([*RUN, *arguments], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "up\n"
        pid = self.process.pid
        self.children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        self._ends = {child: os.pidfd_open(child) for child in self.children}

    def job(self) -> int:
        """The child that is the program, the last to be started."""
        return self.children[-1]

    def all_gone(self) -> bool:
        """Wait until every child has ended."""
        return all(select.select([end], [], [], SECONDS)[0] for end in self._ends.values())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.all_gone()
        for end in self._ends.values():
            os.close(end)


@pytest.fixture
def supervised() -> Iterator[Family]:
    """A program with a worker process."""
    family = Family("--no-daemon", "--local-devices", "1", sys.executable, "-c", WAITS)
    yield family
    family.close()


def test_without_companions_the_command_takes_the_launchers_place() -> None:
    done = subprocess.Popen([*RUN, "--no-daemon", sys.executable, "-c", "import os; print(os.getpid())"], stdout=subprocess.PIPE)
    assert int(done.communicate(timeout=SECONDS)[0]) == done.pid


@pytest.mark.parametrize("options", [["--no-daemon"], ["--no-daemon", "--local-devices", "1"]])
def test_the_exit_code_and_the_deadly_signal_are_the_programs(options: list[str]) -> None:
    assert run(*options, sys.executable, "-c", "raise SystemExit(7)").returncode == 7
    suicide = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
    assert run(*options, sys.executable, "-c", suicide).returncode == -signal.SIGTERM


def test_signals_reach_the_program(supervised: Family) -> None:
    os.kill(supervised.process.pid, signal.SIGINT)
    assert supervised.process.wait(SECONDS) == -signal.SIGINT  # Python's KeyboardInterrupt ends by the signal


@pytest.mark.parametrize("victim", ["launcher", "job"])
def test_kill_9_leaves_nothing_behind(supervised: Family, victim: str) -> None:
    assert len(supervised.children) == 2
    os.kill(supervised.process.pid if victim == "launcher" else supervised.job(), signal.SIGKILL)
    assert supervised.all_gone()
    assert supervised.process.wait(SECONDS) == -signal.SIGKILL


def test_bad_commands() -> None:
    missing = run("--no-daemon", "no-such-command-anywhere")
    assert (missing.returncode, missing.stderr) == (127, "stepd-run: no-such-command-anywhere: command not found\n")
    nothing = run("--no-daemon")
    assert nothing.returncode == 2
    assert "which command" in nothing.stderr
    crowd = run("--local-devices", "4096", "true")
    assert crowd.returncode == 2
    assert "one a device" in crowd.stderr


def test_the_programs_own_sitecustomize_runs_and_its_path_is_what_it_was(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.customized = __file__")
    program = (
        "import os, sys, json, builtins, sitecustomize\n"
        "print(json.dumps([customized, sitecustomize.__file__, os.environ.get('PYTHONPATH'), 'stepd.hook.autostart' in sys.modules,"
        " [p for p in sys.path if 'boot' in p]]))"
    )
    done = run("--no-daemon", sys.executable, "-c", program, PYTHONPATH=str(tmp_path))
    own = str(tmp_path / "sitecustomize.py")
    assert json.loads(done.stdout) == [own, own, str(tmp_path), True, []]
    assert done.stderr == ""


def test_without_a_sitecustomize_of_its_own_nothing_of_ours_stays() -> None:
    program = (
        "import os, json\n"
        "print(json.dumps([os.environ.get('PYTHONPATH'), sorted(n for n in os.environ if n.startswith('STEPD_'))]))"
    )
    done = run("--no-daemon", "--name", "n", sys.executable, "-c", program)
    assert json.loads(done.stdout) == [None, ["STEPD_ENABLE", "STEPD_JOB_NAME"]]


def test_options_end_where_the_command_begins() -> None:
    options = launcher.parse(["--name", "n", "--socket", "h:1", "python", "train.py", "--name", "other"])
    assert options == launcher.Options(("python", "train.py", "--name", "other"), name="n", socket="h:1")
    assert launcher.parse(["--", "cmd"]).command == ("cmd",)


def test_a_daemon_that_cannot_start_is_told_and_the_program_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    program = "import select, sys; select.select([], [], [], 60)"
    process = subprocess.Popen(
        [*RUN, "--socket", str(tmp_path / "none.sock"), "--state-dir", str(tmp_path / "file"), sys.executable, "-c", program],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    told = process.stderr.readline()
    process.terminate()
    assert told.startswith("stepd-run: the daemon ended with status ")
    assert process.wait(SECONDS) == -signal.SIGTERM
