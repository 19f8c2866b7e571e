"""What a copy has of the program's ops: their handles and names in the mirror, and what is fetched in the place of some.

It must not know how a copy is made, or what for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stepd.hook.engine import capi
from stepd.hook.engine.graphview import Node
from stepd.hook.engine.mirror import Mirror


class CopiedOps:
    """By the names of the program's ops. What is not copied is what the mirror has."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._here: dict[str, str] = {}
        self._fetched: dict[str, tuple[str, Any]] = {}  # what is fetched in the place of a sum, and its name
        self.operations: dict[str, Any] = {}
        self.nodes: dict[str, Node] = {}  # as they were made, by their own names

    def add(self, op: str, here: str, operation: Any) -> None:
        """`op` is copied, and has the name `here` in the mirror."""
        self.operations[op], self._here[op] = operation, here

    def fetch_by(self, op: str, here: str, operation: Any) -> None:
        """`op` is fetched by way of another op of the mirror."""
        self._fetched[op] = here, operation

    def names(self) -> dict[str, str]:
        """The mirror's names for all ops whose name there is another."""
        return {name: here for name, (here, _) in self._mirror.aliases.items()} | self._here

    def fetched_names(self) -> dict[str, str]:
        """The mirror's names for what is fetched by way of other ops."""
        return {name: here for name, (here, _) in self._fetched.items()}

    def name_of(self, op: str) -> str:
        """The mirror's name for a user op."""
        return self.names().get(op, op)

    def fetched_as(self, op: str) -> str:
        """The mirror's name for a user op where it is fetched."""
        return self._fetched[op][0] if op in self._fetched else self.name_of(op)

    def operation_of(self, op: str) -> Any:
        """The mirror's operation for a user op."""
        return self.operations.get(op) or self._mirror.operation(op)

    def sums_of(self, fetched: Iterable[str]) -> list[str]:
        """The user's sums among the ops `fetched` that are fetched by way of another op: a run is asked for them as well, so that
        Grappler lets them be, as it does plainly."""
        return [op for op in dict.fromkeys(fetched) if op in self._fetched]

    def any_of(self, ops: Iterable[str]) -> bool:
        """Is any of `ops` copied?"""
        return any(op in self.operations for op in ops)

    def fetch(self, out: Any) -> Any:
        """The output of the mirror to fetch for one of the user's graph."""
        by = self._fetched.get(capi.op_name(out.oper)) if self._fetched else None
        return self.output(out) if by is None else capi.output(by[1], 0)

    def output(self, out: Any) -> Any:
        """The output of the mirror for one of the user's graph."""
        operation = self.operation(out.oper)
        return out if operation is out.oper else capi.output(operation, out.index)

    def operation(self, operation: Any) -> Any:
        """The mirror's operation for one of the user's graph."""
        name = capi.op_name(operation)
        found = self.operations.get(name)
        if found is not None:
            return found
        alias = self._mirror.aliases.get(name)
        return alias[1] if alias else operation
