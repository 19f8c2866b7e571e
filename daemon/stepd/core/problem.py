"""What is planned: devices, links, ops and edges as columns (PROBLEM_FORMAT, "Problem").

A Problem is a value. It knows no files, no TensorFlow and no algorithm; `problem_format` reads and writes it, `simulator`
says what a strategy for it costs. All times are seconds, all sizes bytes, all indices 0-based.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Float = npt.NDArray[np.float64]
Int = npt.NDArray[np.int64]
Index = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]

CONTROL = -1
"""The output number of a control edge."""


@dataclass(frozen=True)
class Device:
    """One device that ops run on."""

    name: str
    type: str
    memory_bytes: int


@dataclass(frozen=True)
class Link:
    """A directed channel between two devices (indices into Problem.devices).

    handling_seconds + bytes * handling_seconds_per_byte: time of both end devices that a transfer takes, where the cores that
    compute also send and receive.
    """

    src: int
    dst: int
    bytes_per_second: float
    latency_seconds: float
    handling_seconds: float = 0.0
    handling_seconds_per_byte: float = 0.0


@dataclass(frozen=True)
class SplitChoice:
    """A way in which the hook can split an op of a live graph (FastT, section 4: split operators).

    `cut_bytes[k]` of input k are shared out among the parts (0: every part needs the whole input; -1: the input is a sum, and must
    come in terms of it from an op that is split alike);
    `joined_bytes[k]` of output k are
    put together again, by a sum when `adds`. All parts together take `dearer` times what the whole takes.
    """

    op: int
    axis: str
    max_parts: int
    cut_bytes: tuple[int, ...]
    joined_bytes: tuple[int, ...]
    adds: bool = False
    dearer: float = 1.0


@dataclass(frozen=True, eq=False)
class Problem:
    """One planning problem; n ops, m edges, d devices.

    seconds: float64 [n, d], inf where op i cannot run on device j. colocation: int32 [n], -1 for none. edge_output: -1 for a
    control edge. Arrays are read-only; `problem_format.validate` checks them.
    """

    name: str
    devices: tuple[Device, ...]
    links: tuple[Link, ...]
    op_names: tuple[str, ...]
    op_types: tuple[str, ...]
    seconds: Float
    resident_bytes: Int
    temp_bytes: Int
    colocation: Index
    edge_src: Index
    edge_dst: Index
    edge_output: Index
    edge_bytes: Int
    split_choices: tuple[SplitChoice, ...] = ()
    # What the user's code says, where known: the device named by tf.device per op (index or -1). A candidate, not a constraint.
    user_devices: Index | None = field(default=None)

    def __post_init__(self) -> None:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False

    @property
    def n_ops(self) -> int:
        return len(self.op_names)

    @property
    def n_devices(self) -> int:
        return len(self.devices)
