"""Reads of a variable that give one value in every run: parts elsewhere need it sent once, not once a read. Pure."""

from __future__ import annotations

from stepd.hook.engine.graphview import GraphView

_READ = "ReadVariableOp"
_NO_WRITES = frozenset({_READ, "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp", "VariableShape"})


class Reads:
    """Which read stands for which, in one version of a graph."""

    def __init__(self, view: GraphView) -> None:
        self._view = view
        self._known: dict[str, str] = {}

    def one_for(self, name: str) -> str:
        """The read to take in place of the read `name`: the first by name that waits for the same, and that every write waits for
        that waits for any of them; `name` itself for other ops."""
        if name not in self._known:
            self._known[name] = self._found(name)
        return self._known[name]

    def _found(self, name: str) -> str:
        nodes = self._view.nodes
        node = nodes[name]
        if node.op != _READ:
            return name
        users = set(self._view.consumers[node.inputs[0][0]])
        alike = {n for n in users if nodes[n].op == _READ and nodes[n].inputs == node.inputs and _type(nodes[n]) == _type(node)}
        first = min(alike)
        if len(alike) > 1:
            for writer in users:
                if nodes[writer].op not in _NO_WRITES:
                    before = self._view.ancestors([writer])
                    if first not in before and not alike.isdisjoint(before):
                        return name
        return first


def _type(node: object) -> int:
    return int(node.proto.attr["dtype"].type)  # type: ignore[attr-defined]
