"""The checkpoint of a restart, for what no run can hand out: a folder of its own in the state directory, in TensorFlow's format.

Complete or not there at all (it is written beside and renamed), until the new session has the state; after a crash
`tf.train.load_checkpoint(FOLDER/"state")` reads it. It must not know how state is read or written.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from stepd.hook import files, sweep
from stepd.hook.engine.settings import EngineSettings

_PARTIAL = ".tmp"
# For how long a whole checkpoint of a process that was killed can be read, at least.
_KEPT_SECONDS = 24 * 3600.0


class Item(NamedTuple):
    """A value in the checkpoint: its name there, and its DataType number."""

    name: str
    dtype: int


class Checkpoint:
    """State on its way from one session to the next."""

    def __init__(self, directory: Path, items: Sequence[Item]) -> None:
        self.folder = directory / f"restart-{os.getpid()}-{os.urandom(4).hex()}"
        self.partial = self.folder.with_suffix(_PARTIAL)
        self.items = tuple(items)
        self._mark: int | None = None

    def begin(self) -> None:
        """Make the folder."""
        files.make(self.partial, 0o700)
        self._mark = sweep.mark(self.partial)

    @property
    def path(self) -> str:
        return str(self.folder / "state")

    def complete(self) -> None:
        """Flush what was written to the disk, then give it its name."""
        for path in [*(self.partial / name for name in files.listdir(self.partial)), self.partial]:
            descriptor = files.open_descriptor(path, os.O_RDONLY)
            try:
                files.fsync(descriptor)
            finally:
                files.close(descriptor)
        files.rename(self.partial, self.folder)

    def remove(self) -> None:
        for folder in (self.folder, self.partial):
            with contextlib.suppress(OSError):
                files.remove(folder)
        if self._mark is not None:
            files.close(self._mark)
            self._mark = None


def clean(settings: EngineSettings) -> None:
    """Remove what killed processes left in the state directory: parts at once, whole checkpoints after a day."""
    directory = state_dir(settings)
    sweep.sweep(path for path in directory.glob("restart-*") if path.suffix == _PARTIAL)
    sweep.sweep(directory.glob("restart-*"), _KEPT_SECONDS)


def state_dir(settings: EngineSettings) -> Path:
    return settings.state_dir or Path(files.temporary()) / f"stepd-{os.getuid()}"
