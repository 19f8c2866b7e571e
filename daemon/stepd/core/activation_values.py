"""The values of the activation machine: phases, state, events and effects. See `activation` for what
happens to them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Phase(str, enum.Enum):
    """Where a session stands (docs/design.md)."""

    WATCHING = "WATCHING"
    PROFILING = "PROFILING"
    PLANNING = "PLANNING"
    PROPOSED = "PROPOSED"
    SWITCHING = "SWITCHING"
    VERIFYING = "VERIFYING"
    COMMITTED = "COMMITTED"
    ROLLED_BACK = "ROLLED_BACK"


class Outcome(str, enum.Enum):
    """What the guard decided about a strategy."""

    KEPT = "KEPT"
    ROLLED_BACK = "ROLLED_BACK"
    FAILED = "FAILED"
    ABANDONED = "ABANDONED"


@dataclass(frozen=True)
class Settings:
    """Thresholds (fractions) and times (seconds)."""

    margin: float = 0.03  # least predicted gain that is worth a switch
    max_margin: float = 0.25  # however wrong the model was, a gain beyond this is tried
    profile_steps: int = 5
    max_profiles: int = 20
    verify_profiles: int = 3
    profile_seconds: float = 600.0
    plan_seconds: float = 10.0
    switch_seconds: float = 600.0
    cool_down_seconds: float = 15.0
    max_cool_down_seconds: float = 3600.0
    improve_seconds: float = 5.0
    recheck_seconds: float = 600.0
    max_losses: int = 5
    drift: float = 0.2


@dataclass(frozen=True)
class Proposal:
    """A strategy that could be switched to. near_lost: its placement is nearly one that lost
    (`verification.distance`).
    """

    id: str
    predicted_seconds: float
    algorithm: str
    origin: str = "planner"
    pin: bool = False
    near_lost: bool = False


@dataclass(frozen=True)
class State:
    """One session. Times are seconds; 0 seconds means not known. in_force: strategy id, "" for the
    program's own placement.

    before_seconds: median step time on the program's own placement; now_seconds: on what is in force;
    settled_seconds: the level that drift is measured from. not_before: no new round until then. losses:
    rounds in a row without success. rounds: kept ones. profiles: since the last plan, of which the last was
    `stable`; changed: something was learned since that is worth a plan.
    """

    phase: Phase = Phase.WATCHING
    entered: float = 0.0
    attached: bool = False
    fingerprint: str = ""
    ops: int = 0
    usable_devices: int = 0
    in_force: str = ""
    proposal: Proposal | None = None
    profiles: int = 0
    stable: bool = False
    changed: bool = True
    lost: frozenset[str] = frozenset()
    losses: int = 0
    rounds: int = 0
    before_seconds: float = 0.0
    now_seconds: float = 0.0
    settled_seconds: float = 0.0
    model_error: float = -1.0
    not_before: float = 0.0
    paused_until: float | None = None
    pinned: bool = False
    note: str = ""


@dataclass(frozen=True)
class Tick:
    """Time passed."""


@dataclass(frozen=True)
class Attached:
    """The hook connected, or (attached False) its stream ended."""

    attached: bool = True


@dataclass(frozen=True)
class GraphReported:
    """The session's graph is known. `ops` of the step kind that is planned for.

    `usable_devices`: most that an op may choose from.
    """

    fingerprint: str
    ops: int
    usable_devices: int


@dataclass(frozen=True)
class Profiled:
    """A profile was learned from. stable, worth_planning: see `cost.models.Change`."""

    stable: bool
    worth_planning: bool = True


@dataclass(frozen=True)
class Measured:
    """Median time of recent unprofiled steps of the main step kind on a strategy."""

    strategy_id: str
    seconds: float


@dataclass(frozen=True)
class Planned:
    """A planner answered. Predictions are calibrated; model_error is relative, of the model on what has
    been measured; gain_error: what of it counts for gains of the size that later rounds find.
    """

    proposals: tuple[Proposal, ...]
    model_error: float
    gain_error: float = 0.0


@dataclass(frozen=True)
class PlanningFailed:
    """The planner gave no answer."""

    reason: str


@dataclass(frozen=True)
class HookSaid:
    """The hook's own state, from its heartbeat."""

    state: str


@dataclass(frozen=True)
class Switched:
    """The hook switched (or could not). strategy_id: what is in force then, or what failed."""

    strategy_id: str
    ok: bool
    error: str = ""
    rollback: bool = False


@dataclass(frozen=True)
class Judged:
    """The guard's verdict."""

    strategy_id: str
    outcome: Outcome
    reason: str = ""
    before_seconds: float = 0.0
    after_seconds: float = 0.0


@dataclass(frozen=True)
class OperatorActivated:
    """An operator wants this strategy now."""

    proposal: Proposal
    pin: bool = False


@dataclass(frozen=True)
class OperatorRolledBack:
    """An operator wants the program's own placement back."""


@dataclass(frozen=True)
class Paused:
    """No profiles and no switches for `seconds` (0: until resumed)."""

    seconds: float = 0.0


@dataclass(frozen=True)
class Resumed:
    """Go on."""


Event = (
    Tick
    | Attached
    | GraphReported
    | Profiled
    | Measured
    | Planned
    | PlanningFailed
    | HookSaid
    | Switched
    | Judged
    | OperatorActivated
    | OperatorRolledBack
    | Paused
    | Resumed
)


@dataclass(frozen=True)
class Profile:
    """Ask the hook for profiled steps."""

    steps: int


@dataclass(frozen=True)
class Plan:
    """Start a planner with this budget."""

    seconds: float


@dataclass(frozen=True)
class StopPlanning:
    """What is being planned is no longer wanted."""


@dataclass(frozen=True)
class Activate:
    """Send a strategy to the hook."""

    proposal: Proposal
    pin: bool


@dataclass(frozen=True)
class RollBack:
    """Tell the hook to go back to the program's own placement."""

    reason: str


Effect = Profile | Plan | StopPlanning | Activate | RollBack
