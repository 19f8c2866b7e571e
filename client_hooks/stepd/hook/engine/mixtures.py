"""Data sets that are mixed of several (`sample_from_datasets`, `choose_from_datasets`): are some of them used up, and not all?

An iterator that TensorFlow restores then counts those among the ones that go on. At the end, where it has none left, it looks for
one for ever. Its own savers lose it, too. It must not know sessions.
"""

from __future__ import annotations

import itertools
import mmap
from pathlib import Path

from stepd.hook.engine.graphview import GraphView
from stepd.hook.engine.iterator_keys import contents, owners

_MIXES = frozenset({"DirectedInterleaveDataset", "ExperimentalDirectedInterleaveDataset"})
_KEY = b"data_input_impl_empty["  # one for each of the data sets that are mixed


def mixes(view: GraphView) -> bool:
    """Does a graph mix data sets and go on when one is used up, anywhere?"""
    nodes = itertools.chain((node.proto for node in view.nodes.values()), *(f.node_def for f in view.functions.values()))
    return any(node.op in _MIXES and not node.attr["stop_on_empty_dataset"].b for node in nodes)


def some_used_up(folder: Path) -> bool:
    """Whether the checkpoint in `folder` has a mixture of which some data sets are used up, and others are not."""
    return any(len(goes_on) > 1 for data in contents(folder) for goes_on in _going_on(data).values())


def _going_on(data: mmap.mmap) -> dict[bytes, set[bool]]:
    """By mixture: does a data set of it go on? Of each, without repetitions. One that does has keys of its own."""
    found: dict[bytes, set[bool]] = {}
    for mixture, place in owners(data, _KEY):
        number = data[place : data.find(b"]", place)]
        found.setdefault(mixture, set()).add(data.find(mixture + b"[" + number + b"]:") >= 0)
    return found
