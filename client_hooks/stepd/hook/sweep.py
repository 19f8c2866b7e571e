"""Folders that belong to a process: marked by a lock on the folder itself, which ends with the process whatever ends it.

So that what a killed process left can be told from what another one uses, also from inside other containers. It must not know what
is in the folders.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

# A new folder is there for a moment before it is marked.
_YOUNG_SECONDS = 60.0


def mark(folder: Path) -> int:
    """Mark `folder` as this process's; returns the descriptor to close when it is not any more. Children do not inherit it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with contextlib.suppress(OSError):  # a file system without locks: nobody sweeps there
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor


def sweep(folders: Iterable[Path], older_than: float = _YOUNG_SECONDS) -> list[Path]:
    """Remove those of `folders` that are this user's, that nobody marks, and that did not change for `older_than` seconds."""
    gone = []
    for folder in folders:
        with contextlib.suppress(OSError):
            about = folder.lstat()
            if about.st_uid == os.getuid() and time.time() - about.st_mtime > older_than and _unmarked(folder):
                shutil.rmtree(folder)
                gone.append(folder)
    return gone


def _unmarked(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
