"""A problem as the arrays that kernels want, computed once and kept with the problem.

`prepare(problem)` is what every planner starts from. `Prepared.tables` is a NamedTuple of arrays that goes into kernels as one
argument; what each array means is said there. It knows no algorithm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from stepd.core.errors import ProblemError
from stepd.core.problem import Float, Index, Int, Problem
from stepd.core.routes import Route, find_routes


class Tables(NamedTuple):
    """n ops, d devices, u outputs, g groups, l links. CSR: items of row i are at pointer[i]:pointer[i + 1].

    An output is what one op sends: (op, output index), its size the largest `bytes` of its edges; the control edges of an op are
    one output of 0 bytes (index -1, so first). An op that reads an output twice reads it once here.
    """

    seconds: Float  # [n, d], inf where the op cannot run
    resident: Int  # [n] bytes for the whole step
    temp: Int  # [n] bytes while it runs
    output_pointer: Index  # [n + 1] op -> its outputs, by output index
    output_bytes: Int  # [u]
    output_op: Index  # [u] the producer
    reader_pointer: Index  # [u + 1] output -> ops that read it
    reader: Index
    input_pointer: Index  # [n + 1] op -> outputs that it reads
    input: Index
    topological: Index  # [n] ops, producers before consumers
    group: Index  # [n] every op has a group: a colocation group or itself alone
    group_pointer: Index  # [g + 1] group -> its ops
    group_op: Index
    memory: Int  # [d] bytes
    route_pointer: Index  # [d * d + 1] src * d + dst -> links that a transfer holds
    route_link: Index
    latency: Float  # [d, d] seconds, inf where no path exists, 0 on the diagonal
    bandwidth: Float  # [d, d] bytes per second (inf on the diagonal, 1 where no path exists)
    handling: Float  # [2, d, d] seconds of both end devices per transfer, and per byte of it
    n_links: int


@dataclass(frozen=True, eq=False)
class Prepared:
    """Tables of a problem and what is handy beside them."""

    tables: Tables
    routes: dict[tuple[int, int], Route]
    group_seconds: Float  # [g, d] sum over the group's ops, inf where one of them cannot run
    group_resident: Int  # [g]
    output_index: Index  # [u] the output's number at its op, -1 for the control output

    @property
    def n_groups(self) -> int:
        return len(self.group_resident)


_KEY = "_prepared"
SLOW = 0.2
"""Share of the fastest device's speed below which a device is left out, in what is tried first."""


def prepare(problem: Problem) -> Prepared:
    """The arrays of `problem` (computed at the first call, then kept on it). Raises ProblemError when the graph has a cycle."""
    kept = problem.__dict__.get(_KEY)
    if isinstance(kept, Prepared):
        return kept
    prepared = _prepare(problem)
    object.__setattr__(problem, _KEY, prepared)
    return prepared


def device_speeds(prepared: Prepared) -> Float:
    """Relative speed of each device on all ops that it can run. float64 [d]."""
    seconds = prepared.tables.seconds
    best = seconds.min(axis=1)
    return np.array(
        [best[np.isfinite(column)].sum() / max(column[np.isfinite(column)].sum(), 1e-30) + 1e-9 for column in seconds.T]
    )


def on_devices(problem: Problem, devices: Index) -> Problem:
    """`problem` on some of its devices, in the order given, prepared: transfers go the ways that they go on all of them, over other
    devices, too, so that a strategy costs what it costs there. Without ways to split ops and what the user's code says."""
    whole = prepare(problem)
    at = {int(device): k for k, device in enumerate(devices)}
    links = tuple(replace(k, src=at[k.src], dst=at[k.dst]) for k in problem.links if k.src in at and k.dst in at)
    routes = {(at[a], at[b]): route for (a, b), route in whole.routes.items() if a in at and b in at}
    pointer, link, latency, bandwidth, handling = _route_tables(len(devices), routes)
    part = replace(
        problem,
        devices=tuple(problem.devices[k] for k in devices),
        links=links,
        seconds=problem.seconds[:, devices],
        split_choices=(),
        user_devices=None,
    )
    tables = whole.tables._replace(
        seconds=np.ascontiguousarray(whole.tables.seconds[:, devices]),
        memory=whole.tables.memory[devices],
        route_pointer=pointer,
        route_link=link,
        latency=latency,
        bandwidth=bandwidth,
        handling=handling,
    )
    group_seconds = np.ascontiguousarray(whole.group_seconds[:, devices])
    object.__setattr__(part, _KEY, Prepared(tables, routes, group_seconds, whole.group_resident, whole.output_index))
    return part


def _prepare(problem: Problem) -> Prepared:
    n, d = problem.n_ops, problem.n_devices
    output_pointer, output_op, output_index, output_bytes, edge_output = _outputs(problem)
    reader_pointer, reader, input_pointer, inputs = _edges_by_end(edge_output, problem.edge_dst, len(output_op), n)
    topological = topological_order(n, output_op[edge_output], problem.edge_dst)
    if len(topological) < n:
        raise ProblemError("the graph has a cycle: problem_format.validate names its ops")
    group, group_pointer, group_op = _groups(problem.colocation)
    routes = find_routes(d, problem.links)
    route_pointer, route_link, latency, bandwidth, handling = _route_tables(d, routes)
    seconds = np.array(problem.seconds, dtype=np.float64, order="C")
    resident = np.array(problem.resident_bytes, dtype=np.int64)
    n_groups = len(group_pointer) - 1
    group_seconds = np.zeros((n_groups, d))
    np.add.at(group_seconds, group, seconds)
    group_resident = np.zeros(n_groups, dtype=np.int64)
    np.add.at(group_resident, group, resident)
    tables = Tables(
        seconds=seconds,
        resident=resident,
        temp=np.array(problem.temp_bytes, dtype=np.int64),
        output_pointer=output_pointer,
        output_bytes=output_bytes,
        output_op=output_op,
        reader_pointer=reader_pointer,
        reader=reader,
        input_pointer=input_pointer,
        input=inputs,
        topological=topological,
        group=group,
        group_pointer=group_pointer,
        group_op=group_op,
        memory=np.array([device.memory_bytes for device in problem.devices], dtype=np.int64),
        route_pointer=route_pointer,
        route_link=route_link,
        latency=latency,
        bandwidth=bandwidth,
        handling=handling,
        n_links=len(problem.links),
    )
    return Prepared(tables, routes, group_seconds, group_resident, output_index)


def _pointer(rows: Index | Int, n_rows: int) -> Index:
    pointer = np.zeros(n_rows + 1, dtype=np.int32)
    np.cumsum(np.bincount(rows, minlength=n_rows), out=pointer[1:])
    return pointer


def _outputs(problem: Problem) -> tuple[Index, Index, Index, Int, Index]:
    """Number the distinct (op, output) pairs. The last value is the output of every edge."""
    numbers = problem.edge_output.astype(np.int64) + 1
    width = int(numbers.max(initial=0)) + 1
    keys, edge_output = np.unique(problem.edge_src.astype(np.int64) * width + numbers, return_inverse=True)
    output_op = (keys // width).astype(np.int32)
    output_index = (keys % width - 1).astype(np.int32)
    output_bytes = np.zeros(len(keys), dtype=np.int64)
    np.maximum.at(output_bytes, edge_output, problem.edge_bytes)
    return (
        _pointer(output_op, problem.n_ops),
        output_op,
        output_index,
        output_bytes,
        edge_output.reshape(-1).astype(np.int32),
    )


def _edges_by_end(edge_output: Index, edge_dst: Index, n_outputs: int, n: int) -> tuple[Index, Index, Index, Index]:
    """CSR of readers by output and of inputs by op, without repeated edges."""
    pairs = np.unique(edge_output.astype(np.int64) * max(n, 1) + edge_dst)
    output, op = (pairs // max(n, 1)).astype(np.int32), (pairs % max(n, 1)).astype(np.int32)
    by_op = np.argsort(op, kind="stable")
    return _pointer(output, n_outputs), op, _pointer(op, n), output[by_op].copy()


def _groups(colocation: Index) -> tuple[Index, Index, Index]:
    """Dense group numbers in order of first appearance; an op without a group is a group of its own."""
    n = len(colocation)
    keys = np.where(colocation >= 0, colocation.astype(np.int64), -1 - np.arange(n, dtype=np.int64))
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int32)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first), dtype=np.int32)
    group = rank[inverse.reshape(-1)]
    return group, _pointer(group, len(first)), np.argsort(group, kind="stable").astype(np.int32)


def _route_tables(d: int, routes: dict[tuple[int, int], Route]) -> tuple[Index, Index, Float, Float, Float]:
    latency = np.full((d, d), np.inf)
    bandwidth = np.ones((d, d))
    handling = np.zeros((2, d, d))
    np.fill_diagonal(latency, 0.0)
    np.fill_diagonal(bandwidth, np.inf)
    pointer = np.zeros(d * d + 1, dtype=np.int32)
    used: list[int] = []
    for pair in range(d * d):
        route = routes.get((pair // d, pair % d))
        if route is not None:
            used.extend(route.links)
            latency[pair // d, pair % d] = route.latency_seconds
            bandwidth[pair // d, pair % d] = route.bytes_per_second
            handling[:, pair // d, pair % d] = route.handling_seconds, route.handling_seconds_per_byte
        pointer[pair + 1] = len(used)
    return pointer, np.array(used, dtype=np.int32), latency, bandwidth, handling


def topological_order(n: int, src: Index, dst: Index) -> Index:
    """Kahn's algorithm, first come first served from the smallest index on; shorter than n when the graph has a cycle.

    Not compiled: it is what every problem needs first, and takes 20 ms at 36k ops.
    """
    by_src = np.argsort(src, kind="stable")
    left = np.bincount(dst, minlength=n).tolist()
    pointer, following = _pointer(src, n).tolist(), dst[by_src].tolist()
    order = [op for op in range(n) if not left[op]]
    for op in order:  # grows
        for reader in following[pointer[op] : pointer[op + 1]]:
            left[reader] -= 1
            if not left[reader]:
                order.append(reader)
    return np.array(order, dtype=np.int32)
