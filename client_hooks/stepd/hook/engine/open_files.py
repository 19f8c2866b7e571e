"""Files that the process reads on although their names stand for nothing, or for another file, by now. On Linux; else none is seen.

An iterator that is made again opens its file again, by name. It must not know sessions.
"""

from __future__ import annotations

import os
from pathlib import Path

_HERE = Path("/proc/self/fd")
_GONE = " (deleted)"


def gone() -> str:
    """The name of a file that is open for reading alone and has been removed or replaced since; "" if there is none."""
    for number in _HERE.iterdir() if _HERE.is_dir() else ():
        try:
            name = str(number.readlink())
            if name.endswith(_GONE) and _is_read_only(number.name):
                return name.removesuffix(_GONE)
        except OSError:  # closed meanwhile
            continue
    return ""


def _is_read_only(number: str) -> bool:
    lines = Path(f"/proc/self/fdinfo/{number}").read_text(encoding="ascii").splitlines()
    flags = next((line.split()[1] for line in lines if line.startswith("flags:")), "2")
    return int(flags, 8) & os.O_ACCMODE == os.O_RDONLY
