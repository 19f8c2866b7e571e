"""The observer half of the hook (ObserverPort): ties clock, sampling, guard and channel together for all sessions of a process.

The engine calls `wants_trace` and `run_finished` around steps that are not only noted, on the program's thread. The observer's own
thread (background.py) looks about once a second, or when woken by a step that a trial waits for. It decides without the daemon and
tells it when there is one. It knows nothing of graphs beyond op names.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterable, Mapping

from stepd.hook import clocks, convert, identity
from stepd.hook.address import places
from stepd.hook.background import Background
from stepd.hook.channel import Channel
from stepd.hook.compat import Compatibility
from stepd.hook.env import Settings
from stepd.hook.log import logger
from stepd.hook.model import SwitchOutcome
from stepd.hook.ports import EnginePort, Notes, RunRecord, StepKind
from stepd.hook.report import Report
from stepd.hook.sampling import Budget
from stepd.hook.trial import Outcome, TrialVerdict
from stepd.hook.watch import SessionWatch
from stepd.v1 import runtime_pb2

LOOK_SECONDS = 1.0
EXIT_SECONDS = 1.0
FORK_SECONDS = 0.5
REMEMBERED_VERDICTS = 64


class Observer:
    """See the module. All state of a process's hook that is not the engine's."""

    def __init__(self, settings: Settings, hello: runtime_pb2.Hello) -> None:
        self._settings = settings
        self._hello = hello
        self._report = Report(settings.report)
        self._fresh()

    @classmethod
    def create(cls, settings: Settings, judged: Compatibility, shown: Mapping[str, str], argv: list[str]) -> Observer:
        """An observer for this process; starts no thread yet."""
        return cls(settings, identity.hello(settings, judged, shown, argv))

    def _fresh(self) -> None:
        """All that threads share, new: at the start and in a forked child, where locks may be held by threads that are gone."""
        self._watches: dict[EnginePort, SessionWatch] = {}
        self._budget = Budget(self._settings.overhead_budget, clocks.monotonic())
        self._background = Background("stepd-observer", self._turn, self._look, LOOK_SECONDS)
        self._verdicts: deque[runtime_pb2.HookMessage] = deque(maxlen=REMEMBERED_VERDICTS)
        self._known_graphs: frozenset[str] = frozenset()
        self._paused_until: float | None = None
        self._tracing: EnginePort | None = None  # whose run is being traced
        self._channel: Channel | None = None
        if self._settings.daemon:
            self._channel = Channel(self._settings, places(self._settings.socket, os.environ), self)

    # -- ObserverPort: the program's thread ---------------------------------------------------------------------------

    def session_opened(self, engine: EnginePort) -> None:
        self._watch(engine)

    def graph_extended(self, engine: EnginePort) -> None:
        self._watch(engine).graph_changed = True

    def wants_trace(self, engine: EnginePort, kind: StepKind) -> bool:
        watch = self._watches.get(engine)
        if watch is None or not watch.sampler.wants(watch.clock.kinds.get(kind.id)):
            return False
        if watch.sampler.always:
            return True
        # A process has one profiling session. Our traces come one at a time, from threads that are not blocked for long.
        if self._tracing is not None or not watch.clock.driving() or _profiler_active():
            return False
        self._tracing = engine
        return True

    def run_finished(self, engine: EnginePort, record: RunRecord) -> Notes | None:
        if engine not in self._watches and self._background.stopped:
            return None
        watch = self._watch(engine)
        clock, plain = watch.clock.add(record)
        if self._tracing is engine and watch.clock.driving():
            self._tracing = None
        if record.traced:
            watch.sampler.traced(clock, record)
            self._traced(watch, record)
        elif plain and watch.director.watches(clock):
            self._background.wake()
        watch.ease(clock)
        return clock.notes

    def strategy_failed(self, engine: EnginePort, strategy_id: str, error: str) -> None:
        watch = self._watch(engine)
        self._report.write("strategy_failed", watch.id, {"strategy_id": strategy_id, "error": error})
        self._background.post(lambda: watch.director.failed(strategy_id, error))

    def session_closed(self, engine: EnginePort) -> None:
        watch = self._watches.pop(engine, None)
        if self._tracing is engine:
            self._tracing = None
        if watch is None:
            return
        self._report.write("closed", watch.id, {"runs": sum(clock.runs for clock in watch.clock.kinds.values())})
        self._background.post(lambda: self._close(watch))

    def _watch(self, engine: EnginePort) -> SessionWatch:
        watch = self._watches.get(engine)
        if watch is None:
            watch = SessionWatch(engine, self._budget, self._settings, self, self._background.post)
            watch = self._watches.setdefault(engine, watch)
            self._report.write("opened", watch.id, {"target": engine.target})
            self._start()
            self._background.post(lambda: self._say(watch.opened()))
        return watch

    def _traced(self, watch: SessionWatch, record: RunRecord) -> None:
        self._report.write("traced", watch.id, {"kind": record.kind.id, "strategy_id": record.strategy_id})
        if record.metadata is None or self._channel is None or record.switched or record.first_on_strategy:
            return
        profile = runtime_pb2.StepProfile(
            session_id=watch.id,
            kind=record.kind.id,
            strategy_id=record.strategy_id,
            run_metadata=record.metadata,
            seconds=record.seconds,
            unix_nanos=clocks.time_ns(),
            batch=record.batch,
        )
        self._channel.send_profile(runtime_pb2.HookMessage(profile=profile))

    # -- Listener: what the director tells (the observer's thread) ----------------------------------------------------

    def switch_done(self, engine: EnginePort, outcome: SwitchOutcome) -> None:
        """A switch happened, asked for by the director or (in chaos mode) by the engine itself."""
        watch = self._watches.get(engine)
        self._report.switch(engine.session_id, outcome)
        if watch is not None:
            watch.last_outcome = outcome
        self._say(convert.switch_report(engine.session_id, outcome))

    def trial_ended(self, engine: EnginePort, verdict: TrialVerdict) -> None:
        self._report.verdict(engine.session_id, verdict)
        message = convert.verdict(engine.session_id, verdict)
        self._verdicts.append(message)
        self._say(message)

    # -- Conversation: the channel's threads --------------------------------------------------------------------------

    def hello(self) -> runtime_pb2.HookMessage:
        self._hello.paused = self._paused_until is not None
        return runtime_pb2.HookMessage(hello=self._hello)

    def describe(self, welcome: runtime_pb2.Welcome) -> Iterable[runtime_pb2.HookMessage]:
        self._known_graphs = frozenset(welcome.known_fingerprints)
        watches = list(self._watches.values())
        for watch in watches:
            try:
                yield watch.opened()
            except Exception as error:  # fail open: one session that cannot be described must not cost the others
                logger.exception("session %s cannot be described: %s", watch.id, error)
            watch.forget_told()  # the observer's thread describes the graph again
        for watch in watches:
            if watch.last_outcome is not None:
                yield convert.switch_report(watch.id, watch.last_outcome)
        yield from list(self._verdicts)
        self._background.wake()

    def heartbeat(self, dropped_profiles: int) -> runtime_pb2.HookMessage:
        states = {watch.director.state() for watch in list(self._watches.values())}
        order = ("switching", "verifying", "committed", "watching")
        state = "paused" if self._paused_until is not None else next((name for name in order if name in states), "watching")
        return runtime_pb2.HookMessage(heartbeat=runtime_pb2.Heartbeat(dropped_profiles=dropped_profiles, state=state))

    def heard(self, message: runtime_pb2.DaemonMessage) -> None:
        self._background.post(lambda: self._obey(message))

    # -- the observer's own thread ------------------------------------------------------------------------------------

    def announce(self) -> None:
        """Tell the daemon that this process exists although the hook is off in it."""
        self._start()

    def _start(self) -> None:
        if self._background.start() and self._channel is not None:
            self._channel.start()

    def _say(self, message: runtime_pb2.HookMessage) -> None:
        if self._channel is not None:
            self._channel.send(message)

    def _turn(self, now: float) -> None:
        for watch in list(self._watches.values()):
            watch.direct(now)

    def _look(self, now: float) -> None:
        self._budget.refill(now)
        if self._paused_until is not None and now >= self._paused_until:
            self._pause(None)
        listening = self._channel is not None and self._channel.connected
        for watch in list(self._watches.values()):
            try:
                watch.tick(now, listening)
                if not listening:
                    continue
                for message in watch.news(self._known_graphs) + watch.step_times():
                    self._say(message)
            except Exception as error:  # fail open: a fault in one session must not cost the others
                logger.exception("session %s: %s", watch.id, error)

    def _obey(self, message: runtime_pb2.DaemonMessage) -> None:
        what = message.WhichOneof("message")
        now = clocks.monotonic()
        if what == "pause":
            self._pause(now + message.pause.seconds if message.pause.seconds > 0 else float("inf"))
        elif what == "resume":
            self._pause(None)
        elif what in ("profile", "activate", "rollback", "graph_wanted"):
            session_id = getattr(message, what).session_id
            watch = next((watch for watch in list(self._watches.values()) if watch.id == session_id), None)
            if watch is None:
                logger.info("the daemon speaks of session %r, which is not open", session_id)
            else:
                self._obey_for(watch, what, message)

    def _obey_for(self, watch: SessionWatch, what: str, message: runtime_pb2.DaemonMessage) -> None:
        if what == "profile":
            watch.sampler.request_all(watch.clock, message.profile.steps)
        elif what == "rollback":
            watch.director.roll_back(message.rollback.reason or "rolled back by the operator")
        elif what == "graph_wanted":
            self._say(watch.description(self._known_graphs, wanted=True))
        else:
            self._activate(watch, message.activate)

    def _activate(self, watch: SessionWatch, asked: runtime_pb2.Activate) -> None:
        try:
            watch.director.activate(convert.strategy(asked), convert.way(asked.way))
        except convert.MalformedStrategyError as error:
            self.trial_ended(watch.engine, TrialVerdict(asked.strategy.id, "", Outcome.FAILED, str(error)))

    def _pause(self, until: float | None) -> None:
        self._paused_until = until
        for watch in list(self._watches.values()):
            watch.sampler.paused = watch.director.paused = until is not None

    def _close(self, watch: SessionWatch) -> None:
        for message in watch.step_times():
            self._say(message)
        watch.director.close()
        self._say(runtime_pb2.HookMessage(session_closed=runtime_pb2.SessionClosed(session_id=watch.id)))

    # -- the end, and forks -------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Say goodbye within a second and end the threads."""
        for watch in list(self._watches.values()):
            self.session_closed(watch.engine)
        deadline = clocks.monotonic() + EXIT_SECONDS
        self._background.stop(deadline)
        if self._channel is not None:
            self._channel.stop(max(0.0, deadline - clocks.monotonic()))
        self._background.join(deadline)

    def before_fork(self) -> None:
        """Close the connection, as quickly as may be: the child must not hold it, and gRPC complains of forks in mid-call."""
        if self._channel is not None and not self._background.stopped:
            self._channel.hold(FORK_SECONDS)

    def after_fork(self) -> None:
        """In the parent: the channel opens again."""
        if self._channel is not None:
            self._channel.release()

    def after_fork_in_child(self) -> None:
        """A process of its own: none of the parent's threads, sessions or locks exist here.

        It attaches where gRPC is new to it. Where the parent has used gRPC, a thread that is not here may have held a lock of it:
        the first channel would wait for ever, and all else with it, since gRPC asks for its locks while it holds Python's.
        """
        if self._background.stopped:
            return
        identity.renew(self._hello)
        self._fresh()
        if "grpc" in sys.modules and self._channel is not None:
            self._channel = None
            logger.info("forked from a process that uses gRPC, which does not survive it: not attached to the daemon")


def _profiler_active() -> bool:
    """Does the program itself profile (tf.profiler)? It gets an error when a trace of ours is under way."""
    profiler = sys.modules.get("tensorflow.python.profiler.profiler_v2")
    return getattr(profiler, "_profiler", None) is not None
