"""One of the two sessions of a restart, and how helper ops are made and run in it. It must not know state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stepd.hook.engine import capi
from stepd.hook.engine.ahead import Ahead
from stepd.hook.engine.graphview import split_input
from stepd.hook.engine.mirror import Mirror
from stepd.hook.engine.state import Carrier


class StateChangedError(Exception):
    """Other things have a value than when the restart was prepared."""


class Side:
    """One of the two sessions, and its mirror."""

    def __init__(self, ahead: Ahead, mirror: Mirror, view: Any, prefix: str) -> None:
        self.ahead = ahead
        self.session = ahead.session
        self.mirror = mirror
        self.view = view
        self.prefix = prefix
        self._outside: dict[str, Any] = {}

    def user(self, name: str) -> str:
        """The mirror's name of a user's op that helpers use."""
        here = self.mirror.name_here(name)
        return self.add(here, self.mirror.operation(name))

    def add(self, here: str, operation: Any) -> str:
        """A node of the mirror that helpers use."""
        self._outside[here] = operation
        return here

    def take_in(self, carrier: Carrier) -> dict[str, Any]:
        """Add the helpers to the mirror and the session: name -> operation."""
        carrier.graph.versions.CopyFrom(self.mirror.user_graph.graph_def_versions)
        used: dict[tuple[str, int], Any] = {}
        for source, index in (split_input(name) for node in carrier.graph.node for name in node.input):
            if source in self._outside:
                used[source, index] = capi.output(self._outside[source], index)
        wanted = [node.name for node in carrier.graph.node]
        made = capi.import_graph_def(self.mirror.graph, carrier.graph.SerializeToString(), used, {}, wanted)
        capi.extend_session(self.session)
        return dict(zip(wanted, made, strict=True))

    def build(self, fetches: Sequence[Any] = (), targets: Sequence[Any] = (), feeds: Sequence[Any] = ()) -> None:
        """Have a run built, without running any of it."""
        if fetches or targets:
            self.ahead.build(feeds, fetches, targets)

    def run(self, fetches: Sequence[Any] = (), targets: Sequence[Any] = (), feeds: Mapping[Any, Any] | None = None) -> list[Any]:
        return self.ahead.run(fetches, targets, feeds)
