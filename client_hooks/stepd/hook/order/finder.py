"""Which op or piece another one should wait for, by a list schedule of one step, and whether it may. Pure.

Names are those of ops, or of pieces where ops run in parts. It must not know how an edge is tied into a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepd.hook.order.conditions import Conditions
from stepd.hook.order.schedule import Schedule

if TYPE_CHECKING:
    from stepd.hook.order.edges import Edge

# So many ops back is looked for one that an edge may come from.
LOOK_BACK = 32


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

    def edge_to(self, after: str, plan: Schedule, tied: Callable[[str, str], Edge | None]) -> Edge | None:
        """The edge from the last one that kept `after` waiting and that may hold it up. `tied`: an edge between two, if there is
        a way to have one."""
        before = plan.before.get(after)
        for _ in range(LOOK_BACK):
            if before is None or plan.finish[before] <= plan.ready[after]:
                return None
            if before in self.numbers and self.behind[after] >> self.numbers[before] & 1:
                return None  # it comes after that one anyway
            lower = before in self.ends and self.priority[before] < self.priority[after]
            if lower and self.device_of[before] == self.device_of[after]:
                found = tied(before, after)
                if found is not None:
                    return found
            before = plan.before.get(before)
        return None

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
