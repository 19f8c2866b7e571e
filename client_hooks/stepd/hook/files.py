"""The machine's own files, whatever the program puts in the place of Python's functions: a test that opens nothing, or counts who
opens what.

With these a restart would neither write its checkpoint nor find it, and a test that counts would count the hook's. It must not
know what a file is for.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import stat as modes
import tempfile
from pathlib import Path

# Not the functions themselves: fake files look for those in all modules, and replace them there, too.
open_descriptor = functools.partial(os.open)
close = functools.partial(os.close)
flock = functools.partial(fcntl.flock)
folder_now = functools.partial(os.getcwd)
fsync = functools.partial(os.fsync)
listdir = functools.partial(os.listdir)
lstat = functools.partial(os.lstat)
mkdir = functools.partial(os.mkdir)
read = functools.partial(os.read)
readlink = functools.partial(os.readlink)
rename = functools.partial(os.rename)
rmdir = functools.partial(os.rmdir)
stat = functools.partial(os.stat)
temporary = functools.partial(tempfile.gettempdir)
unlink = functools.partial(os.unlink)
write = functools.partial(os.write)


def make(folder: Path, mode: int) -> None:
    """Make `folder`, and those above it that are not there. Raises OSError, FileExistsError where there is something."""
    try:
        mkdir(folder, mode)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):
            make(folder.parent, 0o777)
        mkdir(folder, mode)


def remove(folder: Path) -> None:
    """Remove `folder` and all that is in it; links are not followed. Raises OSError."""
    for name in listdir(folder):
        path = folder / name
        if modes.S_ISDIR(lstat(path).st_mode):
            remove(path)
        else:
            unlink(path)
    rmdir(folder)


def is_link(path: Path) -> bool:
    """Is there a symbolic link?"""
    try:
        return modes.S_ISLNK(lstat(path).st_mode)
    except (OSError, ValueError):  # nothing there, or no path
        return False
