"""Which variables a step needs that may have no value yet. Pure.

A step that reads one without fails, and plainly all of it that needs no such value runs nevertheless; on several devices what
waits for a transfer then is lost. So such a step runs on the program's own placement. It must not know how one asks for values.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from stepd.hook.engine.graphview import GraphView, split_input
from stepd.hook.engine.kinds import Kind, Kinds
from stepd.hook.engine.races import users, variables
from stepd.hook.order.conditions import NONE, conditions
from stepd.hook.order.rounds import may_need
from stepd.hook.order.steps import executed
from stepd.hook.order.walk import sorted_by_needs
from stepd.hook.ports import StepKind

_ASSIGNS = frozenset({"Assign", "AssignVariableOp"})
_FREES = frozenset({"DestroyResourceOp"})


class _Uses(NamedTuple):
    needed: frozenset[str]  # variables, by the first op of each, whose values it takes and does not assign itself
    at_times: frozenset[str]  # of these the ones that it takes in branches, loops and functions alone: it may end well without
    full: frozenset[str]  # the ops of all variables that have a value after it has ended well
    freed: frozenset[str]  # the ops of variables that it takes the values from


class Valued:
    """What the steps of one session that ended well say of its variables, whatever is in force."""

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds
        self._uses: dict[StepKind, _Uses] = {}
        self._full: set[str] = set()
        self._said: set[StepKind] = set()  # steps whose end is in `_full`
        self._known = 0  # kinds that were looked at
        self._freed: set[str] = set()  # of these nothing that has run says whether they have a value now

    def lacking(self, view: GraphView, kind: Kind) -> list[str]:
        """Variables that a run of `kind` needs and that no run of the session shows to have a value."""
        uses, known = self._of(view, kind.step), len(self._kinds.by_handles)
        unsure = uses.at_times if kind.ended_well else uses.needed
        if known != self._known or not unsure <= self._full:
            self._known = known
            for other in self._kinds.all():
                self._freed |= self._of(view, other.step).freed
                if other.ended_well and other.step not in self._said:
                    self._said.add(other.step)
                    self._full |= self._of(view, other.step).full
        return sorted((uses.needed & self._freed) | (unsure - self._full))

    def found(self, names: Iterable[str]) -> None:
        """These have values."""
        self._full |= set(names)

    def _of(self, view: GraphView, step: StepKind) -> _Uses:
        if step not in self._uses:
            self._uses[step] = _uses(view, step)
        return self._uses[step]


def _uses(view: GraphView, kind: StepKind) -> _Uses:
    step = executed(view, kind)
    order = sorted_by_needs(may_need(view, step))
    held = conditions(view, order) if order is not None else {}
    fetched = {split_input(name)[0] for name in kind.fetches}
    needed, at_times, full, freed = set[str](), set[str](), set[str](), set[str]()
    for first, alike in variables(view, step).items():
        readers, writers = users(view, step, alike)
        itself = any(name in fetched and view.nodes[name].op != "VarHandleOp" for name in alike)
        if readers or writers or itself:
            always = itself or any(held.get(name) == NONE and not view.bodies(view.nodes[name].proto) for name in readers + writers)
            if always:
                full.update(alike)
            if not any(view.nodes[name].op in _ASSIGNS for name in writers):
                needed.add(first)
                at_times.update(() if always else (first,))
        if any(view.nodes[user].op in _FREES and user in step for name in alike for user in view.consumers[name]):
            freed.update(alike)
    return _Uses(frozenset(needed), frozenset(at_times), frozenset(full), frozenset(freed))
