"""Marks the nodes of a copy for the native executor. Pure; the table that the marks name is filled by the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorflow.core.framework import node_def_pb2

from stepd.hook.rewrite.emit import part_of

TABLE = "_stepd_order"
_MOST = 2**31 - 1


def with_table(
    nodes: Sequence[node_def_pb2.NodeDef], copied: Sequence[str], priority: Mapping[str, int], table: int
) -> dict[str, int]:
    """Names of those of `nodes`, the copies of the user's ops `copied` and behind them their parts, that have a priority, with it.

    All get the table's number: Grappler drops it from the nodes that it rewrites, and one that keeps it is enough.
    """
    for node in nodes:
        node.attr[TABLE].i = table
    known = {node.name: min(priority[name], _MOST) for node, name in zip(nodes, copied, strict=False) if name in priority}
    parts = {node.name: whole for node in nodes[len(copied) :] if (whole := part_of(node.name)) in known}
    return known | {part: known[whole] for part, whole in parts.items()}
