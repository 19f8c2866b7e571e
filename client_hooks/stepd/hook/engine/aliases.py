"""Who works on the memory of a reference variable after a write that the read did not wait for. Pure.

`tf.identity(v)` under control dependencies on an assignment waits for it, but the read of `v` that it is given does not: plainly it
sees what was written all the same, for both are the variable's memory. On another device it would get what was there before. So
would a fetch of what hands the memory on, which plainly is looked at when the step is over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stepd.hook.engine import graphview, op_defs, sums
from stepd.hook.engine.graphview import GraphView
from stepd.hook.engine.races import HAND_ON, is_write

REFERENCES = frozenset({"VariableV2", "Variable"})


def late_workers(view: GraphView) -> Iterator[tuple[str, str]]:
    """Pairs of ops that must share a device: such a worker with what it is given, and that with the variable."""
    variables = [node.name for node in view.nodes.values() if node.op in REFERENCES]
    memory = {name: memory_of(view, name) for name in variables}
    writers = {name: [user for user in found if is_write(view.nodes[user].op)] for name, found in memory.items()}
    bits = {writer: 1 << k for k, writer in enumerate(name for found in writers.values() for name in found)}
    if not bits:
        return
    before = graphview.ancestors_among(view, bits)
    for variable, found in memory.items():
        own = sum(bits[writer] for writer in writers[variable])
        for given in found:
            if own and view.nodes[given].op in sums.VIEWS:
                yield from _up(found, given)
            known = before[given] | bits.get(given, 0)
            for worker in graphview.takers(view, given):
                if before[worker] & own & ~known:
                    yield worker, given
                    yield from _up(found, given)


def memory_of(view: GraphView, variable: str) -> dict[str, str]:
    """Ops whose output is the variable's memory -> from which of them they have it; the variable itself -> ""."""
    found = {variable: ""}
    stack = [variable]
    while stack:
        name = stack.pop()
        for user in graphview.takers(view, name):
            if user not in found and _hands_on(view, user, name):
                found[user] = name
                stack.append(user)
    return found


def _hands_on(view: GraphView, user: str, name: str) -> bool:
    node = view.nodes[user]
    if node.op in HAND_ON or node.op in sums.VIEWS:
        return True
    first = next((source for source, index in node.inputs if index >= 0), "")
    return first == name and any(op_defs.is_ref(dtype) for dtype in op_defs.output_types(node.proto))


def _up(memory: Mapping[str, str], name: str) -> Iterator[tuple[str, str]]:
    while memory[name]:
        yield name, memory[name]
        name = memory[name]
