"""The clock of a live plan: what counts as work, what as progress."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from numba.core import event

from stepd.daemon import planner_process
from stepd.daemon.planner_process import Budget


class Machine:
    """Work done and time on the wall, as told."""

    def __init__(self) -> None:
        self.work = self.wall = 0.0

    def passes(self, work: float, wall: float) -> None:
        self.work += work
        self.wall += wall


@pytest.fixture
def machine(monkeypatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(planner_process, "time", SimpleNamespace(process_time=lambda: made.work, monotonic=lambda: made.wall))
    return made


def test_work_counts_and_the_wall_only_where_it_is_far_ahead(machine: Machine) -> None:
    clock = Budget(patience=math.inf)
    machine.passes(work=1.0, wall=2.0)
    assert clock() == 1.0
    machine.passes(work=0.0, wall=10.0)
    assert clock() == 12.0 / Budget.SLOWEST


def test_compiling_does_not_count(machine: Machine) -> None:
    clock = Budget(patience=5.0)
    clock.progressed(1.0)
    machine.passes(work=1.0, wall=1.0)
    with event.trigger_event("numba:compile"):
        machine.passes(work=30.0, wall=90.0)
        with event.trigger_event("numba:compile"):  # a kernel that calls another
            machine.passes(work=30.0, wall=90.0)
        assert clock() == 1.0
    machine.passes(work=1.0, wall=1.0)
    assert clock() == 2.0


def test_a_search_that_only_finds_crumbs_ends(machine: Machine) -> None:
    clock = Budget(patience=2.0)
    clock.progressed(1.0)
    machine.passes(work=1.5, wall=1.5)
    clock.progressed(0.99)
    machine.passes(work=1.5, wall=1.5)
    assert clock() == 3.0
    clock.progressed(0.99 * (1.0 - planner_process.PROGRESS / 2))
    machine.passes(work=1.0, wall=1.0)
    assert clock() == math.inf
