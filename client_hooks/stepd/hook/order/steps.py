"""What a step kind executes, and which ops belong to exactly the same kinds. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from stepd.hook.engine.graphview import GraphView, split_input
from stepd.hook.ports import StepKind


def executed(view: GraphView, kind: StepKind, waits_for_fed: bool = True) -> frozenset[str]:
    """Names of the ops that a run of `kind` executes: the ancestors of its fetches and targets, cut off at what is fed. Who waits
    for an op that is fed has it run all the same, with all behind it, unless not `waits_for_fed`.

    Cut off exactly, not roughly: a control edge from an op that a run does not execute would drag that op into it, with all that it
    needs, among it placeholders that nobody feeds.
    """
    fed = {split_input(name) for name in kind.feeds}
    if not waits_for_fed:
        fed |= {(source, -1) for source, _ in fed}
    ends = {split_input(name) for name in kind.fetches} | {(name, -1) for name in kind.targets}
    stack = [name for name, index in ends if (name, index) not in fed and name in view.nodes]
    seen = set(stack)
    while stack:
        for source, index in view.nodes[stack.pop()].inputs:
            if (source, index) not in fed and source not in seen and not _fed_control(view, source, index, fed):
                seen.add(source)
                stack.append(source)
    return frozenset(seen)


def left_open(view: GraphView, kind: StepKind) -> frozenset[str]:
    """Ops that a run of `kind` executes only because another waits for what is fed: Grappler takes the edge away, and them with
    it, where it finds that the other uses what it waits for, too."""
    if not kind.feeds:
        return frozenset()
    return executed(view, kind) - executed(view, kind, waits_for_fed=False)


def _fed_control(view: GraphView, source: str, index: int, fed: set[tuple[str, int]]) -> bool:
    """A control edge from a fed placeholder hangs on what is fed."""
    return index < 0 and (source, 0) in fed and view.nodes[source].op in ("Placeholder", "PlaceholderV2")


def memberships(steps: Iterable[frozenset[str]]) -> dict[str, int]:
    """Op -> bit set of the steps (in their order) that execute it. Ops of none are left out."""
    found: dict[str, int] = {}
    for number, step in enumerate(steps):
        for name in step:
            found[name] = found.get(name, 0) | 1 << number
    return found
