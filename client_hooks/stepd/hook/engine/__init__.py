"""The engine: mirrors a session's graph, runs it, and switches it from one strategy to another.

It patches TensorFlow's sessions and knows graphs, devices and state. It must not know daemons, statistics, sockets or when a
strategy is worth a try: the observer (see `stepd.hook.ports`) decides that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stepd.hook.ports import ObserverPort

if TYPE_CHECKING:
    from stepd.hook.engine.settings import EngineSettings


def install(observer: ObserverPort | None, settings: EngineSettings) -> Callable[[], None]:
    """Patch TensorFlow's sessions; returns the function that takes the patches away again.

    TensorFlow's session module must have been imported. Raises RuntimeError when it lacks what the engine needs.
    """
    from stepd.hook.engine import checkpoints, intercept

    intercept.install(observer, settings)
    checkpoints.clean(settings)
    return intercept.uninstall
