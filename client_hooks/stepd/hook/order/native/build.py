"""Builds the native executor for the installed TensorFlow, tries it in a process of its own, and publishes it when it passed.

    python -m stepd.hook.order.native.build

With `STEPD_ORDER=native` the hook runs this when the first session is made, which waits for it. A build that failed leaves the
reason behind and is not tried again for the same TensorFlow, source and flags; remove the folder to have it tried again.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from stepd.hook.order.native.stamp import FAILED, LIBRARY, SOURCE, NativeError, Stamp, folder, stamp

COMPILE_SECONDS = 300
TRIAL_SECONDS = 300


def build(environ: Mapping[str, str]) -> Path:
    """The path of the library, built if need be. Raises NativeError; the reason is kept for others to read."""
    of = stamp()
    place = folder(of, environ)
    os.makedirs(place, mode=0o700, exist_ok=True)  # noqa: PTH103 - with the mode
    library = place / LIBRARY
    with (place / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if library.exists():
            return library
        failed = place / FAILED
        if failed.exists():
            raise NativeError(failed.read_text(encoding="utf-8"))
        try:
            with tempfile.TemporaryDirectory(dir=place) as work:
                made = Path(work, LIBRARY)
                compile_library(of, made, environ)
                try_library(made, environ)
                made.chmod(0o700)
                made.replace(library)
        except NativeError as error:
            failed.write_text(str(error), encoding="utf-8")
            raise
    return library


def compiler(environ: Mapping[str, str]) -> str:
    """The system's C++ compiler. Raises NativeError."""
    for name in (environ.get("CXX", ""), "c++", "g++", "clang++"):
        found = shutil.which(name) if name else None
        if found:
            return found
    raise NativeError("there is no C++ compiler (c++, g++ or clang++; CXX may name one)")


def compile_library(of: Stamp, made: Path, environ: Mapping[str, str]) -> None:
    needed = of.include / "tensorflow/core/common_runtime/immutable_executor_state.h"
    if not needed.is_file():
        raise NativeError("this TensorFlow ships without the headers of its executor")
    executor = (of.include / "tensorflow/core/common_runtime/executor.h").read_text(encoding="utf-8")
    text = of.text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    command = [
        compiler(environ),
        *("-O2", "-fPIC", "-shared", "-w", *of.flags),
        f"-DSTEPD_RUN_ASYNC_INTERNAL={int('RunAsyncInternal' in executor)}",
        f'-DSTEPD_STAMP="{text}"',
        *(str(SOURCE), "-o", str(made), *of.links),
    ]
    _run(command, COMPILE_SECONDS, "the compiler", environ)


def try_library(made: Path, environ: Mapping[str, str]) -> None:
    """Run the library's trial in a process of its own, where a crash harms nobody."""
    _run([sys.executable, "-m", "stepd.hook.order.native.trial", str(made)], TRIAL_SECONDS, "its trial", for_child(environ))


def for_child(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that is no training process: without the hook, without GPUs, quiet."""
    plain = {name: value for name, value in environ.items() if not name.startswith("STEPD_")}
    return plain | {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}


def _run(command: list[str], seconds: float, what: str, environ: Mapping[str, str]) -> None:
    """Raises NativeError with the first line that says what went wrong."""
    try:
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=seconds, env=dict(environ)
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NativeError(f"{what} did not end well: {error.__class__.__name__}") from None
    if ended.returncode:
        lines = [line for line in ended.stderr.splitlines() if line.strip()]
        told = next((line for line in lines if "error: " in line.lower()), lines[-1] if lines else "no message")
        raise NativeError(f"{what} failed with status {ended.returncode}: {told[:300]}")


def main() -> int:
    try:
        print(build(os.environ))
    except NativeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
