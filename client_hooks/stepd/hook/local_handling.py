"""What a transfer costs the cores of two local devices, measured where it is paid: in the first worker, before the job trains.

Traces show how long a tensor is on its way, not what copying, serializing and system calls take of the cores at both ends. A worker
counts its own CPU time while it sends tensors to another one and while it receives some, few and many, small and large, so that
whatever else a step costs cancels out. It knows no jobs, no daemon and no settings.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

MANY = 32
LARGE = 64 * 1024  # float32 elements: 256 KiB, of which MANY take some ten milliseconds
ROUNDS = 5
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
        directions = [_transfers(0, 1), _transfers(1, 0)]
        with session_lib.Session(f"grpc://{own}", graph=graph, config=config) as session:
            session.run([start for start, _ in directions])
            costs = [_cost([lambda step=step: session.run(step) for step in steps]) for _, steps in directions]
    each, per_byte = (sum(values) / len(costs) for values in zip(*costs, strict=True))
    believable = LEAST[0] <= each <= MOST[0] and LEAST[1] <= per_byte <= MOST[1]
    return (each, per_byte) if believable else None


def _transfers(source: int, target: int) -> tuple[Any, list[Any]]:
    """(what sets the variables, steps that send one small, many small and many large tensors), in the default graph."""
    from tensorflow.python.framework import dtypes, ops
    from tensorflow.python.ops import array_ops, control_flow_ops, gen_resource_variable_ops

    starts, steps = [], []
    for size, counts in ((1, (1, MANY + 1)), (LARGE, (MANY + 1,))):
        with ops.device(f"/job:localhost/task:{source}/device:CPU:0"):
            handle = gen_resource_variable_ops.var_handle_op(dtypes.float32, [size], shared_name=f"sent-{source}-{size}")
            starts.append(gen_resource_variable_ops.assign_variable_op(handle, array_ops.fill([size], 1.0)))
            reads = [gen_resource_variable_ops.read_variable_op(handle, dtypes.float32) for _ in range(MANY + 1)]
        with ops.device(f"/job:localhost/task:{target}/device:CPU:0"):
            received = [array_ops.identity(read).op for read in reads]
        steps += [control_flow_ops.group(*received[:count]) for count in counts]
    return control_flow_ops.group(*starts), steps


def _cost(steps: list[Callable[[], Any]]) -> Cost:
    """Of the core of this process: the least of all rounds, since other work only ever adds."""
    least = [float("inf")] * len(steps)
    for turn in range(ROUNDS + 1):
        for k, step in enumerate(steps):
            began = time.process_time()
            step()
            if turn:  # the first one builds executors
                least[k] = min(least[k], time.process_time() - began)
    one, many, large = least
    return (many - one) / MANY, (large - many) / ((MANY + 1) * 4 * (LARGE - 1))
