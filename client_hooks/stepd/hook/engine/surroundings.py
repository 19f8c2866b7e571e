"""What of the process ops look at when they are made. A session notes it when it is made itself: what a copy or a restart makes
anew might find something else. It must not know sessions.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import config

from stepd.hook import clocks, files
from stepd.hook.engine.graphview import GraphView

_LONGEST = 4096  # bytes of a file's name
_PATTERN = re.compile(r"[*?\[]")  # where TensorFlow looks for files
_MOST_LINKS = 40  # on the way to a file, as in Linux


class Surroundings(NamedTuple):
    """`unix_nanos`: when it was; `folder`: the working folder, "" if it is gone; `deterministic`: are ops asked to be so?"""

    folder: str
    deterministic: bool
    unix_nanos: int


def now() -> Surroundings:
    """What ops would find that are made now."""
    try:
        folder = files.folder_now()
    except OSError:
        folder = ""
    return Surroundings(folder, bool(config.is_op_determinism_enabled()), clocks.time_ns())


def against_kernels(noted: Surroundings) -> str:
    """Why no kernel should be made anew; "" if nothing speaks against it."""
    if now().deterministic != noted.deterministic:
        return "the program has turned deterministic ops on or off since, which only ops that are made anew would follow"
    return ""


def against_opening(noted: Surroundings, view: GraphView) -> str:
    """Why no iterator should open its files again; "" if nothing speaks against it."""
    if now().folder != noted.folder:
        return f"the working folder was {noted.folder}, by which an iterator may have found its files"
    for name in map(os.fsdecode, _names(view)):
        pattern = _PATTERN.search(name)
        path = name if pattern is None else name[: name.rfind("/", 0, pattern.start()) + 1]
        try:
            mode = files.stat(path).st_mode  # of a hundred thousand words of a vocabulary, say, of which none is a file
            if stat.S_ISFIFO(mode):
                return f"{name} is a pipe, which an iterator cannot read again"
            if link := _newer_link(Path(noted.folder, path), noted.unix_nanos):
                return f"{link}, a link on the way to {name}, was made since, and an iterator may read what it led to before"
        except OSError:  # no such file
            continue
    return ""


def _names(view: GraphView) -> Iterator[bytes]:
    """The text constants of a graph and its functions that may be names of files."""
    bodies = (node for function in view.functions.values() for node in function.node_def)
    for node in (*(node.proto for node in view.nodes.values() if node.op == "Const"), *bodies):
        if node.op == "Const" and node.attr["dtype"].type == types_pb2.DT_STRING:
            yield from (text for text in node.attr["value"].tensor.string_val if 0 < len(text) <= _LONGEST and b"\0" not in text)


def _newer_link(path: Path, unix_nanos: int) -> str:
    """A symbolic link on the way to a file that was made after this time; "" if there is none."""
    for _ in range(_MOST_LINKS):
        link = next((each for each in (*reversed(path.parents), path) if files.is_link(each)), None)
        if link is None:
            break
        if files.lstat(link).st_mtime_ns > unix_nanos:
            return str(link)
        path = Path(link.parent, files.readlink(link), path.relative_to(link))
    return ""
