"""Keys of iterators in a checkpoint of TensorFlow's: whose they are, and where. It must not know what they say.

A checkpoint of an iterator is one tensor that TensorFlow alone reads; the keys stand in it as they are.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterator
from pathlib import Path

from stepd.hook import files

_LONGEST = 4096  # bytes of an iterator's name, which says of which data sets it is
_NAME = re.compile(rb"([\w:\[\]]+)(?:@@|:)$")


def contents(folder: Path) -> Iterator[mmap.mmap]:
    """The data files of the checkpoint in `folder`, one after the other."""
    for name in files.listdir(folder):
        if ".data-" in name and files.stat(folder / name).st_size:
            descriptor = files.open_descriptor(folder / name, os.O_RDONLY | os.O_CLOEXEC)
            try:
                mapped = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
            finally:
                files.close(descriptor)
            with mapped:
                yield mapped


def owners(data: mmap.mmap, key: bytes) -> Iterator[tuple[bytes, int]]:
    """(name of the iterator, where the key ends) for every `key` of one; the name is empty where it is not told."""
    place = 0
    while (place := data.find(key, place)) >= 0:
        name = _NAME.search(data[max(0, place - _LONGEST) : place])
        place += len(key)
        yield name[1] if name is not None else b"", place
