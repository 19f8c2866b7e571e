"""How a simulated step looks: as a table for people and as JSON for programs."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.console import Console

from stepd.cli.render import duration, size, table
from stepd.core.bounds import lower_bound
from stepd.core.critical_path import Segment, critical_path
from stepd.core.problem import Problem
from stepd.core.simulator import Simulation
from stepd.core.strategy import Strategy

SHOWN = 15


def as_json(problem: Problem, strategy: Strategy, simulation: Simulation) -> dict[str, Any]:
    """Everything about the step; seconds, bytes and fractions of the step."""
    path = critical_path(problem, strategy.placement, simulation)
    return {
        "problem": problem.name,
        "step_seconds": simulation.step_seconds,
        "lower_bound_seconds": lower_bound(problem),
        "feasible": simulation.feasible,
        "devices": _devices(problem, strategy, simulation),
        "links": _links(problem, simulation),
        "critical_path_summary": _summary(path),
        "critical_path": [_segment(problem, segment) for segment in path],
    }


def show(out: Console, problem: Problem, strategy: Strategy, simulation: Simulation) -> None:
    """The same as tables, with the longest segments of the critical path only."""
    step, bound = simulation.step_seconds, lower_bound(problem)
    out.print(f"{problem.name}: a step of {duration(step)}; no strategy takes less than {duration(bound)}")
    if not simulation.feasible:
        over = [f"{d.name} by {size(int(o))}" for d, o in zip(problem.devices, simulation.overflow_bytes, strict=True) if o]
        out.print(f"it does NOT fit into memory: {', '.join(over)}")
    rows = [
        (
            short(d["name"]),
            str(d["ops"]),
            duration(d["busy_seconds"]),
            f"{d['utilisation']:.0%}",
            size(d["peak_bytes"]),
            size(d["memory_bytes"]),
        )
        for d in _devices(problem, strategy, simulation)
    ]
    out.print(table(("DEVICE", "OPS", "BUSY", "UTILISATION", "PEAK MEMORY", "MEMORY"), rows))
    links = [link for link in _links(problem, simulation) if link["busy_seconds"] or link["transfers"]]
    moved = [
        (
            f"{short(k['src'])} -> {short(k['dst'])}",
            str(k["transfers"]),
            size(k["bytes"]),
            duration(k["busy_seconds"]),
            f"{k['utilisation']:.0%}",
        )
        for k in links
    ]
    out.print(table(("LINK", "TRANSFERS", "BYTES", "BUSY", "UTILISATION"), moved) if moved else "no transfers")
    _show_path(out, problem, critical_path(problem, strategy.placement, simulation))


def _show_path(out: Console, problem: Problem, path: list[Segment]) -> None:
    summary = _summary(path)
    out.print(
        f"critical path: {summary['ops']} ops ({duration(summary['op_seconds'])}), "
        f"{summary['transfers']} transfers ({duration(summary['transfer_seconds'])})"
    )
    longest = sorted(sorted(path, key=lambda s: s.start - s.end)[:SHOWN], key=lambda s: s.start)
    rows = [
        (duration(s.start) if s.start else "0", duration(s.end - s.start), _where(problem, s), problem.op_names[s.op])
        for s in longest
    ]
    out.print(table(("AT", "TAKES", "WHERE", "OP" if len(path) <= SHOWN else f"OP (the longest {SHOWN})"), rows))


def _where(problem: Problem, segment: Segment) -> str:
    name = short(problem.devices[segment.device].name)
    return f"{name} -> {short(problem.devices[segment.dst].name)}" if segment.is_transfer else name


def short(name: str) -> str:
    """A device's name without its job and task where they are this machine's: "/device:GPU:0"."""
    return name.removeprefix("/job:localhost/replica:0/task:0")


def _segment(problem: Problem, segment: Segment) -> dict[str, Any]:
    return {
        "kind": "transfer" if segment.is_transfer else "op",
        "op": problem.op_names[segment.op],
        "device": problem.devices[segment.device].name,
        **({"to": problem.devices[segment.dst].name} if segment.is_transfer else {}),
        "start": segment.start,
        "end": segment.end,
    }


def _summary(path: list[Segment]) -> dict[str, Any]:
    sent = [s for s in path if s.is_transfer]
    run = [s for s in path if not s.is_transfer]
    return {
        "ops": len(run),
        "op_seconds": sum(s.end - s.start for s in run),
        "transfers": len(sent),
        "transfer_seconds": sum(s.end - s.start for s in sent),
    }


def _devices(problem: Problem, strategy: Strategy, simulation: Simulation) -> list[dict[str, Any]]:
    counts = np.bincount(strategy.placement, minlength=problem.n_devices)
    step = simulation.step_seconds or 1.0
    return [
        {
            "name": device.name,
            "type": device.type,
            "ops": int(counts[k]),
            "busy_seconds": float(simulation.device_busy_seconds[k]),
            "utilisation": float(simulation.device_busy_seconds[k]) / step,
            "peak_bytes": int(simulation.device_peak_bytes[k]),
            "memory_bytes": device.memory_bytes,
        }
        for k, device in enumerate(problem.devices)
    ]


def _links(problem: Problem, simulation: Simulation) -> list[dict[str, Any]]:
    """Per link; transfers and bytes are those of the pair of devices (a transfer over several links counts at its own pair)."""
    moved = simulation.transfers
    step = simulation.step_seconds or 1.0
    rows = []
    for k, link in enumerate(problem.links):
        own = (moved.src == link.src) & (moved.dst == link.dst)
        rows.append(
            {
                "src": problem.devices[link.src].name,
                "dst": problem.devices[link.dst].name,
                "transfers": int(own.sum()),
                "bytes": int(moved.nbytes[own].sum()),
                "busy_seconds": float(simulation.link_busy_seconds[k]),
                "utilisation": float(simulation.link_busy_seconds[k]) / step,
            }
        )
    return rows
