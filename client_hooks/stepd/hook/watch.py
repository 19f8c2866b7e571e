"""What the observer keeps about one live session: clock, sampler, director, and what the daemon has been told of it."""

from __future__ import annotations

from collections.abc import Callable

from stepd.hook import convert
from stepd.hook.clock import KindClock, SessionClock
from stepd.hook.director import Director, Listener
from stepd.hook.env import Settings
from stepd.hook.log import logger
from stepd.hook.model import SwitchOutcome
from stepd.hook.ports import EnginePort, StepKind
from stepd.hook.sampling import Budget, Sampler
from stepd.v1 import runtime_pb2

SETTLE_RUNS = 2  # runs after the graph was extended before it is described: programs often add ops in several goes

HALF_LIFE_SECONDS = 60.0
MAX_FAILURES = 3  # descriptions that raise in a row; then the session is only timed


class SessionWatch:
    """One session. The program's thread touches `clock`, `sampler` and the two flags only."""

    def __init__(
        self,
        engine: EnginePort,
        budget: Budget,
        settings: Settings,
        listener: Listener,
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        self.engine = engine
        self.id = engine.session_id
        self.clock = SessionClock()
        self.sampler = Sampler(budget, settings.profile)
        self.director = Director(engine, self.clock, budget, settings.min_gain, listener, post)
        self.last_outcome: SwitchOutcome | None = None
        self.graph_changed = False
        self._user_devices = settings.user_devices
        self._fingerprint = ""
        self._kinds_told = 0
        self._failures = 0
        self._next_halving = 0.0
        self._obstacles: tuple[str, ...] = ()
        self._told = runtime_pb2.HookMessage()  # of the session itself

    def opened(self) -> runtime_pb2.HookMessage:
        """The session, for a daemon that does not know it."""
        self._told = convert.session_opened(self.id, self.engine.target, self.engine.devices(), self._user_devices, self._obstacles)
        return self._told

    def news(self, known: frozenset[str]) -> list[runtime_pb2.HookMessage]:
        """The session again when something about it became known (obstacles to its restart, what its devices cost), then its graph
        when that is new; never on the program's thread."""
        graph = [self.description(known)] if self.worth_describing() else []
        told = self._told
        return graph if self.opened() == told else [self._told, *graph]

    def worth_describing(self) -> bool:
        """Has the session run steps enough, and is there news about its graph or its kinds?"""
        kinds = self.clock.kinds
        settled = any(clock.runs >= SETTLE_RUNS for clock in list(kinds.values()))
        return (
            settled
            and self._failures < MAX_FAILURES
            and (self.graph_changed or not self._fingerprint or self._kinds_told != len(self._told_kinds()))
        )

    def description(self, known: frozenset[str], wanted: bool = False) -> runtime_pb2.HookMessage:
        """The graph as it is now; never on the program's thread."""
        self.graph_changed = False
        self._failures += 1
        graph = self.engine.describe()
        self._failures = 0
        same = graph.fingerprint == self._fingerprint
        self._fingerprint = graph.fingerprint
        kinds = self._told_kinds()
        self._kinds_told = len(kinds)
        send = wanted or not (same or graph.fingerprint in known)
        self._obstacles = graph.restart_obstacles
        return convert.graph_report(self.id, graph, kinds, send)

    def forget_told(self) -> None:
        """A new connection: this daemon may know nothing of what was told before."""
        self._fingerprint = ""
        self._kinds_told = 0

    def step_times(self) -> list[runtime_pb2.HookMessage]:
        """Plain steps since the last call, by kind and strategy."""
        messages = []
        for clock in list(self.clock.kinds.values()):
            for strategy_id, seconds in clock.take_unreported().items():
                times = runtime_pb2.StepTimes(
                    session_id=self.id,
                    kind=clock.kind.id,
                    strategy_id=strategy_id,
                    seconds=seconds,
                    total_steps=clock.runs,
                    mean_gap_seconds=self.clock.mean_gap(),
                )
                messages.append(runtime_pb2.HookMessage(step_times=times))
        return messages

    def tick(self, now: float, listening: bool) -> None:
        """The observer's regular look at the session."""
        self.sampler.listening = listening
        self.sampler.plan(self.clock, now)
        if now >= self._next_halving:
            self._next_halving = now + HALF_LIFE_SECONDS
            self.clock.forget_half()
        self.direct(now)

    def direct(self, now: float) -> None:
        """Let the director look at its trial."""
        try:
            self.director.tick(now)
        except Exception as error:  # fail open: a fault of the director stops trials in this session, not the program
            logger.exception("no more trials in session %s: %s", self.id, error)
            self.director.close()
        for clock in list(self.clock.kinds.values()):
            self.ease(clock)

    def ease(self, clock: KindClock) -> None:
        """Let the engine note plain steps of a kind while neither a trace nor a trial waits for one."""
        clock.notes.open = clock.warm and not self.sampler.wants(clock) and not self.director.follows(clock)

    def _told_kinds(self) -> list[StepKind]:
        return [clock.kind for clock in list(self.clock.kinds.values()) if clock.runs >= SETTLE_RUNS]
