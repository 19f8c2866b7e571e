"""Switches near a GPU's memory limit.

    python tests/benchmarks/bench_gpu_memory.py [--width 5120] [--mib 3072] [--steps 14] [--out FOLDER]

Looks for the most layers with which gpu_memory_training.py trains plainly, and runs it so in chaos, a switch before every step:
in session, by restart, both. Prints what came of the switches and how long they were tried, and says whether all losses are those
of the plain run; exits with 1 where not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM = Path(__file__).with_name("gpu_memory_training.py")
MOST, LIMIT_SECONDS = 8, 300


def train(out: Path, sizes: list[int], **environment: str) -> float:
    """Seconds that the program took; its losses are in `out`."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("STEPD_")}
    plain |= {"TF_DETERMINISTIC_OPS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    began = time.monotonic()
    with out.with_suffix(".err").open("wb") as said:
        command = [sys.executable, str(PROGRAM), str(out), *map(str, sizes)]
        subprocess.run(command, env=plain | environment, stdout=said, stderr=said, timeout=LIMIT_SECONDS, check=False)
    return time.monotonic() - began


def trained(out: Path) -> bool:
    return out.exists() and out.read_text().endswith("end\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=5120)
    parser.add_argument("--mib", type=int, default=3072)
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    folder = args.out or Path(tempfile.mkdtemp(prefix="gpu-memory-"))
    folder.mkdir(parents=True, exist_ok=True)
    plain = folder / "plain.txt"
    for layers in range(MOST, 0, -1):
        sizes = [layers, args.width, args.steps, args.mib]
        seconds = train(plain, sizes)
        if trained(plain):
            break
    else:
        said = plain.with_suffix(".err").read_text()[-800:]
        raise SystemExit(f"not even one layer of {args.width} trains in {args.mib} MiB: {said}")
    print(f"plain: {layers} layers, {seconds:.1f} s in all")
    different = 0
    for way in ("in-session", "restart", "both"):
        out, report = folder / f"{way}.txt", folder / f"{way}.report"
        chaos = {"STEPD_ENABLE": "1", "STEPD_DAEMON": "0", "STEPD_CHAOS": f"switch-every=1,way={way},seed=1"}
        seconds = train(out, sizes, STEPD_REPORT=str(report), **chaos)
        switches = [one for one in map(json.loads, report.read_text().splitlines()) if one["event"] == "switch"]
        refused = sorted({one["error"][:160] for one in switches if not one["ok"]})
        same = out.exists() and out.read_text() == plain.read_text()
        different += not same
        done = sum(one["ok"] for one in switches)
        said = "the same" if same else "DIFFERS"
        print(f"{way}: {said}, {seconds:.1f} s; {done} switches, {len(switches) - done} refused {refused}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
