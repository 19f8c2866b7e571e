"""What single algorithms answer, as the portfolio takes it: whole ones as candidates, ones with ops in parts apart, faults noted.

It decides neither which algorithms run nor when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from stepd.core.bounds import Bound
from stepd.core.errors import PlannerError, StrategyError
from stepd.core.placement import registry
from stepd.core.placement.registry import PlanOptions
from stepd.core.portfolio.pool import Candidate
from stepd.core.portfolio.runs import Run
from stepd.core.problem import Index, Problem
from stepd.core.simulator import Simulation
from stepd.core.strategy import Strategy

Ask = Callable[[], Candidate | None]
"""One algorithm with one set of parameters, to be run."""
FAULTS = (ArithmeticError, LookupError, ValueError, RuntimeError)
"""What a fault in one algorithm, or in a library that it calls, raises."""


@dataclass(eq=False)
class Answers:
    """The answers on one problem. failed: algorithm -> its fault; in_parts: since they were last taken, with ops that are split;
    shortest: algorithm -> the seconds of its shortest step that fits."""

    problem: Problem
    failed: dict[str, str] = field(default_factory=dict)
    in_parts: list[Strategy] = field(default_factory=list)
    shortest: dict[str, float] = field(default_factory=dict)

    def asked(self, runs: Sequence[Run]) -> list[Ask]:
        """`runs`, to be run."""
        return [partial(self.candidate, run) for run in runs]

    def candidate(self, run: Run) -> Candidate | None:
        """Run one algorithm."""
        name, options = run
        try:
            found = registry.plan(name, self.problem, options)
        except (PlannerError, StrategyError):
            return None  # an extra that is not installed, or no answer within the memory: one candidate less
        except FAULTS as error:
            # One algorithm's fault costs its candidate, not the plan; the answer says so.
            self.failed[name] = f"{type(error).__name__}: {error}"[:200]
            return None
        if found.splits:
            self.in_parts.append(found)
        if found.planner.get("feasible"):
            self.shortest[name] = min(found.predicted_step_seconds, self.shortest.get(name, np.inf))
        return Candidate(_origin(name, options), found.placement.copy(), found.priority.copy())

    def better_in_parts(self, than: float, seed: int) -> Iterator[Strategy]:
        """Better and better strategies with ops in parts among those since the last call, all shorter than that many seconds."""
        found, self.in_parts = self.in_parts, []
        for strategy in found:
            if strategy.planner.get("feasible") and strategy.predicted_step_seconds < than:
                than = strategy.predicted_step_seconds
                facts = {"algorithm": "portfolio", "origin": strategy.planner.get("algorithm"), "seed": seed}
                yield replace(strategy, planner={**strategy.planner, **facts})

    def labelled(
        self, origin: str, placement: Index, priority: Index, simulation: Simulation, bound: Bound, effort: Mapping[str, Any]
    ) -> Strategy:
        """The portfolio's strategy: where it comes from, what was simulated, what it took to find it."""
        facts = {
            "algorithm": "portfolio",
            "origin": origin,
            "feasible": simulation.feasible,
            "peak_bytes": [int(peak) for peak in simulation.device_peak_bytes],
            **effort,
            **self.facts(bound, simulation.step_seconds),
        }
        return Strategy(self.problem.name, placement, priority, predicted_step_seconds=simulation.step_seconds, planner=facts)

    def facts(self, bound: Bound, step_seconds: float) -> dict[str, Any]:
        """What strategies of so many seconds a step say of the faults and the bound as these are known now."""
        return {
            **({"failed": dict(self.failed)} if self.failed else {}),
            "lower_bound_seconds": bound.seconds,
            "lower_bound_kind": bound.kind,
            "gap": bound.gap(step_seconds),
        }


def _origin(name: str, options: PlanOptions) -> str:
    """The algorithm, and in which parameters it differs from its defaults."""
    varied: dict[str, Any] = {"memory": options.memory_factor} if options.memory_factor != 1.0 else {}
    varied |= {} if options.link_aware else {"links": "blind"}
    own = ", ".join(f"{key}={value}" for key, value in (varied | dict(options.parameters)).items())
    return f"{name}({own})" if own else name
