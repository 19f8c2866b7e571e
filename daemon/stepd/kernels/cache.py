"""Where compiled kernels of stepd.core are kept: one folder for each content of the sources, so that none is ever stale.

numba keys a cached kernel by its own file alone; one that calls a kernel of another file, or takes its tuples, would outlive a
change of that file. Whoever is about to import stepd.core's kernels calls `use` first: numba reads the environment when it
is imported. It imports neither numba nor stepd.core.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

VARIABLE = "NUMBA_CACHE_DIR"
NAME = re.compile(r"core-[0-9a-f]{16}")
UNUSED_SECONDS = 14 * 86400.0
"""A folder that nobody has used for so long is removed."""


def default_base() -> Path:
    """Where programs without a configuration of their own keep kernels."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stepd" / "kernels"


def environment(base: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """NUMBA_CACHE_DIR for the kernels of the sources as they are now: below that of `environ`, else below `base`."""
    given = Path(environ[VARIABLE]) if environ.get(VARIABLE) else base
    if NAME.fullmatch(given.name):  # chosen here before, by a parent process
        given = given.parent
    return {VARIABLE: str(given / folder_name(_sources()))}


def prepare(base: Path) -> dict[str, str]:
    """As `environment`, for a process about to start: its folder counts as used, and those long unused are removed."""
    chosen = environment(base)
    folder = Path(chosen[VARIABLE])
    with suppress(OSError):  # read-only: it is numba's to say what cannot be done without
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
        remove_unused(folder.parent, time.time() - UNUSED_SECONDS)
    return chosen


def use(base: Path | None = None) -> None:
    """Keep the kernels of this process and of its children in the right folder."""
    os.environ.update(prepare(base or default_base()))


def warm(folder: Path) -> Path:
    """The file that says that all kernels of the sources have been compiled into `folder`. Numba knows kernels by where their
    sources are and when these were written, too: elsewhere or anew installed they are to be compiled again."""
    files = [str(file) for root in _sources() for file in sorted(root.rglob("*.py"))]
    written = sha256(" ".join(f"{file} {Path(file).stat().st_mtime_ns}" for file in files).encode())
    return folder / f"warm-{written.hexdigest()[:16]}"


def is_warm(base: Path) -> bool:
    """Whether nothing is left to compile for a process that keeps its kernels below `base`."""
    return warm(Path(environment(base)[VARIABLE])).exists()


def note_warm() -> None:
    """This process, which called `use`, has compiled all kernels."""
    with suppress(OSError):
        warm(Path(os.environ[VARIABLE])).touch()


def remove_unused(base: Path, before: float) -> None:
    """Remove the kernel folders of `base` that were last used `before` (seconds since 1970)."""
    for folder in base.iterdir():
        if NAME.fullmatch(folder.name) and folder.stat().st_mtime < before:
            shutil.rmtree(folder, ignore_errors=True)


def folder_name(roots: list[Path]) -> str:
    """The name for all Python sources below `roots`, this Python and the installed numba."""
    digest = sha256(f"{platform.python_implementation()} {platform.python_version()} numba {version('numba')}".encode())
    for root in roots:
        for file in sorted(root.rglob("*.py")):
            content = file.read_bytes()
            digest.update(f"\n{file.relative_to(root).as_posix()} {len(content)}\n".encode())
            digest.update(content)
    return f"core-{digest.hexdigest()[:16]}"


def _sources() -> list[Path]:
    spec = find_spec("stepd.core")
    return [Path(path) for path in (spec.submodule_search_locations if spec else None) or ()]
