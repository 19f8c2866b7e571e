"""The order of a graph in which every op comes after what it needs, and the proof that added edges leave one. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from stepd.hook.engine.graphview import GraphView

ENTER = frozenset({"Enter", "RefEnter"})
EXIT = frozenset({"Exit", "RefExit"})
NEXT = frozenset({"NextIteration", "RefNextIteration"})


def needs(view: GraphView, names: Collection[str]) -> dict[str, list[str]]:
    """The distinct ops that each of `names` needs among `names`; the back edges of loops are left out (`rounds`)."""
    nodes = view.nodes
    return {
        name: list(dict.fromkeys(s for s, _ in nodes[name].inputs if s in names and nodes[s].op not in NEXT))
        for name in nodes
        if name in names
    }


def sorted_by_needs(needed: Mapping[str, Collection[str]], more: Iterable[tuple[str, str]] = ()) -> list[str] | None:
    """Keys of `needed`, each after what it needs and, for (before, after) in `more`, after `before`; None when there is a cycle."""
    left = {name: len(sources) for name, sources in needed.items()}
    users: dict[str, list[str]] = {name: [] for name in needed}
    for name, sources in needed.items():
        for source in sources:
            users[source].append(name)
    for before, after in more:
        left[after] += 1
        users[before].append(after)
    ready = [name for name, count in left.items() if not count]
    for name in ready:  # it grows
        for user in users[name]:
            left[user] -= 1
            if not left[user]:
                ready.append(user)
    return ready if len(ready) == len(left) else None
