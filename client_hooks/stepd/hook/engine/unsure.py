"""What else of a step may fail beside an op that is to wait for updates, and whose error comes first then. Pure.

Plainly one error of a step is heard of, the first. Where two ops fail of the same cause, the one that fails first plainly has to be
the first on a copy, too. It must not know what waits for whom but for these.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from stepd.hook.engine.before import Before
from stepd.hook.engine.calls import only_computes
from stepd.hook.engine.fallible import Fallible, causes, checks
from stepd.hook.engine.graphview import GraphView

# They fail of a table that is not there, and then always.
LOOK_UPS = frozenset({"LookupTableFindV2", "LookupTableSizeV2"})
_OF_A_CHECK = 8  # ops that an assertion is made of, about


class Unsure:
    """What else of a step may fail than an end, by whose error the step would be known then."""

    def __init__(
        self,
        view: GraphView,
        order: Sequence[str],
        fed: Collection[tuple[str, int]],
        before: Before,
        may_fail: Fallible,
        depths: Mapping[str, int],
    ) -> None:
        self._view, self._before, self._depths, self._fed = view, before, depths, fed
        self._ends = may_fail.ends
        self._all = [name for name in may_fail.unsure if view.nodes[name].op not in LOOK_UPS]
        self._causes = causes(view, order, fed, {*self._all, *may_fail.ends}) if self._all else {}
        self._beside: dict[str, tuple[list[str], int]] = {}  # end -> what does not come before it, and that as a mask
        self._after: dict[str, set[str]] = {}  # end -> what waits for it now, besides what it is before

    def alike(self, end: str) -> list[str]:
        """What may fail with `end`, of the same cause, and does not come before it."""
        return [name for name in self._all if self._causes[name] & self._causes[end] and not until(self._before, name, end)]

    def hiding(self, end: str) -> list[str]:
        """What may fail with `end`, plainly after it, and would be heard of instead if `end` waited for it: where nobody can ask
        afterwards whether it fails, since it is not made of what is fed alone (`heard.py`)."""
        later = [name for name in self.alike(end) if self.depth(end) < self.depth(name)]
        return later if later and not self.is_of_feeds(end) else []

    def heard_before(self, failed: str) -> list[str]:
        """Ends that plainly come before an op that has `failed`, and can be asked whether they fail, too. Checks that are equally
        deep run in the order in which they were made."""
        made = {name: k for k, name in enumerate(self._view.nodes)}
        depth, is_check = self.depth(failed), checks(self._view, failed)
        sooner = [name for name in self._ends if self.depth(name) < depth]
        as_deep = [name for name in self._ends if is_check and self.depth(name) == depth and checks(self._view, name)]
        sooner += [name for name in as_deep if made[name] < made[failed]]
        return [name for name in sooner if self.is_of_feeds(name)]

    def is_of_feeds(self, name: str) -> bool:
        """Is an op, with all that it needs, made of what is fed, by ops that only compute or check?"""
        needed, stack = {name}, [name]
        while stack:
            node = self._view.nodes[stack.pop()]
            if node.op == "Placeholder" or not only_computes(self._view, node):
                return False
            more = {source for source, index in node.inputs if (source, index) not in self._fed} - needed
            needed |= more
            stack += more
        return True

    def may_wait(self, end: str, update: str) -> bool:
        """May `end` wait for `update`, whatever else that needs that may fail? From here on it does."""
        if end not in self._beside:
            beside = [name for name in self._all if not until(self._before, name, end)]
            self._beside[end] = beside, self._before.mask(beside)
        beside, mask = self._beside[end]
        needed = [name for name in beside if self._before.is_before(name, update)] if self._before.some(mask, update) else []
        return all(self._tie(name, end) for name in needed)

    def later(self, end: str) -> list[str]:
        """What plainly fails later than `end` of the same cause, and can wait for it."""
        later = [name for name in self.alike(end) if self.depth(end) < self.depth(name)]
        return [name for name in later if not self._before.is_before(end, name) and self._tie(end, name)]

    def depth(self, name: str) -> int:
        """How late it plainly runs. A check is small, and plainly runs before what computes beside it."""
        return self._depths[name] - (_OF_A_CHECK if checks(self._view, name) else 0)

    def _tie(self, one: str, other: str) -> bool:
        """Note that `one` comes before `other` now; False where it comes after it already."""
        seen, stack = {other}, [other]
        while stack:
            name = stack.pop()
            if name == one:
                return False
            more = {later for known in self._after if until(self._before, name, known) for later in self._after[known]} - seen
            if self._before.is_before(name, one):
                return False
            seen |= more
            stack += more
        self._after.setdefault(one, set()).add(other)
        return True


def until(before: Before, one: str, other: str) -> bool:
    return one == other or before.is_before(one, other)


def depths_of(view: GraphView, order: Iterable[str]) -> dict[str, int]:
    """How many ops come before each, one after the other."""
    depths: dict[str, int] = {}
    for name in order:
        depths[name] = 1 + max((depths.get(source, 0) for source, _ in view.nodes[name].inputs), default=0)
    return depths
