"""The planner's own process: `python -m stepd.daemon.planner_process < request > answers`.

Reads one request, searches within its budget and writes each better candidate at once, so that whoever
kills it has the best so far. Kernels are compiled here and nowhere else, into NUMBA_CACHE_DIR. It knows no
jobs, no store and no wire contract of hooks.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from stepd.core.assembly import Situation, SplitOffer
from stepd.core.calibration import Measured
from stepd.core.cost.models import CostModels
from stepd.core.enforced import as_enforced, unordered
from stepd.core.errors import StepdError
from stepd.core.placement import registry
from stepd.core.planning import Report, Search, begin, run, single_ops_split
from stepd.core.portfolio import planner as portfolio
from stepd.core.portfolio.start_order import natural_priority
from stepd.core.problem import Problem
from stepd.core.problem_format import dump_problem
from stepd.core.session_links import SessionDevice
from stepd.core.strategy import Split, Strategy
from stepd.core.uncompiling import Uncompiling
from stepd.daemon import codec
from stepd.daemon.convert.graph import parse_nodes
from stepd.daemon.planner_frames import BESIDE, GENTLY, write_frame

PATIENCE = 0.3
PATIENCE_SECONDS = 2.0
"""A search that found nothing better for this share of its budget (at least so many seconds) ends early."""

NICEST = 19
GENTLE = 10
"""How nice a planner is that got next to nothing as the nicest: a tenth of a core that training wants, too."""

PROGRESS = 0.003
"""Steps that are shorter by less than this share are not worth waiting for: the costs are not known so well."""


def read_request(request: Any) -> tuple[Situation, list[Measured]]:
    """The decoded request as core's values."""
    situation = Situation(
        name=request["name"],
        nodes=parse_nodes(request["graph_def"], request["lifted"], request["shared"]),
        outputs=tuple(request["outputs"]),
        devices=tuple(SessionDevice(*device) for device in request["devices"]),
        models=CostModels.from_state(request["models"]),
        today=request["today"],
        pinned=request["pinned"],
        together=tuple(tuple(group) for group in request["together"]),
        device_kinds={op: tuple(kinds) for op, kinds in request["device_kinds"].items()},
        keeps_types=request["keeps_types"],
        splits=tuple(
            SplitOffer(op, axis, parts, tuple(cut), tuple(joined), adds) for op, axis, parts, cut, joined, adds in request["splits"]
        ),
    )
    return situation, [_measured(known) for known in request["measured"]]


def _measured(known: Any) -> Measured:
    splits = ((op, axis, parts, *(tuple(rest) for rest in lists)) for op, axis, parts, *lists in known.get("splits", ()))
    return Measured(**{**known, "splits": tuple(splits)})


def _rows(splits: Sequence[Split]) -> list[list[Any]]:
    """Splits as plain lists: op, axis, parts, devices, weights, into."""
    return [[s.op, s.axis, s.parts, list(s.devices), list(s.weights), list(s.into)] for s in splits]


def answer(request: Any, out: BinaryIO) -> None:
    """Write a "problem" frame, "candidate" frames, each better than the last, and "done"; or "error". Of an export: "exported"."""
    try:
        planning = begin(*read_request(request), ordered=request["ordered"], whole_order=request["whole_order"])
        problem, calibration = planning.assembled.problem, planning.calibration
        if request["export"]:
            text = json.dumps(dump_problem(problem)).encode()
            write_frame(out, {"kind": "exported", "problem_json": text})
            return
        write_frame(
            out,
            {
                "kind": "problem",
                "ops": list(problem.op_names),
                "devices": [device.name for device in problem.devices],
                "seconds": problem.seconds,
                "pinned": np.isfinite(problem.seconds).sum(axis=1) == 1,
                "model_error": calibration.error,
                "gain_error": calibration.gain_error,
                "factor": calibration.factor,
                "today_simulated_seconds": calibration.today_simulated_seconds,
            },
        )

        run(
            planning,
            _searcher(request),
            lambda found: write_frame(out, {"kind": "candidate", **vars(found), "splits": _rows(found.splits)}),
        )
        write_frame(out, {"kind": "done"})
    except StepdError as error:
        write_frame(out, {"kind": "error", "message": str(error)})


class Budget:
    """The clock that a search is timed by. It counts the process's own work, since it only gets what training leaves; at most
    SLOWEST times as long on the wall. Compiling kernels, once per machine, does not count: a first plan is worth waiting for. It
    jumps to its end when nothing better was found for `patience` seconds.
    """

    SLOWEST = 4.0

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._progress = 0.0
        self._best = math.inf
        self._work, self._wall = Uncompiling(time.process_time), Uncompiling(time.monotonic)
        self._started = self._wall.now()

    def _elapsed(self) -> float:
        return max(self._work.now(), (self._wall.now() - self._started) / self.SLOWEST)

    def __call__(self) -> float:
        """Seconds; infinite when patience ran out."""
        elapsed = self._elapsed()
        return math.inf if elapsed - self._progress > self._patience else elapsed

    def progressed(self, step_seconds: float) -> None:
        """Something better was found; it counts when it is better by PROGRESS than what counted last."""
        if step_seconds <= self._best * (1.0 - PROGRESS):
            self._best = step_seconds
            self._progress = self._elapsed()


def _searcher(request: Any) -> Search:
    """The algorithm asked for, within its budget."""

    def search(problem: Problem, starts: Sequence[Strategy], report: Report) -> None:
        workers = int(os.environ.get("NUMBA_NUM_THREADS", "1"))
        if request["algorithm"] == "portfolio":
            portfolio.warm_up()
        natural = natural_priority(problem)
        with ThreadPoolExecutor(workers) as pool:
            options = registry.PlanOptions(
                budget_seconds=request["seconds"],
                seed=request["seed"],
                workers=workers,
                clock=Budget(math.inf),
                report=report,
                run_all=pool.map,
                order=natural,
            )
            free = replace(options, order=None, unordered=unordered(problem)) if request["ordered"] else options
            if request["algorithm"] != "portfolio":
                report(registry.plan(request["algorithm"], problem, free))
                return
            if not request["ordered"]:
                _portfolio(problem, options, request["seconds"], starts, report)
            elif request["whole_order"]:
                _portfolio(problem, free, request["seconds"], starts, report)
            else:  # first what is good in the order that ops come in anyway, then what can be gained by another
                options = replace(options, order=as_enforced(problem, natural))
                found = _portfolio(problem, options, request["seconds"] / 2, starts, report)
                _portfolio(problem, free, request["seconds"] / 2, [*starts, *found], report)
        if problem.split_choices:
            report(single_ops_split(problem))  # the portfolio runs no splits, but has compiled what this needs

    return search


def _portfolio(
    problem: Problem, options: registry.PlanOptions, seconds: float, starts: Sequence[Strategy], report: Report
) -> Sequence[Strategy]:
    """Search for that long; the best that was found, if anything."""
    clock, best = Budget(max(PATIENCE_SECONDS, PATIENCE * seconds)), None
    clock.progressed(math.inf)
    for best in portfolio.search(problem, replace(options, clock=clock, budget_seconds=seconds), starts):
        clock.progressed(best.predicted_step_seconds)
        report(best)
    return [best] if best is not None else []


def give_way(niceness: int) -> None:
    """The training steps come first: plan in what the cores have left over, or (less than NICEST) with a small share of them.
    Where that is nothing, the budget's wall-clock end still ends the search (see `Budget`).

    Linux shares a core between sessions before it looks at their processes (autogroups), so that being idle counts for nothing
    against workers of another session: the planner gets a session of its own, and that one yields.
    """
    with suppress(OSError):
        os.nice(niceness)
    if niceness == NICEST:
        with suppress(OSError, AttributeError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with suppress(OSError):
        os.setsid()
        Path("/proc/self/autogroup").write_text(str(niceness))


def main() -> None:
    """Entry point of the process."""
    if BESIDE not in sys.argv:
        give_way(GENTLE if GENTLY in sys.argv else NICEST)
    answer(codec.loads(sys.stdin.buffer.read()), _pipe())


def _pipe() -> BinaryIO:
    """Standard output for frames alone: METIS prints remarks there by itself, by the kilobyte on many devices."""
    pipe = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    return pipe


if __name__ == "__main__":
    main()
