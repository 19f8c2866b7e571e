"""Holds a random placement through a whole program, says whether the program can tell, and shrinks it to what it tells by.

    python held.py family.case [...] [--seeds 1-4] [--repeat N] [--shrink] [--folder FOLDER_OF_PROGRAMS] [--order control|native]

Chaos mode places anew after every few runs; a placement that is held is in force for most steps, and its differences come again,
so that they can be shrunk: ops are sent home by halves for as long as the program still differs. The environment varies programs
as in run.py. Works in session.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path("/work/main/tests/end_to_end/fidelity/held9.py").parent))

import compared
import harness


def diffs(a, b):
    keep = lambda r: [n for n in r if n[0] not in ("graph", "saved")]
    return compared.differences(keep(a), keep(b))


class Holder:
    """A process in which programs run again and again, with the placement that they are told."""

    def __init__(self, folder: Path, mode: str, order: str = "") -> None:
        self._folder, self._mode, self._order = folder, mode, order
        self._process: subprocess.Popen[str] | None = None
        self._asked = 0

    def run(self, name: str, seed: int = 0, only: Sequence[str] | None = None) -> tuple[list[Any], list[str]]:
        """The record of `name` and the units that were moved; `only` these may be (all if None)."""
        if self._process is None or self._process.poll() is not None:
            self._process = self._start()
        assert self._process.stdin is not None and self._process.stdout is not None
        self._asked += 1
        place = self._folder / f"{self._mode}-{self._asked}"
        place.mkdir(parents=True)
        print(json.dumps([name, seed, only, str(place)]), file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            if line.startswith("HELD "):
                return json.loads((place / f"{name}.json").read_text()), json.loads(line[5:])
        return [["died", self._process.wait()]], list(only or ())

    def _start(self) -> subprocess.Popen[str]:
        if self._order:
            os.environ["FIDELITY_ORDER"] = self._order
        env = harness.environment(self._mode, self._folder / "report.jsonl", every=1)
        self._folder.mkdir(parents=True, exist_ok=True)
        errors = (self._folder / "stderr").open("ab")
        command = [sys.executable, "/work/main/tests/end_to_end/fidelity/held9.py", "--serve", str(harness.PROGRAMS)]
        return subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)


def serve(programs: str) -> None:
    """The other end of a Holder: one program for every line of input."""
    import dataclasses

    sys.path.insert(0, str(Path(programs)))
    import run
    import variations

    variations.vary()
    moved: dict[str, None] = {}
    told: dict[str, Any] = {}
    if "STEPD_CHAOS" in os.environ:
        from stepd.hook.engine import chaos

        drawn = chaos.ChaosMonkey.strategy

        def due(monkey: Any) -> bool:
            with monkey._lock:
                monkey._runs += 1
                return monkey._runs in (2, 3, 5, 9, 17, 33)  # the graph may have grown since the last one

        def strategy(monkey: Any, units: Any, again: Any) -> Any:
            monkey._made = 0  # never back
            share = random.Random(told["seed"]).choice([0.5, 0.9, 1.0])
            placement: dict[str, str] = {}
            for members, devices in units:
                dice = random.Random(f"{told['seed']}/{members[0]}")
                if not devices or dice.random() >= share or (told["only"] is not None and members[0] not in told["only"]):
                    continue
                moved[members[0]] = None
                placement.update(dict.fromkeys(members, dice.choice(devices)))
            return dataclasses.replace(drawn(monkey, units, []), placement=placement)

        chaos.ChaosMonkey.due, chaos.ChaosMonkey.strategy = due, strategy  # type: ignore[method-assign]
    for line in sys.stdin:
        name, told["seed"], told["only"], place = json.loads(line)
        moved.clear()
        run.run_one(name, place, harness.SECONDS_EACH)
        print("HELD", json.dumps(list(moved)), flush=True)


def shrunk(holder: Holder, plain: list[Any], name: str, seed: int, moved: list[str], repeat: int) -> list[str]:
    """The fewest of `moved` that were found with which `name` still differs from `plain`."""
    parts = 2
    while len(moved) > 1:
        size = -(-len(moved) // parts)
        for k in range(0, len(moved), size):
            fewer = moved[:k] + moved[k + size :]
            if any(diffs(plain, holder.run(name, seed, fewer)[0]) for _ in range(repeat)):
                moved, parts = fewer, max(2, parts - 1)
                print(f"    still differs with {len(moved)}", flush=True)
                break
        else:
            if parts >= len(moved):
                break
            parts = min(len(moved), 2 * parts)
    return moved


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--seeds", default="1-4", help="FIRST-LAST, a placement each")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="tries of a placement, and plain ones before them")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--folder", type=Path, help="where the programs are, if not beside this folder")
    parser.add_argument("--order", default="", choices=["", "control", "native"], help="hold random priorities too")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve)
        return 0
    if args.folder:
        harness.PROGRAMS = args.folder.resolve()
        os.environ["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(Path("/work/main/tests/end_to_end/fidelity/held9.py").parents[1] / "programs"), os.environ.get("PYTHONPATH")])
        )
    first, _, last = args.seeds.partition("-")
    folder = Path(tempfile.mkdtemp(prefix="held-"))
    plainly, held = Holder(folder / "plain", "plain"), Holder(folder / "held", "in-session", args.order)
    differ = 0
    for name in harness.names(args.programs):
        plain = plainly.run(name)[0]
        if why := compared.cut_short(plain):
            print(f"{name} shows nothing: plainly it does not get to its end: {why}")
            continue
        if any(diffs(plain, plainly.run(name)[0]) for _ in range(args.repeat)):
            print(f"{name} differs from itself, plainly")
            continue
        bad = []
        for seed in range(int(first), int(last or first) + 1):
            tries = [held.run(name, seed) for _ in range(args.repeat)]
            found = [(text, moved) for record, moved in tries for text in diffs(plain, record)]
            if found:
                bad.append(seed)
                print(f"--- {name} [seed {seed}] ({len(found)} notes differ)\n{found[0][0]}", flush=True)
                if args.shrink:
                    few = shrunk(held, plain, name, seed, found[0][1], args.repeat)
                    print(f"    by {len(few)} units: {few}")
        differ += bool(bad)
        print(f"=== {name}: {f'differs with seeds {bad}' if bad else 'no difference'}", flush=True)
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
