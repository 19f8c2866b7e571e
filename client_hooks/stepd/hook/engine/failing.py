"""Which updates of a step come before an op that may fail: the end of data, a check, or a look-up of what is fed. Pure.

Where an op fails plainly, all that does not need it runs to its end: the step that trains on one batch and asks for the next one
trains at the end of the data, too. On several devices the error ends the transfers, and what waits for one is lost. A copy
therefore gets control edges from such updates to what may fail. Any op may fail of what it is given; these are there for it, or
fail of values, where others fail of shapes.
"""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from stepd.hook.engine import rules
from stepd.hook.engine.before import Before
from stepd.hook.engine.entrances import entered, entrances
from stepd.hook.engine.fallible import Fallible, fallible
from stepd.hook.engine.fitting import Shapes
from stepd.hook.engine.graphview import GraphView, split_input
from stepd.hook.engine.meeting import ANY, PYTHON, ends_early, is_small, is_update, meeting_in, met_in, waits
from stepd.hook.engine.races import is_write, races
from stepd.hook.engine.unsure import Unsure, depths_of, until
from stepd.hook.order.conditions import Conditions, conditions
from stepd.hook.order.rounds import may_need
from stepd.hook.order.steps import executed
from stepd.hook.order.walk import sorted_by_needs
from stepd.hook.ports import StepKind

_MOST = 10_000  # pairs that a step is looked at for


def updates_first(
    view: GraphView, step: StepKind, home: Callable[[str], str] = lambda _: "", shapes: Shapes = lambda *_: None
) -> frozenset[tuple[str, str]]:
    """(update, op that may fail) of a step: the first before the second. Neither needs the other. `home`: where ops are plainly."""
    run = executed(view, step)
    updates = [name for name in run if is_update(view, name) and not is_small(view, run, name)]
    order = sorted_by_needs(may_need(view, run)) if updates else None
    if order is None:
        return frozenset()
    may_fail = fallible(view, step, order, updates, _MOST, shapes)
    if not may_fail.ends:
        return frozenset()
    doors = entrances(view, order, may_fail.ends)  # of what may fail in a loop of the first generation: all of the loop waits
    waiting_for = _Waits(view, step, order, updates, may_fail, doors, home)
    before, held = waiting_for.before, waiting_for.held
    # An update that may fail itself comes first only where none has to come before it.
    doubtful = set(updates).intersection(may_fail.ends)
    pairs = set[tuple[str, str]]()
    for those in ([name for name in updates if name not in doubtful], [name for name in updates if name in doubtful]):
        for end in may_fail.ends if those else ():
            pairs |= {(last, end) for last in waiting_for.of(end, those)}
    waiting = [end for end in may_fail.ends if any(end == other for _, other in pairs)]
    # Where the same sizes meet again, in the gradients, say, nothing is to fail sooner; nor what fails of the same plainly later.
    sooner = {(end, other) for end, other in may_fail.alike if end in waiting and not before.is_before(end, other)}
    sooner |= {(end, other) for end in waiting for other in waiting_for.unsure.later(end) if _implies(held, other, end)}
    outside = {(end, other) for end, other in sooner if end not in doors and end not in waiting_for.after.get(other, ())}
    return frozenset((one, doors.get(other, other)) for one, other in outside.union(_least(before, held, pairs)))


class _Waits:
    """For which updates of a step what may fail can wait, so that the program hears of nothing but the error as it plainly does."""

    def __init__(
        self,
        view: GraphView,
        step: StepKind,
        order: Sequence[str],
        updates: Sequence[str],
        may_fail: Fallible,
        doors: Mapping[str, str],
        home: Callable[[str], str],
    ) -> None:
        run = executed(view, step)
        self._view, self._racing = view, [(race.reader, race.writer) for race in races(view, step, every=True)]
        writing = ((other, one) for one, other in self._racing if is_write(view.nodes[one].op))
        self._orders = [*self._racing, *writing]
        meeting = [name for name in run if meeting_in(view, name)]
        # What waits for others, or does not go on once an error has cancelled the step.
        self._ended = [name for name in run if waits(view, name) or ends_early(view, name)]
        self._depths = depths_of(view, order)
        self._received = _received(view, order, home)
        fed = {split_input(name) for name in step.feeds}
        ends = [*updates, *meeting, *self._ended, *self._received, *(name for race in self._racing for name in race)]
        ends += [*may_fail.ends, *may_fail.unsure, *(other for _, other in may_fail.alike)]
        self.held = conditions(view, order)
        self.held |= {end: entered(view, self.held, door) for end, door in doors.items()}
        self.after = {end: view.descendants([door]) for end, door in doors.items()}
        # What has been done when it runs, whichever branch is taken: the update, or what joins the branches behind it.
        self._done = {update: [update, *_joins(view, run, self.held, update)] for update in updates}
        self.before = Before(view, run, fed, dict.fromkeys(itertools.chain(ends, *self._done.values())))
        self._met = {name: met_in(view, name) for name in meeting}
        self.unsure = Unsure(view, order, fed, self.before, may_fail, self._depths)

    def of(self, end: str, updates: Iterable[str]) -> Iterator[str]:
        """What of `updates`, or what joins branches behind them, can come before `end`."""
        before = self.before
        earlier = {name for name in self._met if before.is_before(name, end)}
        # What `end` is, or would come late with it.
        late_with = self.after[end].__contains__ if end in self.after else functools.partial(until, before, end)
        later = set(filter(late_with, self._met))
        if not _may_come_late(self._met, earlier, later) or _parts(late_with, self._orders):
            return
        # Whoever waits in a queue, say, may wait for what others do who wait for this; and what is heard of stays what it is.
        others = [name for name in self._ended if not until(before, name, end)] + self.unsure.hiding(end)
        known = before.mask(others)
        # A transfer that there is plainly, too, ends if it would come later.
        cut = [name for name in self._received if self._depths[name] > self._depths[end]]
        # Python may wait for anybody, but for a check from which nothing comes that others could meet.
        alone = not any(self._view.nodes[name].op not in rules.CHECKS for name in later)
        # The order of a read and a write stays what it plainly is.
        late = [other for race in self._racing for one, other in (race, race[::-1]) if late_with(one)]
        for update in updates:
            done = (name for name in self._done[update] if _implies(self.held, end, name) and until(before, update, name))
            last = next(done, end)
            if (
                not (until(before, update, end) or late_with(last))
                and not (before.some(known, last) and any(name != update and before.is_before(name, last) for name in others))
                and not any(until(before, other, last) for other in (*late, *cut))
                and (alone or self._view.nodes[update].op not in PYTHON)
                and self.unsure.may_wait(end, last)
            ):
                yield last


def heard_before(view: GraphView, step: StepKind, failed: str, shapes: Shapes) -> list[str]:
    """What of a step may plainly have failed before an op that has `failed`, and is made of nothing but what is fed."""
    run = executed(view, step)
    updates = [name for name in run if is_update(view, name)]
    order = sorted_by_needs(may_need(view, run)) if updates else None
    if order is None or failed not in run:
        return []
    may_fail, fed = fallible(view, step, order, updates, _MOST, shapes), {split_input(name) for name in step.feeds}
    return Unsure(view, order, fed, Before(view, run, fed, ()), may_fail, depths_of(view, order)).heard_before(failed)


def _received(view: GraphView, order: Iterable[str], home: Callable[[str], str]) -> list[str]:
    """What waits for ops on other devices, plainly."""
    homes = {name: home(name) for name in order}
    if len({*homes.values()}) < 2:
        return []
    return [name for name in order if any(homes.get(source, homes[name]) != homes[name] for source, _ in view.nodes[name].inputs)]


def _parts(late_with: Callable[[str], bool], orders: Iterable[tuple[str, str]]) -> bool:
    """Does the first of one of `orders`, a read mostly, come late, and not the second? That one would come first then."""
    return any(late_with(one) and not late_with(other) for one, other in orders)


def _may_come_late(met: Mapping[str, set[Any]], earlier: Collection[str], later: Collection[str]) -> bool:
    """May what fails wait, and nobody can tell but by the error? What comes `later` with it would come after these then that meet
    others in the same and come beside it.
    """
    own = set[Any]().union(*(met[name] for name in later))
    others = set[Any]().union(*(met[name] for name in met if name not in later and name not in earlier))
    return own.isdisjoint(others) and not (own and others and ANY in own | others)


def _least(before: Before, held: Mapping[str, Conditions | None], pairs: Collection[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Those of `pairs` that no order among others of them and the graph's makes, whatever is `held` where."""
    ends_of: dict[str, set[str]] = {}
    for update, end in pairs:
        ends_of.setdefault(update, set()).add(end)
    ends = {end for _, end in pairs}
    sooner = {end: {o for o in ends if o != end and before.is_before(o, end) and _implies(held, end, o)} for end in ends}
    for update, mine in ends_of.items():
        later = set[str]().union(*(ends_of[other] for other in ends_of if other != update and before.is_before(update, other)))
        for end in mine:
            if end not in later and sooner[end].isdisjoint(later) and sooner[end].isdisjoint(mine):
                yield update, end


def _joins(view: GraphView, run: Collection[str], held: Mapping[str, Conditions | None], update: str) -> Iterator[str]:
    """Where the branches that an update is in come together again."""
    seen, queue = {update}, deque([update] if held[update] else ())
    while queue:
        for user in view.consumers[queue.popleft()]:
            if user in run and user not in seen:
                seen.add(user)
                queue.append(user)
                if view.nodes[user].op in rules.MERGES and held.get(user) is not None:
                    yield user


def _implies(held: Mapping[str, Conditions | None], end: str, write: str) -> bool:
    """Is it sure that the write is alive where the end is?"""
    least, most = held[write], held[end]
    return least is not None and most is not None and least <= most
