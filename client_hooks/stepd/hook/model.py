"""The values that the hook's rooms exchange: what a live graph offers, what a strategy asks, what a switch did.

The wire contract (stepd.v1) is turned into these at the channel's border; the engine knows no gRPC.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class Way(enum.Enum):
    """How a session is switched (docs/design.md, "Two ways to switch")."""

    AUTO = "auto"
    IN_SESSION = "in-session"
    RESTART = "restart"


class Order(enum.Enum):
    """How execution order is enforced."""

    AUTO = "auto"
    NATIVE = "native"
    CONTROL = "control"
    NONE = "none"


@dataclass(frozen=True)
class Split:
    """Op `op` cut on `axis` into `parts`; `devices[k]` runs part k (empty: the op's own device).

    `into`: where the whole is a sum, how its terms are added up, `parts` numbers for each slice of it. What part k has added up
    goes on to part into[k], or, where that is k, to the op itself. Empty: all terms go to the op itself.
    """

    op: str
    axis: str
    parts: int
    devices: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()
    into: tuple[int, ...] = ()


@dataclass(frozen=True)
class SplitOffer:
    """A way in which op `op` can be split. Of every different tensor that it reads, `cut_bytes` has the bytes that are shared out
    among the parts (1 where the size is known at run time only), 0 for what every part needs whole, -1 for what must come in terms
    of a sum. `joined_bytes`: of every output. `adds`: outputs are joined by a sum."""

    op: str
    axis: str
    max_parts: int
    cut_bytes: tuple[int, ...]
    joined_bytes: tuple[int, ...]
    adds: bool = False


@dataclass(frozen=True)
class LiveStrategy:
    """A strategy for one session. Ops that `placement` does not name stay where the user's program has them."""

    id: str
    placement: Mapping[str, str]
    priority: Mapping[str, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)  # what ops are expected to take where they are put; empty: not known
    splits: tuple[Split, ...] = ()
    order: Order = Order.NONE
    replicate: bool = False
    graph_fingerprint: str = ""
    origin: str = "planner"
    pin: bool = False
    predicted_step_seconds: float = 0.0


@dataclass(frozen=True)
class SessionDevice:
    """A device of the session; `usable` is False for the training process itself under --local-devices. Handling: seconds of its
    core that a transfer to or from another process takes, and each byte of it; 0: not known."""

    name: str
    type: str
    memory_bytes: int
    usable: bool = True
    handling_seconds: float = 0.0
    handling_seconds_per_byte: float = 0.0


@dataclass(frozen=True)
class GraphDescription:
    """What the engine offers to planners. `graph_def`: TensorFlow's serialized GraphDef of the user's graph. Under a strategy an op
    of `lifted` does without the control input given there, and what reads from one of `shared` reads from the op given there.
    keeps_order: each device runs one op after the other, as a strategy's order says. keeps_types: an op stays on the type of
    device on which the program has it.
    """

    fingerprint: str
    graph_def: bytes
    pinned: Mapping[str, str]
    colocated: tuple[tuple[str, ...], ...]
    device_kinds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    restart_obstacles: tuple[str, ...] = ()
    splits: tuple[SplitOffer, ...] = ()
    lifted: Mapping[str, str] = field(default_factory=dict)
    shared: Mapping[str, str] = field(default_factory=dict)
    keeps_order: bool = False
    keeps_types: bool = False


@dataclass(frozen=True)
class NotHonoured:
    """An op that the runtime put elsewhere than asked."""

    op: str
    asked: str
    got: str


@dataclass(frozen=True)
class SwitchOutcome:
    """What a switch did, for the operator and the planner. `strategy_id` is empty for the program's own placement."""

    strategy_id: str
    way: Way
    ok: bool
    error: str = ""
    honoured: int = 0
    not_honoured: tuple[NotHonoured, ...] = ()
    prepare_seconds: float = 0.0
    wait_seconds: float = 0.0
    why_this_way: str = ""
    order_in_force: str = ""
    splits_in_force: int = 0
    rollback: bool = False
