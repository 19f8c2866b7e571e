"""Whether a problem makes sense and could be solved at all, and whether a strategy fits its problem.

Every error names the op, edge, group or device. It knows values, not text.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stepd.core.errors import ProblemError, StrategyError
from stepd.core.prepared import Prepared, Tables, prepare, topological_order
from stepd.core.problem import Float, Index, Int, Problem
from stepd.core.simulator import check_arrays
from stepd.core.strategy import Strategy


def validate(problem: Problem) -> None:
    """Raise ProblemError on the first thing that is wrong with `problem`."""
    _check_shapes(problem)
    _check_devices(problem)
    _check_ops(problem)
    _check_edges(problem)
    _check_magnitudes(problem)
    _check_acyclic(problem)
    prepared = prepare(problem)
    _check_groups(problem, prepared)
    _check_memory(problem, prepared)
    _check_connected(problem, prepared)


def _check_shapes(problem: Problem) -> None:
    n, d, m = problem.n_ops, problem.n_devices, len(problem.edge_src)
    if d == 0:
        raise ProblemError(f"problem {problem.name!r} has no devices")
    if n == 0:
        raise ProblemError(f"problem {problem.name!r} has no ops")
    shapes: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...] = (
        ("op types", (len(problem.op_types),), (n,)),
        ("seconds", problem.seconds.shape, (n, d)),
        ("resident_bytes", problem.resident_bytes.shape, (n,)),
        ("temp_bytes", problem.temp_bytes.shape, (n,)),
        ("colocation", problem.colocation.shape, (n,)),
        ("edge dst", problem.edge_dst.shape, (m,)),
        ("edge output", problem.edge_output.shape, (m,)),
        ("edge bytes", problem.edge_bytes.shape, (m,)),
    )
    for what, shape, expected in shapes:
        if shape != expected:
            raise ProblemError(f"{what} has shape {shape}, expected {expected}: columns must be equally long")
    if problem.user_devices is not None and problem.user_devices.shape != (n,):
        raise ProblemError(f"user_devices has shape {problem.user_devices.shape}, expected {(n,)}")


def _check_devices(problem: Problem) -> None:
    names: set[str] = set()
    for k, device in enumerate(problem.devices):
        if device.name in names:
            raise ProblemError(f"device {k} is called {device.name!r}, like another one: names must differ")
        names.add(device.name)
        if device.memory_bytes < 0:
            raise ProblemError(f"memory_bytes of device {device.name!r} is {device.memory_bytes}: it is negative")
    d = problem.n_devices
    pairs: set[tuple[int, int]] = set()
    for k, link in enumerate(problem.links):
        if not (0 <= link.src < d and 0 <= link.dst < d):
            raise ProblemError(f"link {k} goes from device {link.src} to {link.dst}; devices are 0..{d - 1}")
        if link.src == link.dst:
            raise ProblemError(f"link {k} goes from device {link.src} to itself")
        if (link.src, link.dst) in pairs:
            raise ProblemError(f"link {k} from device {link.src} to {link.dst} is given twice")
        pairs.add((link.src, link.dst))
        if not (np.isfinite(link.bytes_per_second) and link.bytes_per_second > 0):
            raise ProblemError(
                f"bytes_per_second of link {k} ({link.src} -> {link.dst}) is {link.bytes_per_second}: "
                "it must be positive and finite"
            )
        for key in ("latency_seconds", "handling_seconds", "handling_seconds_per_byte"):
            value = getattr(link, key)
            if not (np.isfinite(value) and value >= 0):
                raise ProblemError(f"{key} of link {k} ({link.src} -> {link.dst}) is {value}: it must be finite and not negative")


def _check_ops(problem: Problem) -> None:
    bad = np.argwhere(np.isnan(problem.seconds) | (problem.seconds < 0))
    if len(bad):
        i, j = (int(v) for v in bad[0])
        raise ProblemError(
            f"seconds[{j}] of op {problem.op_names[i]!r} is {problem.seconds[i, j]}: it must be finite and not negative"
        )
    stuck = np.flatnonzero(~np.isfinite(problem.seconds).any(axis=1))
    if len(stuck):
        raise ProblemError(f"op {problem.op_names[int(stuck[0])]!r} can run on no device: all its seconds are null")
    for column in ("resident_bytes", "temp_bytes"):
        values: Int = getattr(problem, column)
        negative = np.flatnonzero(values < 0)
        if len(negative):
            i = int(negative[0])
            raise ProblemError(f"{column} of op {problem.op_names[i]!r} is {values[i]}: it is negative")


def _edge(problem: Problem, k: int) -> str:
    src, dst = problem.op_names[int(problem.edge_src[k])], problem.op_names[int(problem.edge_dst[k])]
    return f"edge {k} ({src!r} -> {dst!r})"


def _check_edges(problem: Problem) -> None:
    n = problem.n_ops
    for what, ends in (("src", problem.edge_src), ("dst", problem.edge_dst)):
        outside = np.flatnonzero((ends < 0) | (ends >= n))
        if len(outside):
            k = int(outside[0])
            raise ProblemError(f"{what} of edge {k} is {int(ends[k])}: ops are 0..{n - 1}")
    checks: tuple[tuple[npt.NDArray[np.intp], str], ...] = (
        (
            np.flatnonzero(problem.edge_src == problem.edge_dst),
            "leads an op to itself: the graph has a cycle",
        ),
        (np.flatnonzero(problem.edge_bytes < 0), "has negative bytes"),
        (np.flatnonzero(problem.edge_output < -1), "has an output below -1 (-1 is a control edge)"),
        (
            np.flatnonzero((problem.edge_output == -1) & (problem.edge_bytes != 0)),
            "is a control edge (output -1) that carries bytes: a control edge has bytes 0",
        ),
    )
    for bad, message in checks:
        if len(bad):
            raise ProblemError(f"{_edge(problem, int(bad[0]))} {message}")


MOST_BYTES = 1 << 62
MOST_SECONDS = 1e100


def _check_magnitudes(problem: Problem) -> None:
    """Sums of bytes must fit into 64 bits, and no sum of seconds may become infinite."""
    ops = problem.resident_bytes.astype(np.float64) + problem.temp_bytes
    edges = problem.edge_bytes.astype(np.float64) * problem.n_devices
    if float(ops.sum()) + float(edges.sum()) > MOST_BYTES:
        op, edge = int(np.argmax(ops)), int(np.argmax(edges)) if len(edges) else -1
        if edge >= 0 and edges[edge] > ops[op]:
            largest = f"edge {edge} ({problem.op_names[problem.edge_src[edge]]!r} -> {problem.op_names[problem.edge_dst[edge]]!r})"
        else:
            largest = f"op {problem.op_names[op]!r}"
        raise ProblemError(f"all bytes together are more than {MOST_BYTES}; {largest} has the most: are its bytes right?")
    seconds = np.where(np.isfinite(problem.seconds), problem.seconds, 0.0).max(axis=1)
    if not float(seconds.max()) * problem.n_ops < MOST_SECONDS:
        op = int(np.argmax(seconds))
        raise ProblemError(f"op {problem.op_names[op]!r} takes {seconds[op]:.3g} seconds, more than can be added up: is it right?")
    size = max(1, int(problem.edge_bytes.max(initial=0)))  # planners look at rates where nothing is sent, too
    for link in problem.links:
        transfer = link.latency_seconds + link.handling_seconds + size * link.handling_seconds_per_byte
        transfer += size / link.bytes_per_second
        if not transfer * max(1, len(problem.edge_src)) < MOST_SECONDS:
            raise ProblemError(f"link {link.src} -> {link.dst} takes {transfer:.3g} seconds for {size} bytes: is its rate right?")


def _check_acyclic(problem: Problem) -> None:
    order = topological_order(problem.n_ops, problem.edge_src, problem.edge_dst)
    if len(order) == problem.n_ops:
        return
    left = np.ones(problem.n_ops, dtype=bool)
    left[order] = False
    names = [problem.op_names[op] for op in find_cycle(problem, left)]
    shown = " -> ".join(repr(name) for name in (names if len(names) <= 12 else [*names[:6], "...", *names[-5:]]))
    raise ProblemError(f"the graph has a cycle of {len(names)} ops: {shown} -> {names[0]!r}")


def find_cycle(problem: Problem, left: npt.NDArray[np.bool_]) -> list[int]:
    """The ops of one cycle, in order. `left`: ops that a topological sort could not take; each has a producer that is left."""
    producer = {}
    for src, dst in zip(problem.edge_src.tolist(), problem.edge_dst.tolist(), strict=True):
        if left[src] and left[dst]:
            producer[dst] = src
    at = next(iter(producer))
    seen: dict[int, int] = {}
    path: list[int] = []
    while at not in seen:
        seen[at] = len(path)
        path.append(at)
        at = producer[at]
    return path[seen[at] :][::-1]


def _group_name(problem: Problem, prepared: Prepared, group: int) -> str:
    """How errors call a group: its number in the problem, or its only op."""
    tables = prepared.tables
    ops = tables.group_op[tables.group_pointer[group] : tables.group_pointer[group + 1]]
    names = [problem.op_names[int(op)] for op in ops]
    number = int(problem.colocation[int(ops[0])])
    if number < 0:
        return f"op {names[0]!r}"
    more = ", ..." if len(names) > 3 else ""
    return f"colocation group {number} ({len(names)} ops: {', '.join(repr(name) for name in names[:3])}{more})"


def _check_groups(problem: Problem, prepared: Prepared) -> None:
    stuck = np.flatnonzero(~np.isfinite(prepared.group_seconds).any(axis=1))
    if len(stuck):
        raise ProblemError(f"{_group_name(problem, prepared, int(stuck[0]))} has no device that can run all its ops")


def _check_memory(problem: Problem, prepared: Prepared) -> None:
    """Memory that no strategy can do without: of one group, and of all together."""
    tables = prepared.tables
    needs = group_memory(prepared)
    allowed = np.isfinite(prepared.group_seconds)
    room = np.where(allowed, tables.memory[None, :], -1).max(axis=1)
    over = np.flatnonzero(needs > room)
    if len(over):
        group = int(over[np.argmax((needs - room)[over])])
        raise ProblemError(
            f"{_group_name(problem, prepared, group)} needs {int(needs[group])} bytes at once, and the largest device "
            f"that can run it has {int(room[group])}: use a larger device or split it"
        )
    total, present = sum(problem.resident_bytes.tolist()), sum(tables.memory.tolist())
    if total > present:
        raise ProblemError(
            f"resident_bytes of all ops are {total} bytes together, all devices have {present}: memory cannot suffice"
        )


def group_memory(prepared: Prepared) -> Int:
    """Bytes [g] that a group's device holds at some time whatever the strategy.

    Its resident bytes, and while one of its ops runs that op's temp_bytes and inputs; when it has ended, its outputs.
    """
    peak = np.zeros(len(prepared.group_resident), dtype=np.int64)
    np.maximum.at(peak, prepared.tables.group, op_memory(prepared.tables))
    return prepared.group_resident + peak


def op_memory(tables: Tables) -> Int:
    """Bytes [n] beside resident ones that an op's device holds at some time because of it."""
    n = len(tables.resident)
    inputs = _sums(tables.output_bytes[tables.input], tables.input_pointer, n)
    outputs = _sums(tables.output_bytes, tables.output_pointer, n)
    return np.asarray(np.maximum(tables.temp + inputs, outputs))


def _sums(values: Int, pointer: Index, n: int) -> Int:
    total = np.concatenate(([0], np.cumsum(values, dtype=np.int64)))
    return total[pointer[1 : n + 1]] - total[pointer[:n]]


def _check_connected(problem: Problem, prepared: Prepared) -> None:
    """An edge whose ends share no device needs a path of links between two devices that can run them."""
    allowed: Float = np.isfinite(prepared.group_seconds)
    reachable = np.isfinite(prepared.tables.latency)
    if reachable.all():
        return
    group = prepared.tables.group
    for k, (src, dst) in enumerate(zip(problem.edge_src, problem.edge_dst, strict=True)):
        if not reachable[np.ix_(allowed[group[src]] > 0, allowed[group[dst]] > 0)].any():
            raise ProblemError(f"{_edge(problem, k)}: no path of links connects the devices that can run its ends")


def validate_strategy(problem: Problem, strategy: Strategy) -> None:
    """Raise StrategyError where `strategy` does not fit `problem` (memory and links are the simulator's business)."""
    if strategy.problem != problem.name:
        raise StrategyError(f"the strategy is for problem {strategy.problem!r}, not for {problem.name!r}")
    check_arrays(problem, strategy.placement, strategy.priority)
    tables = prepare(problem).tables
    first = tables.group_op[tables.group_pointer[tables.group]]
    apart = np.flatnonzero(strategy.placement != strategy.placement[first])
    if len(apart):
        op, other = int(apart[0]), int(first[int(apart[0])])
        raise StrategyError(
            f"colocation group {int(problem.colocation[op])} is torn: op {problem.op_names[op]!r} is on "
            f"{problem.devices[int(strategy.placement[op])].name!r}, op {problem.op_names[other]!r} on "
            f"{problem.devices[int(strategy.placement[other])].name!r}"
        )
    if strategy.splits:
        raise StrategyError("a problem file describes no splits: apply them on the live graph that the strategy is for")
