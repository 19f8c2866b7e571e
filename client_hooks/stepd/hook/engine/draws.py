"""Seeded random ops whose streams a new session can be brought to: by drawing from them as often as the old one did. Pure.

A random kernel keeps the place in its stream to itself. How far it is depends only on how often it ran, when nothing that it needs
can change; so it is with the seeded initializers of variables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stepd.hook.engine import graphview, rules
from stepd.hook.engine.graphview import GraphView, Node, split_input
from stepd.hook.ports import StepKind

# Drawing again takes the time of the first draws; those of a training loop are too many.
_MOST_DRAWS = 16


@dataclass(frozen=True)
class History:
    """What ran in a session: how often each kind did, and kinds that ran an unknown number of times, or failed."""

    runs: Mapping[StepKind, int]
    uncertain: Iterable[StepKind] = ()


def replayable(view: GraphView, history: History | None) -> dict[str, int]:
    """Seeded random op -> how often it has drawn, for those where this is known and says where the stream is."""
    if history is None:
        return {}
    candidates = {node.name for node in view.nodes.values() if is_seeded(node) and _draws_alike(view, node, history)}
    for kind in history.uncertain:
        candidates -= _executed(view, kind)
    counts = dict.fromkeys(candidates, 0)
    for kind, runs in history.runs.items():
        for name in candidates & _executed(view, kind):
            counts[name] += runs
    return {name: count for name, count in counts.items() if count <= _MOST_DRAWS}


def is_seeded(node: Node) -> bool:
    attr = node.proto.attr
    return graphview.is_stateful(node.op) and any(key in attr and attr[key].i for key in ("seed", "seed2"))


def _draws_alike(view: GraphView, node: Node, history: History) -> bool:
    """Does every run of this op draw the same number of values?"""
    needed = view.ancestors([node.name]) - {node.name}
    fed = {split_input(name)[0] for kind in (*history.runs, *history.uncertain) for name in kind.feeds}
    ops = {view.nodes[name].op for name in needed}
    changing = any(
        graphview.is_stateful(op) or graphview.function_attrs(op) or op in rules.CONTROL_FLOW or op.startswith("Placeholder")
        for op in ops
    )
    called = graphview.function_attrs(node.op) or graphview.holds_state(max(view.outputs(node.name), default=0))
    # An op that is fed does not run, unless perhaps others wait for it.
    waited_for = any((node.name, -1) in view.nodes[user].inputs for user in view.consumers[node.name])
    unsure = needed | {node.name} if waited_for else needed
    return not changing and not called and fed.isdisjoint(unsure)


def _executed(view: GraphView, kind: StepKind) -> set[str]:
    """The ops that a run of `kind` executes: what is fed cuts off what it was computed from."""
    fed = {split_input(name) for name in kind.feeds}
    seen: set[str] = set()
    stack = [source for source, index in map(split_input, (*kind.fetches, *kind.targets)) if (source, index) not in fed]
    while stack:
        name = stack.pop()
        if name not in seen and name in view.nodes:
            seen.add(name)
            stack += [source for source, index in view.nodes[name].inputs if (source, index) not in fed]
    return seen
