"""Have a session's GPUs room for what a restart brings, while the session before it holds the same once more?

TensorFlow waits ten seconds for memory before an allocation fails, and in a restart all of the program would wait with it. So it is
asked first what the allocators have in use: every op that runs on a GPU says so in a trace. It must not know state or restarts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tensorflow.core.protobuf import config_pb2

from stepd.hook.engine import capi
from stepd.hook.engine.refusals import SwitchRefusedError
from stepd.hook.engine.side import Side
from stepd.hook.engine.state import Carrier

# What an allocator needs beyond the sizes: it rounds them up, and what is free lies in pieces.
_BESIDES = 1.05
# Without CUPTI, which full traces wait for.
_WATCHED = config_pb2.RunOptions(
    trace_level=config_pb2.RunOptions.SOFTWARE_TRACE, timeout_in_ms=capi.NO_TIME_LIMIT_MS
).SerializeToString()


class Room:
    """Looks at the allocators of the devices in `needed` (bytes that are to come, by full name)."""

    def __init__(self, side: Side, needed: Mapping[str, int]) -> None:
        self._session = side.session
        self._needed = needed
        self._limits = {name: size for name, _, size in capi.list_devices(side.session) if name in needed and size > 0}
        carrier = Carrier(f"{side.prefix}/room")
        for i, device in enumerate(self._limits):
            carrier.node(f"on{i}", "NoOp", []).device = device
        self._looks = list(side.take_in(carrier).values()) if self._limits else []
        side.build(targets=self._looks)

    def check(self) -> None:
        """Raises SwitchRefusedError, and TensorFlow's errors."""
        if not self._looks:
            return
        used = in_use(self._traced())
        for device, size in used.items():
            free = self._limits.get(device, 0) - size
            if device in self._needed and free < self._needed[device] * _BESIDES:
                raise SwitchRefusedError(
                    f"{device} has no room for the variables a second time: {self._needed[device] >> 20} MiB, of "
                    f"{max(free, 0) >> 20} MiB free"
                )

    def _traced(self) -> config_pb2.RunMetadata:
        with capi.buffer(_WATCHED) as options, capi.buffer() as metadata:
            capi.run_session(self._session, options, {}, [], self._looks, metadata)
            return config_pb2.RunMetadata.FromString(capi.buffer_bytes(metadata))


def in_use(metadata: config_pb2.RunMetadata) -> dict[str, int]:
    """Bytes that a GPU's own allocator had given out when an op ran there last, by device; those that do not say are left out."""
    found: dict[str, int] = {}
    for device in metadata.step_stats.dev_stats:
        said = [m.allocator_bytes_in_use for stats in device.node_stats for m in stats.memory if _is_own(m.allocator_name)]
        if said and said[-1] > 0:
            found[device.device] = said[-1]
    return found


def _is_own(allocator: str) -> bool:
    """Not gpu_host_bfc, memory of the host that GPUs can reach."""
    return allocator.startswith(("GPU_", "gpu_async_"))


def by_gpu(sizes: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Bytes by GPU, of (device, bytes) pairs."""
    needed: dict[str, int] = {}
    for device, size in sizes:
        if "/device:GPU:" in device:
            needed[device] = needed.get(device, 0) + size
    return needed
