"""Fakes for both sides of the observer (an engine that switches when told to, a daemon on a real socket), and older loops."""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest

from stepd.hook.model import GraphDescription, LiveStrategy, SessionDevice, SwitchOutcome, Way
from stepd.hook.ports import Notes, ObserverPort, RunRecord, StepKind
from stepd.v1 import profile_pb2, runtime_pb2, runtime_pb2_grpc

TRAIN = StepKind("train", ("x:0",), ("loss:0",), ("train_op",))
WAIT_SECONDS = 20.0


class FakeEngine:
    """An EnginePort whose switches happen at the next `run`, as they do in the real one."""

    def __init__(self, session_id: str = "s1") -> None:
        self.session_id = session_id
        self.target = ""
        self.strategy_id = ""
        self.switch_error = ""
        self.handling = (0.0, 0.0)
        self.requests: list[str] = []
        self.compactions: list[str] = []
        self.observer: ObserverPort | None = None
        self._due: list[tuple[str, Callable[[SwitchOutcome], None], bool]] = []
        self._ran: set[tuple[str, str]] = set()
        self._now = 0.0
        self._notes: dict[str, Notes | None] = {}
        self._last = ("", "")  # kind and strategy of the last run that the observer heard of
        self.noted = 0
        self.asked = threading.Event()

    def devices(self) -> tuple[SessionDevice, ...]:
        return (SessionDevice("/job:localhost/replica:0/task:0/device:CPU:0", "CPU", 1 << 30, True, *self.handling),)

    def describe(self) -> GraphDescription:
        graph = profile_pb2.GraphDef()
        graph.node.add(name="loss", op="Mean")
        return GraphDescription("f00d", graph.SerializeToString(), {"x": "is fed"}, (("a", "b"),))

    def request_switch(self, strategy: LiveStrategy, way: Way, done: Callable[[SwitchOutcome], None]) -> None:
        self.requests.append(strategy.id)
        self._due.append((strategy.id, done, False))
        self.asked.set()

    def request_rollback(self, reason: str, done: Callable[[SwitchOutcome], None]) -> None:
        self.requests.append("")
        self._due.append(("", done, True))
        self.asked.set()

    def request_compaction(self, done: Callable[[SwitchOutcome], None]) -> None:
        self.compactions.append(self.strategy_id)
        done(SwitchOutcome(self.strategy_id, Way.RESTART, ok=True, wait_seconds=0.02))

    def switch(self) -> bool:
        """Perform what was requested; True when something was."""
        switched = False
        while self._due:
            strategy_id, done, rollback = self._due.pop(0)
            error = "" if rollback else self.switch_error
            if not error:
                self.strategy_id = strategy_id
            switched = True
            done(SwitchOutcome(strategy_id, Way.IN_SESSION, not error, error, wait_seconds=0.01, rollback=rollback))
        return switched

    def record(self, seconds: float, kind: StepKind = TRAIN, error: str = "", traced: bool = False) -> RunRecord:
        """Perform due switches and make the record of one run."""
        switched = self.switch()
        first = (kind.id, self.strategy_id) not in self._ran
        self._ran.add((kind.id, self.strategy_id))
        self._now += seconds
        metadata = b"\x0a\x00" if traced else None
        return RunRecord(
            kind, self.strategy_id, self._now - seconds, seconds, traced, metadata, switched, first, error, (32,) if traced else ()
        )

    def run(self, seconds: float, kind: StepKind = TRAIN) -> None:
        """One step as the observer sees it: noted where that will do, as the real engine does it."""
        assert self.observer is not None
        notes = self._notes.get(kind.id)
        if notes is not None and notes.open and not self._due and (kind.id, self.strategy_id) == self._last:
            self._now += seconds
            self.noted += 1
            notes.ended.append((kind, self._now - seconds, seconds, threading.get_ident()))
            return
        traced = self.observer.wants_trace(self, kind)
        self._notes[kind.id] = self.observer.run_finished(self, self.record(seconds, kind, traced=traced))
        self._last = (kind.id, self.strategy_id)


class FakeDaemon(runtime_pb2_grpc.RuntimeServicer):
    """A Runtime service on a Unix socket that remembers what hooks say; can be killed and started again."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.heard: queue.Queue[runtime_pb2.HookMessage] = queue.Queue()
        self.attached = 0
        self.known: list[str] = []
        self._say: queue.Queue[runtime_pb2.DaemonMessage | None] = queue.Queue()
        self._server: grpc.Server | None = None

    def Attach(self, requests, context):  # type: ignore[no-untyped-def]  # noqa: N802 - gRPC's own signature
        say = self._say = queue.Queue()
        self.attached += 1
        threading.Thread(target=self._listen, args=(requests, say), daemon=True).start()
        yield runtime_pb2.DaemonMessage(welcome=runtime_pb2.Welcome(daemon_version="test", known_fingerprints=self.known))
        while (message := say.get()) is not None:
            yield message

    def _listen(self, requests, say) -> None:  # type: ignore[no-untyped-def]
        try:
            for message in requests:
                self.heard.put(message)
        except grpc.RpcError:
            pass
        finally:
            say.put(None)

    def start(self) -> None:
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        runtime_pb2_grpc.add_RuntimeServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()

    def stop(self) -> None:
        if self._server is not None:
            self._say.put(None)
            self._server.stop(0).wait(WAIT_SECONDS)
            self._server = None
        self.socket.unlink(missing_ok=True)

    def say(self, message: runtime_pb2.DaemonMessage) -> None:
        self._say.put(message)

    def next(self, what: str) -> object:
        """The next message of kind `what`; others are passed over."""
        while True:
            message = self.heard.get(timeout=WAIT_SECONDS)
            if message.WhichOneof("message") == what:
                return getattr(message, what)


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    """Not started yet."""
    fake = FakeDaemon(tmp_path / "d.sock")
    yield fake
    fake.stop()


@pytest.fixture(scope="session")
def native() -> Path:
    """The native executor, compiled once and kept under build/, loaded into this process; skipped where it cannot be compiled.

    The tests that use it are its trial, so it has none of its own here. `native.parents[3]` will do for XDG_CACHE_HOME.
    """
    pytest.importorskip("tensorflow")
    from stepd.hook.order.native import build, library
    from stepd.hook.order.native.stamp import LIBRARY, NativeError, stamp

    of = stamp()
    place = Path(__file__).parents[2] / "build" / "native-test" / "stepd" / "native" / of.key
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = place / LIBRARY
    with (place / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            made = path.with_suffix(".new")
            try:
                build.compile_library(of, made, os.environ)
            except NativeError as error:
                if "no C++ compiler" in str(error) or "without the headers" in str(error):
                    pytest.skip(str(error))
                raise
            made.replace(path)
    for part in (path, place):
        part.chmod(0o700)
    library.load(path, of.text)
    return path


@pytest.fixture
def first_generation() -> Iterator[None]:
    """Conditions and loops of TensorFlow's first generation."""
    with _control_flow(second=False):
        yield


@pytest.fixture
def second_generation() -> Iterator[None]:
    """Those of its second."""
    with _control_flow(second=True):
        yield


@contextlib.contextmanager
def _control_flow(second: bool) -> Iterator[None]:
    tf = pytest.importorskip("tensorflow.compat.v1")
    before = tf.control_flow_v2_enabled()

    def use(second: bool) -> None:
        (tf.enable_control_flow_v2 if second else tf.disable_control_flow_v2)()

    use(second)
    yield
    use(before)
