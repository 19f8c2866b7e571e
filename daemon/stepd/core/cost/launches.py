"""What an op costs on a GPU: the time of its kernels, or of the thread that launches them, whichever the step waits for.

A GPU's executor launches one op after the other on one thread, since TensorFlow takes ops that only launch
for cheap, and the GPU runs what was launched in that order. Of small ops the thread takes several times what
the GPU does; in the shadow of a large kernel it costs nothing. Each op is charged by how much later the
device is done with everything up to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from stepd.core.problem import Float

WATCHED = 1.25
"""How much longer launches take while CUPTI watches: 1.05 to 1.4 on six graphs (docs/measurements/gpus.md)."""


def device_seconds(ops: Sequence[str | None], launch: Float, kernels: Mapping[str, float]) -> tuple[dict[str, float], float]:
    """(seconds by op, seconds of what belongs to no op).

    ops: in the order in which they were launched, an op of a loop once an iteration; None: the runtime's
    own. launch: float64 [n], seconds of the launching thread. kernels: seconds by op, of all its iterations.
    All seconds add up to what the device needs for the step.
    """
    often = Counter(ops)
    ran = np.array([kernels.get(op, 0.0) / often[op] if op is not None else 0.0 for op in ops])
    launched, done = np.cumsum(launch) / WATCHED, np.cumsum(ran)
    # The GPU begins a kernel when it is launched and the one before has ended.
    end = done + np.maximum.accumulate(launched - (done - ran)) if len(ran) else done
    times: dict[str, float] = {op: seconds for op, seconds in kernels.items() if op not in often}
    overhead = 0.0
    for op, seconds in zip(ops, np.diff(end, prepend=0.0).tolist(), strict=True):
        if op is None:
            overhead += seconds
        else:
            times[op] = times.get(op, 0.0) + seconds
    return times, overhead
