"""One live session: runs steps on the mirror, tells the observer, and answers the observer's requests (EnginePort).

It decides nothing about strategies; it knows the mirror, the kinds and the gate.
"""

from __future__ import annotations

import functools
import itertools
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from stepd.hook.engine import capi, forked, requests, session_config, surroundings
from stepd.hook.engine.ahead import Ahead
from stepd.hook.engine.body_numbers import BodyNumbers
from stepd.hook.engine.callables import Callables
from stepd.hook.engine.calm import await_long_step
from stepd.hook.engine.chaos import ChaosMonkey
from stepd.hook.engine.describe import describe
from stepd.hook.engine.gate import Gate
from stepd.hook.engine.kinds import Kind, Kinds
from stepd.hook.engine.likeness import Likeness
from stepd.hook.engine.mirror import Mirror
from stepd.hook.engine.partial_runs import PartialRuns
from stepd.hook.engine.placements import Placements
from stepd.hook.engine.queues import Ops
from stepd.hook.engine.refusals import SwitchRefusedError
from stepd.hook.engine.registry import Registry
from stepd.hook.engine.routing import Routing
from stepd.hook.engine.runs import Runs
from stepd.hook.engine.settings import EngineSettings
from stepd.hook.engine.shield import unbroken
from stepd.hook.engine.state import inventory
from stepd.hook.engine.switcher import Switcher
from stepd.hook.engine.terms import Known
from stepd.hook.engine.told import Told
from stepd.hook.engine.valued import Valued
from stepd.hook.engine.worker import worker
from stepd.hook.model import GraphDescription, LiveStrategy, SessionDevice, SwitchOutcome, Way
from stepd.hook.ports import ObserverPort

_numbers = itertools.count(1)
T = TypeVar("T")
# Raw sessions of one session that its local workers keep beside the one in use.
_MOST_LEFT_BEHIND = 8


class SessionEngine:
    """The engine's half of one `BaseSession`. The session owns it; it holds the session weakly."""

    def __init__(
        self,
        session: weakref.ref[Any],
        made: Any,
        mirror: Mirror,
        observer: ObserverPort | None,
        settings: EngineSettings,
        cluster: Any,
    ) -> None:
        """`session`: weakly, the BaseSession `made` that is being initialized. `cluster`: its local workers, or None."""
        self.session = session
        self.session_id = f"s{next(_numbers)}"
        self.target = (made._target or b"").decode(errors="replace")
        self.strategy_id = ""
        self.raw: Any = None
        self.mirror = mirror
        self.settings = settings
        self.cluster = cluster
        self.native = "the session was not made for it"  # why it does not run on the native executor; "": it does
        self.kinds = Kinds(lambda: self.mirror.taken)
        self.body_numbers = BodyNumbers()
        self.gate: Gate[Kind] = Gate()
        self.runs = Runs(self)
        self.callables = Callables(self)
        self.partial_runs = PartialRuns(self)
        self.routing = Routing(self)
        self.told = Told(self, observer)
        self.known = Known()
        self.likeness: Likeness | None = None
        self.valued = Valued(self.kinds)
        self.closed = False
        self.queue_ops: Ops | None = None  # on the session's queues, of the last restart
        self.bound = ""  # why a run's options ask for the program's own ops
        self.ran = False
        self.unoptimized = False  # may a step have been built when the graph was too small for Grappler?
        self.left_behind = 0  # raw sessions that restarts have replaced and that are still there
        self.chaos = ChaosMonkey(settings.chaos, self.session_id) if settings.chaos else None
        self._devices: tuple[SessionDevice, ...] | None = None
        # Guards the mirror's graph and the raw session against use by the engine's thread and by the user's at once.
        self.lock = threading.RLock()
        # Held while TensorFlow builds in the raw session without the lock: it must not be deleted then.
        self.in_use = threading.Lock()
        forked.watch(self)
        # Nodes are in the mirror that the session has not taken: every run must try again, and fails as it would plainly.
        self._unsent: Exception | None = None
        self._behind = False  # may the session lack what the mirror has?
        # Target and ConfigProto that the raw session was made with, and who must know that it is another now.
        self.session_options: tuple[bytes | None, Any] = (None, None)
        self.plain_config: Any = None  # the ConfigProto of the program's session, as it was when that was made
        self.registry: Registry[SessionEngine] = Registry()
        self.limit_ms = 0  # the time limit that the program's config gives each run; 0 for none
        self.placements: Placements | None = None  # prints where the program's ops lie
        self.added_devices: tuple[str, ...] = ()  # by chaos; the program has not asked for them
        self.incarnations: dict[str, int] = {}  # of devices, as the program was told first
        self.surroundings = surroundings.now()
        self.was_reset = False  # by the program, with all sessions of its process
        self.last_devices: list[Any] | None = None  # of one on local workers, when it was reset

    # -- what the intercepted functions call, on the user's thread -----------------------------------------------------

    def opened(self, raw: Any) -> None:
        self.raw = raw
        self.told.tell("session_opened")

    def extend(self) -> None:
        """In place of `_extend_graph`: bring the mirror up to date when the user has added ops."""
        # In this order: another thread may be between having a mirror that is not stale and the session's having all of it.
        if self.mirror.stale() or self._behind:
            unbroken(self._extend)  # else a signal handler finds half of it, or leaves it so

    def _extend(self) -> None:
        with self.mirror.user_graph._session_run_lock(), self.lock:
            if self.raw is None:
                raise SwitchRefusedError("another thread has found that the graph cannot be mirrored")
            first, self._behind = self.mirror.version == 0, True
            try:
                if self.mirror.stale():
                    self.mirror.sync()
                    if self.placements is not None:
                        self.placements.extend()
                if self._unsent is not None:
                    self.mirror.renew()
                capi.extend_session(self.raw)
            except Exception as e:
                self._unsent = e
                raise
            self._unsent, self._behind = None, False
            self.mirror.were_taken()
            self.unoptimized = self.unoptimized or self.mirror.is_left_as_it_is()
        if not first:
            self.told.tell("graph_extended")

    def has_refused(self, error: BaseException) -> bool:
        """Is it for its graph that the session was not extended, and not what a signal handler raised meanwhile?"""
        return error is self._unsent or isinstance(error, SwitchRefusedError)

    def is_named(self) -> bool:
        """Has the program's config a name for its session? Only one of a process may bear it."""
        return self.plain_config is not None and self.plain_config.experimental.HasField("session_metadata")

    def raise_unsent(self) -> None:
        """The user's new nodes could not be mirrored: say what TensorFlow says of the user's own graph, or what went wrong."""
        if self._unsent is not None:
            with self.mirror.user_graph._c_graph.get() as graph:
                capi.try_session(graph)
            raise self._unsent

    def close(self) -> None:
        """The session is closing: nothing of the engine may touch it afterwards."""
        with self.lock:
            if self.closed:
                return
            self.closed = True
        with self.in_use:
            pass
        if self.placements is not None:
            self.placements.close()
        self.told.verify_next_run(None)
        self.told.tell("session_closed")

    def forget(self) -> None:
        """The program has let go of its session, after `close`: hold nothing of its graph any more."""
        self.kinds.forget()
        self.routing.forget()

    # -- EnginePort: what the observer asks, on any thread --------------------------------------------------------------

    def devices(self) -> tuple[SessionDevice, ...]:
        """The session's devices; the training process itself is not usable when it has workers."""
        if self._devices is None:
            placer = self.mirror.placer
            with self.lock:
                raw = [] if self.closed else capi.list_devices(self.raw)
            self._devices = tuple(
                SessionDevice(name, kind, memory, usable=placer is None or name != placer.trainer)
                for name, kind, memory in raw
                if kind in ("CPU", "GPU")
            )
        if self.cluster is None or self.cluster.handling is None:
            return self._devices
        each, per_byte = self.cluster.handling.known()
        return tuple(replace(d, handling_seconds=each, handling_seconds_per_byte=per_byte) for d in self._devices)

    def describe(self) -> GraphDescription:
        """The user's graph as the session has it now."""
        with self.lock:
            switcher = self.switcher()
            view, classes = switcher.view(), switcher.classes()
            obstacle = self.restart_obstacle(())
            kinds = self.kinds.steps()
            lifted = {lift.op: lift.barrier for lift in switcher.making.lifts(kinds)}
            shared = {share.op: share.by for share in switcher.sight.shares(kinds)}
            keeps = switcher.making.ordering.keeps
        obstacles = (obstacle,) if obstacle else inventory(view, self.kinds.history()).obstacles
        graph_def = capi.graph_bytes(self.mirror.user_graph)
        offers = self.settings.splits and switcher.devices.alternatives > 1
        offered = switcher.making.splitting.offered(view, classes) if offers else ()
        described = describe(view, classes, switcher.devices, graph_def, kinds, self.settings.user_devices, obstacles)
        return replace(described, splits=offered, lifted=lifted, shared=shared, keeps_order=keeps)

    def request_switch(self, strategy: LiveStrategy, way: Way, done: Callable[[SwitchOutcome], None]) -> None:
        worker.submit(functools.partial(requests.switch, self, strategy, way, done))

    def request_rollback(self, reason: str, done: Callable[[SwitchOutcome], None]) -> None:
        worker.submit(functools.partial(requests.roll_back, self, reason, done))

    def request_compaction(self, done: Callable[[SwitchOutcome], None]) -> None:
        worker.submit(functools.partial(requests.compact, self, done))

    def restart_obstacle(self, found: tuple[str, ...]) -> str:
        """Why the session cannot be restarted; "" when it can."""
        if self.target:
            return "the session runs on a server that other sessions may share"
        if self.session() is None or self.closed:
            return "the session is closed"
        if session_config.bears_name(self.session_options[1]):
            return "the session bears a name (session_metadata), as only one session of a process may"
        if self.left_behind >= _MOST_LEFT_BEHIND:
            return f"{self.left_behind} restarts have left sessions behind, which local workers keep as long as they run"
        return "; ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")

    def replace_session(self, raw: Any, switcher: Switcher) -> Any:
        """Go on in a raw session that has all the state; called with the lock held and no run in flight. Returns the old one."""
        session = self.session()
        if session is None:
            raise SwitchRefusedError("the program has dropped the session")
        old, self.raw = self.raw, raw
        session._session = raw
        self.registry.replaced(old, raw)
        self.mirror = switcher.mirror
        self.routing.use(switcher)
        self.callables.session_replaced()
        self.in_force(switcher.live.plan.strategy.id if switcher.live else "")
        return old

    def in_force(self, strategy_id: str) -> None:
        """A switch was made; called with the lock held."""
        self.strategy_id = strategy_id
        self.told.verify_next_run(None)

    def switcher(self) -> Switcher:
        """The session's switcher, made when it is needed first."""
        return self.routing.switcher()

    def left_alone(self) -> str:
        """Why the session keeps to the program's own ops, whatever is asked; "" where it need not."""
        if self.bound:
            return self.bound
        if self.unoptimized:
            return "a step ran when the graph was so small that TensorFlow leaves its ops as they are, which it would not in a copy"
        if why := session_config.kept_as_it_is(self.session_options[1], bool(self.target)):
            return why
        if why := surroundings.against_kernels(self.surroundings):
            return why
        with self.lock:
            return "" if self.closed else self.switcher().classes().apart

    def builds_alike(self) -> bool:
        """Does a step give the same on whatever executors it runs: draw from the same random streams, read the same files? False
        while nobody knows. Takes no lock."""
        return not self.mirror.may_build_otherwise() or self.routing.builds_alike()

    def has_graph(self) -> bool:
        """Has the session all that the program's graph has, and anything?"""
        return not self._behind and self.mirror.version > 0

    def build(self, ahead: Ahead, work: Callable[[], T]) -> T:
        """Have TensorFlow build in the raw session of `ahead`, which is not deleted meanwhile. Raises SwitchRefusedError."""
        with self.in_use:
            if self.closed or ahead.session is not self.raw:
                raise SwitchRefusedError("the session is closed")
            return work()

    def calm(self) -> None:
        """Wait for a moment in which work that keeps runs from beginning is least in the way. Not for ever. Raises
        SwitchRefusedError at the program's end, which waits for the thread that prepares."""
        if worker.stopped:
            raise SwitchRefusedError("the program ends")
        await_long_step(self.kinds, self.gate, self.settings.gate_seconds)
