"""The graph of one session as it is now, what of it may move, and what runs have taught about that.

Both are worked out anew when the graph has grown or something was learned. It must not know strategies, copies or switches.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Sequence

from stepd.hook.engine import capi, failing, names
from stepd.hook.engine.classify import Classes, classify
from stepd.hook.engine.cluster import needs_trainer
from stepd.hook.engine.devices import Devices
from stepd.hook.engine.graphview import GraphView, split_input
from stepd.hook.engine.home import allowed, home
from stepd.hook.engine.kinds import Kind
from stepd.hook.engine.mirror import Mirror
from stepd.hook.engine.reads import First, Unordered
from stepd.hook.engine.terms import Chain, uncertain
from stepd.hook.order import barriers
from stepd.hook.order.steps import executed
from stepd.hook.ports import StepKind
from stepd.hook.rewrite import shared_reads
from stepd.hook.rewrite.shapes import static_shapes


class Sight:
    """See the module. Every method is called with the session's lock held."""

    def __init__(self, mirror: Mirror, shared_variables: bool, devices: Devices) -> None:
        """`shared_variables`: other sessions see this one's variables, so that they must stay."""
        self._mirror = mirror
        self._shared_variables = shared_variables
        self._devices = devices
        self._busy: dict[str, str] = {}
        self._seen_busy: dict[str, str] = {}
        self._shapes = static_shapes(mirror.user_graph)
        self._unordered = Unordered(lambda view, name: home(view, devices, view.nodes[name]), self._shapes)
        self._heard: dict[tuple[StepKind, str], list[str]] = {}
        self._given: dict[str, str] = {}
        self._version = -1
        self._view: GraphView | None = None
        self._classes: Classes | None = None
        self._unsure_of: GraphView | None = None
        self._unsure: dict[str, tuple[Chain, ...]] = {}
        self._lifts: tuple[Classes, barriers.Lifts] | None = None

    def view(self) -> GraphView:
        """The graph, by the user's names."""
        self._refresh()
        assert self._view is not None
        return self._view

    def heard_before(self, step: StepKind, failed: str) -> list[str]:
        """As `failing.heard_before`, which is asked once of each: some programs fail often."""
        view = self.view()
        if (step, failed) not in self._heard:
            self._heard[step, failed] = failing.heard_before(view, step, failed, self._shapes)
        return self._heard[step, failed]

    def classes(self) -> Classes:
        """What of it may move."""
        self._refresh()
        assert self._classes is not None
        return self._classes

    def builds_alike(self) -> bool:
        """Is it known that steps that are built anew give what they give on the program's own ops? The lock need not be held."""
        classes = self._classes
        return classes is not None and not classes.apart and not self.is_stale()

    def uncertain(self) -> dict[str, tuple[Chain, ...]]:
        """Sums whose order the devices of a copy could change, with what each input may be read from."""
        if self._unsure_of is not self.view():
            self._unsure_of = self.view()
            self._unsure = uncertain(self._unsure_of)
        return self._unsure

    def liftable(self) -> barriers.Lifts:
        """Waits of the graph that a copy can do without."""
        classes = self.classes()
        if self._lifts is None or self._lifts[0] is not classes:
            self._lifts = (classes, barriers.liftable(self.view(), classes))
        return self._lifts[1]

    def homes(self, step: StepKind) -> set[str]:
        """On which devices a step runs plainly."""
        view = self.view()
        return {home(view, self._devices, view.nodes[name]) for name in executed(view, step)}

    def lifts(self, steps: Collection[StepKind]) -> barriers.Lifts:
        """Waits that a copy for these steps does without: none where a read and a write have no order but their moments."""
        lifts = self.liftable()
        if not lifts or not all(self._unordered.settled(self.view(), step) for step in steps):
            return barriers.NOTHING
        return barriers.common(self.view(), lifts, steps)

    def shares(self, steps: Collection[StepKind]) -> shared_reads.Shares:
        """Reads that others make as well in a copy for these steps: none where a read and a write lack an order."""
        found = shared_reads.shareable(self.view(), self.classes())
        if not found or not all(self._unordered.settled(self.view(), step) for step in steps):
            return shared_reads.NOTHING
        runs = {step: executed(self.view(), step) for step in steps}
        return frozenset(share for share in found if all(shared_reads.serve([share], step, run) for step, run in runs.items()))

    def is_stale(self) -> bool:
        """Has the graph grown since it was last looked at?"""
        return self._version != self._mirror.version

    def _refresh(self) -> None:
        if self.is_stale():
            user_names = {here: name for name, (here, _) in self._mirror.aliases.items()}

            def user_name(name: str) -> str | None:
                return None if names.is_own(name) else user_names.get(name, name)

            placer = self._mirror.placer
            requested = placer.requested if placer else None
            graph_def = capi.graph_handle_bytes(self._mirror.graph.handle)
            self._view = GraphView.parse(graph_def, user_name, requested)
            self._version = self._mirror.version
            self._classes, self._heard = None, {}
        if self._classes is None:
            assert self._view is not None
            self._classes = self._classify(self._view)
            if self._unordered.stay_beside(self._view, self._classes.held):
                self._classes = self._classify(self._view)

    def _classify(self, view: GraphView) -> Classes:
        tied = {**self._tied(), **self._busy, **self._unordered.kept, **self._given}
        return classify(view, self._shared_variables, tied, functools.partial(home, view, self._devices))

    def _tied(self) -> dict[str, str]:
        placer = self._mirror.placer
        if placer is None:
            assert self._view is not None
            if not self._devices.of_several_tasks():
                return {}
            here = [node.name for node in self._view.nodes.values() if needs_trainer(node.proto, self._view.functions)]
            return dict.fromkeys(here, "works with the files or the streams of its task")
        return {n: "runs in the training process" for n, d in placer.device_of.items() if d == placer.trainer}

    def see_as(self, other: Sight) -> None:
        """Take over what is known of the same graph in another session; called with that one's lock held or nothing added to it."""
        self._unordered, self._given = other._unordered.copy(), dict(other._given)
        if not other._busy and other._version == self._mirror.version:
            self._view, self._classes, self._version = other._view, other._classes, other._version

    # -- what runs teach -----------------------------------------------------------------------------------------------

    def note_busy(self, kinds: Sequence[Kind], moves: Collection[str]) -> None:
        """Runs of `kinds` do not end, and use some of the variables that were to move."""
        used = self.view().ancestors(name for kind in kinds for name in kind.ops())
        self._seen_busy = {name: "used by a run that does not end" for name in moves if name in used}

    def give_up_on_busy(self) -> bool:
        """Leave the variables where they are that the last switch could not move; True when there are any new ones."""
        new = self._seen_busy.keys() - self._busy.keys()
        self._busy |= self._seen_busy
        self._classes = None
        return bool(new)

    def learn(self, kinds: Iterable[Kind]) -> Collection[str]:
        """What these kinds read and write without order stays where it is from now on, and variables whose handles they fetch;
        returns what of it is new."""
        kinds = list(kinds)
        new = {**self._unordered.learn(self.view(), kinds), **self._fetched_handles(kinds)}
        new |= self._unordered.stay_beside(self.view(), self.classes().held)
        if new:
            self._classes = None
        return new

    def _fetched_handles(self, kinds: Iterable[Kind]) -> dict[str, str]:
        """Where each run is placed for itself, TensorFlow gives a handle out on the session's own device only."""
        fetched = {split_input(name)[0] for kind in kinds for name in kind.step.fetches}
        new = {name for name in fetched - self._given.keys() if self.view().nodes[name].op == "VarHandleOp"}
        self._given |= dict.fromkeys(new, "the program fetches its handle")
        return {name: self._given[name] for name in new}

    def first_reads(self, kind: Kind) -> frozenset[First]:
        """The reads that come before writes in a step of `kind`, as far as a copy must see to it."""
        return self._unordered.first(kind, self.classes().held)

    def settled(self, kind: Kind) -> bool:
        """Is all that a step of `kind` reads and writes in some order but that of the moments?"""
        return self._unordered.settled(self.view(), kind.step)

    # -- what may move -------------------------------------------------------------------------------------------------

    def units(self, devices: Devices) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
        """What may move: (ops that move together, devices on which all of them may run)."""
        view, classes = self.view(), self.classes()
        alone = [(n,) for n in view.nodes if n not in classes.group_of and n not in classes.pinned]
        together = [group for group in classes.groups if not any(name in classes.pinned for name in group)]
        return [(members, self._common(members, devices)) for members in (*alone, *together)]

    def _common(self, members: tuple[str, ...], devices: Devices) -> tuple[str, ...]:
        each = [allowed(self.view(), devices, self.view().nodes[name]) for name in members]
        return tuple(d for d in each[0] if all(d in other for other in each[1:]))
