"""What Python said while a program ran: its warnings, and the log records that reach the root logger or TensorFlow's.

It must not know what the program does. Threads have no order among each other, so neither have the words.
"""

from __future__ import annotations

import contextlib
import logging
import re
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator

from tensorflow.python.platform import tf_logging
from tensorflow.python.util import deprecation


class _Listener(logging.Handler):
    def __init__(self, said: Counter[str]) -> None:
        super().__init__(logging.INFO)
        self._said = said

    def emit(self, record: logging.LogRecord) -> None:
        self._said[f"{record.name} {record.levelname}: {record.getMessage()}"] += 1


@contextlib.contextmanager
def listening(said: Counter[str]) -> Iterator[None]:
    """Counts in `said` what is said meanwhile, also what TensorFlow says once a process and has said before."""
    for module, once in ((deprecation, "_PRINTED_WARNING"), (tf_logging, "_log_counter_per_token")):
        getattr(module, once).clear()
    listener, mine, root = _Listener(said), logging.getLogger("tensorflow"), logging.getLogger()
    quiet = mine.handlers[:]
    level, own = mine.level, [handler.level for handler in quiet]
    for handler in quiet:
        handler.setLevel(max(handler.level, level))  # what it says otherwise goes to stderr, as before
    mine.setLevel(logging.INFO)
    for logger in {mine, root} if mine.propagate is False else {root}:
        logger.addHandler(listener)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.simplefilter("ignore", ResourceWarning)  # said when Python next looks for cycles
            yield
    finally:
        for logger in (mine, root):
            logger.removeHandler(listener)
        mine.setLevel(level)
        for handler, before in zip(quiet, own, strict=True):
            handler.setLevel(before)
    said.update(f"{one.category.__name__}: {one.message}" for one in caught)


def steady(said: Counter[str], folder: str) -> list[list[object]]:
    """What two runs of a program say alike: without clocks, rates, addresses, processes, temporary folders and the folder that it ran in."""
    kept: Counter[str] = Counter()
    temporary = re.compile(re.escape(tempfile.gettempdir()) + r"/tmp\w{8}\b")
    for text, times in said.items():
        if "/sec" in text or "global step (tf.train.get_global_step) has not been increased" in text:  # by which came first
            continue
        text = re.sub(r"\d{4}-\d\d-\d\d[-T]\d\d:\d\d:\d\d", "<time>", temporary.sub("<temporary>", text))
        text = re.sub(r"\bpid=\d+", "pid=<number>", text)
        text = re.sub(r"0x[0-9a-f]{6,}|localhost:\d+|127\.0\.0\.1:\d+", "<address>", text.replace(folder, "<cwd>"))
        kept[re.sub(r"\d+\.\d+(e[+-]?\d+)?", "<number>", text)[:400]] += times
    return [[text, times] for text, times in sorted(kept.items())]
