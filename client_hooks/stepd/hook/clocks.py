"""The machine's own clocks, whatever the program puts in their place: a test's frozen clock, a sleep that does nothing.

With a clock that stands still no deadline of the hook's would come, and a clock that counts its calls would count the hook's.
It must not know what is timed.
"""

from __future__ import annotations

import functools
import time

# Not the functions themselves: fake clocks look for those in all modules, and replace them there, too.
monotonic = functools.partial(time.monotonic)
perf_counter = functools.partial(time.perf_counter)
sleep = functools.partial(time.sleep)
time_ns = functools.partial(time.time_ns)
