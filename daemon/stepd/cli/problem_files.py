"""Reads planning problems and strategies from files, whatever they are: PROBLEM_FORMAT, the JSON of dnn-partitioning, a GraphDef
with RunMetadata; gzipped or not. Errors name the file."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from stepd.cli.dnn_partitioning import is_partitioning_workload, read_partitioning_workload
from stepd.cli.graph_files import Hardware, problem_of_graph
from stepd.core.errors import ProblemError, StepdError, StrategyError
from stepd.core.problem import Problem
from stepd.core.problem_format import dump_strategy, parse_problem, parse_strategy
from stepd.core.strategy import Strategy
from stepd.core.validation import validate
from stepd.core.what_if import WhatIf, apply_what_if

_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Reading:
    """How problems are read: what stands beside a GraphDef, and what is changed of the hardware."""

    run_metadata: Path | None = None
    hardware: Hardware = field(default_factory=Hardware)
    what_if: WhatIf = field(default_factory=WhatIf)


def read_problem(path: Path, reading: Reading) -> Problem:
    """The valid problem in `path`. Raises ProblemError that names the file and the op, edge or group."""
    with _naming(path, ProblemError):
        problem = _problem(path, read_bytes(path), reading)
        changed = apply_what_if(problem, reading.what_if)
        if changed is not problem:
            validate(changed)
        return changed


def _problem(path: Path, content: bytes, reading: Reading) -> Problem:
    if reading.run_metadata is not None:
        name = path.name.removesuffix(".gz").removesuffix(".pb")
        return problem_of_graph(name, content, read_bytes(reading.run_metadata), reading.hardware)
    if not _looks_like_json(content):
        raise ProblemError(
            "neither a problem nor a workload: they are JSON, plain or gzipped. If this is a GraphDef, give the RunMetadata of a "
            "step of it with --run-metadata FILE"
        )
    value = _decoded(content)
    if is_partitioning_workload(value):
        return read_partitioning_workload(path.name.removesuffix(".gz").removesuffix(".json"), value)
    return parse_problem(value if isinstance(value, Mapping) else content)


def read_strategy(path: Path, problem: Problem) -> Strategy:
    """The strategy in `path`, checked against `problem`. Raises StrategyError that names the file and the op or device."""
    with _naming(path, StrategyError):
        return parse_strategy(read_bytes(path), problem)


def write_strategy(path: Path, strategy: Strategy) -> None:
    """Write `strategy` as JSON (gzipped when the name ends in .gz), whole or not at all. Raises StrategyError."""
    text = json.dumps(dump_strategy(strategy), separators=(",", ":")) + "\n"
    content = gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text.encode()
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        raise StrategyError(f"cannot write {path}: {error.strerror or error}") from error


def read_bytes(path: Path) -> bytes:
    """The content of `path`, unpacked where it is gzipped. Raises ProblemError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ProblemError(f"cannot be read: {error.strerror or error}") from error
    if not content.startswith(_GZIP):
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, OSError, zlib.error) as error:
        raise ProblemError(f"gzip data is truncated or damaged ({error}): copy the file again") from error


def _looks_like_json(content: bytes) -> bool:
    """Text rather than a protobuf message: the first byte of a GraphDef is a field tag (a line feed) and a length."""
    head = content[:64]
    return not head or head.lstrip()[:1] in (b"{", b"[") or (head.isascii() and all(b >= 32 or b in b"\t\r\n" for b in head))


def _decoded(content: bytes) -> Any:
    def reject(constant: str) -> NoReturn:
        raise ProblemError(f"problem: {constant} is not a number that a problem may hold: use finite numbers")

    try:
        return json.loads(content, parse_constant=reject)
    except (ValueError, RecursionError) as error:
        raise ProblemError(f"not JSON: {error}") from error


@contextmanager
def _naming(path: Path, kind: type[StepdError]) -> Iterator[None]:
    """Errors out of here begin with the file's name."""
    try:
        yield
    except StepdError as error:
        raise kind(f"{path}: {error}") from error
