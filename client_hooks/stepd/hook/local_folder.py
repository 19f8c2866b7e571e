"""The folder that relative paths begin at: local workers follow the training process where it goes.

Ops that read and write files run in the workers' processes. It must not know sessions or steps.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from stepd.hook.local_order import request
from stepd.hook.log import logger


class Followed:
    """The working directory of this process, as the workers of a job know it."""

    def __init__(self, paths: Sequence[str], folder: str) -> None:
        """`paths`: the workers' sockets. `folder`: where they are."""
        self._paths = tuple(paths)
        self._folder = folder
        self._lock = threading.Lock()

    def follow(self) -> None:
        """Have the workers go where this process is now, before its next run; costs a system call where it is where it was."""
        try:
            here = os.getcwd()  # noqa: PTH109 - a third of the time, before every run
        except OSError:
            return  # it is gone, for whoever is in it
        if here == self._folder:
            return
        with self._lock:
            for path in self._paths if here != self._folder else ():
                try:
                    answer = request(path, {"folder": here})
                    if not answer.get("done"):
                        logger.warning("the worker at %s stays in its folder: %s", path, answer.get("problem"))
                except (OSError, ValueError) as error:
                    logger.warning("the worker at %s was not told of the folder %s: %s", path, here, error)
            self._folder = here
