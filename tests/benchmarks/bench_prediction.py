"""How well the execution model predicts real steps: `make bench-prediction`.

Trains docs/examples/train_digits.py on two local devices, asks the daemon for the learned planning problem, places it with several
algorithms and the portfolio, and has each strategy run for some seconds in its own order (pinned: the guard keeps it whatever it
costs), all of them by turns. Prints predicted and measured step times, and what crosses between the devices. Predictions are scaled
by what one device measured.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np

from stepd.kernels import cache

cache.use()

from stepd.core.placement import registry  # noqa: E402
from stepd.core.portfolio.start_order import natural_priority  # noqa: E402
from stepd.core.problem import Index, Problem  # noqa: E402
from stepd.core.problem_format import parse_problem  # noqa: E402
from stepd.core.simulator import simulate_placement  # noqa: E402
from stepd.core.strategy import Strategy  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
ALGORITHMS = ("metis", "heft", "etf", "fastt-dpos", "linear-clustering", "portfolio")
PLAN_SECONDS = 10.0


class Training:
    """The example under stepd; the daemon is paused before it proposes anything."""

    def __init__(self, folder: Path, steps: int) -> None:
        self.folder, self.socket = folder, folder / "s"
        environ = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"}
        command = [BIN / "stepd", "serve", "--socket", self.socket, "--state-dir", folder / "state"]
        self.daemon = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._until("the daemon serves", lambda: self.stepctl("health").returncode == 0)
        script = [sys.executable, ROOT / "docs/examples/train_digits.py", "--steps", str(steps), "--out", folder / "run.json"]
        launcher = [BIN / "stepd-run", "--socket", self.socket, "--name", "digits", "--local-devices", "2", "--", *script]
        environ |= {"STEPD_REPORT": str(folder / "report"), "STEPD_MAX_COPIES": "12"}
        environ["STEPD_WAY"] = "in-session"
        self.script = subprocess.Popen(launcher, env=environ, stderr=subprocess.DEVNULL)

    def stepctl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([BIN / "stepctl", "--socket", self.socket, *arguments], capture_output=True, text=True, check=False)

    def _until(self, what: str, holds) -> None:  # type: ignore[no-untyped-def]
        deadline = time.monotonic() + 120
        while not holds():
            if time.monotonic() > deadline:
                raise SystemExit(f"not so within two minutes: {what}")
            time.sleep(0.2)

    def events(self, kind: str) -> int:
        report = self.folder / "report"
        return report.read_text().count(f'"event": "{kind}"') if report.exists() else 0

    def problem(self) -> Problem:
        self._until("steps are traced", lambda: self.events("traced") >= 8)
        self.stepctl("pause", "digits")
        path = self.folder / "problem.json"
        self._until("the problem is known", lambda: self.stepctl("export-problem", "digits", "-o", str(path)).returncode == 0)
        return parse_problem(path.read_text())

    def activate(self, problem: Problem, strategy: Strategy) -> float:
        """Has the strategy in force, its order enforced as well as can be; returns the moment when it was."""
        names = [device.name for device in problem.devices]
        chosen = {op: names[k] for op, k in zip(problem.op_names, strategy.placement.tolist(), strict=True)}
        priority = dict(zip(problem.op_names, strategy.priority.tolist(), strict=True))
        path = self.folder / "strategy.json"
        path.write_text(json.dumps({"devices": names, "placement": chosen, "priority": priority}))
        switches = self.events("switch")
        answer = self.stepctl("activate", "digits", str(path), "--pin")
        if answer.returncode != 0:
            raise SystemExit(f"stepctl activate: {answer.stderr}")
        self._until("the switch is done", lambda: self.events("switch") > switches)
        return time.perf_counter()


def crossing(problem: Problem, placement: Index) -> tuple[int, float]:
    """(outputs sent to another device, their megabytes)."""
    remote = placement[problem.edge_src] != placement[problem.edge_dst]
    rows = zip(problem.edge_src[remote], placement[problem.edge_dst[remote]], problem.edge_output[remote], strict=True)
    sent = {key: int(size) for key, size in zip(rows, problem.edge_bytes[remote], strict=True)}
    return len(sent), sum(sent.values()) / 1e6


def without_handling(problem: Problem) -> Problem:
    links = tuple(replace(link, handling_seconds=0.0, handling_seconds_per_byte=0.0) for link in problem.links)
    return replace(problem, links=links)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each turn of a placement")
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        steps = int(60 + PLAN_SECONDS / 0.05 + options.rounds * (options.seconds + 1) * (len(ALGORITHMS) + 2) / 0.11)
        training = Training(Path(folder), steps)
        try:
            problem = training.problem()
            worker = next(k for k, device in enumerate(problem.devices) if "task:0" in device.name)
            allowed = np.isfinite(problem.seconds)
            alone = np.where(allowed[:, worker], worker, allowed.argmax(axis=1)).astype(np.int32)
            strategies = {"one device": Strategy(problem.name, alone, natural_priority(problem), math.nan)}
            with ThreadPoolExecutor(1) as pool:
                settings = registry.PlanOptions(budget_seconds=PLAN_SECONDS, run_all=pool.map, clock=time.process_time)
                strategies |= {name: registry.plan(name, problem, settings) for name in ALGORITHMS}
            turns = []
            for _ in range(options.rounds):
                for name in strategies:
                    begin = training.activate(problem, strategies[name])
                    time.sleep(options.seconds)
                    turns.append((name, begin, time.perf_counter()))
            training.script.wait()
        finally:
            training.script.kill()
            training.daemon.terminate()
            training.daemon.wait()
        run = json.loads((Path(folder) / "run.json").read_text())
    show(problem, strategies, turns, run)


def show(problem: Problem, strategies: dict[str, Strategy], turns: list[tuple[str, float, float]], run: dict) -> None:  # type: ignore[type-arg]
    plain = without_handling(problem)
    scale, misses = 0.0, []
    print(f"{'placement':18} {'sent':>5} {'MB':>6} {'measured ms':>12} {'predicted':>10} {'without handling':>17}")
    steps = list(zip(run["seconds"], run["starts"], strict=True))
    for name, strategy in strategies.items():
        mine = [(begin, end) for turned, begin, end in turns if turned == name]
        measured = statistics.median(s for s, at in steps if any(begin + 0.7 < at < end - 0.3 for begin, end in mine))
        predicted = [simulate_placement(p, strategy.placement, strategy.priority).step_seconds for p in (problem, plain)]
        scale = scale or measured / predicted[0]
        misses.append([math.log(scale * p / measured) for p in predicted])
        count, size = crossing(problem, strategy.placement)
        shown = [scale * p * 1e3 for p in predicted]
        print(f"{name:18} {count:5} {size:6.1f} {measured * 1e3:12.1f} {shown[0]:10.1f} {shown[1]:17.1f}")
    typical = [math.exp(math.sqrt(statistics.fmean(m[k] ** 2 for m in misses[1:]))) - 1 for k in (0, 1)]
    print(f"typical miss: {typical[0]:.0%} with the time that transfers take of the cores at their ends, {typical[1]:.0%} without")


if __name__ == "__main__":
    main()
