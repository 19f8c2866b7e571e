# ruff: noqa: N802 (methods carry the wire contract's names)
"""gRPC: servicers that hand messages to the handlers and map errors to status codes. Knows no decisions and
no state.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import grpc
import grpc.aio
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection

from stepd.core.errors import StepdError
from stepd.daemon import installed
from stepd.daemon.errors import BadRequestError, NoSuchJobError, NotNowError
from stepd.daemon.loop import Controller
from stepd.daemon.malformed import Malformed, RefuseMalformed
from stepd.daemon.operator_handlers import OperatorHandlers
from stepd.daemon.runtime_handlers import Connection
from stepd.v1 import operator_pb2, operator_pb2_grpc, runtime_pb2, runtime_pb2_grpc

log = structlog.get_logger()
T = TypeVar("T")
WATCH_SECONDS = 1.0
OUTBOX = 256
OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),
)
"""Graphs of 36k ops are larger than gRPC's 4 MB; two daemons on one port are an error."""

STATUS = {
    NoSuchJobError: grpc.StatusCode.NOT_FOUND,
    BadRequestError: grpc.StatusCode.INVALID_ARGUMENT,
    NotNowError: grpc.StatusCode.FAILED_PRECONDITION,
}


async def _answered(context: Any, call: Awaitable[T]) -> T:
    """Await a handler; its errors become status codes with their message."""
    try:
        return await call
    except StepdError as error:
        await context.abort(STATUS.get(type(error), grpc.StatusCode.INTERNAL), str(error))
        raise


class RuntimeService(runtime_pb2_grpc.RuntimeServicer):
    """Hooks."""

    def __init__(self, controller: Controller, instance_id: str) -> None:
        self._controller = controller
        self._instance_id = instance_id

    async def Attach(
        self, request_iterator: AsyncIterator[runtime_pb2.HookMessage | Malformed], context: Any
    ) -> AsyncIterator[runtime_pb2.DaemonMessage]:
        """One hook, from Hello to the end of its stream."""
        first = await anext(aiter(request_iterator), None)
        if isinstance(first, Malformed):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(first))
            return
        if first is None or first.WhichOneof("message") != "hello":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first message of a hook is Hello")
            return
        outbox: asyncio.Queue[runtime_pb2.DaemonMessage | None] = asyncio.Queue(OUTBOX)

        def send(message: runtime_pb2.DaemonMessage | None) -> None:
            try:
                outbox.put_nowait(message)
            except asyncio.QueueFull:
                log.warning("a hook does not read: message dropped", job=first.hello.job_id)

        connection = await _answered(context, Connection.open(self._controller, first.hello, send))
        fingerprints = await asyncio.to_thread(self._controller.store.fingerprints)
        yield runtime_pb2.DaemonMessage(
            welcome=runtime_pb2.Welcome(
                daemon_version=installed.version(),
                instance_id=self._instance_id,
                known_fingerprints=fingerprints,
            )
        )
        reader = asyncio.create_task(_read(request_iterator, connection, outbox, first.hello.job_id))
        try:
            while (message := await outbox.get()) is not None:
                yield message
        finally:
            reader.cancel()
            await connection.closed(send)


async def _read(
    messages: AsyncIterator[runtime_pb2.HookMessage | Malformed],
    connection: Connection,
    outbox: asyncio.Queue[runtime_pb2.DaemonMessage | None],
    job_id: str,
) -> None:
    """Hand messages on in order; one that is malformed, or breaks the handler (a defect), costs that message
    only.
    """
    try:
        async for message in messages:
            if isinstance(message, Malformed):
                log.warning("a hook's message is malformed: dropped", job=job_id, error=str(message))
                continue
            try:
                await connection.receive(message)
            except Exception:
                log.exception("a hook's message could not be handled", job=job_id, message=message.WhichOneof("message"))
    finally:
        await outbox.put(None)


class OperatorService(operator_pb2_grpc.OperatorServicer):
    """stepctl."""

    def __init__(self, handlers: OperatorHandlers) -> None:
        self._handlers = handlers

    async def GetVersion(self, request: operator_pb2.GetVersionRequest, context: Any) -> operator_pb2.GetVersionResponse:
        return self._handlers.version()

    async def ListJobs(self, request: operator_pb2.ListJobsRequest, context: Any) -> operator_pb2.ListJobsResponse:
        return await _answered(context, self._handlers.jobs(request.ended))

    async def WatchJobs(self, request: operator_pb2.ListJobsRequest, context: Any) -> AsyncIterator[operator_pb2.ListJobsResponse]:
        """The list at once, and again when it changed."""
        last = None
        while True:
            now = await _answered(context, self._handlers.jobs(request.ended))
            if now != last:
                last = now
                yield now
            await asyncio.sleep(WATCH_SECONDS)

    async def GetJob(self, request: operator_pb2.GetJobRequest, context: Any) -> operator_pb2.GetJobResponse:
        return await _answered(context, self._handlers.job(request.job))

    async def GetHistory(self, request: operator_pb2.GetHistoryRequest, context: Any) -> operator_pb2.GetHistoryResponse:
        return await _answered(context, self._handlers.history(request.job))

    async def ActivateStrategy(self, request: operator_pb2.ActivateRequest, context: Any) -> operator_pb2.ActivateResponse:
        return await _answered(context, self._handlers.activate(request))

    async def RollBack(self, request: operator_pb2.RollbackRequest, context: Any) -> operator_pb2.RollbackResponse:
        await _answered(context, self._handlers.roll_back(request))
        return operator_pb2.RollbackResponse()

    async def PauseJob(self, request: operator_pb2.PauseRequest, context: Any) -> operator_pb2.PauseResponse:
        await _answered(context, self._handlers.pause(request.job, request.seconds))
        return operator_pb2.PauseResponse()

    async def ResumeJob(self, request: operator_pb2.ResumeRequest, context: Any) -> operator_pb2.ResumeResponse:
        await _answered(context, self._handlers.resume(request.job))
        return operator_pb2.ResumeResponse()

    async def ExportProblem(self, request: operator_pb2.ExportProblemRequest, context: Any) -> operator_pb2.ExportProblemResponse:
        return await _answered(context, self._handlers.export_problem(request))


class TokenInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc, type-arg, unused-ignore]
    """Refuses calls without the right bearer token. Health stays open: probes carry no secrets."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}"

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """gRPC's hook."""
        given = dict(details.invocation_metadata).get("authorization", "")
        if details.method.startswith("/grpc.health.") or hmac.compare_digest(str(given), self._expected):
            return await continuation(details)

        async def refuse(_: Any, context: Any) -> None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is missing or wrong: set STEPD_TOKEN")

        handler = await continuation(details)
        if handler is None or not handler.request_streaming:
            return grpc.unary_unary_rpc_method_handler(refuse)
        return grpc.stream_stream_rpc_method_handler(refuse)


def make_server(runtime: RuntimeService, operator: OperatorService, token: str) -> tuple[grpc.aio.Server, HealthServicer]:
    """A server with all services; the caller adds ports and starts it. A token is asked for when one is
    given.
    """
    interceptors = [*([TokenInterceptor(token)] if token else []), RefuseMalformed()]
    server = grpc.aio.server(options=OPTIONS, interceptors=interceptors)
    health = HealthServicer()
    runtime_pb2_grpc.add_RuntimeServicer_to_server(runtime, server)  # type: ignore[no-untyped-call]
    operator_pb2_grpc.add_OperatorServicer_to_server(operator, server)  # type: ignore[no-untyped-call]
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    services = [
        runtime_pb2.DESCRIPTOR.services_by_name["Runtime"].full_name,
        operator_pb2.DESCRIPTOR.services_by_name["Operator"].full_name,
        health_pb2.DESCRIPTOR.services_by_name["Health"].full_name,
    ]
    reflection.enable_server_reflection([*services, reflection.SERVICE_NAME], server)
    return server, health
