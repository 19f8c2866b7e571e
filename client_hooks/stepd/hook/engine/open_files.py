"""Files that the process reads on although their names stand for nothing, or for another file, by now. On Linux; else none is seen.

An iterator that is made again opens its file again, by name. It must not know sessions.
"""

from __future__ import annotations

import os

from stepd.hook import files

_HERE = "/proc/self/fd"
_GONE = " (deleted)"
_LONGEST = 4096  # bytes in which a descriptor's flags stand: its second line


def gone() -> str:
    """The name of a file that is open for reading alone and has been removed or replaced since; "" if there is none."""
    try:
        numbers = files.listdir(_HERE)
    except OSError:
        return ""
    for number in numbers:
        try:
            name = files.readlink(f"{_HERE}/{number}")
            if name.endswith(_GONE) and _is_read_only(number):
                return name.removesuffix(_GONE)
        except OSError:  # closed meanwhile
            continue
    return ""


def _is_read_only(number: str) -> bool:
    descriptor = files.open_descriptor(f"/proc/self/fdinfo/{number}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        lines = files.read(descriptor, _LONGEST).decode("ascii").splitlines()
    finally:
        files.close(descriptor)
    flags = next((line.split()[1] for line in lines if line.startswith("flags:")), "2")
    return int(flags, 8) & os.O_ACCMODE == os.O_RDONLY
