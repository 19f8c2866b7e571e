"""Where the hook's two halves meet: the engine (graph, switching) and the observer (clock, sampling, guard, daemon).

The engine patches sessions, mirrors graphs, runs and switches; it knows nothing of daemons or statistics. The observer times steps
and decides; it knows nothing of graphs beyond op names. Either can be tested with a fake of the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from stepd.hook.model import GraphDescription, LiveStrategy, SessionDevice, SwitchOutcome, Way


class StepKind(NamedTuple):
    """A step kind: what is fed, fetched and run, as tensor and op names of the user's graph ("name:0", "name"), sorted.

    `id` is a stable hash of the three. The engine makes one object per kind and session, so identity can be used as a key.
    """

    id: str
    feeds: tuple[str, ...]
    fetches: tuple[str, ...]
    targets: tuple[str, ...]


class RunRecord(NamedTuple):
    """One finished Session.run (or callable, or partial run's last leg), in seconds of a monotonic clock.

    `switched`: this run waited for or performed a switch; `first_on_strategy`: the kind's first run on this strategy (it builds
    executors). `metadata`: serialized RunMetadata when the observer asked for a trace. `batch`: leading dimensions of the feeds,
    filled for traced runs only. `error`: class name of the exception that reached the user, or "".
    """

    kind: StepKind
    strategy_id: str
    start: float
    seconds: float
    traced: bool
    metadata: bytes | None
    switched: bool
    first_on_strategy: bool
    error: str
    batch: tuple[int, ...]


# Runs that may be noted and not read yet: seconds of the shortest steps.
MOST_NOTES = 10_000


class Notes:
    """Where the plain runs of one step kind are noted while nobody needs to know more of them than when they were.

    While `open`, and while `ended` holds less than MOST_NOTES, an engine may put (kind, start, seconds, thread) there instead of
    calling `run_finished`, for a run as plain as the kind's last one: on the same strategy, not traced, without error or switch.
    """

    __slots__ = ("ended", "open")

    def __init__(self, ended: deque[tuple[StepKind, float, float, int]]) -> None:
        self.ended = ended
        self.open = False


class EnginePort(Protocol):
    """One live session, as the observer sees it. All methods may be called from any thread and never block on a step."""

    @property
    def session_id(self) -> str: ...

    @property
    def target(self) -> str: ...

    @property
    def strategy_id(self) -> str:
        """Strategy in force, "" for the program's own placement."""

    def devices(self) -> tuple[SessionDevice, ...]: ...

    def describe(self) -> GraphDescription:
        """The user's graph as it is now; slow (serializes the graph), call it from a background thread."""

    def request_switch(self, strategy: LiveStrategy, way: Way, done: Callable[[SwitchOutcome], None]) -> None:
        """Prepare in the background, switch at a quiet moment, then call `done` once (on the engine's thread)."""

    def request_rollback(self, reason: str, done: Callable[[SwitchOutcome], None]) -> None:
        """Back to the program's own placement."""

    def request_compaction(self, done: Callable[[SwitchOutcome], None]) -> None:
        """What is in force is to stay: free all else that the session holds, if it is full and can be restarted; else nothing is
        done, and `done` is not called."""


class ObserverPort(Protocol):
    """What the engine tells. Called on the user's thread unless noted: must be quick and must not raise (a raise disables it)."""

    def session_opened(self, engine: EnginePort) -> None: ...

    def graph_extended(self, engine: EnginePort) -> None: ...

    def wants_trace(self, engine: EnginePort, kind: StepKind) -> bool:
        """Should this run be traced? Not asked where the user's own options ask for something else."""

    def run_finished(self, engine: EnginePort, record: RunRecord) -> Notes | None:
        """A run has ended; where further plain ones of its kind may be noted instead, if anywhere."""

    def strategy_failed(self, engine: EnginePort, strategy_id: str, error: str) -> None:
        """A run on a strategy raised, was undone and (where safe) run again on the program's own placement."""

    def session_closed(self, engine: EnginePort) -> None: ...
