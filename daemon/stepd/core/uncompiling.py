"""Clocks that stand still while kernels are compiled, which happens once per machine and version: a search timed by one gets its
whole budget. It reads no clock of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from numba.core import event

COMPILING = "numba:compile"


class Uncompiling(event.Listener):
    """`clock` less what passes, until `close`, while this process compiles (under numba's one lock)."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._depth = 0
        self.compiling = 0.0  # seconds spent compiling; while that goes on, less the time at which it began
        event.register(COMPILING, self)  # type: ignore[no-untyped-call]

    def on_start(self, event: event.Event) -> None:
        """A kernel begins to be compiled; those that it calls begin within."""
        self._depth += 1
        if self._depth == 1:
            self.compiling -= self._clock()

    def on_end(self, event: event.Event) -> None:
        """The kernel is compiled."""
        self._depth -= 1
        if self._depth == 0:
            self.compiling += self._clock()

    def now(self) -> float:
        """Seconds."""
        return -self.compiling if self._depth else self._clock() - self.compiling

    def close(self) -> None:
        """From now on compiling counts."""
        event.unregister(COMPILING, self)  # type: ignore[no-untyped-call]
