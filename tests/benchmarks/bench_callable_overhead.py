"""What the hook adds to a callable that does next to nothing: plain and hooked processes by turns.

    python bench_callable_overhead.py [--turns N]

Prints one JSON object; exits with 1 when the hook adds more than the budget of 10 us (difference of the medians).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys

BUDGET_MICROS = 10.0
PROGRAM = """
import statistics, time
import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.core.protobuf import config_pb2
tf.disable_eager_execution()
x = tf.placeholder(tf.float32, [2])
y = x + 1.0
session = tf.Session()
call = session._make_callable_from_options(config_pb2.CallableOptions(feed=[x.name], fetch=[y.name]))
given, blocks = np.ones(2, "f"), []
for _ in range(2000):
    call(given)
for _ in range(60):
    begin = time.perf_counter()
    for _ in range(300):
        call(given)
    blocks.append((time.perf_counter() - begin) / 300 * 1e6)
print(statistics.median(blocks))
"""


def micros(hooked: bool) -> float:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STEPD_")}
    environment["TF_CPP_MIN_LOG_LEVEL"] = "3"
    if hooked:
        environment |= {"STEPD_ENABLE": "1", "STEPD_SOCKET": "/nonexistent/stepd.sock"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5, help="pairs of processes")
    turns = [(micros(False), micros(True)) for _ in range(parser.parse_args().turns)]
    plain, hooked = (statistics.median(turn[k] for turn in turns) for k in (0, 1))
    print(json.dumps({"plain_micros": round(plain, 2), "hooked_micros": round(hooked, 2), "added_micros": round(hooked - plain, 2),
                      "budget_micros": BUDGET_MICROS, "turns": len(turns)}, indent=2))  # fmt: skip
    return 0 if hooked - plain <= BUDGET_MICROS else 1


if __name__ == "__main__":
    sys.exit(main())
