"""One live session: runs steps on the mirror, tells the observer, and answers the observer's requests (EnginePort).

It decides nothing about strategies; it knows the mirror, the kinds and the gate.
"""

from __future__ import annotations

import functools
import itertools
import os
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from stepd.hook.engine import capi, containers, names, requests, restarts
from stepd.hook.engine.chaos import ChaosMonkey
from stepd.hook.engine.describe import describe
from stepd.hook.engine.devices import Devices
from stepd.hook.engine.gate import Gate
from stepd.hook.engine.kinds import Kind, Kinds, Route
from stepd.hook.engine.mirror import Mirror
from stepd.hook.engine.settings import EngineSettings
from stepd.hook.engine.shield import unbroken
from stepd.hook.engine.special_runs import Callables, PartialRuns
from stepd.hook.engine.state import inventory
from stepd.hook.engine.switcher import Switcher, SwitchRefusedError, build
from stepd.hook.engine.worker import worker
from stepd.hook.log import logger as log
from stepd.hook.model import GraphDescription, LiveStrategy, SessionDevice, SwitchOutcome, Way
from stepd.hook.order.planning import Ordering, pools
from stepd.hook.ports import ObserverPort, RunRecord

_numbers = itertools.count(1)
_clock = time.perf_counter
# RunOptions.trace_level, serialized: field 1. Without a GPU the software trace has all that the full one has, and does not take
# the process's one profiling session, which the program or another thread may want.
_SOFTWARE_TRACE, _FULL_TRACE = b"\x08\x01", b"\x08\x03"

# A step of this length hides something of the work that keeps the next one from beginning; how long to wait for one, in steps, and
# what a run takes to get past the place where it would be kept.
_LONG_STEP_SECONDS = 0.02
_STEPS_TO_AWAIT = 3.0
_BEGIN_SECONDS = 0.002

# What TensorFlow says when it could not even build the executors of a step.
_BEFORE_EXECUTION = (
    "Cannot assign a device",
    "No OpKernel was registered",
    "Cannot colocate",
    "Could not satisfy explicit device",
)


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
        self.kinds = Kinds()
        self.gate: Gate[Kind] = Gate()
        self.containers = containers.Containers()
        self.callables = Callables(self)
        self.partial_runs = PartialRuns(self)
        self.epoch = 0
        self.closed = False
        self.ran = False
        self.observer = observer
        self.chaos = ChaosMonkey(settings.chaos, self.session_id) if settings.chaos else None
        self._switcher: Switcher | None = None
        self._devices: tuple[SessionDevice, ...] | None = None
        self._verification: requests.Verification | None = None
        # Guards the mirror's graph and the raw session against use by the engine's thread and by the user's at once.
        self.lock = threading.RLock()
        # Held while TensorFlow builds in the raw session without the lock: it must not be deleted then.
        self.in_use = threading.Lock()
        self._graph_lock = made._graph._session_run_lock
        # Nodes are in the mirror that the session has not taken: every run must try again, and fails as it would plainly.
        self._unsent: Exception | None = None
        # Target and ConfigProto that the raw session was made with, and whoever must know that it is another now.
        self.session_options: tuple[bytes | None, Any] = (None, None)
        self.on_replace: Callable[[Any, Any], None] = lambda old, new: None

    # -- what the intercepted functions call, on the user's thread -----------------------------------------------------

    def opened(self, raw: Any) -> None:
        self.raw = raw
        self.tell("session_opened")

    def extend(self) -> None:
        """In place of `_extend_graph`: bring the mirror up to date when the user has added ops."""
        if not self.mirror.stale() and self._unsent is None:
            return
        with self._graph_lock(), self.lock:
            first = self.mirror.version == 0
            try:
                if self.mirror.stale():
                    self.mirror.sync()
                capi.extend_session(self.raw)
            except Exception as e:
                self._unsent = e
                raise
            self._unsent = None
        if not first:
            self.tell("graph_extended")

    def raise_unsent(self) -> None:
        """The user's new nodes could not be mirrored: say what TensorFlow says of the user's own graph, or what went wrong."""
        if self._unsent is not None:
            with self.mirror.user_graph._c_graph.get() as graph:
                capi.try_session(graph)
            raise self._unsent

    def enter(self, kind: Kind) -> Route | None:
        """Begin a run of `kind`: its route for what is in force. The caller must call `gate.leave`."""
        while True:
            epoch = self.epoch
            route = kind.route if kind.epoch == epoch else self._route(kind)
            kind.waited = self.gate.enter(kind)
            # State moves only while no run that uses it is in flight: from here on `route` stays right, or never was.
            if self.epoch == epoch:
                return route
            self.gate.leave(kind)

    def run(self, options: Any, feeds: Any, fetches: list[Any], targets: list[Any], metadata: Any) -> Any:
        """In place of `TF_SessionRun_wrapper`."""
        key = (tuple(fetches), tuple(targets), tuple(feeds))
        kind = self.kinds.by_handles.get(key) or self.kinds.make(key)
        begin = _clock()
        switched = self.chaos is not None and self._chaos_switch(kind)
        observer = self.observer
        traced = verification = None
        if options is None and metadata is None:
            if self._verification is not None:
                verification, self._verification = self._verification, None
                options, metadata = traced = _buffers(requests.PARTITION_GRAPHS)
            elif observer is not None and self._wants_trace(observer, kind):
                options, metadata = traced = _buffers(self._trace_options())
        route = self.enter(kind)
        strategy = self.strategy_id
        error = ""
        try:
            self.ran = True
            if route is None:
                return capi.run_session(self.raw, options, feeds, fetches, targets, metadata)
            mapped = {route.feeds[t]: value for t, value in feeds.items()}
            return capi.run_session(self.raw, options, mapped, route.fetches, route.targets, metadata)
        except BaseException as e:
            error = type(e).__name__
            self.kinds.uncertain.add(kind.step)
            if route is not None or self.cluster is not None:
                names.repair_error(e, self.user_names(), self.cluster)
            raise
        finally:
            kind.runs += 1
            self.gate.leave(kind)
            kind.seconds = _clock() - begin
            if kind.runs == 1:
                kind.first_seconds = kind.seconds
            kind.least = min(kind.least, kind.seconds)
            if metadata is not None and (route is not None or traced is not None):
                self._use_metadata(metadata, traced, verification, error)
            if observer is not None:
                first, kind.ran_on = kind.ran_on != strategy, strategy
                recorded = self._trace(metadata) if traced is not None and verification is None else None
                record = RunRecord(
                    kind.step, strategy, begin, kind.seconds, recorded is not None, recorded, switched or kind.waited,
                    first, error, _batch(feeds) if recorded is not None else (),
                )  # fmt: skip
                try:
                    observer.run_finished(self, record)
                except Exception as e:
                    self._disable_observer(e)
            if traced is not None:
                for buffer in traced:
                    capi.delete_buffer(buffer)

    def undo(self, error: BaseException) -> bool:
        """A run raised: if that is the strategy's doing, go back. True when nothing of it had run, so that it may run again."""
        if not self.strategy_id:
            return False
        text = str(getattr(error, "message", ""))
        before = any(sign in text for sign in _BEFORE_EXECUTION)
        if not before and type(error).__name__ != "ResourceExhaustedError":
            return False
        failed = self.strategy_id

        def go_back() -> SwitchOutcome:
            with self.lock:
                return requests.switch_now(self, self.switcher(), None, [])

        outcome = unbroken(go_back)
        if outcome.ok:
            self.tell("strategy_failed", failed, text.partition("\n")[0])
        return before and outcome.ok

    def _use_metadata(self, metadata: Any, traced: Any, verification: requests.Verification | None, error: str) -> None:
        """After a run with metadata: verify the switch that it was the first run on; give it the user's names."""
        data = capi.buffer_bytes(metadata)
        if verification is not None:
            worker.submit(functools.partial(verification.finish, None if error else data))
        elif not error and names.holds_own(data):
            capi.repaired_buffers[metadata] = names.repair_metadata(data, self.user_names())

    def _trace_options(self) -> bytes:
        """A session of a cluster collects nothing for a software trace, and its full trace minds no other one (measured)."""
        remote = bool(self.target) or self.cluster is not None
        return _FULL_TRACE if remote or any(device.type == "GPU" for device in self.devices()) else _SOFTWARE_TRACE

    def _trace(self, metadata: Any) -> bytes:
        return capi.repaired_buffers.pop(metadata, None) or capi.buffer_bytes(metadata)

    def guarded(self, kind: Kind, call: Callable[[Route | None], Any]) -> Any:
        """Run `call` with the kind's route, as one run in flight that the observer hears of."""
        begin = _clock()
        switched = self.chaos is not None and self._chaos_switch(kind)
        route = self.enter(kind)
        strategy, error = self.strategy_id, ""
        self.ran = True
        try:
            return call(route)
        except BaseException as e:
            error = type(e).__name__
            self.kinds.uncertain.add(kind.step)
            if route is not None or self.cluster is not None:
                names.repair_error(e, self.user_names(), self.cluster)
            raise
        finally:
            kind.runs += 1
            self.gate.leave(kind)
            kind.seconds = _clock() - begin
            if kind.runs == 1:
                kind.first_seconds = kind.seconds
            kind.least = min(kind.least, kind.seconds)
            first, kind.ran_on = kind.ran_on != strategy, strategy
            switched |= kind.waited
            record = RunRecord(kind.step, strategy, begin, kind.seconds, False, None, switched, first, error, ())
            self.tell("run_finished", record)

    def note_containers(self, wanted: Iterable[str] = ()) -> None:
        """Remember which resource containers the session has, `wanted` or all that the graph names. Called with the lock held."""
        switcher = self.switcher()
        names_ = set(wanted) or containers.of_nodes(node.proto for node in switcher.view().nodes.values())
        self.containers.note(self.raw, self.mirror, [d.name for d in self.devices()], names_, switcher.new_prefix())

    def repair(self, error: BaseException) -> None:
        """Have an error, on its way to the program, say of containers what it would say plainly."""
        text = getattr(error, "_message", None)
        missing = containers.named_in(text) if isinstance(text, str) else set()
        if not missing or self._switcher is None:
            return
        with self.lock:
            if not self.closed and not missing <= self.containers.known:
                self.note_containers(missing)
        names.set_text(error, self.containers.repair(str(text)))

    def name_here(self, name: str, kind: Kind) -> str:
        """The mirror's name for a user's "op" or "op:0" under what is in force, in a step of `kind`."""
        op, colon, index = name.partition(":")
        live = self._switcher.live if self._switcher is not None else None
        if live is None or self._switcher is None:
            return self.mirror.name_here(op) + colon + index
        return live.serving(kind, self._switcher.view()).name_of(op) + colon + index

    def close(self) -> None:
        """The session is closing: nothing of the engine may touch it afterwards."""
        with self.lock:
            if self.closed:
                return
            self.closed = True
        with self.in_use:
            pass
        self.verify_next_run(None)
        self.tell("session_closed")

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
        return self._devices

    def describe(self) -> GraphDescription:
        """The user's graph as the session has it now."""
        with self.lock:
            switcher = self.switcher()
            view, classes = switcher.view(), switcher.classes()
            obstacle = self.restart_obstacle(())
        obstacles = (obstacle,) if obstacle else inventory(view, self.kinds.history()).obstacles
        graph_def = capi.graph_bytes(self.mirror.user_graph)
        kinds = self.kinds.steps()
        return describe(view, classes, switcher.devices, graph_def, kinds, self.settings.user_devices, obstacles)

    def request_switch(self, strategy: LiveStrategy, way: Way, done: Callable[[SwitchOutcome], None]) -> None:
        worker.submit(functools.partial(requests.switch, self, strategy, way, done))

    def request_rollback(self, reason: str, done: Callable[[SwitchOutcome], None]) -> None:
        worker.submit(functools.partial(requests.roll_back, self, reason, done))

    def restart_obstacle(self, found: tuple[str, ...]) -> str:
        """Why the session cannot be restarted; "" when it can."""
        if self.target:
            return "the session runs on a server that other sessions may share"
        if self.session() is None or self.closed:
            return "the session is closed"
        return "; ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")

    def state_dir(self) -> Path:
        return self.settings.state_dir or Path(tempfile.gettempdir()) / f"stepd-{os.getuid()}"

    def replace_session(self, raw: Any, switcher: Switcher) -> Any:
        """Go on in a raw session that has all the state; called with the lock held and no run in flight. Returns the old one."""
        session = self.session()
        if session is None:
            raise SwitchRefusedError("the program has dropped the session")
        old, self.raw = self.raw, raw
        session._session = raw
        self.on_replace(old, raw)
        self.mirror, self._switcher = switcher.mirror, switcher
        self.epoch += 1
        switcher.attach(self.epoch, self._set_epoch, self.lock, self._build)
        self.callables.session_replaced()
        self.in_force(switcher.live.plan.strategy.id if switcher.live else "")
        return old

    def in_force(self, strategy_id: str) -> None:
        """A switch was made; called with the lock held."""
        self.strategy_id = strategy_id
        self.verify_next_run(None)

    def verify_next_run(self, verification: requests.Verification | None) -> None:
        """One that never got its run reports without."""
        unseen, self._verification = self._verification, verification
        if unseen is not None:
            worker.submit(functools.partial(unseen.finish, None))

    # -- representations ------------------------------------------------------------------------------------------------

    def switcher(self) -> Switcher:
        """The session's switcher, made when it is needed first."""
        with self.lock:
            if self._switcher is None:
                self._switcher = self.new_switcher(self.mirror)
                self._switcher.attach(self.epoch, self._set_epoch, self.lock, self._build)
            return self._switcher

    def new_switcher(self, mirror: Mirror) -> Switcher:
        """One for a session like this one on another mirror, which nobody uses yet."""
        devices = Devices(self.devices(), self.settings.user_devices, mirror.placer is not None)
        direct = not self.target and mirror.placer is None
        made = Switcher(mirror, devices, bool(self.target), direct, self.settings.copies)
        made.ordering = Ordering(self.settings.order, pools(devices, self._threads() if direct else 0))
        made.other_kinds = self.callables.kinds
        return made

    def _threads(self) -> int:
        """How many ops of CPU devices a direct session runs at once."""
        config = self.session_options[1]
        asked = config.inter_op_parallelism_threads if config is not None else 0
        for pool in list(config.session_inter_op_thread_pool)[:1] if config is not None else ():
            asked = pool.num_threads
        return asked if asked > 0 else len(os.sched_getaffinity(0))

    def _build(self, raw: Any, route: Route) -> None:
        with self.in_use:
            if self.closed or raw is not self.raw:
                raise SwitchRefusedError("the session is closed")
            build(raw, route)

    def calm(self) -> None:
        """Wait until a long step has begun: what keeps runs from beginning for a while is then least in the way. Not for ever."""
        slowest = max((kind.seconds for kind in self.kinds.all() if kind.runs > 1), default=0.0)
        if slowest > _LONG_STEP_SECONDS:
            most = min(_STEPS_TO_AWAIT * slowest, self.settings.gate_seconds)
            self.gate.await_begin(lambda kind: kind.seconds > slowest / 2, most)
            time.sleep(_BEGIN_SECONDS)

    def _set_epoch(self, epoch: int) -> None:
        """What is in force has changed; called while the runs that this concerns are held back."""
        self.epoch = epoch

    def user_names(self) -> dict[str, str]:
        """The mirror's name -> the user's, for ops that had to be renamed."""
        return {here: name for name, (here, _) in self.mirror.aliases.items()}

    def _route(self, kind: Kind) -> Route | None:
        """How `kind` runs on what is in force. What goes wrong here sends the session back to the user's own nodes."""
        epoch, switcher = self.epoch, self._switcher
        # Without the lock, which may be held for as long as TensorFlow takes in a copy: epoch first, then what is in force.
        ready = switcher.ready(kind) if switcher is not None else None
        if ready is not None or ((switcher is None or switcher.live is None) and not self.mirror.aliases):
            kind.route, kind.epoch = ready, epoch
            return ready
        return unbroken(functools.partial(self._routed, kind))

    def _routed(self, kind: Kind) -> Route | None:
        with self.lock:
            switcher = self.switcher()
            try:
                return switcher.route(self.raw, kind)
            except SwitchRefusedError as e:
                log.info("session %s: %s", self.session_id, e)
                self._renew(switcher, kind)
            except Exception:
                log.exception("session %s: a copy could not serve a run", self.session_id)
                self._go_back(switcher)
            return switcher.route(self.raw, kind)

    def _renew(self, switcher: Switcher, kind: Kind) -> None:
        try:
            switcher.renew(self.raw, kind, self.gate, self.settings.gate_seconds)
            switcher.route(self.raw, kind)
        except Exception as e:
            log.info("session %s goes back to the program's own placement: %s", self.session_id, e)
            self._go_back(switcher)

    def _go_back(self, switcher: Switcher) -> None:
        failed, self.strategy_id = self.strategy_id, ""
        switcher.switch(self.raw, None, self.gate, self.settings.gate_seconds)
        if failed:
            self.tell("strategy_failed", failed, "the session could not go on with it after the graph was extended")

    def _chaos_switch(self, kind: Kind) -> bool:
        assert self.chaos is not None
        if not self.chaos.due() or self._unsent is not None or self.mirror.version == 0:
            return False
        try:
            for outcome in unbroken(functools.partial(self._chaos_outcomes, self.chaos, kind)):
                self.tell("switch_done", outcome)
        except Exception:
            log.exception("session %s: a chaos switch failed", self.session_id)
        return True

    def _chaos_outcomes(self, chaos: ChaosMonkey, kind: Kind) -> list[SwitchOutcome]:
        """One switch; a restart that is not possible is made up for in session, unless only restarts are wanted."""
        outcomes: list[SwitchOutcome] = []
        with self.lock:
            switcher = self.switcher()
            if chaos.way() is Way.RESTART:
                strategy = chaos.strategy(switcher.units(), [])
                outcomes.append(restarts.restart_now(self, strategy, [kind], 0.0).outcome)
                if outcomes[0].ok or chaos.only_restarts:
                    return outcomes
            kept = [copy.plan.strategy for copy in switcher.kept.values()]
            full = switcher.made >= self.settings.copies
            strategy = chaos.strategy(switcher.units(), kept if full else [])
            outcomes.append(requests.switch_now(self, switcher, strategy, [kind]))
        return outcomes

    # -- the observer ------------------------------------------------------------------------------------------------

    def tell(self, event: str, *details: Any) -> None:
        """Call a method of the observer; one that raises is not called again."""
        heard = getattr(self.observer, event, None)
        if heard is None:
            return
        try:
            heard(self, *details)
        except Exception as e:
            self._disable_observer(e)

    def _wants_trace(self, observer: ObserverPort, kind: Kind) -> bool:
        try:
            return observer.wants_trace(self, kind.step)
        except Exception as e:
            self._disable_observer(e)
            return False

    def _disable_observer(self, error: Exception) -> None:
        self.observer = None
        log.warning("stepd: session %s is no longer watched: the observer raised %r", self.session_id, error)


def _buffers(options: bytes) -> tuple[Any, Any]:
    """RunOptions, and an empty RunMetadata."""
    return capi.c.TF_NewBufferFromString(options), capi.c.TF_NewBuffer()


def _batch(feeds: Any) -> tuple[int, ...]:
    """Leading dimensions of what is fed, by feed."""
    return tuple(int(value.shape[0]) for value in feeds.values() if getattr(value, "shape", ()))
