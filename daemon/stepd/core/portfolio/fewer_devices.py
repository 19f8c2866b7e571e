"""Some of the devices, as problems of their own: what serves there serves on all of them, where heuristics may miss it.

A schedule that may spread over many devices spreads where links make that dear, or so thinly that nothing is balanced. The parts
here are as small as two devices, next to each other or the fastest ones. It runs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from stepd.core.portfolio.answers import Answers, Ask
from stepd.core.portfolio.candidates import neighbours
from stepd.core.portfolio.pool import Candidate
from stepd.core.portfolio.runs import Run
from stepd.core.prepared import Prepared, device_speeds, on_devices, prepare
from stepd.core.problem import Index, Problem


@dataclass(frozen=True, eq=False)
class Part:
    """Some devices of a problem, int32 in ascending order, and what algorithms answer on the problem on them."""

    devices: Index
    answers: Answers

    def asked(self, runs: Sequence[Run]) -> list[Ask]:
        """`runs` on these devices, to be run, for candidates on all devices."""
        return [partial(self._candidate, run) for run in runs]

    def _candidate(self, run: Run) -> Candidate | None:
        found = self.answers.candidate(run)
        if found is None:
            return None
        origin = f"{found.origin} on {len(self.devices)} devices"
        return Candidate(origin, self.devices[found.placement].astype(np.int32), found.priority)


def parts(problem: Problem, failed: dict[str, str]) -> list[Part]:
    """2, 4, 8 and so on of the devices, and half of them; none that some op cannot run on or whose memory cannot suffice.

    failed: where algorithms' faults are noted.
    """
    return [Part(devices, Answers(on_devices(problem, devices), failed)) for devices in subsets(prepare(problem))]


def asked(some: Sequence[Part], runs: Sequence[Run]) -> list[Ask]:
    """`runs` on each of the parts, to be run."""
    return [ask for part in some for ask in part.asked(runs)]


def subsets(prepared: Prepared) -> list[Index]:
    """The devices of each part. Devices that run less than half of the work are in it when some op runs nowhere else."""
    can = np.isfinite(prepared.group_seconds)
    work = prepared.group_seconds.min(axis=1)
    able = np.isin(np.arange(can.shape[1]), np.flatnonzero(2.0 * (can.T @ work) >= work.sum()))
    elsewhere = np.logical_not(can[:, able].any(axis=1))
    only = can[elsewhere].any(axis=0)
    count = int(able.sum())
    if count < 3:
        return []
    fastest = np.argsort(-device_speeds(prepared), kind="stable").astype(np.int32)
    fastest = fastest[able[fastest]]
    line = neighbours(prepared, int(fastest[0]))
    line = line[able[line]]
    sizes = sorted({2**k for k in range(1, count.bit_length()) if 2**k < count} | {max(2, count // 2)})
    found: dict[bytes, Index] = {}
    for size in sizes:
        for order in (line, fastest):
            devices = np.union1d(order[:size], np.flatnonzero(only)).astype(np.int32)
            holds = prepared.tables.memory[devices].sum() >= prepared.group_resident.sum()
            joined = np.isfinite(prepared.tables.latency[np.ix_(devices, devices)]).all()
            if holds and joined and can[:, devices].any(axis=1).all():
                found.setdefault(devices.tobytes(), devices)
    return list(found.values())
