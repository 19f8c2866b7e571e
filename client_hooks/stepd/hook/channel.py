"""The channel to the daemon: a bounded queue, a background thread, one gRPC stream that is made again whenever it breaks.

The program never waits here: `send` appends to a deque. A daemon that is absent, late, killed or restarted costs a reconnection
attempt now and then. After every connection the hook says Hello and describes itself again (`Conversation`). It knows no
sessions and no strategies.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from stepd.hook import clocks, unseen
from stepd.hook.address import Address, first_present
from stepd.hook.collector import pause
from stepd.hook.env import Settings
from stepd.hook.log import logger
from stepd.v1 import runtime_pb2

MAX_MESSAGES = 1024
MAX_PROFILES = 32
MAX_PROFILE_BYTES = 64 << 20
HEARTBEAT_SECONDS = 5.0
WELCOME_SECONDS = 10.0
FIRST_BACK_OFF = 0.25
LAST_BACK_OFF = 10.0


class Conversation(Protocol):
    """What the observer says and hears. All of it runs on the channel's threads."""

    def hello(self) -> runtime_pb2.HookMessage:
        """The first message of a connection."""

    def describe(self, welcome: runtime_pb2.Welcome) -> Iterable[runtime_pb2.HookMessage]:
        """Everything that a daemon has to know that has just said Welcome."""

    def heartbeat(self, dropped_profiles: int) -> runtime_pb2.HookMessage:
        """Sent when nothing else was for a while."""

    def heard(self, message: runtime_pb2.DaemonMessage) -> None:
        """A message of the daemon; must not raise."""


class Channel:
    """See the module. `start` may be called again after `stop`."""

    def __init__(self, settings: Settings, places: Sequence[Address], conversation: Conversation) -> None:
        self._settings = settings
        self._places = places
        self._conversation = conversation
        self._messages: deque[runtime_pb2.HookMessage] = deque(maxlen=MAX_MESSAGES)
        self._profiles: deque[runtime_pb2.HookMessage] = deque()
        self._profile_bytes = 0
        self._profile_lock = threading.Lock()
        self._news = threading.Event()
        self._stopping = threading.Event()
        self._released = threading.Event()
        self._released.set()
        self._idle = threading.Event()  # no connection exists, and none is being made
        self._idle.set()
        self._thread: threading.Thread | None = None
        self._call: Any = None
        self._threads: list[threading.Thread] = []  # gRPC's, of the last connection
        self._problem = ""
        self._random = random.Random()  # the module's own state is the program's: it may have seeded it
        self.connected = False
        self.dropped_profiles = 0

    def start(self) -> None:
        """Begin to look for the daemon, on a thread of the channel's own."""
        if self._thread is None:
            self._stopping.clear()
            self._thread = unseen.Thread(self._work, "stepd-channel")
            self._thread.start()

    def stop(self, seconds: float) -> None:
        """Send what is queued, then close; gives up after `seconds`."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        deadline = clocks.monotonic() + seconds
        while self.connected and (self._messages or self._profiles) and clocks.monotonic() < deadline:
            self._news.set()
            self._stopping.wait(0.01)
        self._stopping.set()
        self._released.set()
        self._news.set()
        self._cancel()
        if thread is not threading.current_thread():
            thread.join(max(0.0, deadline + 0.2 - clocks.monotonic()))

    def hold(self, seconds: float) -> bool:
        """Close the connection and open none until `release`.

        Waits `seconds` at most for gRPC's threads to be gone, and says whether they are.
        """
        deadline = clocks.monotonic() + seconds
        self._released.clear()
        self._cancel()
        self._news.set()
        if self._thread is not None and not self._idle.wait(seconds):
            return False
        for thread in self._threads:
            thread.join(max(0.0, deadline - clocks.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def release(self) -> None:
        """The reverse of `hold`."""
        self._released.set()

    def send(self, message: runtime_pb2.HookMessage) -> None:
        """Queue a small message; while no daemon listens the oldest are dropped (a new connection describes everything again)."""
        self._messages.append(message)
        self._news.set()

    def send_profile(self, message: runtime_pb2.HookMessage) -> None:
        """Queue a traced step; when the queue is full the oldest are dropped and counted."""
        with self._profile_lock:
            self._profiles.append(message)
            self._profile_bytes += len(message.profile.run_metadata)
            while len(self._profiles) > MAX_PROFILES or (self._profile_bytes > MAX_PROFILE_BYTES and len(self._profiles) > 1):
                self._profile_bytes -= len(self._profiles.popleft().profile.run_metadata)
                self.dropped_profiles += 1
        self._news.set()

    def _cancel(self) -> None:
        call = self._call
        if call is not None:
            call.cancel()

    # -- the channel's own thread -------------------------------------------------------------------------------------

    def _work(self) -> None:
        back_off = FIRST_BACK_OFF
        while not self._stopping.is_set():
            welcomed = False
            where = self._where()
            self._idle.clear()
            if where is not None and self._released.is_set():
                try:
                    welcomed = self._converse(where)
                except Exception as error:  # fail open: whatever gRPC raises, the program goes on and we try again
                    self._tell_once(f"daemon at {where.target}: {_short(error)}", welcomed)
            self._idle.set()
            back_off = FIRST_BACK_OFF if welcomed else min(LAST_BACK_OFF, back_off * 1.6)
            self._stopping.wait(back_off * self._random.uniform(0.7, 1.3))

    def _where(self) -> Address | None:
        if library := unseen.made_green():
            self._tell_once(f"no daemon is looked for: the program's threads are {library}'s, and gRPC would stop them all", False)
            return None
        return first_present(self._places)

    def _tell_once(self, problem: str, was_attached: bool) -> None:
        """Log a problem that is new: an attempt every few seconds must not fill a log."""
        if problem != self._problem or was_attached:
            logger.info(problem)
        self._problem = problem

    def _converse(self, where: Address) -> bool:
        """One connection, from Hello to its end; True when the daemon said Welcome."""
        connection = _Connection()
        with pause:
            from stepd.v1 import runtime_pb2_grpc

            channel = _open(self._settings, where)
        before = set(unseen.everybody())
        try:
            with pause:
                stub = runtime_pb2_grpc.RuntimeStub(channel)  # type: ignore[no-untyped-call]  # generated code
                call = stub.Attach(self._requests(connection), metadata=_metadata(self._settings))
            self._threads = [thread for thread in unseen.everybody() if thread not in before and _is_grpc(thread)]
            for thread in self._threads:
                unseen.hide(thread)
            self._call = call
            if self._stopping.is_set() or not self._released.is_set():
                call.cancel()  # whoever asked for it a moment ago found no call to cancel
            for message in call:
                if self._stopping.is_set():
                    break
                with pause:
                    self._heard(message, connection, where)
        finally:
            self.connected = False
            connection.open = False
            self._call = None
            connection.welcomed.set()
            self._news.set()
            channel.close()
        return connection.welcome is not None

    def _heard(self, message: runtime_pb2.DaemonMessage, connection: _Connection, where: Address) -> None:
        if message.WhichOneof("message") != "welcome":
            self._conversation.heard(message)
            return
        connection.welcome = message.welcome
        connection.welcomed.set()
        self.connected = True
        logger.info("attached to the daemon %s at %s", message.welcome.daemon_version, where.target)

    def _requests(self, connection: _Connection) -> Iterator[runtime_pb2.HookMessage]:
        """What goes out on one connection; runs on gRPC's own thread, which ends when the connection does."""
        with pause:
            hello = self._conversation.hello()
        yield hello
        connection.welcomed.wait(WELCOME_SECONDS)
        if connection.welcome is None:
            return
        yield from _paused(self._conversation.describe(connection.welcome))
        last = clocks.monotonic()
        while connection.open:
            self._news.clear()
            for message in self._queued(connection):
                yield message
                last = clocks.monotonic()
            if clocks.monotonic() - last >= HEARTBEAT_SECONDS:
                with pause:
                    heartbeat = self._conversation.heartbeat(self.dropped_profiles)
                yield heartbeat
                last = clocks.monotonic()
            if connection.open:  # closed before `clear`, nothing would wake us
                self._news.wait(HEARTBEAT_SECONDS)

    def _queued(self, connection: _Connection) -> Iterator[runtime_pb2.HookMessage]:
        while connection.open:
            message = self._next()
            if message is None:
                return
            yield message

    def _next(self) -> runtime_pb2.HookMessage | None:
        with contextlib.suppress(IndexError):
            return self._messages.popleft()
        with self._profile_lock:
            if not self._profiles:
                return None
            message = self._profiles.popleft()
            self._profile_bytes -= len(message.profile.run_metadata)
            return message


def _paused(messages: Iterable[runtime_pb2.HookMessage]) -> Iterator[runtime_pb2.HookMessage]:
    """`messages`, each made while the collector is off."""
    remaining = iter(messages)
    while True:
        with pause:
            message = next(remaining, None)
        if message is None:
            return
        yield message


class _Connection:
    """What the two threads of one connection share."""

    def __init__(self) -> None:
        self.open = True
        self.welcomed = threading.Event()
        self.welcome: runtime_pb2.Welcome | None = None


def _open(settings: Settings, where: Address) -> Any:
    import grpc

    options = [
        ("grpc.use_local_subchannel_pool", 1),  # nothing shared with channels that the program opens
        ("grpc.enable_http_proxy", 0),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", -1),
        ("grpc.default_authority", "stepd"),
    ]
    if not settings.tls_ca:
        return grpc.insecure_channel(where.target, options)
    credentials = grpc.ssl_channel_credentials(
        _pem(settings.tls_ca),
        _pem(settings.tls_key) if settings.tls_key else None,
        _pem(settings.tls_cert) if settings.tls_cert else None,
    )
    return grpc.secure_channel(where.target, credentials, [option for option in options if option[0] != "grpc.default_authority"])


def _is_grpc(thread: threading.Thread) -> bool:
    """Does it run a function of gRPC's? One that has ended has none any more."""
    return str(getattr(getattr(thread, "_target", None), "__module__", "")).startswith("grpc.")


def _pem(path: str) -> bytes:
    return Path(path).read_bytes()


def _metadata(settings: Settings) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {settings.token}"),) if settings.token else ()


def _short(error: Exception) -> str:
    details = getattr(error, "details", None)
    text = details() if callable(details) else str(error)
    return f"{type(error).__name__}: {text}"[:300]
