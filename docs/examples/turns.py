"""Programs that take turns on the same cores, so that their step times can be compared on a machine whose speed drifts.

Each job is a training script with all the processes that it needs (servers, a daemon). Only one job runs at a time; the others are
stopped (SIGSTOP) with all their processes. A turn lasts until the script has printed that it finished so many more steps; of its
step times, those in which the job was stopped are left out.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

STEP = re.compile(r"step +(\d+) ")
BREATH = 0.1
"""Seconds for which a stopped job is let go so that it lives on."""
BETWEEN_BREATHS = 15.0


@dataclass
class Job:
    """A script that prints "step N ..." on standard error and writes losses, starts and seconds of its steps to `result`.

    `others`: processes that run for it alone. `report`: where its session's events are written, if at all. `shown`: lines of steps
    that this divides are handed to `said`, as all events are.
    """

    name: str
    script: subprocess.Popen[str]
    result: Path
    report: Path
    others: list[subprocess.Popen[bytes]] = field(default_factory=list)
    said: Callable[[str], None] = print
    shown: int = 1
    step: int = -1
    pauses: list[tuple[float, float]] = field(default_factory=list)
    _stopped_at: float = 0.0
    _tail: list[str] = field(default_factory=list)
    _events: int = 0

    def _processes(self) -> list[psutil.Process]:
        found = []
        for process in [self.script, *self.others]:
            with contextlib.suppress(psutil.NoSuchProcess):
                parent = psutil.Process(process.pid)
                found += [parent, *parent.children(recursive=True)]
        return found

    def _signal(self, number: int) -> None:
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def run_until(self, step: int) -> None:
        """Let it run until it has printed `step`, or a later one, or has ended; then stop it. Raises SystemExit when it failed."""
        if self._stopped_at:
            self.pauses.append((self._stopped_at, time.perf_counter()))
            self._signal(signal.SIGCONT)
        assert self.script.stderr is not None
        for line in self.script.stderr:
            self._tail = [*self._tail[-20:], line]
            if match := STEP.match(line):
                self.step = int(match[1])
                if self.step % self.shown == 0:
                    self.said(line.rstrip())
            self._show_events()
            if self.step >= step:
                self._signal(signal.SIGSTOP)
                self._signal(signal.SIGSTOP)  # what was started meanwhile
                self._stopped_at = time.perf_counter()
                return
        if self.script.wait() != 0:
            raise SystemExit(f"{self.name} failed with status {self.script.returncode}:\n" + "".join(self._tail))
        self._show_events()
        self.step = step

    def breathe(self) -> None:
        """Let a stopped job run for a moment, so that its processes answer each other: gRPC gives up a connection whose ping was
        not answered for a minute. The moment counts as part of its pause.
        """
        if self._stopped_at:
            self._signal(signal.SIGCONT)
            time.sleep(BREATH)
            self._signal(signal.SIGSTOP)
            self._signal(signal.SIGSTOP)  # what was started meanwhile

    def interrupt(self) -> None:
        """Let it end after the step that it is in (SIGINT)."""
        self.script.send_signal(signal.SIGINT)
        self._signal(signal.SIGCONT)

    def finish(self) -> None:
        """Wait for the end of a job that was interrupted. Raises SystemExit when it failed."""
        self.run_until(sys.maxsize)

    def end(self) -> None:
        """Nothing of it is left; stopped processes are let go first, so that they can clean up."""
        self._signal(signal.SIGCONT)
        for process in [self.script, *self.others]:
            process.terminate()
            process.wait()

    def events(self) -> list[dict]:
        """What its session reported so far."""
        if not self.report.exists():
            return []
        return [json.loads(line) for line in self.report.read_text().splitlines() if line.endswith("}")]

    def _show_events(self) -> None:
        events = self.events()
        for event in events[self._events :]:
            if event["event"] == "switch":
                what = "back to the program's own placement" if event["rollback"] else f"strategy {event['strategy_id'][:8]}"
                outcome = "" if event["ok"] else f" FAILED: {event['error']}"
                waited = f"the step waited {event['wait_seconds'] * 1000:.0f} ms"
                self.said(f"[cyan]switch[/cyan] ({event['way']}): {what}, {waited}{outcome}")
            elif event["event"] == "verdict":
                self.said(f"[cyan]verdict[/cyan]: {event['outcome']}: {event['reason']}")
        self._events = len(events)

    def losses(self) -> list[float]:
        return json.loads(self.result.read_text())["losses"]

    def seconds(self, last: int, until: int) -> list[float]:
        """Times of the `last` steps up to step `until`, but for those in which it was stopped."""
        run = json.loads(self.result.read_text())
        these = slice(until + 1 - last, until + 1)
        steps = zip(run["starts"][these], run["seconds"][these], strict=True)
        return [s for start, s in steps if not any(start < end and begin < start + s for begin, end in self.pauses)]


def breathe(jobs: list[Job]) -> Callable[[], None]:
    """What has the stopped `jobs` breathe where they have not for a while."""
    last = time.monotonic()

    def now() -> None:
        nonlocal last
        if time.monotonic() - last > BETWEEN_BREATHS:
            for job in jobs:
                job.breathe()
            last = time.monotonic()

    return now


def by_turns(jobs: list[Job], steps: int, turn: int) -> Iterator[int]:
    """Run each job `steps` further steps, `turn` steps at a time, to and fro (A B, B A, ...); yields each round when it is over."""
    begins = {job.name: job.step for job in jobs}
    for round_ in range(1, steps // turn + 1):
        for job in jobs if round_ % 2 else reversed(jobs):
            job.run_until(begins[job.name] + round_ * turn)
        yield round_
