"""Rounds of annealing chains from the best points of the pool: from many origins at first, in the end from the best one only.

What a round does depends on the problem, the seed and the share of the budget that is gone. Moves that paid are drawn more often
in later rounds. It knows no algorithm and no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stepd.core.penalty import Penalty, penalised
from stepd.core.placement.registry import RunAll
from stepd.core.placement.rng import new_rng
from stepd.core.portfolio.annealing import Found, Walk, anneal
from stepd.core.portfolio.balancing import balanced
from stepd.core.portfolio.estimate import doubt_of
from stepd.core.portfolio.moves import DRAWN, Units
from stepd.core.portfolio.points import Point, evaluate
from stepd.core.portfolio.pool import Entry, Pool
from stepd.core.problem import Float

CHAINS = 4
"""Annealing chains in a round, whatever the number of workers, so that the answer does not depend on it."""
MOVES = 1_500_000
"""Ops and edges simulated by one chain in one round: about a tenth of a second."""
SHIFTS = 0.15
"""Share of the moves that change the order, where the order is free."""
WIDTH = 8
"""Origins that the search starts from at first."""
ONE_ORIGIN_FROM = 0.85
"""Share of the budget from which on only the best origin counts."""
NEAR = 1.25
"""How much longer the steps of other origins may be than the best one's to be worth searching from."""
HEATS = (0.02, 0.006, 0.002, 0.0006)
COLD, COLD_FROM = 1e-5, 0.4
"""Heat of the first chain of every other round, and from which share of the budget on: what is left to gain may be less than the
chains' heat lets them see."""
TRAFFIC = (0.3, 0.1)
"""What a mean second of link time counts beside a second of the step, by turns."""
REPAIRS = 6
"""Chains that try to make a point fit before it is given up."""
SOFT = 0.3
"""Penalty of such chains where memory does not suffice, as a share of the step: little enough not to spoil the step first."""
LENIENT_CHAIN, HOT_CHAIN = 1, 2
LENIENT = (0.5, 2.0, 8.0)
"""What a device's memory counts where it is missing, in steps, by turns, for a chain that may pass through what does not fit."""
HOT = (0.5, 0.1)
"""Heats, by turns, of two chains a round where a chain has many moves for every group: they may begin anywhere and still settle."""
MOVES_A_GROUP = 20
EVEN = 0.5
"""Share of the moves that is drawn evenly, whatever paid so far."""
FORGET = 0.7
RANKED_WITHIN = 1.01
"""How much longer a step may be with its ops ordered by upward ranks again, for a chain to start from there."""


@dataclass(eq=False)
class LocalSearch:
    """The search on the points of `pool`. ordered: whether the order is free."""

    pool: Pool
    units: Units
    seed: int
    run_all: RunAll
    free_order: bool = True
    rounds: int = 0
    tried: Float = field(init=False)
    gained: Float = field(init=False)
    cold: bool = field(init=False, default=False)
    even: Point | None = field(init=False, default=None)  # what the last try to even out loads left

    def __post_init__(self) -> None:
        arms = len(self.units.level_pointer) - 1 + DRAWN
        self.tried, self.gained = np.zeros(arms), np.zeros(arms)
        self.repairs: dict[str, int] = {}

    def round(self, used: float) -> None:
        """One round; used: share of the budget that is gone, 0..1."""
        tables = self.pool.prepared.tables
        steps = int(min(5_000, max(6, MOVES // (len(tables.reader) + len(tables.group)))))
        shares = self._shares()
        self.cold = used > COLD_FROM and self.rounds % 2 == 1
        tasks = [(entry, steps, shares, k, self._penalty(entry, k)) for k, entry in enumerate(self._parents(used))]
        unfit = next((entry for entry in self.pool.tempting() if self.repairs.get(entry.origin, 0) < REPAIRS), None)
        if unfit is not None:
            self.cold = False
            self.repairs[unfit.origin] = self.repairs.get(unfit.origin, 0) + 1
            self.pool.unfit.remove(unfit)  # what it becomes is added again
            tasks[0] = unfit, steps, shares, 0, Penalty(SOFT * unfit.point.seconds, 10.0 * SOFT * unfit.point.seconds)
        for entry, found in self.run_all(self._chain, tasks):
            cost = penalised(found.best.seconds, found.best.overflow, self.pool.penalty)
            self.pool.add(Entry(found.best._replace(cost=cost), entry.weight, entry.origin))
            if found.best.overflow > 0.0 and found.fitting.cost < np.inf:
                self.pool.add(Entry(found.fitting, entry.weight, entry.origin))
            self.tried += found.tried
            self.gained += found.gained
        if self.cold:
            self._balance()
        self.tried *= FORGET
        self.gained *= FORGET
        self.rounds += 1

    def _balance(self) -> None:
        """Even out the best point, unless it is the one that was left by the last try."""
        best = self.pool.best
        if best.point.overflow == 0.0 and best.point is not self.even:
            better = balanced(self.pool, best)
            self.pool.add(better)
            self.even = better.point

    def _penalty(self, entry: Entry, chain: int) -> Penalty:
        """What a chain from `entry` counts for missing memory; `chain`: its number in the round."""
        if chain != LENIENT_CHAIN or not self.pool.track or entry.point.overflow > 0.0:
            return self.pool.penalty
        return Penalty(0.0, LENIENT[self.rounds % len(LENIENT)] * entry.point.seconds)

    def _parents(self, used: float) -> list[Entry]:
        """Where the chains start: the best points of different origins in turn, fewer and fewer."""
        most = max(1, round(WIDTH * (1.0 - used / ONE_ORIGIN_FROM)))
        near = self.pool.near_best(NEAR, most)
        parents = [near[(self.rounds * CHAINS + k) % len(near)] for k in range(CHAINS)]
        if self.cold:
            parents[0] = near[0]
        return parents

    def _shares(self) -> Float:
        """How often each arm is drawn, cumulated. float64 [arms]."""
        even = np.full(len(self.tried), 1.0)
        even[-1] = 0.25  # exchanges of whole devices: few there are
        even /= even.sum()
        rate = self.gained / (self.tried + 1.0)
        total = float(rate.sum())
        shares = even if total <= 0.0 else EVEN * even + (1.0 - EVEN) * rate / total
        cumulated: Float = np.cumsum(shares)
        return cumulated

    def _chain(self, task: tuple[Entry, int, Float, int, Penalty]) -> tuple[Entry, Found]:
        """One annealing chain: (where it starts, moves, shares of the arms, its number in the round, the penalty)."""
        entry, steps, shares, chain, penalty = task
        if chain == CHAINS - 1 and self.free_order:
            entry = self._ranked(entry)
        heat = min(1.0, steps / 500) * HEATS[(chain + self.rounds) % len(HEATS)]
        if chain in (LENIENT_CHAIN, HOT_CHAIN) and steps >= MOVES_A_GROUP * self.pool.prepared.n_groups:
            heat = HOT[(chain + self.rounds) % len(HOT)]
        traffic = TRAFFIC[(chain + self.rounds) % len(TRAFFIC)]
        if chain == 0 and self.cold:
            heat, traffic = COLD, 0.0
        pool = self.pool
        found = anneal(
            pool.prepared.tables,
            self.units,
            pool.prepared.group_seconds,
            entry.point._replace(cost=penalised(entry.point.seconds, entry.point.overflow, penalty)),
            entry.weight,
            pool.tail,
            penalty,
            pool.track,
            Walk(steps, heat, SHIFTS if self.free_order else 0.0, shares, traffic, doubt_of(len(pool.tail))),
            new_rng(self.seed * 1_000_003 + self.rounds * CHAINS + chain + 1),
        )
        return entry, found

    def _ranked(self, entry: Entry) -> Entry:
        """`entry` ordered by upward ranks, which follow the placement, when that costs next to nothing."""
        if len(entry.point.base) == 0:
            return entry
        pool = self.pool
        limit = RANKED_WITHIN * entry.point.cost
        point = evaluate(
            pool.prepared.tables,
            entry.point.placement,
            pool.bias,
            pool.empty,
            1.0,
            pool.tail,
            pool.penalty,
            pool.track,
            limit if limit < pool.penalty.once else np.inf,
        )
        return Entry(point, 1.0, entry.origin) if point.cost <= limit else entry
