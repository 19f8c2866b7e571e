"""Requests whose bytes are not the message that a method takes: gRPC would end the call with words about its own insides.

Here the bytes become a `Malformed` value in the request's place: unary calls are refused with it, streams decide themselves. Knows
no handlers and no state.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

OURS = "/stepd.v1."


@dataclass(frozen=True)
class Malformed:
    """What came instead of a request: str() says what was expected, what came, and what to do."""

    method: str
    expected: str
    size: int
    why: str

    def __str__(self) -> str:
        return (
            f"{self.method}: {self.size} bytes came that are no {self.expected} ({self.why}): "
            "speak stepd.v1 as in protos/stepd/v1, and update whichever of client and daemon is older"
        )


class RefuseMalformed(grpc.aio.ServerInterceptor):  # type: ignore[misc, type-arg, unused-ignore]
    """Refuses malformed requests of stepd's own unary methods; hands them to its streams as `Malformed` values."""

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """gRPC's hook."""
        handler = await continuation(details)
        if handler is None or not details.method.startswith(OURS):
            return handler
        codec = {"request_deserializer": _tolerant(handler, details.method), "response_serializer": handler.response_serializer}
        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(handler.stream_stream, **codec)
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(_refusing_stream(handler.unary_stream), **codec)
        return grpc.unary_unary_rpc_method_handler(_refusing(handler.unary_unary), **codec)


def _tolerant(handler: Any, method: str) -> Callable[[bytes], Any]:
    parse = handler.request_deserializer
    descriptor = getattr(getattr(parse, "__self__", None), "DESCRIPTOR", None)
    expected = descriptor.full_name if descriptor is not None else "request of this method"

    def tolerant(data: bytes) -> Any:
        try:
            return parse(data)
        except DecodeError as error:
            return Malformed(method, expected, len(data), str(error))

    return tolerant


def _refusing(behaviour: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[Any]]:
    async def refusing(request: Any, context: Any) -> Any:
        if isinstance(request, Malformed):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(request))
        return await behaviour(request, context)

    return refusing


def _refusing_stream(behaviour: Callable[[Any, Any], AsyncIterator[Any]]) -> Callable[[Any, Any], AsyncIterator[Any]]:
    async def refusing(request: Any, context: Any) -> AsyncIterator[Any]:
        if isinstance(request, Malformed):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(request))
        async for answer in behaviour(request, context):
            yield answer

    return refusing
