"""What the operator may set about the engine, and the grammar of the chaos setting. Knows no environment variables by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from stepd.hook.model import Order, Way

UserDevices = Literal["free", "keep", "override"]


@dataclass(frozen=True)
class Chaos:
    """Switch to a random valid strategy after every `switch_every` runs; `devices` > 0: that many CPU devices per session, and as
    many on each GPU, where there is one.

    `order`: strategies have priorities too, which are enforced as STEPD_ORDER says.
    """

    switch_every: int
    way: Literal["in-session", "restart", "both"] = "both"
    seed: int = 0
    devices: int = 0
    order: bool = False
    splits: bool = False  # half of the strategies replicate as well; values are equal up to the order of sums then


@dataclass(frozen=True)
class EngineSettings:
    """`way` forces how sessions are switched; `splits`: what can be split is offered to planners; `copies` bounds live copies;
    `gate_seconds` bounds the wait for a quiet moment.
    """

    way: Way = Way.AUTO
    order: Order = Order.AUTO
    splits: bool = True
    user_devices: UserDevices = "free"
    chaos: Chaos | None = None
    copies: int = 6
    gate_seconds: float = 10.0
    state_dir: Path | None = None
    local_cluster: Callable[[], Any] | None = None


def parse_chaos(text: str) -> Chaos | None:
    """ "switch-every=K,way=in-session|restart|both,seed=S[,devices=N][,order=1][,splits=1]" (any order; "" is None).

    Raises ValueError that names the part that could not be understood.
    """
    if not text.strip():
        return None
    values: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        if not equals or key not in ("switch-every", "way", "seed", "devices", "order", "splits"):
            raise ValueError(
                f"STEPD_CHAOS: cannot understand {part.strip()!r}; use switch-every=K, way=W, seed=S, devices=N, order=1, splits=1"
            )
        values[key] = value
    way = values.get("way", "both")
    if way not in ("in-session", "restart", "both"):
        raise ValueError(f"STEPD_CHAOS: way={way!r} is none of in-session, restart, both")
    numbers: dict[str, int] = {}
    for key, default, least in (
        ("switch-every", "", 1),
        ("seed", "0", 0),
        ("devices", "0", 0),
        ("order", "0", 0),
        ("splits", "0", 0),
    ):
        given = values.get(key, default)
        if not given.isdecimal() or int(given) < least:
            raise ValueError(f"STEPD_CHAOS: {key}={given!r} is not a whole number of at least {least}")
        numbers[key] = int(given)
    return Chaos(
        numbers["switch-every"],
        way,  # type: ignore[arg-type]
        numbers["seed"],
        numbers["devices"],
        numbers["order"] > 0,
        numbers["splits"] > 0,
    )
