"""What ops need through the back edges of v1 loops. Pure.

Without its back edges a loop says little of what it waits for: an Exit is reached from the loop's first values alone, while the
rounds before it need all that the body takes from outside. An order edge from behind the loop to something that its body takes
would close a cycle that no sorting of the graph without back edges can see, and the step would never end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tensorflow.core.framework import graph_pb2, node_def_pb2

from stepd.hook.engine.graphview import GraphView
from stepd.hook.order.walk import ENTER, EXIT, NEXT, needs, sorted_by_needs


def may_need(view: GraphView, names: Collection[str]) -> dict[str, list[str]]:
    """As `needs`, and each Exit needs the last ops of the rounds before it: what proves that a step can end. More than an op surely
    waits for: where no round is run, the body's ops are not."""
    needed = needs(view, names)
    for name in needed:
        if view.nodes[name].op in EXIT:
            needed[name] = list(dict.fromkeys([*needed[name], *(n for n in rounds(view, name) if n in names)]))
    return needed


def rounds(view: GraphView, leaving: str) -> list[str]:
    """The NextIterations of the loop that the Exit `leaving` depends on, by whatever number of rounds."""
    found: list[str] = []
    seen = {leaving}
    stack = [(source, 0) for source, _ in view.nodes[leaving].inputs if source in view.nodes]
    while stack:
        name, inner = stack.pop()  # inner: how many loops within this one
        if name in seen:
            continue
        seen.add(name)
        node = view.nodes[name]
        if node.op in NEXT and not inner:
            found.append(name)
        if node.op in ENTER:
            inner -= 1
        elif node.op in EXIT:
            inner += 1
        if inner >= 0:
            stack += [(source, inner) for source, _ in node.inputs if source in view.nodes]
    return found


def never_ends(nodes: Iterable[node_def_pb2.NodeDef]) -> bool:
    """Whether some of `nodes` wait for each other through a loop. TensorFlow refuses other cycles when it imports them, but not
    these: a step that several workers share would hang. Inputs that are not among `nodes` count as there."""
    graph = graph_pb2.GraphDef(node=nodes)
    if not any(node.op in EXIT for node in graph.node):
        return False
    view = GraphView.parse(graph.SerializeToString(), str)
    return sorted_by_needs(may_need(view, view.nodes.keys())) is None
