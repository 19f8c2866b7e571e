"""Which ops only a step that writes variables needs: gradients, mostly. Pure.

An evaluation runs none of them, so that what they read has fewer readers there, and Grappler rewrites it as it would not in a step
that trains. It must not know what is made of that.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection

from stepd.hook.engine import graphview, rules
from stepd.hook.engine.graphview import GraphView, Node
from stepd.hook.engine.races import is_write

_found: weakref.WeakKeyDictionary[GraphView, frozenset[str]] = weakref.WeakKeyDictionary()


def only(view: GraphView) -> frozenset[str]:
    """Ops from which every way leads into a write, or into what only comes with a step's last ones (an optimizer's last NoOp waits
    for gradients, too). Who asks for a shape alone is no way: gradients ask for the loss's.
    """
    found = _found.get(view)
    if found is None:
        writes = {name for name, node in view.nodes.items() if is_write(node.op)}
        # A forward pass may write, too (spectral normalization's vectors do), and a program fetches what is made of that.
        further = view.ancestors(source for name in writes for source, _ in view.nodes[name].inputs)
        with_writes = view.descendants(writes - further)
        ends = [name for name in view.nodes.keys() - writes - with_writes if _is_end(view, name, with_writes)]
        elsewhere = set(ends)
        while ends:  # it grows
            for source, _ in view.nodes[ends.pop()].inputs:
                if source not in elsewhere and not is_write(view.nodes[source].op):
                    elsewhere.add(source)
                    ends.append(source)
        found = _found[view] = frozenset(view.nodes.keys() - elsewhere)
    return found


def _is_end(view: GraphView, name: str, with_writes: Collection[str]) -> bool:
    """Does nobody read it, or only what comes behind writes without being one? A program fetches a loss that updates wait for, also
    one that it hands on behind them. No end is a gradient of what nobody learns, which waits for others of its op (`tf.tuple`)."""
    if is_tuples(view, view.nodes[name]):
        return False
    has_value = view.nodes[name].op not in ("NoOp", "ControlTrigger")
    readers = graphview.takers(view, name) if has_value else view.consumers[name]
    return all(_is_no_way(view.nodes[user], with_writes) for user in readers)


def _is_no_way(reader: Node, with_writes: Collection[str]) -> bool:
    return reader.op in rules.OF_SHAPES or (reader.name in with_writes and not is_write(reader.op))


def is_tuples(view: GraphView, node: Node) -> bool:
    """Whether it is what a tuple hands on."""
    return node.op == "Identity" and any(index < 0 and view.nodes[source].op == "NoOp" for source, index in node.inputs)
