"""Runs the fidelity programs against several TensorFlows, each in a virtual environment of its own under build/.

    python tests/end_to_end/versions.py [--versions 2.12 2.15 2.21] [--modes idle,in-session] [--core] [name or family ...]

An environment is made once (python -m venv, pip install of this project and tensorflow-cpu) by the newest interpreter
on PATH that the version
supports; STEPD_PYTHON_<version with _> names another environment's python that is used as it is. Exit status 1 when a
program could tell.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HARNESS = Path(__file__).resolve().parent / "fidelity" / "harness.py"
# Newest first; TensorFlow's wheels exist for these.
INTERPRETERS = {
    **dict.fromkeys(("2.12", "2.13", "2.14", "2.15"), ("3.11", "3.10")),
    **dict.fromkeys(("2.16", "2.17", "2.18", "2.19"), ("3.12", "3.11", "3.10")),
    **dict.fromkeys(("2.20", "2.21"), ("3.13", "3.12", "3.11", "3.10")),
}
# Packages that a version needs held back: its own metadata does not.
PINS = {
    "2.12": ("numpy<1.24", "setuptools<81"),
    **dict.fromkeys(("2.13", "2.14", "2.15", "2.16", "2.17"), ("numpy<2", "setuptools<81")),
    **dict.fromkeys(("2.18", "2.19", "2.20"), ("setuptools<81",)),
}


def python_for(version: str) -> Path:
    """The interpreter of an environment with TensorFlow `version` and this project, made if it is not there."""
    given = os.environ.get("STEPD_PYTHON_" + version.replace(".", "_"))
    if given:
        return Path(given)
    place = ROOT / "build" / "venvs" / f"tf{version}"
    python = place / "bin" / "python"
    if not (place / "complete").exists():
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run([interpreter(version), "-m", "venv", str(place)], check=True)
        packages = [f"tensorflow-cpu=={version}.*", *PINS.get(version, ()), "-e", str(ROOT)]
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--upgrade", "pip"], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        (place / "complete").touch()
    return python


def interpreter(version: str) -> str:
    if version not in INTERPRETERS:
        raise SystemExit(f"no such version: {version}; there are {', '.join(INTERPRETERS)}")
    wanted = INTERPRETERS[version]
    for minor in wanted:
        if sys.version_info[:2] == tuple(int(part) for part in minor.split(".")):
            return sys.executable
        found = shutil.which(f"python{minor}")
        if found:
            return found
    raise SystemExit(f"TensorFlow {version} needs Python {' or '.join(wanted)} on PATH")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--versions", nargs="+", default=["2.12", "2.15", "2.21"])
    parser.add_argument("--modes", default="idle,in-session,restart")
    parser.add_argument("--core", action="store_true", help="only the programs of the ordinary test run")
    args = parser.parse_args()
    failed = []
    for version in args.versions:
        python = python_for(version)
        text = "import tensorflow as tf, sys; print('TensorFlow', tf.__version__, 'Python', sys.version.split()[0])"
        print(subprocess.run([python, "-c", text], check=True, capture_output=True, text=True).stdout.strip(), flush=True)
        command = [sys.executable, str(HARNESS), "--python", str(python), "--modes", args.modes]
        if subprocess.run(command + (["--core"] if args.core else []) + args.programs).returncode:
            failed.append(version)
    print(f"could tell: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
