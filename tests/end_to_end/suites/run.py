"""Runs the tests of packages that know nothing of stepd plainly and under the hook, and says which end otherwise.

    python run.py [--python PYTHON] [--path FOLDER] [--v1] [--plugin MODULE] [--modes idle,profiled,both] [--seed S] [--every K]
        [--again N] [--keep FOLDER] [-k EXPRESSION] FILE_OR_FOLDER ...

Everything that pytest can collect, many files in one process. A test that ends in one way plainly and in another in a mode is
run again, alone, both plainly and in the mode: a difference is an end that no plain run has. Tests that fail plainly, too, count:
by the words of their failure. `--plugin`: a module on `--path` that sets a suite up (shims for what newer versions lack).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "fidelity"))

import harness  # type: ignore[import-not-found]  # noqa: E402


@dataclass(frozen=True)
class Suite:
    """What to run and how, the same in every mode."""

    python: str
    targets: tuple[str, ...]
    path: str
    plugin: str | None
    v1: bool
    select: str
    seconds: int
    again: int  # times that a difference is run again, plainly and in its mode


@dataclass(frozen=True)
class End:
    """How a test ended: passed, skipped, failed, died, not collected; and the words of it."""

    outcome: str
    words: str = ""
    text: str = ""

    def same(self, other: End) -> bool:
        return self.outcome == other.outcome and neutral(self.words) == neutral(other.words)


def neutral(words: str) -> str:
    """`words` without numbers that differ between any two processes: addresses, folders, times, object ids."""
    words = re.sub(r"0x[0-9a-f]+|/tmp/[\w./-]+|localhost:\d+|127\.0\.0\.1:\d+|\b[0-9a-f]{16}\b", "<address>", words)
    return re.sub(r"\d+\.\d+(e[+-]\d+)?|\b_\d+_", "<number>", words)


def run(suite: Suite, mode: str, folder: Path, only: list[str] | None = None, **chaos: int) -> dict[str, End]:
    """How each test ended in `mode`; what was run, said and reported lies under `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    notes, done, report = folder / "notes.jsonl", folder / "done", folder / "report.jsonl"
    notes.write_text("")
    done.write_text("")
    env = harness.environment(mode, report, **chaos)
    env |= {"SUITES_RECORD": str(notes), "SUITES_SECONDS": str(suite.seconds), "SUITES_DONE": str(done), "TMPDIR": str(folder)}
    env["PYTHONPATH"] = os.pathsep.join(p for p in (str(HERE), suite.path, env.get("PYTHONPATH", "")) if p)
    if suite.v1:
        env["SUITES_V1"] = "1"
    if only:
        (folder / "only").write_text("\n".join(only))
        env["SUITES_ONLY"] = str(folder / "only")
    command = [suite.python, "-m", "pytest", "-q", "-p", "recording", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
    command += ["-c", os.devnull, "--rootdir", "/", "-W", "default", *(["-p", suite.plugin] if suite.plugin else [])]
    command += [*(["-k", suite.select] if suite.select else []), *suite.targets]
    while True:
        with (folder / "output").open("ab") as out:
            process = subprocess.Popen(command, env=env, stdout=out, stderr=out, cwd=folder, start_new_session=True)
            try:
                status = process.wait()
            finally:
                harness.end_group(process)
        ends, unfinished = read(notes)
        if not unfinished:
            return ends
        with notes.open("a") as file:
            for name in unfinished:
                file.write(json.dumps({"test": name, "outcome": "died", "words": f"status {status}"}) + "\n")
        done.write_text("\n".join([*ends, *unfinished]))


def read(notes: Path) -> tuple[dict[str, End], list[str]]:
    """How tests ended, and those that began and did not end. Of several notes on a test, the first that is not a success counts."""
    ends: dict[str, End] = {}
    began: list[str] = []
    for line in notes.read_text().splitlines():
        note = json.loads(line)
        name = note["test"]
        if note["outcome"] == "began":
            began.append(name)
        elif name not in ends or ends[name].outcome == "passed":
            ends[name] = End(note["outcome"], note.get("words", ""), note.get("text", ""))
    return ends, [name for name in began if name not in ends]


def compare(suite: Suite, plain: dict[str, End], mode: str, folder: Path, **chaos: int) -> int:
    """Runs everything in `mode`, prints what ends as it never ends plainly, and returns how many tests do so."""
    ends, nothing = run(suite, mode, folder / mode, **chaos), End("missing")
    suspects = [name for name in sorted({*plain, *ends}) if not ends.get(name, nothing).same(plain.get(name, nothing))]
    different = 0
    for name in suspects:
        known = [plain.get(name, nothing)]
        known += [run(suite, "plain", folder / "again", [name]).get(name, nothing) for _ in range(suite.again)]
        seen = [ends.get(name, nothing)]
        seen += [run(suite, mode, folder / "again", [name], **chaos).get(name, nothing) for _ in range(suite.again)]
        strange = [end for end in seen if not any(end.same(one) for one in known)]
        if strange:
            different += 1
            plainly = " or ".join(sorted({one.outcome for one in known}))
            print(f"--- {name} [{mode}]: {strange[0].outcome} ({len(strange)} of {len(seen)} times), plainly {plainly}")
            print(strange[0].text or strange[0].words)
    outcome = harness.Outcome({}, harness.read_report(folder / mode / "report.jsonl"))
    own = len(suspects) - different
    print(
        f"=== {mode}: {len(ends)} tests, {different} different, {own} as unsteady plainly; {dict(outcome.switches())}", flush=True
    )
    for reason, count in outcome.refusals().most_common(12):
        print(f"      {count} x {reason}")
    return different


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="+")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--path", default="", help="in front of PYTHONPATH: where the packages lie")
    parser.add_argument("--plugin")
    parser.add_argument("--v1", action="store_true", help="disable_v2_behavior() first")
    parser.add_argument("--modes", default="idle,profiled,both")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=120, help="a test that takes longer hangs")
    parser.add_argument("--again", type=int, default=3, help="how often to run a difference again")
    parser.add_argument("-k", dest="select", default="")
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` ends the tests too
    folder = (args.keep or Path(tempfile.mkdtemp(prefix="suites-"))).resolve()
    targets = tuple(str(Path(t).resolve()) for t in args.targets)
    suite = Suite(args.python, targets, args.path, args.plugin, args.v1, args.select, args.seconds, args.again)
    plain = run(suite, "plain", folder / "plain")
    outcomes = [end.outcome for end in plain.values()]
    print(f"=== plain: { {kind: outcomes.count(kind) for kind in sorted(set(outcomes))} }", flush=True)
    different = sum(compare(suite, plain, mode, folder, seed=args.seed, every=args.every) for mode in args.modes.split(","))
    print(f"records: {folder}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
