"""What the hook adds to a step that does nothing: hooked and plain runs in one process, in blocks that alternate.

`make bench-hook`. Plain runs go through TensorFlow's own methods, which are put back for their blocks. Prints one JSON object;
exits with 1 when the hook adds more than the budget of 10 us (median of the paired differences of blocks).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from typing import Any

BUDGET_MICROS = 10.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=200, help="pairs of blocks")
    parser.add_argument("--runs", type=int, default=100, help="runs in a block")
    options = parser.parse_args()
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "STEPD_ENABLE": "0", "STEPD_SOCKET": "/nonexistent/stepd.sock"}
    import tensorflow as tf
    from tensorflow.python.client import session as session_module

    from stepd.hook import autostart

    base = session_module.BaseSession
    graph = tf.Graph()
    with graph.as_default():
        no_op = tf.no_op()
    plain_methods = dict(vars(base))
    plain = tf.compat.v1.Session(graph=graph)
    plain.run(no_op)
    os.environ["STEPD_ENABLE"] = "1"
    autostart.start()
    hooked_methods = {name: value for name, value in vars(base).items() if plain_methods.get(name) is not value}
    if not hooked_methods:
        sys.exit("the hook is not active: see STEPD_LOG")
    hooked = tf.compat.v1.Session(graph=graph)
    hooked.run(no_op)

    def block(session: Any, methods: dict[str, Any]) -> float:
        for name in hooked_methods:
            setattr(base, name, methods[name])
        session.run(no_op)
        begin = time.perf_counter()
        for _ in range(options.runs):
            session.run(no_op)
        return (time.perf_counter() - begin) / options.runs * 1e6

    pairs = [(block(plain, plain_methods), block(hooked, vars(base) | hooked_methods)) for _ in range(options.blocks)]
    added = [with_hook - without for without, with_hook in pairs]
    result = {
        "plain_micros": round(statistics.median(without for without, _ in pairs), 2),
        "hooked_micros": round(statistics.median(with_hook for _, with_hook in pairs), 2),
        "added_micros": round(statistics.median(added), 2),
        "added_micros_fastest_blocks": round(min(h for _, h in pairs) - min(p for p, _ in pairs), 2),
        "budget_micros": BUDGET_MICROS,
        "blocks": options.blocks,
        "runs_a_block": options.runs,
        "tensorflow": tf.__version__,
    }
    print(json.dumps(result, indent=2))
    return 0 if result["added_micros"] <= BUDGET_MICROS else 1


if __name__ == "__main__":
    sys.exit(main())
