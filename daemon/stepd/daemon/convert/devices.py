"""Devices of a session."""

from __future__ import annotations

import math

from stepd.core.session_links import SessionDevice
from stepd.v1 import runtime_pb2

CPU_PLACEHOLDER_BYTES = 256 << 20
"""What TensorFlow reports as the memory of every CPU device; it means nothing."""


def session_devices(opened: runtime_pb2.SessionOpened) -> tuple[SessionDevice, ...]:
    """As core knows them; XLA's stand-ins are not devices that ops are placed on."""
    return tuple(
        SessionDevice(
            device.name,
            device.type,
            _memory(device),
            device.usable,
            _cost(device.handling_seconds),
            _cost(device.handling_seconds_per_byte),
        )
        for device in opened.device
        if not device.type.startswith("XLA_")
    )


def _memory(device: runtime_pb2.Device) -> int:
    placeholder = device.type == "CPU" and device.memory_bytes == CPU_PLACEHOLDER_BYTES
    return 0 if placeholder or device.memory_bytes < 0 else device.memory_bytes


def _cost(told: float) -> float:
    """0, not known, in place of what no measurement can give."""
    return told if 0.0 < told < math.inf else 0.0
