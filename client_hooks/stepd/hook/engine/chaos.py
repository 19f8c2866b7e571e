"""Switches for the sake of switching: random valid strategies at run boundaries, without any daemon. An instrument for tests.

Deterministic for a seed as long as the program's own runs are. It must not know how a switch is made.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence

from stepd.hook.engine.settings import Chaos
from stepd.hook.model import LiveStrategy, Order, Way

_SWITCHES_BETWEEN_COMPACTIONS = 20
# For how long a switch waits for a quiet moment, and the least share of that after many for which none came.
_PATIENCE_SECONDS = 1.0
_LEAST_SHARE = 2.0**-4


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
        self._rest = 0
        self._known = set[str]()

    @property
    def only_restarts(self) -> bool:
        return self._chaos.way == "restart"

    def due(self) -> bool:
        """Called before every run."""
        with self._lock:
            due = self._runs > 0 and self._runs % self._chaos.switch_every == 0
            self._runs += 1
            return due

    def is_news(self, why: str) -> bool:
        """Is this reason not to switch another one than before?"""
        new = why not in self._known
        self._known.add(why)
        return new

    def may_compact(self) -> bool:
        """A restart that was not possible is tried again, but not before every switch."""
        self._until_compaction -= 1
        return self._until_compaction < 0

    def could_not_compact(self) -> None:
        self._until_compaction = _SWITCHES_BETWEEN_COMPACTIONS

    def patience(self, way: Way, most: float) -> float:
        """For how long to wait for a quiet moment: the run that is due may be the very one that those in flight wait for."""
        return min(most, _PATIENCE_SECONDS) * self._share[way]

    def came_to(self, way: Way, quiet: bool) -> None:
        """Was there a quiet moment for the last switch? If not, the next one waits half as long, and restarts rest a while."""
        self._share[way] = min(1.0, 2.0 * self._share[way]) if quiet else max(_LEAST_SHARE, self._share[way] / 2)
        if way is Way.RESTART:
            self._rest = 0 if quiet else round(1.0 / self._share[way])

    def rests(self) -> bool:
        """Are no restarts to be tried before this run? A try costs a new session, which may be for nothing."""
        self._rest -= 1
        return self._rest >= 0

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
