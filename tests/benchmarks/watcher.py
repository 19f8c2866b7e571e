"""An observer for benchmarks that switch by themselves: it keeps the engines, asks for nothing and decides nothing."""

from __future__ import annotations

import sys
from typing import Any


class Watcher:
    """See the module. A strategy that fails is told on stderr: its figures are none of the strategy's."""

    def __init__(self) -> None:
        self.engines: list[Any] = []

    def session_opened(self, engine: Any) -> None:
        self.engines.append(engine)

    def graph_extended(self, engine: Any) -> None: ...

    def wants_trace(self, engine: Any, kind: Any) -> bool:
        return False

    def run_finished(self, engine: Any, record: Any) -> None: ...

    def strategy_failed(self, engine: Any, strategy_id: str, error: str) -> None:
        print(f"{strategy_id} failed: {error}", file=sys.stderr)

    def session_closed(self, engine: Any) -> None: ...
