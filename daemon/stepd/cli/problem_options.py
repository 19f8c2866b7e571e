"""The options of every command that reads planning problems: what stands beside a GraphDef, and what-if changes of the hardware."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from stepd.cli.graph_files import Hardware
from stepd.cli.problem_files import Reading
from stepd.core.validation import MOST_BYTES
from stepd.core.what_if import MOST_DEVICES, WhatIf

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 1 << 10, "MI": 1 << 20, "GI": 1 << 30, "TI": 1 << 40}
_GRAPH = "GraphDef problems"
_WHAT_IF = "What if"


def amount(text: str) -> float:
    """ "16GiB", "12e9", "12GB" -> bytes."""
    match = re.fullmatch(r"([0-9]+(?:[.][0-9]+)?(?:e[+-]?[0-9]+)?)\s*((?:[KMGT]I?)?)B?", text.strip(), re.IGNORECASE)
    if match is None:
        raise typer.BadParameter(f"{text!r} is not an amount of bytes such as 16GiB or 12e9")
    value = float(match[1]) * _UNITS[match[2].upper()]
    if value > MOST_BYTES:
        raise typer.BadParameter(f"{text!r} are too many bytes: {MOST_BYTES} at most")
    return value


def _reading(
    run_metadata: Annotated[
        Path | None,
        typer.Option(help="RunMetadata of a traced step; PROBLEM is then a GraphDef.", rich_help_panel=_GRAPH),
    ] = None,
    device_memory: Annotated[str, typer.Option(help="Memory of each device.", rich_help_panel=_GRAPH)] = "16GiB",
    link_bandwidth: Annotated[str, typer.Option(help="Bytes per second of each link.", rich_help_panel=_GRAPH)] = "12GB",
    link_latency: Annotated[float, typer.Option(help="Latency of each link in seconds.", min=0.0, rich_help_panel=_GRAPH)] = 20e-6,
    devices: Annotated[
        int,
        typer.Option(
            help="Number of devices of the most frequent type (0: as they are).", min=0, max=MOST_DEVICES, rich_help_panel=_WHAT_IF
        ),
    ] = 0,
    device_speed: Annotated[float, typer.Option(help="Factor on every device's speed.", rich_help_panel=_WHAT_IF)] = 1.0,
    link_speed: Annotated[float, typer.Option(help="Factor on every link's speed.", rich_help_panel=_WHAT_IF)] = 1.0,
    memory: Annotated[float, typer.Option(help="Factor on every device's memory.", rich_help_panel=_WHAT_IF)] = 1.0,
) -> Reading:
    hardware = Hardware(int(amount(device_memory)), amount(link_bandwidth), link_latency)
    return Reading(run_metadata, hardware, WhatIf(devices, device_speed, link_speed, memory))


def with_problem_options(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with these options instead of its parameter `reading: Reading`, which it gets made from them."""
    shared = _parameters(_reading)
    own = _parameters(command)

    @functools.wraps(command)
    def run(**values: Any) -> None:
        given = {name: values.pop(name) for name in shared}
        command(**values, reading=_reading(**given))

    parameters = [p for name, p in own.items() if name != "reading"] + list(shared.values())
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    del run.__wrapped__
    return run


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The function's parameters with their annotations evaluated."""
    hints = get_type_hints(function, include_extras=True)
    return {name: p.replace(annotation=hints[name]) for name, p in inspect.signature(function).parameters.items()}
