"""The gate that runs pass: counts what is in flight and can hold runs back while state moves. Knows no graphs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

from stepd.hook import clocks

K = TypeVar("K", bound=Hashable)


class Gate(Generic[K]):
    """Runs `enter` and `leave`; a switch `hold`s. Waiting is bounded: a run that never ends makes the switch give up."""

    def __init__(self) -> None:
        # A signal handler of the program may run a step in the middle of `enter`: the lock can be taken again.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._in_flight: dict[K, int] = {}
        self._holding: Callable[[K], bool] | None = None
        # Seconds that all holds together lasted.
        self.held = 0.0
        # What a run that ends while others are held back is given, by who holds them; None: nothing.
        self.parting: Callable[[K, bool], object] | None = None
        # Who waits for a run to begin: what it waits for, and whether it came.
        self._awaited: Callable[[K], bool] | None = None

    def enter(self, kind: K) -> bool:
        """Called before a run of `kind`; waits while a switch holds such runs back. Returns whether it waited."""
        waited = False
        with self._lock:  # a condition would take it by a call in Python
            while self._holding is not None and self._holding(kind):
                waited = True
                self._changed.wait()
            self._in_flight[kind] = self._in_flight.get(kind, 0) + 1
            if self._awaited is not None and self._awaited(kind):
                self._awaited = None
                self._changed.notify_all()
        return waited

    def slip_in(self, kind: K) -> bool:
        """`enter`, where nobody holds runs back or waits for one to begin; False: nothing was done."""
        with self._lock:
            if self._holding is not None or self._awaited is not None:
                return False
            self._in_flight[kind] = self._in_flight.get(kind, 0) + 1
        return True

    def await_begin(self, concerns: Callable[[K], bool], seconds: float) -> bool:
        """Wait until a run begins for which `concerns(kind)`; False when none did within `seconds`. One thread waits at a time."""
        with self._changed:
            self._awaited = concerns
            came = self._changed.wait_for(lambda: self._awaited is not concerns, seconds)
            self._awaited = None
            return came

    def leave(self, kind: K, done: bool = True) -> object:
        """Called after a run, `done` unless it raised; returns what it is given at `parting`."""
        with self._lock:
            left = self._in_flight[kind] - 1
            if left:
                self._in_flight[kind] = left
            else:
                del self._in_flight[kind]
            if self._holding is None:
                return None
            self._changed.notify_all()
            return self.parting(kind, done) if self.parting is not None else None

    def in_flight(self, concerns: Callable[[K], bool]) -> list[K]:
        with self._changed:
            return [kind for kind in self._in_flight if concerns(kind)]

    def counts(self) -> dict[K, int]:
        """How many runs of each kind are in flight."""
        with self._changed:
            return dict(self._in_flight)

    def wait_quiet(self, concerns: Callable[[K], bool], seconds: float) -> bool:
        """While runs are held back: wait until none is in flight for which `concerns(kind)`; False when that took longer."""
        with self._changed:
            return self._wait_quiet(concerns, clocks.monotonic() + seconds)

    @contextlib.contextmanager
    def hold(self, concerns: Callable[[K], bool], seconds: float) -> Iterator[bool]:
        """Hold back runs of kinds for which `concerns(kind)`; yields whether those in flight ended within `seconds`.

        Runs of other kinds (a queue runner that is blocked for ever, say) go on. One switch holds at a time. Meanwhile `concerns`
        may come to concern more kinds.
        """
        began = clocks.monotonic()
        with self._changed:
            self._holding = concerns
            try:
                quiet = self._wait_quiet(concerns, clocks.monotonic() + seconds)
            except BaseException:
                self._release(began)
                raise
        try:
            yield quiet
        finally:
            with self._changed:
                self._release(began)

    def _release(self, began: float) -> None:
        self._holding = self.parting = None
        self.held += clocks.monotonic() - began
        self._changed.notify_all()

    def _wait_quiet(self, concerns: Callable[[K], bool], deadline: float) -> bool:
        while any(concerns(kind) for kind in self._in_flight):
            left = deadline - clocks.monotonic()
            if left <= 0:
                return False
            self._changed.wait(left)
        return True
