"""Data sets that are mixed of several (`sample_from_datasets`, `choose_from_datasets`): are some of them used up, and not all?

An iterator that TensorFlow restores then counts those among the ones that go on. At the end, where it has none left, it looks for
one for ever. Its own savers lose it, too. It must not know sessions.
"""

from __future__ import annotations

import itertools
import mmap
import os
import re
from pathlib import Path

from stepd.hook import files
from stepd.hook.engine.graphview import GraphView

_MIXES = frozenset({"DirectedInterleaveDataset", "ExperimentalDirectedInterleaveDataset"})
_KEY = b":data_input_impl_empty["  # one for each of the data sets that are mixed
_LONGEST = 4096  # bytes of an iterator's name
_NAME = re.compile(rb"[\w:\[\]]+$")


def mixes(view: GraphView) -> bool:
    """Does a graph mix data sets and go on when one is used up, anywhere?"""
    nodes = itertools.chain((node.proto for node in view.nodes.values()), *(f.node_def for f in view.functions.values()))
    return any(node.op in _MIXES and not node.attr["stop_on_empty_dataset"].b for node in nodes)


def some_used_up(folder: Path) -> bool:
    """Whether the checkpoint in `folder` has a mixture of which some data sets are used up, and others are not."""
    return any(
        _some_used_up(folder / name) for name in files.listdir(folder) if ".data-" in name and files.stat(folder / name).st_size
    )


def _some_used_up(path: Path) -> bool:
    left: dict[bytes, set[bool]] = {}
    place = 0
    descriptor = files.open_descriptor(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        mapped = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    finally:
        files.close(descriptor)
    with mapped as data:
        while (place := data.find(_KEY, place)) >= 0:
            name = _NAME.search(data[max(0, place - _LONGEST) : place])
            mixture = name[0] if name is not None else b""
            place += len(_KEY)
            number = data[place : data.find(b"]", place)]
            # What is not used up has keys of its own.
            left.setdefault(mixture, set()).add(data.find(mixture + b"[" + number + b"]:") >= 0)
    return any(len(goes_on) > 1 for goes_on in left.values())
