"""Folders that belong to a process: marked by a lock on the folder itself, which ends with the process whatever ends it.

So that what a killed process left can be told from what another one uses, also from inside other containers. It must not know what
is in the folders.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable
from pathlib import Path

from stepd.hook import clocks, files

# A new folder is there for a moment before it is marked.
_YOUNG_SECONDS = 60.0


def mark(folder: Path) -> int:
    """Mark `folder` as this process's; returns the descriptor to close when it is not any more. Children do not inherit it."""
    descriptor = files.open_descriptor(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with contextlib.suppress(OSError):  # a file system without locks: nobody sweeps there
        files.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor


def sweep(folders: Iterable[Path], older_than: float = _YOUNG_SECONDS) -> list[Path]:
    """Remove those of `folders` that are this user's, that nobody marks, and that did not change for `older_than` seconds."""
    gone = []
    for folder in folders:
        with contextlib.suppress(OSError):
            about = files.lstat(folder)
            if about.st_uid == os.getuid() and clocks.time_ns() / 1e9 - about.st_mtime > older_than and _unmarked(folder):
                files.remove(folder)
                gone.append(folder)
    return gone


def _unmarked(folder: Path) -> bool:
    descriptor = files.open_descriptor(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        files.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        files.close(descriptor)
    return True
