"""How a session of the program's is opened: on which mirror of its graph, with which config, on whose workers.

It must not know how TensorFlow is made to open it, nor when.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

from tensorflow.core.protobuf import config_pb2

from stepd.hook.engine import placements, session_config
from stepd.hook.engine.cluster import WorkerPlacer
from stepd.hook.engine.mirror import Mirror
from stepd.hook.engine.placements import Placements
from stepd.hook.engine.session_engine import SessionEngine
from stepd.hook.engine.settings import EngineSettings
from stepd.hook.ports import ObserverPort


@dataclass(frozen=True)
class Opening:
    """plain: the ConfigProto that the program asks for, as it is now. target, config: of the raw session. asks: is one of the two
    another than the program's? added: devices of chaos. native: why its executor keeps no order of its own; "" if it does."""

    plain: Any
    target: bytes | None
    config: Any
    asks: bool
    cluster: Any
    added: tuple[str, ...]
    native: str
    placements: Placements | None
    mirror: Mirror

    def engine(self, session: Any, observer: ObserverPort | None, settings: EngineSettings) -> SessionEngine:
        """The engine of the session that was opened so."""
        engine = SessionEngine(weakref.ref(session), session, self.mirror, observer, settings, self.cluster)
        engine.session_options = (self.target, self.config)
        engine.plain_config = self.plain
        engine.limit_ms = 0 if self.plain is None else self.plain.operation_timeout_in_ms
        engine.placements = self.placements
        engine.added_devices = self.added
        engine.native = self.native
        return engine


def opening(session: Any, settings: EngineSettings) -> Opening:
    """How to open `session`, which has its graph, its target and its config, and no raw session."""
    log_of_placements = placements.of(session)
    plain = _copied(session._config)  # the program may change its own later
    elsewhere = session._target or not session_config.has_cpu(plain)
    cluster = None if elsewhere or settings.local_cluster is None else settings.local_cluster()
    asked = plain if log_of_placements is None else log_of_placements.quiet
    config = session_config.for_chaos(asked, settings, direct=not session._target)
    added = () if config is None or session._target or cluster is not None else session_config.added_by_chaos(asked, config)
    native = "a server has executors of its own"
    if cluster is None and not session._target:
        config, native = session_config.with_executor(asked, config, settings)
    elif cluster is not None:
        native = session_config.at_workers(asked, cluster, settings)
    if config is None and log_of_placements is not None:
        config = asked
    asks = config is not None or cluster is not None
    target, config = session._target, asked if config is None else config
    if cluster is not None:
        target, config = cluster.target.encode(), cluster.session_config(asked)
    soft = asked is None or asked.allow_soft_placement
    placer = None if cluster is None else WorkerPlacer(cluster.workers, cluster.trainer, soft)
    # Of a server's session that is a device of the master's own task, which every step may count on.
    lowest_on = "/device:CPU:0" if cluster is None else cluster.trainer
    mirror = Mirror(session._graph, placer, lowest_on, session_config.smallest(asked))
    return Opening(plain, target, config, asks, cluster, added, native, log_of_placements, mirror)


def _copied(config: Any) -> Any:
    if config is None:
        return None
    made = config_pb2.ConfigProto()
    made.CopyFrom(config)
    return made
