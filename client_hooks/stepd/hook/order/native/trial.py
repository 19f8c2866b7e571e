"""The trial of a freshly built executor: `python -m stepd.hook.order.native.trial LIBRARY` runs every program with it and without.

It runs in a process of its own. A difference, a crash or a hang there means that the library is never loaded anywhere else.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepd.hook.order.native import library
from stepd.hook.order.native.programs import PROGRAMS
from stepd.hook.order.native.stamp import EXECUTOR_TYPE, NativeError, stamp


def ordered_session(seed: int, threads: int = 4) -> Any:
    """A session of the default graph on the native executor, with random priorities for all ops."""
    import tensorflow.compat.v1 as tf

    graph = tf.get_default_graph()
    table = library.new_table()
    operations = graph.get_operations()
    numbers = list(range(len(operations)))
    random.Random(seed).shuffle(numbers)
    library.add(table, {operation.name: number for operation, number in zip(operations, numbers, strict=True)})
    for operation in operations:
        operation._set_attr("_stepd_order", tf.AttrValue(i=table))
    config = _config(threads)
    config.experimental.executor_type = EXECUTOR_TYPE
    return tf.Session(config=config)


def plain_session(threads: int = 4) -> Any:
    import tensorflow.compat.v1 as tf

    return tf.Session(config=_config(threads))


def _config(threads: int) -> Any:
    import tensorflow.compat.v1 as tf

    return tf.ConfigProto(device_count={"CPU": 2}, inter_op_parallelism_threads=threads, use_per_session_threads=True)


def seen(program: Callable[[Callable[[], Any]], Any], sessions: Callable[[], Any]) -> Any:
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
    for program in PROGRAMS:
        before = library.counts()[0]
        expected = seen(program, plain_session)
        for seed in range(2):
            if seen(program, lambda: ordered_session(seed)) != expected:  # noqa: B023 - called at once
                print(f"error: {program.__name__} differs from TensorFlow's own executor", file=sys.stderr)
                return 1
        if library.counts()[0] == before:
            print(f"error: {program.__name__} did not run on the executor", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
