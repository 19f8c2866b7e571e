"""In which order Grappler goes through the ops of a step when it looks for equal ones. Pure.

Its pruner follows what the step is asked for back, depth first, and leaves out ops that only hand a value on; the rest is sorted in
the order in which it becomes ready. In the places of the equal ops that are taken out then come those at the end of this list.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping

from stepd.hook.engine import op_defs, rules
from stepd.hook.engine.graphview import Node
from stepd.hook.order.walk import NEXT

_HANDING = frozenset({"Identity", "StopGradient", "PreventGradient"})


def listed(
    nodes: Mapping[str, Node],
    ends: Collection[str],
    fed: Collection[str],
    device: Callable[[str], str],
    functions: frozenset[str],
) -> list[str]:
    """The ops that a step executes, in that order. `nodes`: of the graph; what it lacks is given nothing. `ends`: the ops that the
    step is asked for, and those `fed`. `device`: where an op lies. `functions`: the names of the graph's."""
    sources = _needed(nodes, ends, fed)
    kept = _without_handing(nodes, sources, ends, device, functions)
    readers: dict[str, list[str]] = {name: [] for name in kept}
    for name, given in kept.items():
        for source in given:
            readers[source].append(name)
    waits = {name: len(given) for name, given in kept.items()}
    ready = deque(name for name, count in waits.items() if not count)
    for name, given in kept.items():
        if name in nodes and nodes[name].op in rules.MERGES:  # it does not wait for the next round of a loop
            waits[name] -= sum(source in nodes and nodes[source].op in NEXT for source in given)
    order = []
    while ready:
        order.append(ready.popleft())
        for reader in readers[order[-1]]:
            waits[reader] -= 1
            if not waits[reader]:
                ready.append(reader)
    return order


def _needed(nodes: Mapping[str, Node], ends: Collection[str], fed: Collection[str]) -> dict[str, list[str]]:
    """What each op of the step is given, in the pruner's order."""
    stack, found = sorted(ends), dict[str, list[str]]()
    while stack:
        name = stack.pop()
        if name not in found:
            found[name] = [] if name in fed or name not in nodes else [source for source, _ in nodes[name].inputs]
            stack += found[name]
    return dict(reversed(found.items()))


def _without_handing(
    nodes: Mapping[str, Node],
    sources: Mapping[str, list[str]],
    ends: Collection[str],
    device: Callable[[str], str],
    functions: frozenset[str],
) -> dict[str, list[str]]:
    """What each op is given, each of these once, without the ops that the pruner leaves out: who reads them waits for what they
    waited for."""
    suspects = {name for name, given in sources.items() if given and nodes[name].op in _HANDING}.difference(ends)
    readers = dict.fromkeys(suspects, 0)
    for name, given in sources.items():
        for source, index in nodes[name].inputs if given else ():
            if source in readers:
                readers[source] += 1
                op, of_identity = nodes[name].op, nodes[source].op == "Identity"
                if op in functions or (of_identity and (index < 0 or op in rules.MERGES)):
                    suspects.discard(source)

    def goes(name: str) -> bool:
        given = nodes[name].inputs
        if len(given) * readers[name] > len(given) + readers[name]:
            return False  # it would make more edges of fewer
        if nodes[name].op == "Identity" and (
            len(given) > 1 or any(one in nodes and nodes[one].op in rules.SWITCHES for one, _ in given)
        ):
            return False
        return all(_may_be_read_past(nodes, source, index, functions) and device(source) == device(name) for source, index in given)

    gone, found = {name for name in suspects if goes(name)}, dict[str, list[str]]()

    def behind(source: str) -> list[str]:
        stack, left = [source], list[str]()
        while stack:
            one = stack.pop()
            if one in gone:
                stack += reversed(sources[one])
            else:
                left.append(one)
        return left

    for name, given in sources.items():
        if name not in gone:
            passed = given if gone.isdisjoint(given) else [one for source in given for one in behind(source)]
            found[name] = list(dict.fromkeys(passed))
    return found


def _may_be_read_past(nodes: Mapping[str, Node], source: str, index: int, functions: frozenset[str]) -> bool:
    if source not in nodes or index < 0:
        return True
    return nodes[source].op not in functions and not op_defs.is_ref(op_defs.output_types(nodes[source].proto)[index])
