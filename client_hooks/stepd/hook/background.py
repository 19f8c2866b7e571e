"""A thread of the hook's own that runs what is posted to it, takes a turn whenever it is woken, and looks around regularly.

Whatever raises there costs itself only: the rest is done, and the program does not notice. It must not know what its work is
about: no sessions, no daemon, no settings.
"""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable

from stepd.hook import clocks, unseen
from stepd.hook.collector import pause
from stepd.hook.log import logger

DRAIN_SECONDS = 0.005  # between looks at whether all that was posted is taken


class Background:
    """See the module. Not started when it is made; one that has been stopped never runs again."""

    def __init__(self, name: str, turn: Callable[[float], None], look: Callable[[float], None], look_seconds: float) -> None:
        """`turn` is called at each waking, `look` every `look_seconds` after it; both with the time of a monotonic clock."""
        self.stopped = False
        self._name = name
        self._turn = turn
        self._look = look
        self._look_seconds = look_seconds
        self._posted: deque[Callable[[], None]] = deque()
        self._wake = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> bool:
        """Start the thread; False when it was started before or is to start no more."""
        with self._starting:
            if self._thread is not None or self.stopped:
                return False
            self._thread = unseen.Thread(self._work, self._name)
            self._thread.start()
            return True

    def post(self, action: Callable[[], None]) -> None:
        """Have `action` run on the thread soon, after what was posted before."""
        self._posted.append(action)
        self._wake.set()

    def wake(self) -> None:
        """Have the thread take a turn now."""
        self._wake.set()

    def stop(self, deadline: float) -> None:
        """Let the thread take what was posted until `deadline` (monotonic), then begin nothing new."""
        thread = self._thread
        while thread is not None and thread.is_alive() and self._posted and clocks.monotonic() < deadline:
            self._wake.set()
            clocks.sleep(DRAIN_SECONDS)
        self.stopped = True
        self._wake.set()

    def join(self, deadline: float) -> None:
        """Wait for the thread to end, until `deadline`."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(max(0.0, deadline - clocks.monotonic()))

    def _work(self) -> None:
        wake = self._wake
        next_look = 0.0
        while not self.stopped:
            wake.wait(max(0.0, next_look - clocks.monotonic()) or self._look_seconds)
            wake.clear()
            now = clocks.monotonic()
            with pause:
                while self._posted:
                    self._guarded(self._posted.popleft())
                self._guarded(functools.partial(self._turn, now))
                if now >= next_look:
                    next_look = now + self._look_seconds
                    self._guarded(functools.partial(self._look, now))

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # fail open: this thread has no caller, and the program must not notice
            logger.exception("%s: %s", self._name, error)
