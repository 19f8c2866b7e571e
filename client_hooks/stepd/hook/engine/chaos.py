"""Switches for the sake of switching: random valid strategies at run boundaries, without any daemon. An instrument for tests.

Deterministic for a seed as long as the program's own runs are. It must not know how a switch is made.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence

from stepd.hook.engine.settings import Chaos
from stepd.hook.model import LiveStrategy, Order, SwitchOutcome, Way

_SWITCHES_BETWEEN_COMPACTIONS = 20
# The least share of the time for a quiet moment; after each switch that was not made the next one has half of it.
_LEAST_SHARE = 2.0**-8


class ChaosMonkey:
    """Says after which runs to switch, which way, and to what."""

    def __init__(self, chaos: Chaos, salt: str) -> None:
        self._chaos = chaos
        self._random = random.Random(f"{chaos.seed}/{salt}")
        self._lock = threading.Lock()
        self._runs = 0
        self._made = 0
        self._until_compaction = 0
        self._share = dict.fromkeys(Way, 1.0)

    @property
    def only_restarts(self) -> bool:
        return self._chaos.way == "restart"

    def due(self) -> bool:
        """Called before every run."""
        with self._lock:
            due = self._runs > 0 and self._runs % self._chaos.switch_every == 0
            self._runs += 1
            return due

    def may_compact(self) -> bool:
        """A restart that was not possible is tried again, but not before every switch."""
        self._until_compaction -= 1
        return self._until_compaction < 0

    def could_not_compact(self) -> None:
        self._until_compaction = _SWITCHES_BETWEEN_COMPACTIONS

    def patience(self, way: Way, seconds: float) -> float:
        """For how long to wait for a quiet moment. The run that is due may be the very one that those in flight wait for."""
        return seconds * self._share[way]

    def came_to(self, outcome: SwitchOutcome) -> None:
        """A switch was made, or was not: then the next one of this way waits for half as long."""
        self._share[outcome.way] = 1.0 if outcome.ok else max(_LEAST_SHARE, self._share[outcome.way] / 2)

    def way(self) -> Way:
        if self._chaos.way == "both":
            return self._random.choice([Way.IN_SESSION, Way.RESTART])
        return Way(self._chaos.way)

    def strategy(
        self, units: Sequence[tuple[tuple[str, ...], tuple[str, ...]]], again: Sequence[LiveStrategy]
    ) -> LiveStrategy | None:
        """A random placement of `units` (ops that move together, devices that they may have); None: roll back.

        `again`: when no more copies may be made, those that there are.
        """
        if self._made and self._random.random() < 0.25:
            self._made = 0
            return None
        self._made += 1
        if again:
            return self._random.choice(again)
        share = self._random.choice([0.1, 0.5, 0.9, 1.0])
        placement: dict[str, str] = {}
        for members, devices in units:
            if devices and self._random.random() < share:
                device = self._random.choice(devices)
                placement.update((name, device) for name in members)
        priority: dict[str, int] = {}
        if self._chaos.order:
            names = [name for members, _ in units for name in members]
            priority = dict(zip(names, self._random.sample(range(len(names)), len(names)), strict=True))
        id_ = f"chaos-{self._random.getrandbits(32):08x}"
        order = Order.AUTO if priority else Order.NONE
        replicate = self._chaos.splits and self._random.random() < 0.5
        return LiveStrategy(id_, placement, priority, order=order, replicate=replicate, origin="chaos")
