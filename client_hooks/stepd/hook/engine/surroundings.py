"""What of the process ops look at when they are made. A session notes it when it is made itself: what a copy or a restart makes
anew might find something else. It must not know sessions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import config

from stepd.hook.engine.graphview import GraphView

_LONGEST = 4096  # bytes of a file's name


class Surroundings(NamedTuple):
    """`folder`: the working folder, "" if it is gone; `deterministic`: has the program asked for deterministic ops?"""

    folder: str
    deterministic: bool


def now() -> Surroundings:
    """What ops would find that are made now."""
    try:
        folder = str(Path.cwd())
    except OSError:
        folder = ""
    return Surroundings(folder, bool(config.is_op_determinism_enabled()))


def against_kernels(noted: Surroundings) -> str:
    """Why no kernel should be made anew; "" if nothing speaks against it."""
    if now().deterministic != noted.deterministic:
        return "the program has turned deterministic ops on or off since, which only ops that are made anew would follow"
    return ""


def against_opening(noted: Surroundings, view: GraphView) -> str:
    """Why no iterator should open its files again; "" if nothing speaks against it."""
    if now().folder != noted.folder:
        return f"the working folder was {noted.folder}, by which an iterator may have found its files"
    pipe = next((name for name in _texts(view) if _is_pipe(name)), None)
    return "" if pipe is None else f"{os.fsdecode(pipe)} is a pipe, which an iterator cannot read again"


def _texts(view: GraphView) -> Iterator[bytes]:
    """The text constants of a graph and its functions."""
    bodies = (node for function in view.functions.values() for node in function.node_def)
    for node in (*(node.proto for node in view.nodes.values() if node.op == "Const"), *bodies):
        if node.op == "Const" and node.attr["dtype"].type == types_pb2.DT_STRING:
            yield from node.attr["value"].tensor.string_val


def _is_pipe(name: bytes) -> bool:
    if not 0 < len(name) <= _LONGEST or b"\0" in name:
        return False
    try:
        return Path(os.fsdecode(name)).is_fifo()
    except OSError:
        return False
