"""What the daemon takes of a machine: resident memory and CPU, idle and with one large job.

    python tests/benchmarks/bench_daemon.py [--ops 10000] [--seconds 20]

A real daemon process; the job is the paper training process of tests/daemon. Goals: 100 MB, 0.5 % of a core. Prints JSON.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any

FIXTURES = Path(__file__).parents[1] / "daemon" / "conftest.py"
SETTLE_SECONDS = 12.0  # the daemon gives freed memory back every ten seconds


def paper() -> ModuleType:
    """The daemon tests' own process wrapper and paper training process."""
    spec = importlib.util.spec_from_file_location("daemon_fixtures", FIXTURES)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def resident_mb(pid: int) -> dict[str, int]:
    rows = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {name: int(rows[key].split()[0]) >> 10 for name, key in (("resident_mb", "VmRSS"), ("most_mb", "VmHWM"))}


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def look(pid: int, seconds: float) -> dict[str, Any]:
    """Memory now, and the share of a core over the next `seconds`."""
    begun, start = cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)
    return resident_mb(pid) | {"cpu": (cpu_seconds(pid) - begun) / (time.monotonic() - start)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=20.0, help="over which CPU time is counted")
    options = parser.parse_args()
    fixtures = paper()
    folder = Path(tempfile.mkdtemp(prefix="stepd-bd-", dir="/tmp"))
    daemon = fixtures.DaemonProcess(folder, *fixtures.QUICK)
    hook = None
    try:
        result = {"idle": look(daemon.process.pid, options.seconds)}
        hook = fixtures.FakeHook(daemon.socket, fixtures.Towers(depth=options.ops // 2))
        hook.open()
        hook.run_steps()
        hook.profile(3)
        fixtures.wait_for("a verdict", lambda: daemon.session(hook.job_id).last_trial.strategy_id)
        time.sleep(SETTLE_SECONDS)
        result["one_job"] = look(daemon.process.pid, options.seconds) | {"ops": daemon.session(hook.job_id).ops}
    finally:
        if hook is not None:
            hook.close()
        daemon.stop()
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(result, indent=1))
    return 0 if result["one_job"]["resident_mb"] <= 100 and result["idle"]["cpu"] <= 0.005 else 1


if __name__ == "__main__":
    sys.exit(main())
