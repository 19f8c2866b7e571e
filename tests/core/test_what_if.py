"""The same graph on other hardware."""

from __future__ import annotations

import numpy as np
import pytest

from stepd.core.errors import ProblemError
from stepd.core.problem import Device, Link, Problem
from stepd.core.what_if import WhatIf, apply_what_if


def machine() -> Problem:
    """Two GPUs and a CPU; GPU 1 is the slower one, and the GPUs' link is wider than those to the CPU."""
    devices = (Device("g0", "GPU", 100), Device("g1", "GPU", 200), Device("c0", "CPU", 1000))
    rates = {(0, 1): 40.0, (1, 0): 40.0, (0, 2): 10.0, (2, 0): 10.0, (1, 2): 12.0, (2, 1): 12.0}
    columns = {name: np.zeros(2, np.int64) for name in ("resident_bytes", "temp_bytes")}
    return Problem(
        name="machine",
        devices=devices,
        links=tuple(Link(a, b, rate, 0.5) for (a, b), rate in rates.items()),
        op_names=("a", "b"),
        op_types=("A", "B"),
        seconds=np.array([[1.0, 2.0, 8.0], [1.0, 2.0, np.inf]]),
        colocation=np.full(2, -1, np.int32),
        edge_src=np.array([0], np.int32),
        edge_dst=np.array([1], np.int32),
        edge_output=np.array([0], np.int32),
        edge_bytes=np.array([80], np.int64),
        user_devices=np.array([1, -1], np.int32),
        **columns,
    )


def test_factors_scale_times_rates_latencies_and_memory() -> None:
    changed = apply_what_if(machine(), WhatIf(device_speed=2.0, link_speed=4.0, memory=0.5))
    assert changed.seconds.tolist() == [[0.5, 1.0, 4.0], [0.5, 1.0, np.inf]]
    assert [d.memory_bytes for d in changed.devices] == [50, 100, 500]
    assert (changed.links[0].bytes_per_second, changed.links[0].latency_seconds) == (160.0, 0.125)


def test_fewer_devices_keep_the_first_and_the_others_kind() -> None:
    changed = apply_what_if(machine(), WhatIf(devices=1))
    assert [d.name for d in changed.devices] == ["g0", "c0"]
    assert changed.seconds.tolist() == [[1.0, 8.0], [1.0, np.inf]]
    assert {(k.src, k.dst): k.bytes_per_second for k in changed.links} == {(0, 1): 10.0, (1, 0): 10.0}
    assert changed.user_devices is not None
    assert changed.user_devices.tolist() == [-1, -1]


def test_more_devices_repeat_the_models_with_their_costs_and_links() -> None:
    changed = apply_what_if(machine(), WhatIf(devices=4))
    assert [d.name for d in changed.devices] == ["g0", "g1", "g0#2", "g1#2", "c0"]
    assert changed.seconds[0].tolist() == [1.0, 2.0, 1.0, 2.0, 8.0]
    rates = {(k.src, k.dst): k.bytes_per_second for k in changed.links}
    assert rates[(0, 3)] == 40.0  # g0 to the copy of g1: as g0 to g1
    assert rates[(0, 2)] == 40.0  # g0 to its copy: as the widest link that leaves g0
    assert rates[(3, 4)] == 12.0
    assert len(rates) == 5 * 4


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf")])
def test_factors_must_be_positive(factor: float) -> None:
    with pytest.raises(ProblemError, match="link_speed"):
        apply_what_if(machine(), WhatIf(link_speed=factor))
