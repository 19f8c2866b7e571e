"""What `log_device_placement` prints: where the program's own ops lie, as without the hook, and nothing of copies.

TensorFlow prints the whole graph on stdout whenever it places it, with the copies that a session has. So a session that nobody runs
stands for the program's graph there. It must not know engines.
"""

from __future__ import annotations

import contextlib
from typing import Any

from stepd.hook.engine import capi


class Placements:
    """Prints for one session of the program's. `quiet`: the program's config for the session that runs."""

    def __init__(self, graph: Any, config: Any) -> None:
        self.quiet = type(config)()
        self.quiet.CopyFrom(config)
        self.quiet.log_device_placement = False
        nameless = type(config)()  # only one session of the process may bear a name and version
        nameless.CopyFrom(config)
        nameless.experimental.ClearField("session_metadata")
        with graph._c_graph.get() as handle:
            self._session: Any = capi.new_session(handle, None, nameless)

    def extend(self) -> None:
        """The program has added ops. What TensorFlow cannot place it says of the session that runs."""
        if self._session is not None:
            with contextlib.suppress(Exception):
                capi.extend_session(self._session)

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            capi.delete_session(session)


def of(session: Any) -> Placements | None:
    """For a BaseSession that is being made. None: it logs nothing, or another process or each run's own graph is what is logged."""
    config = session._config
    if not config.log_device_placement or session._target or config.graph_options.place_pruned_graph:
        return None
    return Placements(session._graph, config)
