"""Planning problems and strategies as JSON text (PROBLEM_FORMAT, version 1), strictly: unknown keys, keys given twice and NaN
for a number are errors.

It turns text into values and back; who reads and writes the files is elsewhere. Errors are ProblemError or StrategyError
and name the key, op, edge or group.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stepd.core.errors import ProblemError, StrategyError
from stepd.core.json_values import INT32_MAX, VERSION, Reader, decode_json
from stepd.core.problem import Device, Float, Index, Int, Link, Problem
from stepd.core.strategy import Split, Strategy
from stepd.core.validation import validate, validate_strategy

_HANDLING = ("handling_seconds", "handling_seconds_per_byte")


def parse_problem(source: str | bytes | Mapping[str, Any]) -> Problem:
    """A valid Problem from JSON text or its decoded object. Raises ProblemError."""
    reader = Reader("problem", ProblemError)
    value = decode_json(source, reader.what, reader.error) if isinstance(source, (str, bytes)) else source
    top = reader.keys(value, "the top level", ("version", "name", "devices", "links", "ops", "edges"))
    reader.version(top["version"])
    devices = tuple(_device(reader, k, item) for k, item in enumerate(reader.list_(top["devices"], "devices")))
    links = tuple(_link(reader, k, item) for k, item in enumerate(reader.list_(top["links"], "links")))
    columns = ("name", "type", "seconds", "resident_bytes", "temp_bytes", "colocation")
    ops = _columns(reader, top["ops"], "ops", columns)
    names = tuple(reader.text(name, f"the name of op {i}") for i, name in enumerate(ops["name"]))
    _check_names(reader, names)
    edges = _columns(reader, top["edges"], "edges", ("src", "dst", "output", "bytes"))
    n = len(names)
    problem = Problem(
        name=reader.text(top["name"], "name"),
        devices=devices,
        links=links,
        op_names=names,
        op_types=tuple(reader.text(kind, f"the type of op {names[i]!r}") for i, kind in enumerate(ops["type"])),
        seconds=_seconds(reader, ops["seconds"], names, devices),
        resident_bytes=_bytes(reader, ops["resident_bytes"], "resident_bytes", names),
        temp_bytes=_bytes(reader, ops["temp_bytes"], "temp_bytes", names),
        colocation=_colocation(reader, ops["colocation"], names),
        edge_src=_ends(reader, edges["src"], "src", n),
        edge_dst=_ends(reader, edges["dst"], "dst", n),
        edge_output=np.array(
            [reader.integer(v, f"output of edge {k}", -1, INT32_MAX) for k, v in enumerate(edges["output"])],
            dtype=np.int32,
        ),
        edge_bytes=np.array(
            [reader.integer(v, _edge_bytes(names, edges, k)) for k, v in enumerate(edges["bytes"])],
            dtype=np.int64,
        ),
    )
    validate(problem)
    return problem


def _check_names(reader: Reader, names: tuple[str, ...]) -> None:
    first: dict[str, int] = {}
    for i, name in enumerate(names):
        if first.setdefault(name, i) != i:
            reader.fail(f"ops {first[name]} and {i} are both called {name!r}: names must differ")


def _edge_bytes(names: tuple[str, ...], edges: Mapping[str, list[Any]], k: int) -> str:
    """How an error calls the bytes of edge k (its ends have been checked before)."""
    return f"bytes of edge {k} ({names[int(edges['src'][k])]!r} -> {names[int(edges['dst'][k])]!r})"


def _device(reader: Reader, k: int, value: Any) -> Device:
    item = reader.keys(value, f"device {k}", ("name", "type", "memory_bytes"))
    return Device(
        name=reader.text(item["name"], f"the name of device {k}"),
        type=reader.text(item["type"], f"the type of device {k}"),
        memory_bytes=reader.integer(item["memory_bytes"], f"memory_bytes of device {item['name']!r}"),
    )


def _link(reader: Reader, k: int, value: Any) -> Link:
    item = reader.keys(value, f"link {k}", ("src", "dst", "bytes_per_second", "latency_seconds"), _HANDLING)
    return Link(
        src=reader.integer(item["src"], f"src of link {k}"),
        dst=reader.integer(item["dst"], f"dst of link {k}"),
        bytes_per_second=reader.number(item["bytes_per_second"], f"bytes_per_second of link {k}"),
        latency_seconds=reader.number(item["latency_seconds"], f"latency_seconds of link {k}"),
        **{key: reader.number(item.get(key, 0.0), f"{key} of link {k}") for key in _HANDLING},
    )


def _columns(reader: Reader, value: Any, where: str, names: Sequence[str]) -> Mapping[str, list[Any]]:
    columns = reader.keys(value, where, names)
    first = len(reader.list_(columns[names[0]], f"{where}.{names[0]}"))
    for name in names:
        if len(reader.list_(columns[name], f"{where}.{name}")) != first:
            reader.fail(
                f"{where}.{name} has {len(columns[name])} entries, {where}.{names[0]} has {first}: columns must be equally long"
            )
    return columns


def _seconds(reader: Reader, rows: list[Any], names: tuple[str, ...], devices: tuple[Device, ...]) -> Float:
    seconds = np.empty((len(names), len(devices)))
    for i, row in enumerate(rows):
        if len(reader.list_(row, f"seconds of op {names[i]!r}")) != len(devices):
            reader.fail(f"seconds of op {names[i]!r} has {len(row)} entries for {len(devices)} devices")
        for j, value in enumerate(row):
            seconds[i, j] = math.inf if value is None else reader.number(value, f"seconds[{j}] of op {names[i]!r}")
    return seconds


def _bytes(reader: Reader, values: list[Any], column: str, names: tuple[str, ...]) -> Int:
    return np.array(
        [reader.integer(value, f"{column} of op {names[i]!r}") for i, value in enumerate(values)],
        dtype=np.int64,
    )


def _colocation(reader: Reader, values: list[Any], names: tuple[str, ...]) -> Index:
    groups = [
        -1 if value is None else reader.integer(value, f"colocation of op {names[i]!r}", 0, INT32_MAX)
        for i, value in enumerate(values)
    ]
    return np.array(groups, dtype=np.int32)


def _ends(reader: Reader, values: list[Any], column: str, n: int) -> Index:
    ends = [reader.integer(value, f"{column} of edge {k}") for k, value in enumerate(values)]
    for k, op in enumerate(ends):
        if op >= n:
            reader.fail(f"{column} of edge {k} is {op}: ops are 0..{n - 1}")
    return np.array(ends, dtype=np.int32)


def dump_problem(problem: Problem) -> dict[str, Any]:
    """The JSON object of `problem`; `parse_problem` gives it back."""
    return {
        "version": VERSION,
        "name": problem.name,
        "devices": [{"name": d.name, "type": d.type, "memory_bytes": d.memory_bytes} for d in problem.devices],
        "links": [
            {
                "src": link.src,
                "dst": link.dst,
                "bytes_per_second": link.bytes_per_second,
                "latency_seconds": link.latency_seconds,
            }
            | {key: getattr(link, key) for key in _HANDLING if getattr(link, key)}
            for link in problem.links
        ],
        "ops": {
            "name": list(problem.op_names),
            "type": list(problem.op_types),
            "seconds": [[v if math.isfinite(v) else None for v in row] for row in problem.seconds.tolist()],
            "resident_bytes": problem.resident_bytes.tolist(),
            "temp_bytes": problem.temp_bytes.tolist(),
            "colocation": [group if group >= 0 else None for group in problem.colocation.tolist()],
        },
        "edges": {
            "src": problem.edge_src.tolist(),
            "dst": problem.edge_dst.tolist(),
            "output": problem.edge_output.tolist(),
            "bytes": problem.edge_bytes.tolist(),
        },
    }


def parse_strategy(source: str | bytes | Mapping[str, Any], problem: Problem | None = None) -> Strategy:
    """A Strategy from JSON text or its decoded object, checked against `problem` when given. Raises StrategyError."""
    reader = Reader("strategy", StrategyError)
    value = decode_json(source, reader.what, reader.error) if isinstance(source, (str, bytes)) else source
    needed = ("version", "problem", "placement", "priority")
    top = reader.keys(value, "the top level", needed, ("splits", "predicted_step_seconds", "planner"))
    reader.version(top["version"])
    planner = top.get("planner", {})
    if not isinstance(planner, dict):
        reader.fail(f"planner must be an object, not {type(planner).__name__}")
    strategy = Strategy(
        problem=reader.text(top["problem"], "problem"),
        placement=_indices(reader, top["placement"], "placement"),
        priority=_indices(reader, top["priority"], "priority"),
        predicted_step_seconds=reader.number(top.get("predicted_step_seconds", 0.0), "predicted_step_seconds"),
        splits=tuple(_split(reader, k, s) for k, s in enumerate(reader.list_(top.get("splits", []), "splits"))),
        planner=planner,
    )
    if problem is not None:
        validate_strategy(problem, strategy)
    return strategy


def _indices(reader: Reader, value: Any, column: str) -> Index:
    values = reader.list_(value, column)
    return np.array(
        [reader.integer(v, f"{column} of op {i}", 0, INT32_MAX) for i, v in enumerate(values)],
        dtype=np.int32,
    )


def _split(reader: Reader, k: int, value: Any) -> Split:
    item = reader.keys(value, f"split {k}", ("op", "axis", "parts"), ("devices", "weights", "into"))
    devices = reader.list_(item.get("devices", []), f"devices of split {k}")
    weights = reader.list_(item.get("weights", []), f"weights of split {k}")
    into = reader.list_(item.get("into", []), f"into of split {k}")
    return Split(
        op=reader.integer(item["op"], f"op of split {k}", 0, INT32_MAX),
        axis=reader.text(item["axis"], f"axis of split {k}"),
        parts=reader.integer(item["parts"], f"parts of split {k}", 1, INT32_MAX),
        devices=tuple(reader.integer(v, f"a device of split {k}", 0, INT32_MAX) for v in devices),
        weights=tuple(reader.number(v, f"a weight of split {k}") for v in weights),
        into=tuple(reader.integer(v, f"into of split {k}", 0, INT32_MAX) for v in into),
    )


def dump_strategy(strategy: Strategy) -> dict[str, Any]:
    """The JSON object of `strategy`; `parse_strategy` gives it back."""
    return {
        "version": VERSION,
        "problem": strategy.problem,
        "placement": strategy.placement.tolist(),
        "priority": strategy.priority.tolist(),
        "splits": [
            {
                "op": split.op,
                "axis": split.axis,
                "parts": split.parts,
                **({"devices": list(split.devices)} if split.devices else {}),
                **({"weights": list(split.weights)} if split.weights else {}),
                **({"into": list(split.into)} if split.into else {}),
            }
            for split in strategy.splits
        ],
        "predicted_step_seconds": strategy.predicted_step_seconds,
        "planner": dict(strategy.planner),
    }
