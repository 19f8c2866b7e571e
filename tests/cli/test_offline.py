"""Offline planning as people type it: real processes, real files, exit codes and messages."""

from __future__ import annotations

import copy
import gzip
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stepd.cli.problem_files import Reading, read_problem

GOOD: dict[str, Any] = {
    "version": 1,
    "name": "two towers",
    "devices": [{"name": f"/device:GPU:{k}", "type": "GPU", "memory_bytes": 1000} for k in range(2)],
    "links": [{"src": a, "dst": 1 - a, "bytes_per_second": 1e3, "latency_seconds": 0.01} for a in range(2)],
    "ops": {
        "name": ["in", "left", "right", "out"],
        "type": ["Const", "MatMul", "MatMul", "Add"],
        "seconds": [[0.1, 0.1], [1.0, 1.0], [1.0, 1.0], [0.1, 0.1]],
        "resident_bytes": [0, 100, 100, 0],
        "temp_bytes": [10, 10, 10, 10],
        "colocation": [None, None, None, None],
    },
    "edges": {"src": [0, 0, 1, 2], "dst": [1, 2, 3, 3], "output": [0, 0, 0, 0], "bytes": [10, 10, 10, 10]},
}
WORKLOAD: dict[str, Any] = {
    "maxSizePerFPGA": 1e9,
    "maxFPGAs": 2,
    "maxCPUs": 1,
    "nodes": [
        {"id": 5, "name": "a", "supportedOnFpga": True, "cpuLatency": 30, "fpgaLatency": 10, "size": 8, "colorClass": 1},
        {"id": 6, "name": "b", "supportedOnFpga": True, "cpuLatency": 30, "fpgaLatency": 10, "size": 8, "colorClass": 2},
        {"id": 7, "name": "c", "supportedOnFpga": False, "cpuLatency": 30, "fpgaLatency": 0, "size": 8, "colorClass": 3},
    ],
    "edges": [
        {"sourceId": 5, "destId": 6, "cost": 2.0, "size": 1},
        {"sourceId": 5, "destId": 7, "cost": 2.0, "size": 1},
    ],
}


def stepctl(*arguments: object, kernels: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stepd.cli.main", *map(str, arguments)]
    environ = os.environ if kernels is None else {**os.environ, "NUMBA_CACHE_DIR": str(kernels)}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environ)


def changed(*path_and_value: Any) -> dict[str, Any]:
    *path, value = path_and_value
    problem = copy.deepcopy(GOOD)
    holder: Any = problem
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return problem


def written(path: Path, value: Any) -> Path:
    text = json.dumps(value).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def test_a_plan_is_what_simulate_says_it_is(tmp_path: Path) -> None:
    problem, strategy = written(tmp_path / "p.json.gz", GOOD), tmp_path / "s.json"
    planned = stepctl("plan", problem, "-o", strategy, "--algorithm", "heft", "--format", "json")
    assert planned.returncode == 0, planned.stderr
    facts = json.loads(planned.stdout)
    simulated = stepctl("simulate", problem, strategy, "-o", "json")
    assert simulated.returncode == 0, simulated.stderr
    step = json.loads(simulated.stdout)
    assert step["step_seconds"] == facts["predicted_step_seconds"] == json.loads(strategy.read_text())["predicted_step_seconds"]
    # Both towers at once: 0.1, 1.0 each, a transfer of 0.02 on either way, 0.1; on one device it would be 2.2.
    assert step["step_seconds"] == pytest.approx(1.22)
    assert facts["lower_bound_seconds"] <= 1.2200001
    assert [device["ops"] for device in step["devices"]] == [2, 2]
    path = step["critical_path"]
    assert path[0]["start"] == 0.0
    assert path[-1]["end"] == step["step_seconds"]
    assert all(a["end"] == b["start"] for a, b in itertools.pairwise(path))
    assert step["critical_path_summary"]["transfers"] == 1


def test_tables_name_devices_links_and_the_critical_path(tmp_path: Path) -> None:
    problem, strategy = written(tmp_path / "p.json", GOOD), tmp_path / "s.json.gz"
    assert stepctl("plan", problem, "-o", strategy, "--algorithm", "heft").returncode == 0
    shown = stepctl("simulate", problem, strategy)
    assert shown.returncode == 0, shown.stderr
    for text in ("two towers: a step of 1.22 s", "/device:GPU:0 -> /device:GPU:1", "critical path: 3 ops (1.2 s)", "left"):
        assert text in shown.stdout


def test_compare_reads_workloads_and_draws(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    problem, plot = written(tmp_path / "tiny.json", WORKLOAD), tmp_path / "plot.svg"
    compared = stepctl("compare", problem, "--algorithm", "single", "--algorithm", "heft", "--plot", plot, "-o", "json")
    assert compared.returncode == 0, compared.stderr
    rows = {row["algorithm"]: row for row in json.loads(compared.stdout)}
    # The node that accelerators cannot run: 10 ms, 2 ms to the host, 30 ms there.
    assert rows["heft"]["step_seconds"] == pytest.approx(0.042)
    assert rows["heft"]["feasible"] is True
    assert "tiny" in plot.read_text()


def test_what_if_halves_times_of_faster_devices_and_links(tmp_path: Path) -> None:
    problem, strategy = written(tmp_path / "p.json", GOOD), tmp_path / "s.json"
    assert stepctl("plan", problem, "-o", strategy, "--algorithm", "heft").returncode == 0
    faster = stepctl("simulate", problem, strategy, "--device-speed", 2, "--link-speed", 2, "-o", "json")
    assert json.loads(faster.stdout)["step_seconds"] == pytest.approx(0.61)
    one = stepctl("plan", problem, "-o", strategy, "--devices", 1, "--algorithm", "single", "--format", "json")
    assert json.loads(one.stdout)["predicted_step_seconds"] == pytest.approx(2.2)


def test_a_strategy_that_does_not_fit_is_shown_and_exits_1(tmp_path: Path) -> None:
    problem, strategy = written(tmp_path / "p.json", GOOD), tmp_path / "s.json"
    single = {"version": 1, "problem": "two towers", "placement": [0] * 4, "priority": [0, 1, 2, 3]}
    written(strategy, single)
    shown = stepctl("simulate", problem, strategy, "--memory", 0.15)
    assert shown.returncode == 1
    assert "does NOT fit into memory: /device:GPU:0" in shown.stdout


NAN = json.dumps(changed("ops", "seconds", 1, [float("nan"), 1.0])).encode()
BAD_PROBLEMS: list[tuple[str, Any, str]] = [
    ("cycle", changed("edges", "dst", [1, 2, 3, 0]), "cycle of 2 ops"),
    ("negative cost", changed("ops", "seconds", 1, [-1.0, 1.0]), "'left'"),
    ("NaN cost", NAN, "seconds[0] of op 'left' is nan"),
    ("two ops of one name", changed("ops", "name", ["in", "left", "left", "out"]), "ops 1 and 2 are both called 'left'"),
    ("a key twice", b'{"version": 2, ' + json.dumps(GOOD).encode()[1:], "the key 'version' is given twice"),
    ("part of a device", WORKLOAD | {"maxFPGAs": 1.5}, "maxFPGAs is 1.5"),
    ("op that can run nowhere", changed("ops", "seconds", 2, [None, None]), "op 'right' can run on no device"),
    (
        "group without a common device",
        changed("ops", GOOD["ops"] | {"seconds": [[1, None], [None, 1], [1, 1], [1, 1]], "colocation": [4, 4,     None, None]}),
        "colocation group 4 (2 ops: 'in', 'left') has no device",
    ),
    ("memory that cannot suffice", changed("ops", "resident_bytes", [0, 5000, 0, 0]), "op 'left' needs"),
    ("negative bytes", changed("edges", "bytes", [10, -1, 10, 10]), "edge 1 ('in' -> 'right')"),
    ("unknown key", GOOD | {"colour": 1}, "unknown key 'colour'"),
    ("truncated gzip", gzip.compress(json.dumps(GOOD).encode())[:-20], "gzip data is truncated"),
    ("not JSON", b"{\"version\": 1,", "not JSON"),
    ("a protobuf", b"\n\x07\n\x01a\x12\x02Op", "--run-metadata"),
    ("missing file", None, "cannot be read"),
    ("workload with a dangling edge", WORKLOAD | {"edges": [{"sourceId": 5, "destId": 99, "cost": 1}]}, "99"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "expected"), [row[1:] for row in BAD_PROBLEMS], ids=[row[0] for row in BAD_PROBLEMS])
def test_bad_problems_are_named_and_exit_2(tmp_path: Path, content: Any, expected: str) -> None:
    path = tmp_path / "bad.json"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    answer = stepctl("plan", path, "-o", tmp_path / "s.json", "--algorithm", "single")
    assert answer.returncode == 2
    assert answer.stderr.startswith(f"stepctl: error: {path}: ")
    assert expected in answer.stderr
    assert "Traceback" not in answer.stderr
    assert not (tmp_path / "s.json").exists()


BAD_USES: list[tuple[str, list[str], str]] = [
    ("unknown algorithm", ["plan", "p.json", "-o", "s.json", "--algorithm", "magic"], "no planning algorithm 'magic'"),
    ("no budget", ["plan", "p.json", "-o", "s.json", "--budget", "0"], "a budget of 0.0 seconds"),
    ("seed of no kernel", ["plan", "p.json", "-o", "s.json", "--seed", str(2**64)], "--seed"),
    ("strategy that is a folder", ["plan", "p.json", "-o", "."], "cannot write .: it is a folder"),
    ("memory of no machine", ["simulate", "p.json", "s.json", "--memory", "1e300"], "factor memory is 1e+300"),
    ("infinite memory", ["simulate", "p.json", "s.json", "--device-memory", "1e400"], "'1e400' are too many bytes"),
    ("devices of no machine", ["simulate", "p.json", "s.json", "--devices", "1000"], "--devices"),
    ("missing trace", ["plan", "p.json", "-o", "s.json", "--run-metadata", "none.pb"], "error: none.pb: cannot be read"),
    ("unreachable device", ["simulate", "one-way.json", "apart.json"], "apart.json: op 'right' on"),
    ("factor of zero", ["simulate", "p.json", "s.json", "--link-speed", "0"], "link_speed is 0.0"),
    ("strategy of too long a name", ["plan", "p.json", "-o", "x" * 300], "File name too long"),
    ("unwritable strategy", ["plan", "p.json", "-o", "no/such/s.json", "--algorithm", "single"], "cannot write no/such/s.json"),
    ("strategy of another problem", ["simulate", "p.json", "other.json"], "other.json: the strategy is for problem 'another'"),
    ("amount of bytes", ["plan", "p.json", "-o", "s.json", "--device-memory", "much"], "'much' is not an amount of bytes"),
    ("plot of no known kind", ["compare", "p.json", "--plot", "plot.txt"], "must end in .svg"),
]


@pytest.mark.parametrize(("arguments", "expected"), [row[1:] for row in BAD_USES], ids=[row[0] for row in BAD_USES])
def test_bad_uses_are_explained_and_exit_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    written(Path("p.json"), GOOD)
    written(Path("one-way.json"), changed("links", GOOD["links"][:1]))
    written(Path("apart.json"), {"version": 1, "problem": "two towers", "placement": [0, 0, 1, 0], "priority": [0, 1, 2, 3]})
    written(Path("other.json"), {"version": 1, "problem": "another", "placement": [0] * 4, "priority": [0, 1, 2, 3]})
    answer = stepctl(*arguments)
    assert answer.returncode == 2
    assert expected in " ".join(answer.stderr.replace("│", " ").split())
    assert "Traceback" not in answer.stderr


def test_bounded_work_writes_the_same_file_each_time(tmp_path: Path) -> None:
    problem = written(tmp_path / "p.json", GOOD)
    files = [tmp_path / f"{workers}.json" for workers in (1, 2)]
    for workers, path in enumerate(files, 1):
        done = stepctl("plan", problem, "-o", path, "--algorithm", "mcmc", "--work", 3, "--workers", workers)
        assert done.returncode == 0, done.stderr
    assert files[0].read_bytes() == files[1].read_bytes()


def test_what_metis_prints_is_no_part_of_the_json(tmp_path: Path) -> None:
    ops = {"name": [f"op{i}" for i in range(12)], "type": ["Op"] * 12, "seconds": [[1.0] * 6] + [[0.0] * 6] * 11}
    ops |= {"resident_bytes": [0] * 12, "temp_bytes": [0] * 12, "colocation": [None] * 12}
    devices = [{"name": f"d{k}", "type": "GPU", "memory_bytes": 1000} for k in range(6)]
    links = [{"src": a, "dst": b, "bytes_per_second": 1e3, "latency_seconds": 0.0} for a in range(6) for b in range(6) if a != b]
    edges = {"src": list(range(11)), "dst": list(range(1, 12)), "output": [0] * 11, "bytes": [1] * 11}
    problem = written(tmp_path / "p.json", GOOD | {"devices": devices, "links": links, "ops": ops, "edges": edges})
    plan = stepctl("plan", problem, "-o", tmp_path / "s.json", "--algorithm", "metis", "--format", "json")
    assert "bisect" in plan.stderr
    assert json.loads(plan.stdout)["algorithm"] == "metis"


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(GOOD).encode())
    assert read_problem(tmp_path / "p.json", Reading()).n_ops == 4


def test_compiling_comes_on_top_of_the_budget_and_is_said(tmp_path: Path) -> None:
    problem, strategy, kernels = written(tmp_path / "p.json", GOOD), tmp_path / "s.json", tmp_path / "kernels"
    cold = stepctl("plan", problem, "-o", strategy, "--algorithm", "single", "--budget", 0.5, "--format", "json", kernels=kernels)
    assert cold.returncode == 0, cold.stderr
    assert "compiling" in cold.stderr
    facts = json.loads(cold.stdout)
    assert facts["compiling_seconds"] > 0.0
    warm = stepctl("plan", problem, "-o", strategy, "--algorithm", "single", "--format", "json", kernels=kernels)
    assert "compiling" not in warm.stderr
    assert json.loads(warm.stdout)["compiling_seconds"] == 0.0
    assert json.loads(warm.stdout)["predicted_step_seconds"] == facts["predicted_step_seconds"] == pytest.approx(2.2)
