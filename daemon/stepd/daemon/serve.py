"""Wiring: makes the parts, starts them, waits for a signal, and takes them down in order."""

from __future__ import annotations

import asyncio
import signal
import time
import uuid

import sdnotify
import structlog
from grpc_health.v1 import health_pb2

from stepd.daemon.address import SocketOwner, tcp_credentials
from stepd.daemon.config import Configuration
from stepd.daemon.convert.job import job_from_info
from stepd.daemon.convert.session_state import state_from_json
from stepd.daemon.errors import ConfigError
from stepd.daemon.jobs import Registry, Session
from stepd.daemon.loop import Controller
from stepd.daemon.memory import one_heap
from stepd.daemon.metrics import Metrics
from stepd.daemon.operator_handlers import OperatorHandlers
from stepd.daemon.planner import PlannerPool
from stepd.daemon.rpc import OperatorService, RuntimeService, make_server
from stepd.daemon.store import Store

log = structlog.get_logger()
DRAIN_SECONDS = 3.0
LAST_PORT = 65535


async def serve(configuration: Configuration) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP. Raises StepdError when it cannot start."""
    one_heap()
    settings = configuration.settings
    credentials = tcp_credentials(settings) if settings.listen else None
    owner = SocketOwner(settings.socket)
    store = Store(settings.state_dir / "stepd.sqlite3")
    try:
        await _serve(configuration, owner, store, credentials)
    finally:
        store.close()
        owner.close()


async def _serve(configuration: Configuration, owner: SocketOwner, store: Store, credentials: object) -> None:
    settings = configuration.settings
    instance = uuid.uuid4().hex
    metrics = Metrics()
    planner = PlannerPool(settings.cache_dir, settings.planner_threads, settings.planner_yields)
    controller = Controller(
        registry=_known_jobs(store),
        store=store,
        planner=planner,
        settings=settings.activation_settings(),
        metrics=metrics,
        algorithm=settings.algorithm,
        order=settings.order,
        may_plan=settings.planner,
        silence_seconds=settings.silence_seconds,
    )
    handlers = OperatorHandlers(controller, instance, configuration.describe())
    server, health = make_server(
        RuntimeService(controller, instance),
        OperatorService(handlers),
        token="" if not settings.listen else settings.token.get_secret_value(),
    )
    server.add_insecure_port(f"unix:{owner.socket}")
    if settings.listen:
        _add_tcp(server, settings.listen, credentials)
    if settings.metrics_port:
        _add_metrics(metrics, settings.metrics_port)
    await server.start()
    owner.socket.chmod(int(settings.socket_mode, 8))
    await health.set("", health_pb2.HealthCheckResponse.SERVING)
    notifier = sdnotify.SystemdNotifier()
    loop = asyncio.create_task(controller.run(lambda: notifier.notify("WATCHDOG=1")))
    notifier.notify("READY=1")
    log.info("serving", socket=str(owner.socket), listen=settings.listen, state=str(settings.state_dir))
    if settings.planner and settings.warm_up:
        planner.warm_up()
    await _signal_or_failure(loop)
    notifier.notify("STOPPING=1")
    log.info("draining")
    await health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
    loop.cancel()
    await controller.close()
    await planner.close()
    await server.stop(DRAIN_SECONDS)


def _add_tcp(server: object, listen: str, credentials: object) -> None:
    port = listen.rpartition(":")[2]
    if not port.isdecimal() or int(port) > LAST_PORT:  # gRPC would take another port without a word
        raise ConfigError(f"listen: {listen} has no port from 0 to {LAST_PORT}; write HOST:PORT")
    try:
        if credentials is None:
            server.add_insecure_port(listen)  # type: ignore[attr-defined]
        else:
            server.add_secure_port(listen, credentials)  # type: ignore[attr-defined]
    except RuntimeError as error:
        raise ConfigError(f"listen: cannot use {listen}: {error}") from error


def _add_metrics(metrics: Metrics, port: int) -> None:
    try:
        metrics.serve(port)
    except OSError as error:
        raise ConfigError(f"metrics_port: cannot use 127.0.0.1:{port}: {error.strerror}; set another, or 0 for none") from error


async def _signal_or_failure(loop: asyncio.Task[None]) -> None:
    """Return on a signal; raise what ended the control loop, so that the service manager restarts the
    daemon.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
            continue  # nohup
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    waiting = asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait({waiting, loop}, return_when=asyncio.FIRST_COMPLETED)
    if loop in done:
        waiting.cancel()
        loop.result()


def _known_jobs(store: Store) -> Registry:
    """Jobs and sessions that an earlier daemon knew; they are not attached until their hooks come back."""
    registry, now = Registry(), time.time()
    for job_id, info in store.jobs().items():
        job = job_from_info(job_id, info)
        for session_id, kept in store.sessions(job_id).items():
            session = Session(session_id, open=False)
            session.state, session.kind, session.total_steps = (
                state_from_json(kept, now),
                kept["kind"],
                kept["total_steps"],
            )
            job.sessions[session_id] = session
        registry.add(job)
    return registry
