"""Which planning algorithms exist, by name, and how they are called.

An algorithm is a module of this package with one function `place(problem, options) -> Strategy`. It is imported when it is first
asked for. `sweep` lists the parameter sets that a full sweep of it runs: `compare` and the portfolio use the same one. It knows
no clock: budgets are measured with the clock in the options.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from stepd.core.errors import PlannerError
from stepd.core.problem import Index, Problem
from stepd.core.strategy import Strategy

Clock = Callable[[], float]
Place = Callable[[Problem, "PlanOptions"], Strategy]
RunAll = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
"""As the builtin map: results in the order of the items. The shell may pass one that uses threads."""


def stopped_clock() -> float:
    """A clock that stands still: budgets never end, so that a planner runs its fixed amount of work (`max_work`)."""
    return 0.0


@dataclass(frozen=True)
class PlanOptions:
    """What an algorithm may use. `parameters` are the algorithm's own (a member of its sweep)."""

    budget_seconds: float = 10.0
    seed: int = 0
    workers: int = 1  # threads (kernels run without the GIL)
    memory_factor: float = 1.0  # share of each device's memory that the algorithm may fill by its own accounting
    link_aware: bool = True
    parameters: Mapping[str, Any] = field(default_factory=dict)
    clock: Clock = stopped_clock
    max_work: int = 0  # work units of an anytime algorithm; 0: until the budget ends
    run_all: RunAll = map
    order: Index | None = None  # priorities that ops run in whatever is asked (a runtime that enforces none); None: free
    unordered: npt.NDArray[np.bool_] | None = None  # ops that run as soon as they can, before all others; None: none
    report: Callable[[Strategy], None] | None = None  # an anytime algorithm calls it with every better strategy

    def parameter(self, name: str, default: Any) -> Any:
        """The algorithm's parameter `name`, or `default`."""
        return self.parameters.get(name, default)


@dataclass(frozen=True)
class Algorithm:
    """One row of the table below."""

    name: str
    summary: str
    module: str = ""  # in stepd.core.placement, when it is not `name` with underscores
    sweep: tuple[Mapping[str, Any], ...] = ({},)
    effort: str = "fast"  # "fast": well under a second at 36k ops x 8 devices; "slow": seconds; "search": uses its whole budget
    extra: str = ""  # the optional dependency set that it needs

    def load(self) -> Place:
        """The algorithm's `place`. Raises PlannerError when the extra that it needs is not installed."""
        module = self.module or f"stepd.core.placement.{self.name.replace('-', '_')}"
        try:
            return cast(Place, importlib.import_module(module).place)
        except ModuleNotFoundError as error:
            if self.extra and not (error.name or "").startswith("stepd"):
                raise PlannerError(f"algorithm {self.name!r} needs {error.name}: pip install 'stepd[{self.extra}]'") from error
            raise


_TABLE: dict[str, Algorithm] = {}


def _register(*algorithms: Algorithm) -> None:
    for algorithm in algorithms:
        _TABLE[algorithm.name] = algorithm


# One row an algorithm, in the order in which `compare` shows them.
_register(
    Algorithm(
        "m-sct",
        "Baechi's m-SCT: favourite children by linear programming, memory-aware",
        sweep=({}, {"threshold": 0.1}),
        effort="slow",
    ),
    Algorithm(
        "linear-clustering",
        "LC (paths share a device), guided load balancing",
        sweep=({}, {"order": "placed-rank"}),
    ),
    Algorithm("dsc", "dominant sequence clustering, guided load balancing", sweep=({}, {"order": "placed-rank"})),
    Algorithm(
        "metis",
        "multilevel k-way partitioning",
        sweep=tuple({"balance": b, "order": o} for b in ("seconds", "both") for o in ("rank", "placed-rank")),
        extra="metis",
    ),
    Algorithm("exact", "CP-SAT on the ops themselves: proven for small problems", effort="search", extra="exact"),
    Algorithm("pesto", "Pesto: batch merging, CP-SAT on the coarse graph", effort="search", extra="exact"),
    Algorithm("moirai", "Moirai: operator fusion, CP-SAT on the coarse graph", effort="search", extra="exact"),
    Algorithm("mcmc", "FlexFlow's Markov chain on the simulator", effort="search"),
    Algorithm("cross-entropy", "Post's cross-entropy minimisation on the simulator", effort="search"),
    Algorithm(
        "portfolio",
        "best of all, then local search on the simulator",
        "stepd.core.portfolio.planner",
        effort="search",
    ),
    # The papers' algorithms and baselines that place one op (or cluster) after the other.
    Algorithm("single", "everything on one device, the best of them"),
    Algorithm(
        "fastt-dpos",
        "FastT: upward ranks, critical-path devices, insertion",
        sweep=({}, {"costs": "mean"}, {"path": False}, {"defer": False}, {"insertion": False}),
    ),
    Algorithm(
        "fastt-os-dpos",
        "FastT: DPOS with ops of the critical path split",
        sweep=({}, {"accept": "schedule", "patience": 1}),
        effort="slow",
    ),
    Algorithm(
        "heft",
        "HEFT: upward ranks with mean costs, insertion",
        sweep=({}, {"defer": False}),
    ),
    Algorithm(
        "celeritas",
        "Celeritas: optimal operation fusion, Adjusting Placement",
        sweep=({}, {"order": "rank"}, {"reach": 50, "order": "rank"}, {"reach": 1000, "order": "rank"}),
    ),
    Algorithm(
        "order-place",
        "Celeritas' Order-Place: clusters in order, one device after the other",
        sweep=({}, {"order": "rank"}),
    ),
    Algorithm("etf", "Earliest Time First, no memory limit", sweep=({}, {"defer": False})),
    Algorithm("m-etf", "Baechi's m-ETF: Earliest Time First within memory", sweep=({}, {"defer": False})),
    Algorithm("m-topo", "Baechi's m-TOPO: topological order, equal memory", sweep=({}, {"order": "rank"})),
    Algorithm("getf", "GETF: ETF for devices of different speed", sweep=({}, {"defer": False})),
    Algorithm(
        "expert",
        "contiguous layers by name scope, balanced by time",
        sweep=({}, {"order": "rank"}, {"devices": 2, "order": "rank"}, {"devices": 4, "order": "rank"}),
    ),
    Algorithm(
        "data-parallel",
        "one tower of a replicated graph a device",
        sweep=(
            *({"rest": rest} for rest in ("both", "bytes", "seconds", "turns", "near", "first")),
            *({"rest": rest, "order": "ready"} for rest in ("both", "near")),
        ),
    ),
)


def names() -> tuple[str, ...]:
    """All algorithms, in the order of the table."""
    return tuple(_TABLE)


def find(name: str) -> Algorithm:
    """The row of `name`. Raises PlannerError that lists the names when there is none."""
    if name not in _TABLE:
        raise PlannerError(f"no planning algorithm {name!r}; there are: {', '.join(_TABLE)}")
    return _TABLE[name]


def plan(name: str, problem: Problem, options: PlanOptions) -> Strategy:
    """Run one algorithm with one set of parameters."""
    return find(name).load()(problem, options)


def swept(name: str, options: PlanOptions) -> tuple[PlanOptions, ...]:
    """The options of a full sweep of `name`: its parameter sets over those given."""
    own = dict(options.parameters)
    return tuple(replace(options, parameters={**own, **parameters}) for parameters in find(name).sweep)
