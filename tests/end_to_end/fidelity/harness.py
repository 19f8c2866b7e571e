"""Runs the programs beside this folder plain and under the hook, and says where their records differ.

    python harness.py [--python PYTHON] [--modes plain,idle,...] [--seed S] [--every K] [--local-devices N] [--gpus] [--jobs N]
        [--keep FOLDER] [name or family ...]

A program knows nothing of stepd; a mode is nothing but environment variables, and with --local-devices the launcher. Many
programs share one process, to save the import of TensorFlow; one that dies or hangs is counted as different and the next
ones go on in a new process. With --gpus programs see the machine's GPUs, with deterministic kernels; chaos makes three of each.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from compared import cut_short, differences, own_lines, without_addresses
from core_programs import BY_CALLABLES, CORE, CORE_MODES, CORE_SCRIPTS

__all__ = ["BY_CALLABLES", "CORE", "CORE_MODES", "CORE_SCRIPTS", "cut_short", "differences", "own_lines"]

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE.parent / "programs"
PROCESSES = HERE.parent / "processes"
SECONDS_EACH = 120.0  # of a program; those in which its process is stopped (so that others can measure) do not count
PATIENCE = 10.0  # so much longer is waited for a process that does not end itself for that
CHAOS_MODES = ("in-session", "restart", "both")
MODES = ("idle", "profiled", *CHAOS_MODES)


@dataclass(frozen=True)
class Outcome:
    """Records by program, and what the hook reported while they ran."""

    records: dict[str, Any]
    events: list[dict[str, Any]] = field(default_factory=list)

    def switches(self) -> Counter[str]:
        """How many switches of each way and kind."""
        done: Counter[str] = Counter()
        for event in self.events:
            if event["event"] == "switch":
                what = "rolled back" if event.get("rollback") else "switched"
                done[f"{event.get('way')} {what if event.get('ok') else 'refused'}"] += 1
            else:
                done[event["event"]] += 1
        return done

    def lifted(self) -> int:
        """How many waits for tuples the copies did without (docs/hook.md, "The graph's own waits"), over all switches."""
        said = [str(e.get("order", "")) for e in self.events if e["event"] == "switch" and e.get("ok")]
        return sum(int(found[1]) for text in said if (found := re.search(r"(\d+) waits lifted", text)))

    def refusals(self) -> Counter[str]:
        """Why switches did not happen, with their numbers and names taken out."""
        errors = (str(e.get("error", "")) for e in self.events if e["event"] in ("switch", "strategy_failed"))
        return Counter(re.sub(r"\d+", "N", error)[:160] for error in errors if error)


def is_full() -> bool:
    """Every program in every mode, rather than the core?"""
    return os.environ.get("FIDELITY") == "full"


def environment(mode: str, report: Path, seed: int = 1, every: int = 2, local_devices: int = 0) -> dict[str, str]:
    """The variables of a mode, on top of this process's own without any STEPD_ one, and without pytest's, which come and go."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("STEPD_", "PYTEST_"))}
    if local_devices:  # workers have one intra-op thread, and with more some processors' kernels sum in another order
        env["TF_NUM_INTRAOP_THREADS"] = "1"
    env |= {"PYTHONHASHSEED": "0", "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONDONTWRITEBYTECODE": "1"}
    if os.environ.get("FIDELITY_GPUS"):
        env |= {"TF_DETERMINISTIC_OPS": "1", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    else:
        env["CUDA_VISIBLE_DEVICES"] = ""
    if mode == "plain":
        return env
    env |= {"STEPD_ENABLE": "1", "STEPD_REPORT": str(report)}
    if mode == "idle":
        return env | {"STEPD_SOCKET": str(report.parent / "nobody.sock")}
    env["STEPD_DAEMON"] = "0"
    if mode == "profiled":
        return env | {"STEPD_PROFILE": "always"}
    if os.environ.get("FIDELITY_USER_DEVICES"):  # free, keep or override
        env["STEPD_USER_DEVICES"] = os.environ["FIDELITY_USER_DEVICES"]
    if os.environ.get("FIDELITY_PROFILED"):  # every step that can be is traced, under strategies too
        env["STEPD_PROFILE"] = "always"
    devices = os.environ.get("FIDELITY_DEVICES", "3")
    chaos = f"switch-every={every},way={mode},seed={seed},devices={devices}"
    order = os.environ.get("FIDELITY_ORDER", "")  # control or native: random priorities too, enforced in this way
    return env | ({"STEPD_CHAOS": f"{chaos},order=1", "STEPD_ORDER": order} if order else {"STEPD_CHAOS": chaos})


def names(selected: list[str] | None = None) -> list[str]:
    """All programs as family.case, or those whose family or name is in `selected`."""
    found = []
    for path in sorted(PROGRAMS.glob("*.py")):
        cases = re.findall(r"^def program_(\w+)\(record\)", path.read_text(), re.M)
        found += [f"{path.stem}.{case}" for case in cases]
    if not selected:
        return found
    found += [s for s in selected if re.fullmatch(r"composed\.s\d+", s)]
    unknown = [s for s in selected if not any(s in (n, n.split(".")[0]) for n in found)]
    if unknown:
        raise ValueError(f"no such program: {', '.join(unknown)}")
    return [n for n in found if n in selected or n.split(".")[0] in selected]


def launched(mode: str, local_devices: int, python: str) -> list[str]:
    """What stands before the command of a program: the launcher, where it is to run on worker processes. Plain stays plain."""
    if mode == "plain" or not local_devices:
        return []
    return [python, "-m", "stepd.hook.launcher", "--no-daemon", "--local-devices", str(local_devices)]


def run(
    mode: str, programs: list[str], folder: Path, python: str = sys.executable, local_devices: int = 0, **chaos: int
) -> Outcome:
    """Runs `programs` in `mode`; their records lie under `folder` afterwards. `local_devices`: so many worker processes."""
    folder = folder.resolve()
    folder.mkdir(parents=True)
    report = folder / "report.jsonl"
    env = environment(mode, report, local_devices=local_devices, **chaos)
    left, records = list(programs), {}
    while left:
        command = [*launched(mode, local_devices, python), python, str(PROGRAMS / "run.py"), str(folder), str(SECONDS_EACH), *left]
        with (folder / "stderr").open("wb") as err:
            process = subprocess.Popen(command, env=env, stdout=err, stderr=err, cwd=folder, start_new_session=True)
            try:
                status = process.wait(60 + PATIENCE * SECONDS_EACH * len(left))
            finally:
                end_group(process)
        for name in left:
            path = folder / f"{name}.json"
            if not path.exists():
                tail = (folder / "stderr").read_text(errors="replace")[-6000:]
                records[name] = [["died", {"status": status, "stderr": tail}]]
                break
            records[name] = json.loads(path.read_text())
        left = [name for name in left if name not in records]
    return Outcome(records, read_report(report))


def run_side_by_side(jobs: int, mode: str, programs: list[str], folder: Path, *args: Any, **chaos: int) -> Outcome:
    """As `run`, in so many processes at once."""
    with ThreadPoolExecutor(jobs) as pool:
        shares = [programs[k::jobs] for k in range(min(jobs, len(programs)))]
        made = [pool.submit(run, mode, share, folder / f"job{k}", *args, **chaos) for k, share in enumerate(shares)]
        return merged([one.result() for one in made])


def merged(parts: list[Outcome]) -> Outcome:
    return Outcome({k: v for p in parts for k, v in p.records.items()}, [e for p in parts for e in p.events])


def run_process(
    mode: str, script: str, folder: Path, python: str = sys.executable, local_devices: int = 0, **chaos: int
) -> Outcome:
    """Runs one script of `processes` on its own; its record is its status, its output and its own words on stderr."""
    folder = folder.resolve()
    folder.mkdir(parents=True)
    report = folder / "report.jsonl"
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        process = subprocess.Popen(
            [*launched(mode, local_devices, python), python, str(PROCESSES / f"{script}.py")],
            env=environment(mode, report, local_devices=local_devices, **chaos),
            stdout=out,
            stderr=err,
            cwd=folder,
            start_new_session=True,
        )
        try:
            status: Any = process.wait(PATIENCE * SECONDS_EACH)
        except subprocess.TimeoutExpired:
            status = "hangs"
        finally:
            end_group(process)
    stdout = [without_addresses(line) for line in (folder / "stdout").read_text(errors="replace").splitlines()]
    record = [["status", status], ["stdout", stdout], ["stderr", own_lines((folder / "stderr").read_text(errors="replace"))]]
    return Outcome({script: record}, read_report(report))


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Ends what the program may have left running in its process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def read_report(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--modes", default=",".join(("plain", *MODES)))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=2)
    parser.add_argument("--local-devices", type=int, default=0, metavar="N", help="all modes but plain on N worker processes")
    parser.add_argument("--gpus", action="store_true", help="let programs see the machine's GPUs, which are hidden otherwise")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="so many processes at once")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--path", help="PYTHONPATH of the programs, this process's own if not given")
    parser.add_argument("--core", action="store_true", help="the programs of the ordinary test run")
    parser.add_argument("--processes", action="store_true", help="the scripts that need a process of their own")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` ends the programs too
    if args.path:
        os.environ["PYTHONPATH"] = args.path
    if args.gpus:
        os.environ["FIDELITY_GPUS"] = "1"
    folder = args.keep or Path(tempfile.mkdtemp(prefix="fidelity-"))
    chaos = {"seed": args.seed, "every": args.every, "local_devices": args.local_devices}
    total = 0
    if args.processes:
        programs = args.programs or sorted(p.stem for p in PROCESSES.glob("*.py"))
    else:
        programs = [n for n in names(args.programs) if not args.core or n in CORE]

    def everything(mode: str, place: Path) -> Outcome:
        shutil.rmtree(place, ignore_errors=True)
        if not args.processes:
            return run_side_by_side(args.jobs, mode, programs, place, args.python, **chaos)
        return merged([run_process(mode, p, place / p, args.python, **chaos) for p in programs])

    plain = everything("plain", folder / "reference")
    for name in programs:
        if why := cut_short(plain.records[name]):
            total += 1
            print(f"--- {name} shows nothing: plainly it does not get to its end: {why}")
    for mode in args.modes.split(","):
        outcome = everything(mode, folder / mode)
        different = 0
        for name in programs:
            found = differences(plain.records[name], outcome.records[name])
            different += bool(found)
            for text in found[:3]:
                print(f"--- {name} [{mode}] ({len(found)} notes differ)\n{text}")
        total += different
        if mode in CHAOS_MODES and not outcome.switches()["opened"]:
            total += 1
            print(f"--- [{mode}] shows nothing: no session was hooked; is stepd installed beside {args.python or sys.executable}?")
        done = f"{dict(outcome.switches())}, {outcome.lifted()} waits lifted"
        print(f"=== {mode}: {len(programs)} programs, {different} different; {done}", flush=True)
        for reason, count in outcome.refusals().most_common(12):
            print(f"      {count} x {reason}")
    print(f"records: {folder}")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
