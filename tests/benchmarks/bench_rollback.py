"""Is the step time back after a deliberately bad strategy was undone? `make bench-rollback`.

    python tests/benchmarks/bench_rollback.py [--ways in-session restart] [--repetitions 4] [--steps 60]

For each way: trains on two local devices (rollback_training.py), activates through `stepctl activate` a strategy that puts
neighbouring ops on alternating devices, waits for the guard's verdict, and compares the median of the steps just before the
activation with that of the same number of steps after the way back; again and again in one session. Then once more with the
daemon killed (SIGKILL) between activation and verdict. In the end the losses are compared with those of a plain run. Goals: every
strategy is rolled back, every ratio within 1.05, all losses equal in every bit. Prints JSON; exits with 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("rollback_training.py")
BIN = Path(sys.executable).parent
PATIENCE = 120.0  # seconds, for anything that another process does
SETTLE = 5  # steps after the way back that are not counted: executors and caches
LAYERS = 40
GOAL = 1.05


def until(what: str, check: Callable[[], Any]) -> Any:
    """Poll other processes, which cannot notify us."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if value := check():
            return value
        time.sleep(0.02)
    raise SystemExit(f"{what}: not within {PATIENCE:g} s")


class Daemon:
    """`stepd serve` that plans nothing by itself; its state survives its death."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.socket = folder / "stepd.sock"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "stepd.daemon.main", "serve", "--socket", str(self.socket)]
        command += ["--state-dir", str(self._folder / "state"), "--set", "planner=false"]
        with (self._folder / "daemon.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        until("the daemon serves", lambda: self.stepctl("health").returncode == 0)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stepctl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(BIN / "stepctl"), "--socket", str(self.socket), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def json(self, *arguments: str) -> Any:
        return json.loads(self.stepctl(*arguments, "-o", "json").stdout)


class Training:
    """The program under stepd, on two local devices."""

    def __init__(self, folder: Path, socket: Path) -> None:
        self.out, self._stop, self.report = folder / "hooked.txt", folder / "stop", folder / "report.jsonl"
        environ = {name: value for name, value in os.environ.items() if not name.startswith("STEPD_")}
        environ |= {"STEPD_REPORT": str(self.report), "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [str(BIN / "stepd-run"), "--socket", str(socket), "--local-devices", "2", "--no-daemon", "--"]
        command += [sys.executable, str(PROGRAM), str(self.out), str(self._stop)]
        self.process = subprocess.Popen(command, env=environ)

    def steps(self) -> list[tuple[float, float, str]]:
        """End, seconds and loss of every step so far."""
        if self.process.poll() not in (None, 0):
            raise SystemExit(f"the training program ended with {self.process.returncode}")
        text = self.out.read_text() if self.out.exists() else ""
        rows = [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]
        return [(float(end), float(seconds), loss) for end, seconds, loss in rows]

    def more_steps(self, count: int) -> list[float]:
        """Seconds of the next `count` steps."""
        begun = len(self.steps())
        rows = until(f"{count} more steps", lambda: len(rows := self.steps()) >= begun + count and rows)
        return [seconds for _, seconds, _ in rows[begun : begun + count]]

    def events(self) -> list[dict[str, Any]]:
        text = self.report.read_text() if self.report.exists() else ""
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def end(self) -> list[str]:
        """Stop training; the losses of all steps."""
        self._stop.touch()
        if self.process.wait(PATIENCE) != 0:
            raise SystemExit(f"the training program ended with {self.process.returncode}")
        return [loss for _, _, loss in self.steps()]


def bad_strategy(folder: Path, devices: list[str], turn: int) -> Path:
    """Neighbours of the chain on alternating devices; `turn` exchanges the devices."""
    chain = [name for k in range(LAYERS) for name in (f"product{k}", f"hidden{k}")]
    file = folder / f"bad-{turn}.json"
    file.write_text(json.dumps({"placement": {name: devices[(k + turn) % 2] for k, name in enumerate(chain)}}))
    return file


def one_trial(daemon: Daemon, training: Training, strategy: Path, way: str, steps: int, kill: bool) -> dict[str, Any]:
    """Activate, wait until it was undone, and compare the steps before and after."""
    job = daemon.json("status")[0]["id"]
    before = training.more_steps(steps)
    seen = len(training.events())
    answer = daemon.stepctl("activate", job, str(strategy), "--way", way)
    if answer.returncode != 0:
        raise SystemExit(f"stepctl activate failed: {answer.stderr}")

    def news(kind: str) -> dict[str, Any] | None:
        return next((event for event in training.events()[seen:] if event["event"] == kind), None)

    switch = until("the switch", lambda: news("switch"))
    if kill:
        daemon.kill()
    unjudged = news("verdict") is None
    verdict = until("the verdict", lambda: news("verdict"))
    training.more_steps(SETTLE)
    after = training.more_steps(steps)
    if kill:
        daemon.start()
        until("the job is attached again", lambda: any(found["id"] == job for found in daemon.json("status")))
    return {
        "way": switch["way"],
        "honoured": switch["honoured"],
        "not_honoured": switch["not_honoured"],
        "killed_before_verdict": kill and unjudged,
        "outcome": verdict["outcome"],
        "reason": verdict["reason"],
        "before_seconds": statistics.median(before),
        "after_seconds": statistics.median(after),
        "ratio": statistics.median(after) / statistics.median(before),
    }


def session_devices(daemon: Daemon) -> list[str]:
    """The usable devices of the only job's only session; empty until its steps are known."""
    listed = daemon.json("status")
    sessions = [session for job in listed for session in job["session"] if float(session["seconds_before"]) > 0]
    return [device["name"] for device in sessions[0]["device"] if device["usable"]] if sessions else []


def measure(way: str, repetitions: int, steps: int) -> dict[str, Any]:
    with scratch() as folder:
        daemon = Daemon(folder)
        daemon.start()
        training = Training(folder, daemon.socket)
        try:
            devices = until("step times are known", lambda: session_devices(daemon))
            training.more_steps(20)
            kills = [False] * repetitions + [True]
            bad = [bad_strategy(folder, devices, turn) for turn in range(len(kills))]
            trials = [one_trial(daemon, training, file, way, steps, kill) for file, kill in zip(bad, kills, strict=True)]
            losses = training.end()
        finally:
            daemon.kill()
            training.process.terminate()
            training.process.wait()
        same = losses == plain_losses(folder, len(losses))
    ratios = [trial["ratio"] for trial in trials]
    return {
        "way": way,
        "steps": len(losses),
        "losses_equal": same,
        "all_rolled_back": all(trial["outcome"] == "rolled back" for trial in trials),
        "ratio": statistics.median(ratios),
        "ratio_least_most": [min(ratios), max(ratios)],
        "last_after_over_first_before": trials[-1]["after_seconds"] / trials[0]["before_seconds"],
        "trials": trials,
    }


def plain_losses(folder: Path, steps: int) -> list[str]:
    """The same program without stepd, on one core (a local device has one thread, and sums depend on how many add)."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("STEPD_")}
    core = min(os.sched_getaffinity(0))
    command = [sys.executable, str(PROGRAM), str(folder / "plain.txt"), "-", str(steps)]
    subprocess.run(
        command, env=environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}, check=True, preexec_fn=lambda: os.sched_setaffinity(0, {core})
    )
    return [line.split()[2] for line in (folder / "plain.txt").read_text().splitlines()]


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder with a short path: that of a socket may have 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="stepd-rb-", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ways", nargs="+", default=["in-session", "restart"], choices=["in-session", "restart"])
    parser.add_argument("--repetitions", type=int, default=4, help="bad strategies before the one with the kill")
    parser.add_argument("--steps", type=int, default=60, help="steps on each side of a comparison")
    options = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        raise SystemExit("bench_rollback: two cores are needed, one for each local device")
    results = [measure(way, options.repetitions, options.steps) for way in options.ways]
    print(json.dumps(results, indent=1))
    good = all(r["losses_equal"] and r["all_rolled_back"] and r["ratio_least_most"][1] <= GOAL for r in results)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
