"""The main job from end to end: `make demo`.

Runs docs/examples/train_digits.py, which knows nothing of stepd, on two local devices (worker processes, a core each):

1. plainly, on one of the two devices (the faster of a worker and a session in the program's own process);
2. placed by hand on both;
3. under stepd on both, switched in the session, and once more, switched by checkpoint and restart; the daemon remembers what it
   learned from the first of the two.

Each job under stepd first runs alone until its strategy has settled: the daemon has looked for one, and judged it; in the first job
three times, since what it measured of one strategy makes the next better. Then it is told to leave it at that (`stepctl pause`),
and all jobs take turns of some steps, so that none has the machine's best minute for itself.
Every loss of every step is compared with the plain run's. Ends with a table and OUT/summary.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table
from turns import Job, breathe, by_turns

HERE = Path(__file__).parent
SCRIPT = HERE / "train_digits.py"
BIN = Path(sys.executable).parent
WARM_UP = 20  # steps that build executors and fill caches
TURN = 10  # steps: the machine's pace may change within seconds
COMPARED = 60  # steps of each job, by turns
PLANS = {"in-session": 3, "restart": 1}  # that the daemon makes for a job; the second begins with what was best in the first
SHOWN = 20  # every so many steps a line
TRIAL = 40.0  # seconds beyond its limit that a job may take to end a trial, which is not to fall into the turns
ENDLESS = 1_000_000  # steps: the jobs are told when to end
console = Console(highlight=False)


def start(
    out: Path,
    name: str,
    *,
    options: list[str],
    others: list[subprocess.Popen[bytes]],
    prefix: tuple[str, ...] = (),
    environ: dict[str, str] | None = None,
) -> Job:
    """Start the script in a process of its own."""
    result, report = out / f"{name}.json", out / f"{name}-events.jsonl"
    endless = ["--steps", str(ENDLESS), "--log-every", str(TURN), "--out", str(result)]
    command = [*prefix, sys.executable, str(SCRIPT), *endless, *options]
    script = subprocess.Popen(
        command, env=os.environ | (environ or {}) | {"STEPD_REPORT": str(report)}, stderr=subprocess.PIPE, text=True
    )
    return Job(name, script, result, report, others, lambda line: console.print(f"  {line}"), SHOWN)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


def two_workers(cores: list[int], processes: contextlib.ExitStack) -> tuple[str, list[subprocess.Popen[bytes]]]:
    """Two plain TensorFlow servers, pinned like stepd's local devices: (the first one's target, their processes)."""
    ports = [free_port(), free_port()]
    workers = []
    for task in range(2):
        command = [sys.executable, str(HERE / "tensorflow_worker.py"), str(cores[task]), str(task), ",".join(map(str, ports))]
        workers.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
        processes.callback(workers[-1].kill)
    for worker in workers:
        assert worker.stdout is not None
        if worker.stdout.readline() != b"ready\n":
            raise SystemExit("demo: a TensorFlow server did not start")
    return f"grpc://localhost:{ports[0]}", workers


def daemon(out: Path, processes: contextlib.ExitStack) -> tuple[Path, subprocess.Popen[bytes]]:
    """`stepd serve` with its state under `out`: (its socket, its process). Its jobs may be silent while others have their turn."""
    path = Path(processes.enter_context(tempfile.TemporaryDirectory(prefix="stepd-", dir="/tmp"))) / "demo.sock"  # must be short
    options = ["--socket", str(path), "--state-dir", str(out / "state"), "--set", "silence_seconds=3600"]
    log = processes.enter_context((out / "daemon.log").open("wb"))
    process = subprocess.Popen([sys.executable, "-m", "stepd.daemon.main", "serve", *options], stdout=log, stderr=subprocess.STDOUT)
    processes.callback(process.kill)
    deadline = time.monotonic() + 60
    while stepctl(path, "health").returncode != 0:
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"demo: the daemon did not start, see {log.name}")
        time.sleep(0.2)
    return path, process


def stepctl(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(BIN / "stepctl"), "--socket", str(path), *arguments], capture_output=True, text=True, check=False)


def decisions(path: Path, name: str) -> list[dict]:
    """What the daemon has decided about this job so far, from its log."""
    log = (path / "daemon.log").read_text().splitlines()
    events = [json.loads(line) for line in log if line.startswith("{") and line.endswith("}")]
    job = next((event["job"] for event in events if event["event"] == "job attached" and event["name"] == name), "")
    return [event for event in events if event["event"] == "session" and event["job"] == job]


def settled(made: list[dict], plans: int) -> bool:
    """Has the daemon planned for a job so many times, or found nothing better the last time, and judged what came of it?"""
    phases = [event["phase"] for event in made]
    known = any(event["note"].startswith("costs did not change") for event in made)
    at_rest = bool(phases) and phases[-1] in ("COMMITTED", "WATCHING", "ROLLED_BACK")
    return at_rest and (known or phases.count("PLANNING") >= plans or phases[-2:-1] == ["PLANNING"])


def on_trial(made: list[dict]) -> bool:
    """Is a strategy being judged, or about to be?"""
    return bool(made) and made[-1]["phase"] in ("PROPOSED", "SWITCHING", "VERIFYING")


def pin(job: Job, cores: list[int]) -> None:
    """Keep a script that runs in one process, with all its threads, on these cores."""
    for thread in Path(f"/proc/{job.script.pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


def compared(out: Path, cores: list[int], most: float, processes: contextlib.ExitStack) -> tuple[list[Job], Job, list[Job], Path]:
    """Start every job, and let those under stepd run alone until they have settled: (the plain ones, the one placed by hand, those
    under stepd, their daemon's socket)."""

    def under_stepd(way: str, stopped: list[Job]) -> Job:
        others_live_on = breathe(stopped)
        prefix = (str(BIN / "stepd-run"), "--socket", str(path), "--name", way, "--local-devices", "2", "--")
        job = start(out, f"stepd-{way}", options=[], others=[process], prefix=prefix, environ={"STEPD_WAY": way})
        processes.callback(job.end)
        console.print(f"[bold]{job.name}[/bold]: alone until its strategy has settled, at most {most:.0f} s")
        began = time.monotonic()
        while (seconds := time.monotonic() - began) < most + TRIAL:
            job.run_until(job.step + TURN)
            others_live_on()
            made = decisions(out, way)
            if settled(made, PLANS[way]) or (seconds >= most and not on_trial(made)):
                break
        process.send_signal(signal.SIGCONT)
        stepctl(path, "pause", way)
        process.send_signal(signal.SIGSTOP)
        return job

    console.print(f"The jobs without stepd: {WARM_UP} steps of each")
    placements = [two_workers(cores, processes) for _ in range(2)]
    own = start(out, "plain-own-process", options=[], others=[])
    (target, workers), (both, by_hand) = placements
    worker = start(out, "plain-worker", options=["--target", target], others=workers)
    devices = ["--target", both, "--devices", "/job:worker/task:0,/job:worker/task:1"]
    hand = start(out, "hand-placed", options=devices, others=by_hand)
    for job in (own, worker, hand):
        processes.callback(job.end)
    for job in (own, worker, hand):  # they start together, and wait stopped for their turns
        job.run_until(WARM_UP)
    pin(own, cores[:1])
    path, process = daemon(out, processes)
    in_session = under_stepd("in-session", [worker, hand])
    restart = under_stepd("restart", [worker, hand, in_session])
    return [own, worker], hand, [in_session, restart], path


def summarize(plain: list[Job], hand: Job, stepd: list[Job], ends: dict[str, int], trials: list[dict]) -> dict[str, float | int]:
    """`ends`: each job's step at which its turns were over."""

    def step_seconds(job: Job) -> float:
        return statistics.median(job.seconds(COMPARED, ends[job.name]))

    one, by_hand, ours = min(map(step_seconds, plain)), step_seconds(hand), statistics.fmean(map(step_seconds, stepd))
    reference = plain[0].losses()
    events = [event for job in stepd for event in job.events()]
    kept = [trial for trial in trials if trial.get("outcome") == "KEPT"]
    return {
        "plain_one_device_step_seconds": one,
        "hand_placed_step_seconds": by_hand,
        "stepd_step_seconds": ours,
        "speedup_over_one_device": one / ours,
        "speedup_over_hand_placed": by_hand / ours,
        "switches": sum(event["event"] == "switch" and event["ok"] and not event["rollback"] for event in events),
        "rollbacks": sum(event["event"] == "switch" and event["ok"] and event["rollback"] for event in events),
        "loss_max_abs_diff": max(
            abs(a - b) for job in stepd for a, b in zip(job.losses(), reference[: len(job.losses())], strict=True)
        ),
        "steps": sum(len(job.losses()) for job in stepd),
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
    parser.add_argument("--most", type=float, default=110.0, help="seconds that a job under stepd may take to settle")
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
    with contextlib.ExitStack() as processes:
        plain, hand, stepd, path = compared(options.out, cores, options.most, processes)
        for round_ in by_turns([*plain, hand, *stepd], COMPARED, TURN):
            console.print(f"[bold]round {round_} of {COMPARED // TURN}[/bold] is over: {TURN} steps of each job in turn")
        ends = {job.name: job.step for job in (*plain, hand, *stepd)}
        ending = (*stepd, hand, *plain[1:])
        for job in ending:  # all at once: TensorFlow closes a session with a tf.data iterator only after up to a minute
            job.interrupt()
        pin(plain[0], cores)  # meanwhile, to be quick on all cores: the losses that the others' must be
        plain[0].run_until(max(job.step for job in stepd) + 2 * TURN)
        plain[0].interrupt()
        for job in (*ending, plain[0]):
            job.finish()
        trials = []
        for way in ("in-session", "restart"):
            console.print(f"[bold]stepd-{way}[/bold]")
            console.print(stepctl(path, "history", way).stdout)
            trials += json.loads(stepctl(path, "history", way, "-o", "json").stdout)
        summary = summarize(plain, hand, stepd, ends, trials)
    (options.out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    show(summary)
    console.print(f"Written to {options.out / 'summary.json'}; the daemons' logs and every run's steps are beside it.")


if __name__ == "__main__":
    main()
