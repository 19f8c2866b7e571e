"""How a step kind runs on what is in force in one session, and what happens when it cannot.

The session's engine owns this; it must not know the observer's requests or how strategies are prepared.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from tensorflow.core.protobuf import config_pb2

from stepd.hook.engine import capi, requests
from stepd.hook.engine.ahead import Ahead
from stepd.hook.engine.devices import Devices
from stepd.hook.engine.faults import reason
from stepd.hook.engine.kinds import Kind, Route
from stepd.hook.engine.last_reads import concerns
from stepd.hook.engine.likeness import Likeness
from stepd.hook.engine.mirror import Mirror
from stepd.hook.engine.refusals import AtHomeError, NotQuietError, SwitchRefusedError
from stepd.hook.engine.shield import unbroken
from stepd.hook.engine.switcher import Switcher
from stepd.hook.log import logger as log
from stepd.hook.model import LiveStrategy, SwitchOutcome
from stepd.hook.order.planning import Ordering, pools

if TYPE_CHECKING:
    from stepd.hook.engine.session_engine import SessionEngine

# What TensorFlow says when it could not even build the executors of a step.
_BEFORE_EXECUTION = (
    "Cannot assign a device",
    "No OpKernel was registered",
    "Cannot colocate",
    "Could not satisfy explicit device",
)


class Undone(NamedTuple):
    """A strategy that a run's error sent home. `again`: nothing of the run had run, so that it may run again."""

    strategy: LiveStrategy
    why: str
    again: bool


class Routing:
    """Routes of one session. `epoch` counts what was in force; a route is good for one epoch."""

    def __init__(self, engine: SessionEngine) -> None:
        self._engine = engine
        self._switcher: Switcher | None = None
        self.epoch = 0

    def switcher(self) -> Switcher:
        """The session's switcher, made when it is needed first."""
        with self._engine.lock:
            if self._switcher is None:
                self.use(self.new_switcher(self._engine.mirror, self._engine.raw))
            assert self._switcher is not None
            return self._switcher

    def known_switcher(self) -> Switcher | None:
        """The session's switcher, if somebody has needed one."""
        return self._switcher

    def builds_alike(self) -> bool:
        """As far as somebody has looked at the graph as it is now."""
        return self._switcher is not None and self._switcher.sight.builds_alike()

    def new_switcher(self, mirror: Mirror, raw: Any) -> Switcher:
        """One for a session like this one, which nobody uses yet: the raw session and its mirror."""
        engine = self._engine
        config, local = engine.session_options[1], mirror.placer is not None
        soft = config is not None and config.allow_soft_placement
        devices = Devices(engine.devices(), engine.settings.user_devices, local, soft or local)
        direct = not engine.target and not local
        ahead = Ahead(raw, direct, limited=config is not None and config.operation_timeout_in_ms > 0)
        made = Switcher(mirror, devices, bool(engine.target), ahead, engine.settings.copies)
        native = "it is for CPU devices" if any(d.type != "CPU" for d in devices.all) else engine.native
        tables = engine.cluster.tables if local and engine.cluster is not None and not native else None
        made.making.ordering = Ordering(engine.settings.order, pools(devices, self._threads() if direct else 0), native, tables)
        made.making.other_kinds, made.build_callables = engine.callables.kinds, engine.callables.build_ahead
        made.making.known = engine.known
        if engine.likeness is None and devices.types <= {"CPU", "GPU"}:
            engine.likeness = Likeness(config, {d.name: d.type for d in devices.all})
        made.likeness, made.valued = engine.likeness, engine.valued
        return made

    def _threads(self) -> int:
        """How many ops of CPU devices a direct session runs at once."""
        config = self._engine.session_options[1]
        asked = config.inter_op_parallelism_threads if config is not None else 0
        for pool in list(config.session_inter_op_thread_pool)[:1] if config is not None else ():
            asked = pool.num_threads
        return asked if asked > 0 else len(os.sched_getaffinity(0))

    def use(self, switcher: Switcher) -> None:
        """From here on `switcher` says what is in force; the lock is held."""
        self._switcher = switcher
        self._next_epoch()
        switcher.attach(self._next_epoch, self._engine.lock, self._engine.build)

    def forget(self) -> None:
        """The session is gone: what was in force, and what it holds of the program's graph, goes as well."""
        self._switcher = None

    def _next_epoch(self) -> None:
        """What is in force has changed; called while the runs that this concerns are held back."""
        self.epoch += 1

    def enter(self, kind: Kind, ready: Callable[[Route | None, int], None] | None = None) -> Route | None:
        """Begin a run of `kind`: its route for what is in force. The caller must call `gate.leave`.

        `ready` is told the route and its epoch before the run passes the gate, perhaps several times, and may wait for the engine's
        lock. Behind the gate none may: whoever restarts the session holds the lock while it waits for all runs to end.
        """
        gate = self._engine.gate
        while True:
            epoch = self.epoch
            route = kind.route if kind.epoch == epoch else self._route(kind)
            if ready is not None:
                ready(route, epoch)
            kind.waited = gate.enter(kind)
            # State moves only while no run that uses it is in flight: from here on `route` stays right, or never was.
            if self.epoch == epoch:
                return route
            gate.leave(kind)

    def _route(self, kind: Kind) -> Route | None:
        """How `kind` runs on what is in force. What goes wrong here sends the session back to the user's own nodes."""
        epoch, switcher = self.epoch, self._switcher
        # Without the lock, which may be held for as long as TensorFlow takes in a copy: epoch first, then what is in force.
        ready = switcher.ready(kind) if switcher is not None else None
        mirror = self._engine.mirror
        nothing = (switcher is None or switcher.live is None) and not mirror.aliases
        if ready is not None or (nothing and not concerns(mirror, kind)):
            kind.route, kind.epoch = ready, epoch
            return ready
        return unbroken(functools.partial(self._routed, kind))

    def _routed(self, kind: Kind) -> Route | None:
        with self._engine.lock:
            if self._engine.closed:
                return None  # what runs now, runs into that
            switcher = self.switcher()
            try:
                return self._made(switcher, kind)
            except AtHomeError as e:
                left = self._go_back(switcher, str(e))
            except SwitchRefusedError as e:
                log.info("session %s: %s", self._engine.session_id, e)
                left = self._renew(switcher, kind)
            except Exception as e:  # the program's run must not end for what a copy lacks
                ends = [*kind.step.fetches, *kind.step.targets][:3]
                why = reason(e, self._engine.session_id, f"a copy could not serve a run of {', '.join(ends)}")
                left = self._go_back(switcher, why)
            if left:
                return self._made(switcher, kind)
            kind.route, kind.epoch = switcher.keep_on(self._engine.raw, kind), self.epoch
            return kind.route

    def _made(self, switcher: Switcher, kind: Kind) -> Route | None:
        kind.route, kind.epoch = switcher.route(self._engine.raw, kind), self.epoch
        return kind.route

    def _renew(self, switcher: Switcher, kind: Kind) -> bool:
        engine = self._engine
        try:
            switcher.renew(engine.raw, kind, engine.gate, engine.settings.gate_seconds)
            self._made(switcher, kind)
        except Exception as e:  # as above
            return self._go_back(switcher, reason(e, engine.session_id, "it goes back to the program's own placement"))
        return True

    def _go_back(self, switcher: Switcher, why: str) -> bool:
        """Put the program's own placement in force; False where a run that does not end keeps variables where they are."""
        engine = self._engine
        try:
            switcher.switch(engine.raw, None, engine.gate, engine.settings.gate_seconds)
        except NotQuietError as e:
            log.info("session %s: what is in force stays: %s", engine.session_id, e)
            return False
        failed, engine.strategy_id = engine.strategy_id, ""
        if failed:
            engine.told.tell("strategy_failed", failed, f"the session could not go on with it: {why}")
        return True

    def undo(self, error: BaseException) -> Undone | None:
        """A run raised: if that may be the strategy's doing, go back; None where it is not, or where that was not possible."""
        engine = self._engine
        live = self._switcher.live if self._switcher is not None else None
        if not engine.strategy_id or live is None:
            return None
        before = _never_ran(error)
        if not before and type(error).__name__ != "ResourceExhaustedError":
            return None
        undone = Undone(live.plan.strategy, str(getattr(error, "message", "")).partition("\n")[0], before)
        if not self._put(None).ok:
            return None
        if not before:
            self.blame(undone)
        return undone

    def blame(self, undone: Undone) -> None:
        """The program's own placement does what the strategy could not."""
        self._engine.told.tell("strategy_failed", undone.strategy.id, undone.why)

    def acquit(self, undone: Undone, error: BaseException) -> None:
        """The run raised on the program's own placement, too: where that is why, the strategy goes on."""
        if not _never_ran(error) or not self._put(undone.strategy).ok:
            self.blame(undone)

    def mind_options(self, options: config_pb2.RunOptions) -> None:
        """Where RunOptions have TensorFlow's debugger watch ops by their names, or name the graph whose collectives meet, only the
        program's own ops run from now on.

        Options without anything to watch are no such: hooks of a MonitoredSession that ask for options leave empty ones.
        """
        watched = options.debug_options.debug_tensor_watch_opts
        if not (watched or options.experimental.collective_graph_key):
            return
        # Once it is `bound`, nothing is put in force any more: every step of a program with collectives comes here.
        if not self._engine.bound or (self._switcher is not None and self._switcher.live is not None):
            why = "the program debugs the session, by the names of its ops" if watched else "the program names its collectives"
            unbroken(functools.partial(self._leave_alone, why))

    def _leave_alone(self, why: str) -> None:
        """No switch from now on, and back to the program's own ops: at once, or when the next such run comes."""
        engine = self._engine
        with engine.lock:  # another thread, whose run asks for the same, may be at it
            engine.bound = engine.bound or why
            failed = engine.strategy_id
            away = self._switcher is not None and self._switcher.live is not None
            if away and requests.switch_now(engine, self.switcher(), None, []).ok and failed:
                engine.told.tell("strategy_failed", failed, engine.bound)

    def _put(self, strategy: LiveStrategy | None) -> SwitchOutcome:
        """Put `strategy` in force; None: the program's own placement."""

        def put() -> SwitchOutcome:
            with self._engine.lock:
                return requests.switch_now(self._engine, self.switcher(), strategy, [])

        return unbroken(put)

    def user_names(self) -> dict[str, str]:
        """The mirror's name -> the user's, for ops that had to be renamed."""
        return {here: name for name, (here, _) in self._engine.mirror.aliases.items()}

    def name_here(self, name: str, kind: Kind, fetched: bool = False) -> str:
        """The mirror's name for a user's "op" or "op:0" under what is in force, in a step of `kind`, which may fetch it."""
        op, colon, index = name.partition(":")
        live = self._switcher.live if self._switcher is not None else None
        if live is None or self._switcher is None:
            return self._engine.mirror.name_here(op) + colon + index
        serving = live.serving(kind, self._switcher.view())
        return (serving.ops.fetched_as(op) if fetched else serving.ops.name_of(op)) + colon + index

    def sums_fetched(self, fetches: Iterable[str], kind: Kind) -> list[str]:
        """The user's sums that a callable of `kind` must be asked for besides what it fetches (`Copy.sums_of`)."""
        if self._switcher is None or self._switcher.live is None:
            return []
        serving = self._switcher.live.serving(kind, self._switcher.view())
        return serving.ops.sums_of(name.partition(":")[0] for name in fetches)

    def besides(self, ends: Iterable[str], kind: Kind) -> list[str]:
        """What else of the mirror a callable of `kind`, which asks for `ends`, must be asked for (`Copy.besides`)."""
        if self._switcher is None or self._switcher.live is None:
            return []
        serving = self._switcher.live.serving(kind, self._switcher.view())
        return [capi.op_name(operation) for operation in serving.besides(kind, (name.partition(":")[0] for name in ends))]

    def fetches_here(self, fetches: Iterable[str], kind: Kind) -> list[str]:
        """As `name_here`, of what a callable of `kind` fetches."""
        mirror, last = self._engine.mirror, dict[str, str]()
        if self._switcher is not None and concerns(mirror, kind):
            last = self._switcher.last_names(kind)
        return [last.get(name) or self.name_here(name, kind, fetched=True) for name in fetches]


def _never_ran(error: BaseException) -> bool:
    """Could TensorFlow not even build the executors?"""
    return any(sign in str(getattr(error, "message", "")) for sign in _BEFORE_EXECUTION)
