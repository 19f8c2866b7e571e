"""The main job from end to end: `make demo`.

Runs docs/examples/train_digits.py, which knows nothing of stepd, on two local devices (worker processes, a core each):

1. plainly, on one of the two devices (the faster of a worker and a session in the program's own process);
2. placed by hand on both;
3. under stepd on both, switched in the session, then once more, switched by checkpoint and restart.

Two rounds, so that no run has the machine's best minute for itself. Every loss of every step is compared with the plain run's.
Ends with a table and OUT/summary.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
SCRIPT = HERE / "train_digits.py"
BIN = Path(sys.executable).parent
WARM_UP = 10  # steps that build executors and fill caches
SETTLED = 60  # the last steps of a run under stepd: its strategy is in force
console = Console(highlight=False)


@dataclass(frozen=True)
class Run:
    """What one run of the script measured. `seconds` and `losses`: one a step."""

    seconds: list[float]
    losses: list[float]
    events: list[dict] = field(default_factory=list)

    @property
    def step_seconds(self) -> float:
        return statistics.median(self.seconds[WARM_UP:])

    @property
    def settled_seconds(self) -> float:
        return statistics.median(self.seconds[-SETTLED:])


def train(
    out: Path,
    name: str,
    *,
    steps: int,
    options: list[str],
    prefix: tuple[str, ...] = (),
    environ: dict[str, str] | None = None,
    core: int | None = None,
) -> Run:
    """Run the script once in a process of its own; shows its progress."""
    result, report = out / f"{name}.json", out / f"{name}-events.jsonl"
    command = [*prefix, sys.executable, str(SCRIPT), "--steps", str(steps), "--out", str(result), *options]
    console.print(f"[bold]{name}[/bold]: {steps} steps")
    pin = None if core is None else (lambda: os.sched_setaffinity(0, {core}))
    process = subprocess.Popen(
        command, env=os.environ | (environ or {}) | {"STEPD_REPORT": str(report)}, stderr=subprocess.PIPE, text=True, preexec_fn=pin
    )
    assert process.stderr is not None
    shown, tail = 0, []
    for line in process.stderr:
        tail = [*tail[-20:], line]
        if line.startswith("step "):
            console.print("  " + line.rstrip())
        shown = show_events(report, shown)
    if process.wait() != 0:
        raise SystemExit(f"demo: {name} failed with status {process.returncode}:\n" + "".join(tail))
    show_events(report, shown)
    measured = json.loads(result.read_text())
    return Run(measured["seconds"], measured["losses"], read_events(report))


def read_events(report: Path) -> list[dict]:
    if not report.exists():
        return []
    return [json.loads(line) for line in report.read_text().splitlines() if line.endswith("}")]


def show_events(report: Path, shown: int) -> int:
    """Print switches and verdicts that are new since `shown` events; returns how many there are now."""
    events = read_events(report)
    for event in events[shown:]:
        if event["event"] == "switch":
            what = "back to the program's own placement" if event["rollback"] else f"strategy {event['strategy_id'][:8]}"
            outcome = "" if event["ok"] else f" FAILED: {event['error']}"
            console.print(
                f"  [cyan]switch[/cyan] ({event['way']}): {what}, the step waited {event['wait_seconds'] * 1000:.0f} ms{outcome}"
            )
        elif event["event"] == "verdict":
            console.print(f"  [cyan]verdict[/cyan]: {event['outcome']}: {event['reason']}")
    return len(events)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def two_workers(cores: list[int]) -> Iterator[str]:
    """Two plain TensorFlow servers, pinned like stepd's local devices; yields the first one's target."""
    ports = [free_port(), free_port()]
    workers = [
        subprocess.Popen(
            [sys.executable, str(HERE / "tensorflow_worker.py"), str(cores[task]), str(task), ",".join(map(str, ports))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for task in range(2)
    ]
    try:
        for worker in workers:
            assert worker.stdout is not None
            if worker.stdout.readline() != b"ready\n":
                raise SystemExit("demo: a TensorFlow server did not start")
        yield f"grpc://localhost:{ports[0]}"
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


@contextlib.contextmanager
def daemon(out: Path) -> Iterator[Path]:
    """`stepd serve` with its state under `out`; yields its socket."""
    path = Path(f"/tmp/stepd-demo-{os.getpid()}.sock")  # paths of sockets must be short
    with (out / "daemon.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "stepd.daemon.main", "serve", "--socket", str(path), "--state-dir", str(out / "state")],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + 60
        while stepctl(path, "health").returncode != 0:
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"demo: the daemon did not start, see {out / 'daemon.log'}")
            time.sleep(0.2)
        yield path
    finally:
        process.terminate()
        process.wait()


def stepctl(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(BIN / "stepctl"), "--socket", str(path), *arguments], capture_output=True, text=True, check=False)


def baselines(out: Path, round_: int, cores: list[int], plain_steps: int, hand_steps: int) -> tuple[list[Run], Run]:
    """Plain TensorFlow: on one device (in two ways), and placed by hand on both."""
    with two_workers(cores) as target:
        worker = train(out, f"plain-worker-{round_}", steps=plain_steps, options=["--target", target])
        both = "/job:worker/task:0,/job:worker/task:1"
        hand = train(out, f"hand-placed-{round_}", steps=hand_steps, options=["--target", target, "--devices", both])
    own = train(out, f"plain-own-process-{round_}", steps=hand_steps, options=[], core=cores[0])
    return [worker, own], hand


def under_stepd(out: Path, path: Path, way: str, steps: int) -> Run:
    prefix = (str(BIN / "stepd-run"), "--socket", str(path), "--name", f"digits-{way}", "--local-devices", "2", "--")
    return train(out, f"stepd-{way}", steps=steps, options=[], prefix=prefix, environ={"STEPD_WAY": way})


def summarize(plain: list[list[Run]], hand: list[Run], stepd: list[Run], trials: list[dict]) -> dict[str, float | int]:
    one = min(statistics.median([run.step_seconds for run in kind]) for kind in zip(*plain, strict=True))
    by_hand = statistics.median([run.step_seconds for run in hand])
    ours = statistics.median([run.settled_seconds for run in stepd])
    reference = plain[0][0].losses
    events = [event for run in stepd for event in run.events]
    kept = [trial for trial in trials if trial.get("outcome") == "KEPT"]
    return {
        "plain_one_device_step_seconds": one,
        "hand_placed_step_seconds": by_hand,
        "stepd_step_seconds": ours,
        "speedup_over_one_device": one / ours,
        "speedup_over_hand_placed": by_hand / ours,
        "switches": sum(event["event"] == "switch" and event["ok"] and not event["rollback"] for event in events),
        "rollbacks": sum(event["event"] == "switch" and event["ok"] and event["rollback"] for event in events),
        "loss_max_abs_diff": max(abs(a - b) for run in stepd for a, b in zip(run.losses, reference, strict=False)),
        "steps": sum(len(run.losses) for run in stepd),
        "predicted_step_seconds": kept[-1]["predicted_seconds"] if kept else 0.0,
    }


def show(summary: dict[str, float | int]) -> None:
    table = Table(title="median time of a training step")
    for column in ("", "ms", "speedup over it"):
        table.add_column(column, justify="left" if not column else "right")
    one, hand = summary["speedup_over_one_device"], summary["speedup_over_hand_placed"]
    table.add_row("plain TensorFlow, one device", f"{summary['plain_one_device_step_seconds'] * 1e3:.1f}", f"{one:.2f}x")
    table.add_row("placed by hand, both devices", f"{summary['hand_placed_step_seconds'] * 1e3:.1f}", f"{hand:.2f}x")
    predicted = summary["predicted_step_seconds"]
    table.add_row(f"under stepd (predicted: {predicted * 1e3:.1f})", f"{summary['stepd_step_seconds'] * 1e3:.1f}", "")
    console.print(table)
    console.print(
        f"{summary['switches']} switches, {summary['rollbacks']} rollbacks in {summary['steps']} steps; "
        f"largest difference of a loss from the plain run's: {summary['loss_max_abs_diff']}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/demo"))
    parser.add_argument("--steps", type=int, default=220, help="steps of each run under stepd")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise SystemExit("demo: two cores are needed, one for each local device")
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    console.print(
        "Compared: one unmodified training script on one local device, on two placed by hand, and on the same two under stepd. "
        "(A local device is a worker process on a core of its own. A single process on CPU shares all cores already: "
        "there would be nothing to gain.)\n"
    )
    plain, hand, stepd, trials = [], [], [], []
    with daemon(options.out) as path:
        for round_, way in enumerate(("in-session", "restart")):
            # The first plain run is as long as those under stepd: its losses are what theirs must be.
            one, two = baselines(options.out, round_, cores, options.steps if round_ == 0 else SETTLED, SETTLED)
            plain.append(one)
            hand.append(two)
            stepd.append(under_stepd(options.out, path, way, options.steps))
            console.print(stepctl(path, "history", f"digits-{way}").stdout)
            trials += json.loads(stepctl(path, "history", f"digits-{way}", "-o", "json").stdout)
    summary = summarize(plain, hand, stepd, trials)
    (options.out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    show(summary)
    console.print(f"Written to {options.out / 'summary.json'}; the daemon's log and every run's steps are beside it.")


if __name__ == "__main__":
    main()
