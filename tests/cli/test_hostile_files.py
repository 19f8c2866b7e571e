"""Files that are wrong in every way: an error that names what is wrong, never another exception (a traceback to the user)."""

from __future__ import annotations

import copy
import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepd.cli.problem_files import Reading, read_problem, read_strategy
from stepd.core.errors import ProblemError, StrategyError
from stepd.core.simulator import simulate

PROBLEM: dict[str, Any] = {
    "version": 1,
    "name": "p",
    "devices": [{"name": "a", "type": "GPU", "memory_bytes": 100}, {"name": "b", "type": "GPU", "memory_bytes": 100}],
    "links": [
        {"src": 0, "dst": 1, "bytes_per_second": 10.0, "latency_seconds": 0.5},
        {"src": 1, "dst": 0, "bytes_per_second": 10.0, "latency_seconds": 0.5},
    ],
    "ops": {
        "name": ["x", "y", "z"],
        "type": ["A", "B", "C"],
        "seconds": [[1.0, 2.0], [1.0, None], [0.0, 0.0]],
        "resident_bytes": [1, 0, 3],
        "temp_bytes": [1, 2, 0],
        "colocation": [0, None, 0],
    },
    "edges": {"src": [0, 1], "dst": [1, 2], "output": [0, -1], "bytes": [4, 0]},
}
STRATEGY: dict[str, Any] = {
    "version": 1,
    "problem": "p",
    "placement": [0, 0, 0],
    "priority": [2, 0, 1],
    "splits": [],
    "predicted_step_seconds": 3.0,
    "planner": {"algorithm": "x"},
}
WORKLOAD: dict[str, Any] = {
    "maxSizePerFPGA": 100,
    "maxFPGAs": 2,
    "maxCPUs": 1,
    "nodes": [
        {"id": 0, "name": "x", "supportedOnFpga": 1, "cpuLatency": 2.0, "fpgaLatency": 1.0, "isBackwardNode": 0, "size": 3},
        {"id": 1, "name": "y", "supportedOnFpga": 0, "cpuLatency": 2.0, "fpgaLatency": 1.0, "colorClass": 1, "size": 3},
    ],
    "edges": [{"sourceId": 0, "destId": 1, "cost": 0.5, "size": 4}],
}
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 1, 2, 3, 1 << 31, 1 << 63, -(1 << 63), 10**30, 10**400]),
    st.sampled_from([0.0, -0.0, -1.5, 0.5, 1e-320, 1e18, 1e300, 1.7e308, math.inf, -math.inf, math.nan]),
    st.sampled_from(["", "x", "0", "1e5", "\x00", "é" * 40]),
    st.sampled_from([[], {}, [[]], [None], [0], [[1.0, 2.0]], {"x": 1}, [0, 1, 2, 3, 4, 5]]),
)


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something is in decoded JSON."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here, *(path for key, inner in items for path in paths(inner, (*here, key)))]


@st.composite
def damaged(draw: st.DrawFn, sound: dict[str, Any]) -> Any:
    """`sound` with up to three things replaced, taken away or repeated."""
    value = copy.deepcopy(sound)
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from([path for path in paths(value) if path] or [("version",)]))
        holder = value
        for key in way:
            holder = holder[key]
        change = draw(st.integers(0, 3))
        if change == 0 and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[last]))
        elif change == 1 and isinstance(holder, list | dict):
            del holder[last]
        elif change == 2 and isinstance(holder, dict):
            holder[draw(st.sampled_from(["unknown", "user_devices", "handling_seconds", "splits", "version"]))] = copy.deepcopy(
                draw(ODD)
            )
        else:
            holder[last] = copy.deepcopy(draw(ODD))
    return value


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


MANY = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def reads(path: Path, content: bytes) -> bool:
    """Whether the file is a problem; what is one can be simulated."""
    path.write_bytes(content)
    try:
        problem = read_problem(path, Reading())
    except ProblemError as error:
        assert str(error).startswith(f"{path}: ")
        assert len(str(error)) > len(str(path)) + 10
        return False
    alone = np.array([np.flatnonzero(np.isfinite(row))[0] for row in problem.seconds], dtype=np.int32)
    assert problem.n_ops == len(alone)
    return True


@MANY
@given(damaged(PROBLEM))
def test_damaged_problems(folder: Path, value: Any) -> None:
    reads(folder / "problem.json", json.dumps(value).encode())


@MANY
@given(damaged(WORKLOAD))
def test_damaged_workloads(folder: Path, value: Any) -> None:
    reads(folder / "workload.json", json.dumps(value).encode())


@MANY
@given(damaged(STRATEGY))
def test_damaged_strategies(folder: Path, value: Any) -> None:
    problem_file, path = folder / "sound.json", folder / "strategy.json"
    problem_file.write_text(json.dumps(PROBLEM))
    problem = read_problem(problem_file, Reading())
    path.write_text(json.dumps(value))
    try:
        strategy = read_strategy(path, problem)
    except StrategyError as error:
        assert str(error).startswith(f"{path}: ")
        return
    assert simulate(problem, strategy).step_seconds > 0


@MANY
@given(st.data())
def test_damaged_bytes(folder: Path, data: st.DataObject) -> None:
    content = json.dumps(data.draw(st.sampled_from([PROBLEM, WORKLOAD]))).encode()
    if data.draw(st.booleans()):
        content = gzip.compress(content, mtime=0)
    content = content[: data.draw(st.integers(0, len(content)))]
    for _ in range(data.draw(st.integers(0, 2))):
        if content:
            at = data.draw(st.integers(0, len(content) - 1))
            content = content[:at] + bytes([data.draw(st.integers(0, 255))]) + content[at + 1 :]
    reads(folder / "bytes.json.gz", content)


@MANY
@given(st.binary(max_size=64))
def test_any_bytes(folder: Path, content: bytes) -> None:
    assert not reads(folder / "any", content)


def test_what_is_sound_is_read(folder: Path) -> None:
    assert reads(folder / "a.json", json.dumps(PROBLEM).encode())
    assert reads(folder / "b.json", gzip.compress(json.dumps(WORKLOAD).encode()))
