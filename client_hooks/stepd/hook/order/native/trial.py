"""The trial of a freshly built executor: `python -m stepd.hook.order.native.trial LIBRARY` runs every program with it and without.

First in direct sessions, then in sessions of a server in this process. It runs in a process of its own. A difference, a crash or a
hang there means that the library is never loaded anywhere else.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stepd.hook.order.native import library
from stepd.hook.order.native.programs import PROGRAMS, SERVED
from stepd.hook.order.native.stamp import EXECUTOR_TYPE, NativeError, stamp

Program = Callable[[Callable[[], Any]], Any]


def ordered_session(seed: int, threads: int = 4, target: str = "") -> Any:
    """A session of the default graph on the native executor, with random priorities for all ops. `target`: a server that was taken
    over; else it is a direct one."""
    import tensorflow.compat.v1 as tf

    graph = tf.get_default_graph()
    table = library.new_table()
    operations = graph.get_operations()
    numbers = list(range(len(operations)))
    random.Random(seed).shuffle(numbers)
    library.add(table, {operation.name: number for operation, number in zip(operations, numbers, strict=True)})
    for operation in operations:
        operation._set_attr("_stepd_order", tf.AttrValue(i=table))
    config = _config(threads, target)
    if not target:
        config.experimental.executor_type = EXECUTOR_TYPE
    return tf.Session(target, config=config)


def plain_session(threads: int = 4, target: str = "") -> Any:
    import tensorflow.compat.v1 as tf

    return tf.Session(target, config=_config(threads, target))


def server() -> Any:
    """A server with the devices of these sessions, to be kept for as long as its `target` is used."""
    import tensorflow.compat.v1 as tf

    config = tf.ConfigProto(device_count={"CPU": 2}, inter_op_parallelism_threads=4)
    return tf.train.Server({"stepd": ["localhost:0"]}, job_name="stepd", task_index=0, config=config)


def _config(threads: int, target: str = "") -> Any:
    import tensorflow.compat.v1 as tf

    if target:  # a server has its threads and devices already
        return tf.ConfigProto(isolate_session_state=True)
    return tf.ConfigProto(device_count={"CPU": 2}, inter_op_parallelism_threads=threads, use_per_session_threads=True)


def seen(program: Program, sessions: Callable[[], Any]) -> Any:
    """What a program sees in a graph of its own."""
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default():
        return program(sessions)


def main(arguments: list[str]) -> int:
    import tensorflow.compat.v1 as tf

    tf.disable_eager_execution()
    try:
        library.load(Path(arguments[0]), stamp().text)
    except NativeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    wrong = _differences(PROGRAMS, "")
    if not wrong:
        here = server()
        plain = [seen(program, lambda: plain_session(target=here.target)) for program in SERVED]
        try:
            library.take_over(2)
        except NativeError:
            return 0  # said when workers are to be taken over
        wrong = _differences(SERVED, here.target, plain)
    if wrong:
        print(f"error: {wrong}", file=sys.stderr)
    return int(bool(wrong))


def _differences(programs: Sequence[Program], target: str, expected: Sequence[Any] = ()) -> str:
    """The first program that sees something else on the executor, or does not run there; "" when there is none."""
    for k, program in enumerate(programs):
        before = library.counts()[0]
        plain = expected[k] if expected else seen(program, plain_session)
        for seed in range(2):
            if seen(program, lambda: ordered_session(seed, target=target)) != plain:  # noqa: B023 - called at once
                return f"{program.__name__} differs from TensorFlow's own executor{' on a server' if target else ''}"
        if library.counts()[0] == before:
            return f"{program.__name__} did not run on the executor{' on a server' if target else ''}"
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
