"""The daemon's clock: seconds since 1970 when it started, and steady from there, whatever is done to the machine's clock.

Silence, rests and pauses are measured with it; a clock that is set back or forward must not stretch or end them.
"""

from __future__ import annotations

import time


class SteadyClock:
    """Call it for the time. Goes on while the machine sleeps: a job is silent then, too."""

    def __init__(self) -> None:
        self._ahead = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)

    def __call__(self) -> float:
        """Unix seconds; never less than before."""
        return self._ahead + time.clock_gettime(time.CLOCK_BOOTTIME)
