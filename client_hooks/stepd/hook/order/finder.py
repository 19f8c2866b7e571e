"""Which op or piece another one should wait for, by a list schedule of one step, and whether it may. Pure.

Names are those of ops, or of pieces where ops run in parts. It must not know how an edge is tied into a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepd.hook.order.conditions import Conditions
from stepd.hook.order.schedule import Schedule

if TYPE_CHECKING:
    from stepd.hook.order.edges import Edge

# So many ops back is looked for those that an edge may come from.
LOOK_BACK = 32
# So many edges end at one op: each is a node of its own where ops are fused.
MOST_EDGES = 4


@dataclass(frozen=True)
class Finder:
    """What is known of one step. `op_of`: the op of a piece; `members`, `held` (conditions): by op; `waits`, `behind`: bit sets, by
    name, those of `behind` numbered by `numbers`; `ends`: what edges may begin or end at."""

    op_of: Callable[[str], str]
    members: Mapping[str, int]
    held: Mapping[str, Conditions | None]
    device_of: Mapping[str, str]
    waits: Mapping[str, int]
    behind: Mapping[str, int]
    numbers: Mapping[str, int]
    ends: Collection[str]
    priority: Mapping[str, int]
    _earlier: dict[str, int] = field(default_factory=dict)  # by end that was asked for: `_implied`, through its own edges too
    _by_number: dict[int, str] = field(default_factory=dict)

    def edges_to(self, after: str, plan: Schedule, tied: Callable[[str, str], Edge | None]) -> list[Edge]:
        """Edges from those that kept `after` waiting and that may hold it up, the last one first. `tied`: an edge between two, if
        there is a way to have one. To be asked for in the order in which ops begin.

        One edge is not enough: the op that ran just before `after` in the plan may itself be held by nothing, run long before in
        a real step, and leave `after` beside those that both should have waited for. Whom another edge implies needs none.
        """
        earlier = self._implied(after)
        found: list[Edge] = []
        before = plan.before.get(after)
        for _ in range(LOOK_BACK):
            if before is None or plan.finish[before] <= plan.ready[after] or len(found) == MOST_EDGES:
                break
            number = self.numbers.get(before)
            lower = before in self.ends and self.priority[before] < self.priority[after]
            implied = number is not None and earlier >> number & 1
            if lower and not implied and self.device_of[before] == self.device_of[after]:
                edge = tied(before, after)
                if edge is not None:
                    found.append(edge)
                    earlier |= self._earlier.get(before, 0)
            before = plan.before.get(before)
        if after in self.numbers:
            self._earlier[after] = earlier
            self._by_number[self.numbers[after]] = after
        return found

    def _implied(self, name: str) -> int:
        """Bit set of the numbered ops that come before `name`, itself included, with the edges that are known so far."""
        rest = found = self.behind[name]
        while rest:
            number = rest.bit_length() - 1
            more = self._earlier.get(self._by_number.get(number, ""), 0)
            found |= more
            rest &= ~(more | 1 << number)
        return found

    def may(self, signal: str, held: str) -> bool:
        """Whether `held` may wait for `signal`: it runs in the same steps, no rarer, without other waits, and not later anyway."""
        told, holds = self.op_of(signal), self.op_of(held)
        least, most = self.held.get(told), self.held.get(holds)
        return (
            told != holds
            and least is not None
            and most is not None
            and least <= most
            and self.members.get(told) == self.members.get(holds)
            and not self.waits[signal] & ~self.waits[held]
            and not self.behind[signal] >> self.numbers[held] & 1
        )
