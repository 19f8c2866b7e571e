"""Training on the machine's GPUs, plainly and under stepd: are all losses equal, and what did the daemon see and decide?

    python tests/benchmarks/bench_gpus.py [--logical N] [--seconds 60] [--out FOLDER]

Runs gpu_training.py plainly (twice, for what of it repeats at all) and under stepd with a daemon that plans by itself, all with
deterministic kernels, and compares every loss. With --logical N the first GPU is divided into N: such GPUs share one chip, so that
times are no claim about speed. Prints what `stepctl` says of the job and JSON; exits with 1 when a loss differs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("gpu_training.py")
ENDLESS = 1_000_000
REPEATED = 1000  # steps of a plain run that are done once more


def environment() -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("STEPD_")}
    return plain | {"TF_DETERMINISTIC_OPS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}


def read(path: Path) -> list[tuple[float, str]]:
    """Seconds and the loss's bits of every step so far."""
    text = path.read_text() if path.exists() else ""
    return [(float(seconds), loss) for seconds, loss in (line.split() for line in text[: text.rfind("\n") + 1].splitlines())]


def stepctl(socket: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "stepd.cli.main", "--socket", str(socket), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def under_stepd(folder: Path, logical: int, seconds: float) -> tuple[list[tuple[float, str]], list[dict[str, Any]]]:
    """The program beside a daemon that plans: (its steps, the hook's events)."""
    socket, report, out = folder / "s.sock", folder / "report.jsonl", folder / "hooked.txt"
    serve = [sys.executable, "-m", "stepd.daemon.main", "serve", "--socket", str(socket), "--state-dir", str(folder / "state")]
    with (folder / "daemon.log").open("wb") as log:
        daemon = subprocess.Popen(serve, stdout=log, stderr=log)
        run = [sys.executable, "-m", "stepd.hook.launcher", "--no-daemon", "--socket", str(socket), "--"]
        run += [sys.executable, str(PROGRAM), str(out), str(ENDLESS), str(logical)]
        training = subprocess.Popen(run, env=environment() | {"STEPD_REPORT": str(report)})
        try:
            end = time.monotonic() + seconds
            while time.monotonic() < end and training.poll() is None:
                time.sleep(0.5)
            jobs = json.loads(stepctl(socket, "status", "-o", "json") or "[]")
            asked = [(command, job["id"]) for job in jobs for command in ("show", "history")]
            for arguments in (("status",), *asked):
                print(f"$ stepctl {' '.join(arguments)}\n{stepctl(socket, *arguments)}", flush=True)
            if training.poll() not in (None, 0):
                raise SystemExit(f"the program ended with {training.returncode}")
        finally:
            training.kill()
            training.wait()
            daemon.terminate()
            daemon.wait()
    events = [json.loads(line) for line in report.read_text().splitlines() if line.endswith("}")] if report.exists() else []
    return read(out), events


def plainly(out: Path, steps: int, logical: int) -> list[tuple[float, str]]:
    subprocess.run([sys.executable, str(PROGRAM), str(out), str(steps), str(logical)], env=environment(), check=True)
    return read(out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logical", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    folder = args.out or Path(tempfile.mkdtemp(prefix="gpus-"))
    folder.mkdir(parents=True, exist_ok=True)
    hooked, events = under_stepd(folder, args.logical, args.seconds)
    plain = plainly(folder / "plain.txt", len(hooked), args.logical)
    again = plainly(folder / "again.txt", min(REPEATED, len(hooked)), args.logical)
    losses = [[loss for _, loss in steps] for steps in (plain, again, hooked)]
    result = {
        "steps": len(hooked),
        "plain_repeats": losses[0][:REPEATED] == losses[1],
        "losses_equal": losses[0] == losses[2],
        "first_difference": next((k for k, (a, b) in enumerate(zip(losses[0], losses[2], strict=True)) if a != b), None),
        "plain_seconds": statistics.median(seconds for seconds, _ in plain[20:]),
        "hooked_seconds": statistics.median(seconds for seconds, _ in hooked[20:]),
        "events": [event for event in events if event["event"] in ("switch", "verdict", "strategy_failed", "disabled")],
    }
    print(json.dumps(result, indent=1))
    return 0 if result["losses_equal"] or not result["plain_repeats"] else 1


if __name__ == "__main__":
    sys.exit(main())
