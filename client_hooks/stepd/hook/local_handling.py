"""What a transfer costs the cores of two local devices, measured where it is paid: in the first worker, before the job trains.

Traces show how long a tensor is on its way, not what copying, serializing, system calls and waking threads take of the cores at
both ends. A worker counts its own CPU time while a tensor goes to another one and back, a few times and often, small and large, so
that whatever else a step costs cancels out. One tensor at a time, as in a step that trains: of many at once each costs half as
much, since threads that have work need not be woken. It knows no jobs, no daemon and no settings.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

FEW, MANY = 2, 64  # hops: half of them are sent by this worker, half received
LARGE = 64 * 1024  # float32 elements: 256 KiB, of which MANY take some twenty milliseconds
ROUNDS = 10
LEAST, MOST = (2e-6, 2e-11), (2e-3, 1e-8)
"""Seconds, and seconds a byte, that are believable: what lies outside was measured beside something else."""

Cost = tuple[float, float]
"""Seconds of a core per transfer, and per byte of it."""


def measure(own: str, peer: str) -> Cost | None:
    """Between the server of this process and another one (host:port each): the mean of what sending and receiving costs. None: no
    believable figure came out. Raises TensorFlow's errors when the peer cannot be reached.
    """
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.client import session as session_lib
    from tensorflow.python.framework import ops

    config = config_pb2.ConfigProto(isolate_session_state=True)
    job = config.cluster_def.job.add()
    job.name = "localhost"
    job.tasks[0], job.tasks[1] = own, peer
    config.graph_options.rewrite_options.disable_meta_optimizer = True  # it would see that nothing comes of the transfers
    with ops.Graph().as_default() as graph:
        starts, steps = _hops()
        with session_lib.Session(f"grpc://{own}", graph=graph, config=config) as session:
            session.run(starts)
            each, per_byte = _cost([lambda step=step: session.run(step) for step in steps])
    believable = LEAST[0] <= each <= MOST[0] and LEAST[1] <= per_byte <= MOST[1]
    return (each, per_byte) if believable else None


def _hops() -> tuple[list[Any], list[Any]]:
    """(what sets the variables, steps that send a tensor to and fro: a small one a few times and often, a large one often), in the
    default graph."""
    from tensorflow.python.framework import dtypes, ops
    from tensorflow.python.ops import array_ops, gen_resource_variable_ops

    starts, steps = [], []
    for size, hops in ((1, FEW), (1, FEW + MANY), (LARGE, FEW + MANY)):
        with ops.device("/job:localhost/task:0/device:CPU:0"):
            handle = gen_resource_variable_ops.var_handle_op(dtypes.float32, [size], shared_name=f"sent-{size}-{hops}")
            starts.append(gen_resource_variable_ops.assign_variable_op(handle, array_ops.fill([size], 1.0)))
            sent = gen_resource_variable_ops.read_variable_op(handle, dtypes.float32)
        for hop in range(hops):
            with ops.device(f"/job:localhost/task:{(hop + 1) % 2}/device:CPU:0"):
                sent = array_ops.identity(sent)
        steps.append(sent.op)
    return starts, steps


def _cost(steps: list[Callable[[], Any]]) -> Cost:
    """Of the core of this process: the least of all rounds, since other work only ever adds."""
    least = [float("inf")] * len(steps)
    for turn in range(ROUNDS + 1):
        for k, step in enumerate(steps):
            began = time.process_time()
            step()
            if turn:  # the first one builds executors
                least[k] = min(least[k], time.process_time() - began)
    few, many, large = least
    return (many - few) / MANY, (large - many) / ((FEW + MANY) * 4 * (LARGE - 1))
