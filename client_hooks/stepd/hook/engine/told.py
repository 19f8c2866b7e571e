"""What a session's engine tells its observer, and which runs are traced or verified. An observer that raises is not called again.

It must not know how runs are made.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tensorflow.core.protobuf import config_pb2

from stepd.hook.engine import capi, names, requests
from stepd.hook.engine.devices import Devices
from stepd.hook.engine.kinds import Kind
from stepd.hook.engine.worker import worker
from stepd.hook.log import logger as log
from stepd.hook.ports import ObserverPort, RunRecord

if TYPE_CHECKING:
    from stepd.hook.engine.session_engine import SessionEngine

# RunOptions.trace_level, serialized: field 1. Without a GPU the software trace has all that the full one has, and does not take
# the process's one profiling session, which the program or another thread may want.
_SOFTWARE_TRACE, _FULL_TRACE = b"\x08\x01", b"\x08\x03"


@dataclass
class Traced:
    """A run that asks for metadata on the engine's account: RunOptions, and where the RunMetadata goes."""

    options: Any
    metadata: Any
    verification: requests.Verification | None = None
    sums: bool = False  # is it a plain run that shows how it adds up?
    traced: bool = True
    of_program: bool = False  # does the program itself ask, and get, all that is wanted?
    reports: bool = False  # is it only for this that TensorFlow says what lies in memory where that does not suffice?

    @classmethod
    def asking(cls, options: bytes, verification: requests.Verification | None = None) -> Traced:
        return cls(capi.c.TF_NewBufferFromString(options), capi.c.TF_NewBuffer(), verification)

    def free(self) -> None:
        if self.of_program:
            return
        capi.delete_buffer(self.options)
        capi.delete_buffer(self.metadata)


class Told:
    """The observer of one engine, or none."""

    def __init__(self, engine: SessionEngine, observer: ObserverPort | None) -> None:
        self._engine = engine
        self.awaited: requests.Verification | None = None  # of a switch that waits for its first run
        self.observer = observer

    def tell(self, event: str, *details: Any) -> None:
        """Call a method of the observer."""
        heard = getattr(self.observer, event, None)
        if heard is None:
            return
        try:
            heard(self._engine, *details)
        except Exception as e:  # the program must not end for what it does not know of
            self._disable(e)

    def ran(self, kind: Kind, strategy: str, begin: float, switched: bool, error: str, traced: Traced | None, feeds: Any) -> None:
        """A run of `kind`, which began at `begin`, has ended; with `error`, the type of what it raised, or with "".

        `switched`: a switch was made before it on its own thread. `feeds`: what it was fed, by feed.
        """
        first, kind.ran_on = kind.ran_on != strategy, strategy
        recorded = self.trace(traced)
        batch = _batch(feeds) if recorded is not None else ()
        record = RunRecord(
            kind.step, strategy, begin, kind.seconds, recorded is not None, recorded, switched or kind.waited, first, error, batch
        )
        try:
            if self.observer is not None:
                kind.notes = self.observer.run_finished(self._engine, record)
        except Exception as e:  # as above
            self._disable(e)

    def _disable(self, error: Exception) -> None:
        self.observer = None
        for kind in self._engine.kinds.all():
            kind.notes = None
        log.error("session %s is no longer watched: the observer raised %r", self._engine.session_id, error, exc_info=error)

    def verify_next_run(self, verification: requests.Verification | None) -> None:
        """One that never got its run reports without."""
        unseen, self.awaited = self.awaited, verification
        if unseen is not None:
            worker.submit(functools.partial(unseen.finish, None))

    def asks(self, options: Any, metadata: Any) -> tuple[config_pb2.RunOptions | None, Any, Any]:
        """What the program asks of a run with RunOptions or RunMetadata (None: nothing), and what of the two makes a difference."""
        asks = config_pb2.RunOptions() if options is None else config_pb2.RunOptions.FromString(capi.buffer_bytes(options))
        if self.asks_for_something(asks, metadata is not None):
            return asks, options, metadata
        return None, options if asks.ByteSize() else None, None

    def asks_for_something(self, asks: config_pb2.RunOptions, metadata: bool = False) -> bool:
        """Would such a run write RunMetadata, or what a debugger wants, or does it say whose collectives meet? A MonitoredSession
        runs every step with both, whether one of its hooks asks for something or not; others limit the time of every step."""
        config = self._engine.session_options[1]
        if config is not None and config.graph_options.build_cost_model:
            return True
        if metadata and (asks.report_tensor_allocations_upon_oom or self._engine.is_named()):
            return True
        meets = asks.experimental.collective_graph_key
        return bool(asks.trace_level or asks.output_partition_graphs or asks.debug_options.ByteSize() or meets)

    def wants(self, kind: Kind, own: bytes) -> Traced | None:
        """What to ask of a run by whose RunOptions, `own`, the program asks for nothing; what comes behind those is merged in."""
        if self.awaited is not None:
            verification, self.awaited = self.awaited, None
            if not self._shows_graphs():
                verification.finish(None)
                return None
            return Traced.asking(own + requests.PARTITION_GRAPHS, verification)
        trace = self._trace_options() if self._wants_trace(kind) else b""
        sums = not kind.sums_shown and self._asks_for_sums(kind)
        if not trace and not sums:
            return None
        asked = Traced.asking(own + trace + (requests.PARTITION_GRAPHS if sums else b""))
        asked.sums, asked.traced = sums, bool(trace)
        asked.reports = bool(trace) and not config_pb2.RunOptions.FromString(own).report_tensor_allocations_upon_oom
        return asked

    def overhears(self, kind: Kind, asks: config_pb2.RunOptions, options: Any, metadata: Any) -> Traced | None:
        """A run that the program itself traces shows the observer what one of its own would."""
        enough = config_pb2.RunOptions(trace_level=asks.trace_level).SerializeToString() in (self._trace_options(), _FULL_TRACE)
        if metadata is None or not enough or not self._wants_trace(kind):
            return None
        return Traced(options, metadata, of_program=True)

    def _asks_for_sums(self, kind: Kind) -> bool:
        """How the program's own graph adds up is asked once of a step, mostly of the run that builds its executors."""
        if self._engine.strategy_id:
            return False
        kind.sums_shown = kind.step in self._engine.known.seen or not (self._may_move() and self._shows_graphs())
        return not kind.sums_shown

    def _wants_trace(self, kind: Kind) -> bool:
        if self.observer is None:
            return False
        try:
            return self.observer.wants_trace(self._engine, kind.step)
        except Exception as e:  # a fault of the observer costs the observer
            self._disable(e)
            return False

    def _may_move(self) -> bool:
        try:
            return Devices(self._engine.devices(), self._engine.settings.user_devices).alternatives > 1
        except Exception:  # the program's own run says what is wrong with the session
            return False

    def _shows_graphs(self) -> bool:
        config = self._engine.session_options[1]
        return config is None or not config.experimental.disable_output_partition_graphs

    def _trace_options(self) -> bytes:
        """A session of a cluster collects nothing for a software trace, and its full trace minds no other one (measured)."""
        engine = self._engine
        remote = bool(engine.target) or engine.cluster is not None
        return _FULL_TRACE if remote or any(device.type == "GPU" for device in engine.devices()) else _SOFTWARE_TRACE

    def use_metadata(self, kind: Kind, metadata: Any, traced: Traced | None, error: str) -> None:
        """After a run with metadata: verify the switch that it was the first run on; give it the user's names."""
        data = capi.buffer_bytes(metadata)
        if traced is None or traced.of_program:
            if not error and names.holds_own(data):
                capi.repaired_buffers[metadata] = names.repair_metadata(data, self._engine.routing.user_names())
            return
        if traced.sums and not error:
            self._engine.known.learn(kind.step, data)
        if traced.verification is not None:
            worker.submit(functools.partial(traced.verification.finish, None if error else data))

    def trace(self, traced: Traced | None) -> bytes | None:
        """Serialized RunMetadata of a traced run with the user's names."""
        if traced is None or traced.verification is not None or not traced.traced:
            return None
        return names.repair_metadata(capi.buffer_bytes(traced.metadata), self._engine.routing.user_names())


def _batch(feeds: Any) -> tuple[int, ...]:
    """Leading dimensions of what is fed, by feed."""
    return tuple(int(value.shape[0]) for value in feeds.values() if getattr(value, "shape", ()))
