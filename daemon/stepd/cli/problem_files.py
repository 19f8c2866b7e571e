"""Reads planning problems and strategies from files, whatever they are: PROBLEM_FORMAT, the JSON of dnn-partitioning, a GraphDef
with RunMetadata; gzipped or not. Errors name the file."""

from __future__ import annotations

import codecs
import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from stepd.cli.dnn_partitioning import is_partitioning_workload, read_partitioning_workload
from stepd.cli.graph_files import Hardware, parse_graph, parse_metadata, problem_of_graph
from stepd.core.errors import ProblemError, StepdError, StrategyError
from stepd.core.json_values import decode_json
from stepd.core.problem import Problem
from stepd.core.problem_format import dump_strategy, parse_problem, parse_strategy
from stepd.core.strategy import Strategy
from stepd.core.validation import validate
from stepd.core.what_if import WhatIf, apply_what_if
from stepd.v1 import profile_pb2

_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Reading:
    """How problems are read: what stands beside a GraphDef, and what is changed of the hardware."""

    run_metadata: Path | None = None
    hardware: Hardware = field(default_factory=Hardware)
    what_if: WhatIf = field(default_factory=WhatIf)


def read_problem(path: Path, reading: Reading) -> Problem:
    """The valid problem in `path`. Raises ProblemError that names the file and the op, edge or group."""
    metadata = None
    if reading.run_metadata is not None:
        with naming(reading.run_metadata, ProblemError):
            metadata = parse_metadata(read_bytes(reading.run_metadata))
    with naming(path, ProblemError):
        problem = _problem(path, read_bytes(path), metadata, reading.hardware)
        changed = apply_what_if(problem, reading.what_if)
        if changed is not problem:
            validate(changed)
        return changed


def _problem(path: Path, content: bytes, metadata: profile_pb2.RunMetadata | None, hardware: Hardware) -> Problem:
    if metadata is not None:
        name = path.name.removesuffix(".gz").removesuffix(".pb")
        return problem_of_graph(name, parse_graph(content), metadata, hardware)
    if not _looks_like_json(content):
        raise ProblemError(
            "neither a problem nor a workload: they are JSON, plain or gzipped. If this is a GraphDef, give the RunMetadata of a "
            "step of it with --run-metadata FILE"
        )
    value = decode_json(content, "problem", ProblemError)
    if is_partitioning_workload(value):
        return read_partitioning_workload(path.name.removesuffix(".gz").removesuffix(".json"), value)
    return parse_problem(value)


def read_strategy(path: Path, problem: Problem) -> Strategy:
    """The strategy in `path`, checked against `problem`. Raises StrategyError that names the file and the op or device."""
    with naming(path, StrategyError):
        return parse_strategy(read_bytes(path), problem)


def check_target(path: Path) -> None:
    """Raise StrategyError, before the work is done, where a strategy can never be written."""
    try:
        folder, inside = path.is_dir(), path.parent.is_dir()
    except OSError as error:
        raise StrategyError(f"cannot write {path}: {error.strerror or error}") from error
    if folder:
        raise StrategyError(f"cannot write {path}: it is a folder; name a file in it")
    if not inside:
        raise StrategyError(f"cannot write {path}: there is no folder {path.parent}; make it first")


def write_strategy(path: Path, strategy: Strategy) -> None:
    """Write `strategy` as JSON (gzipped when the name ends in .gz), whole or not at all. Raises StrategyError."""
    check_target(path)
    text = json.dumps(dump_strategy(strategy), separators=(",", ":")) + "\n"
    content = gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text.encode()
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
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
    head = content.removeprefix(codecs.BOM_UTF8)[:64]
    return not head or head.lstrip()[:1] in (b"{", b"[") or (head.isascii() and all(b >= 32 or b in b"\t\r\n" for b in head))


@contextmanager
def naming(path: Path, kind: type[StepdError]) -> Iterator[None]:
    """Errors out of here begin with the file's name."""
    try:
        yield
    except StepdError as error:
        raise kind(f"{path}: {error}") from error
