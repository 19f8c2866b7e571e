"""Which algorithms give the portfolio candidates, and in which order: those that are most often best come first.

The first parameters of every algorithm make the first look; then come the rest of their sweeps, less memory to fill where memory
is tight, blindness to links, and on small problems the slow ones. It runs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stepd.core.placement import registry
from stepd.core.placement.registry import PlanOptions

Run = tuple[str, PlanOptions]

LEADING = ("heft", "fastt-dpos", "metis", "data-parallel", "etf", "getf", "celeritas", "dsc")
SLOW_ALGORITHMS_UP_TO = 1500
"""Ops; on larger problems the time is better spent on the search."""
SLOW_SHARE = 0.05
"""Of the budget, for one run of a slow algorithm."""
TIGHTER = (0.85, 0.7)
"""Shares of the memory that algorithms may fill where memory is tight: their own accounting is simpler than the simulator's."""


def first_look(names: Sequence[str], plain: PlanOptions) -> list[Run]:
    """Every fast algorithm of `names` with the first parameters of its sweep."""
    return [(name, registry.swept(name, plain)[0]) for name in _fast(names)]


def full_sweep(names: Sequence[str], plain: PlanOptions, n_ops: int, tight: bool) -> list[Run]:
    """What `first_look` leaves out."""
    fast = _fast(names)
    runs = [(name, options) for name in fast for options in registry.swept(name, plain)[1:]]
    variants = [replace(plain, memory_factor=factor) for factor in TIGHTER] if tight else []
    variants.append(replace(plain, link_aware=False))
    runs += [(name, options) for variant in variants for name in fast for options in registry.swept(name, variant)]
    if n_ops <= SLOW_ALGORITHMS_UP_TO:
        short = replace(plain, budget_seconds=plain.budget_seconds * SLOW_SHARE)
        slow = [name for name in names if registry.find(name).effort == "slow"]
        runs += [(name, options) for name in slow for options in registry.swept(name, short)]
    return runs


def _fast(names: Sequence[str]) -> list[str]:
    """The fast ones, the leading ones first; the single devices are candidates already."""
    fast = [name for name in names if registry.find(name).effort == "fast" and name != "single"]
    return sorted(fast, key=lambda name: LEADING.index(name) if name in LEADING else len(LEADING))
