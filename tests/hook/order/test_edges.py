"""Order edges on random graphs: acyclic, harmless to every step kind, and never a reason for a device to idle."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tensorflow")

from tensorflow.core.framework import node_def_pb2, types_pb2

from stepd.hook.engine.classify import Classes
from stepd.hook.engine.graphview import GraphView, Node, Union
from stepd.hook.order import control, edges, ties
from stepd.hook.order.edges import Edge, Wanted, order_edges
from stepd.hook.order.schedule import Pool, schedule
from stepd.hook.order.steps import executed
from stepd.hook.order.walk import needs, sorted_by_needs
from stepd.hook.ports import StepKind

DEVICES = ("d0", "d1", "d2")
POOLS = {device: Pool(device, 1) for device in DEVICES}
NOTHING_HELD = Classes({}, {}, (), {}, frozenset())


@dataclass(frozen=True)
class Case:
    """A graph, where its ops are, what they cost, their priorities and the steps that run."""

    view: GraphView
    device_of: Mapping[str, str]
    seconds: Mapping[str, float]
    priority: Mapping[str, int]
    kinds: tuple[StepKind, ...]
    classes: Classes = NOTHING_HELD

    def edges(self) -> tuple[Edge, ...]:
        return order_edges(self.view, self.classes, self.kinds, Wanted(self.priority, self.seconds), self.device_of, POOLS)


def node(name: str, inputs: Sequence[str], op: str = "Einsum") -> Node:
    """A node of a kind that takes and gives floats; "^x" is a control input."""
    proto = node_def_pb2.NodeDef(name=name, op=op, input=inputs)
    if op == "Einsum":
        proto.attr["T"].type = types_pb2.DT_FLOAT
        proto.attr["N"].i = sum(not i.startswith("^") for i in inputs)
    parsed = tuple((i.lstrip("^").partition(":")[0], -1 if i.startswith("^") else int(i.partition(":")[2] or 0)) for i in inputs)
    return Node(name, op, parsed, "", "", proto)


def view_of(*nodes: Node) -> GraphView:
    return GraphView({n.name: n for n in nodes}, {})


def kind(*fetches: str, feeds: Sequence[str] = ()) -> StepKind:
    return StepKind(",".join((*fetches, "|", *feeds)), tuple(feeds), tuple(f"{name}:0" for name in fetches), ())


@st.composite
def cases(draw: Any) -> Case:
    """Up to 40 ops on up to three devices; some dequeue, some depend by control only; up to three step kinds, some feed inside."""
    seed = draw(st.integers(0, 2**32))
    rng = random.Random(seed)
    count = draw(st.integers(2, 40))
    names = [f"n{i}" for i in range(count)]
    rng.shuffle(names)
    nodes = []
    for i, name in enumerate(names):
        found = rng.sample(names[:i], min(i, rng.choice((0, 1, 1, 2, 3))))
        inputs = sorted((f"^{s}" if rng.random() < 0.15 else s for s in found), key=lambda s: s.startswith("^"))
        op = "QueueDequeueV2" if rng.random() < 0.07 else "Einsum"
        nodes.append(node(name, [i for i in inputs if op == "Einsum" or i.startswith("^")], op))
    rng.shuffle(nodes)
    devices = DEVICES[: draw(st.integers(1, 3))]
    kinds = []
    for _ in range(draw(st.integers(1, 3))):
        feeds = tuple(f"{n}:0" for n in names if rng.random() < 0.05)
        kinds.append(kind(*rng.sample(names, rng.randint(1, min(count, 4))), feeds=feeds))
    priority = list(range(count))
    rng.shuffle(priority)
    return Case(
        view_of(*nodes),
        {name: rng.choice(devices) for name in names},
        {name: rng.choice((0.0, 1e-6, 1e-3, 5e-3)) for name in names},
        dict(zip(names, priority, strict=True)),
        tuple(kinds),
        grouped(nodes, rng, draw(st.sampled_from((0.0, 0.3)))),
    )


def grouped(nodes: Sequence[Node], rng: random.Random, share: float) -> Classes:
    """Some neighbours may be fused."""
    union = Union()
    for one in nodes:
        for source, index in one.inputs:
            if index >= 0 and rng.random() < share:
                union.join(source, one.name)
    groups = tuple(tuple(names) for names in union.sets() if len(names) > 1)
    return Classes({}, {}, groups, {name: i for i, group in enumerate(groups) for name in group}, frozenset())


@settings(max_examples=150, deadline=None)
@given(cases())
def test_with_its_edges_the_graph_of_all_devices_has_an_order(case: Case) -> None:
    found = case.edges()
    needed = needs(case.view, case.view.nodes.keys())
    order = sorted_by_needs(needed, [(edge.tie.signal, edge.tie.held) for edge in found])
    assert order is not None and len(order) == len(case.view.nodes)
    place = {name: i for i, name in enumerate(order)}
    assert all(place[edge.before] < place[edge.after] for edge in found)


@settings(max_examples=150, deadline=None)
@given(cases())
def test_no_step_executes_an_op_more_for_an_edge(case: Case) -> None:
    found = case.edges()
    for step_kind in case.kinds:
        step = executed(case.view, step_kind)
        assert control.serves(found, step)
        dragged = {edge.tie.signal for edge in found if edge.tie.held in step} - step
        assert not dragged


@settings(max_examples=150, deadline=None)
@given(cases())
def test_edges_lie_between_costly_ops_of_one_device_by_rising_priority(case: Case) -> None:
    for edge in case.edges():
        assert case.device_of[edge.before] == case.device_of[edge.after]
        assert case.priority[edge.before] < case.priority[edge.after]
        assert min(case.seconds[edge.before], case.seconds[edge.after]) >= edges.COSTLY_SECONDS


def idle_while_work_waits(case: Case, found: Sequence[Edge], step: frozenset[str], rng: random.Random) -> str:
    """Run a step on serial devices with transfers and dequeues of random length, any ready op first; the op that an edge held
    back while its device had nothing to do, "" when there is none."""
    needed = needs(case.view, step)
    arrival: dict[tuple[str, str], float] = {}
    left: dict[str, set[str]] = {name: set(sources) for name, sources in needed.items()}
    held = {name: {e.tie.signal for e in found if e.tie.held == name} for name in step}
    waiting = {name for name in step if not left[name]}
    busy: dict[str, str] = {}
    events: list[tuple[float, str, str, str]] = []  # (time, what, op, device)
    now = 0.0

    def start() -> str:
        for device in DEVICES:
            mine = sorted(name for name in waiting if case.device_of[name] == device)
            blocked = [name for name in mine if case.view.nodes[name].op == "QueueDequeueV2"]
            for name in blocked:  # waits for the world, not on a lane
                waiting.discard(name)
                heapq.heappush(events, (now + rng.random() * 0.02, "done", name, ""))
            free = [name for name in mine if not held[name] and name not in blocked]
            if device in busy:
                continue
            if free:
                name = rng.choice(free)
                waiting.discard(name)
                busy[device] = name
                heapq.heappush(events, (now + case.seconds[name], "done", name, device))
            elif set(mine) - set(blocked):
                return min(set(mine) - set(blocked))
        return ""

    idle = start()
    while events and not idle:
        now = events[0][0]
        while events and events[0][0] == now:
            _, what, name, device = heapq.heappop(events)
            if what == "done":
                if device:
                    busy.pop(device)
                for other in held.values():
                    other.discard(name)
                for user in (u for u in step if name in needed[u]):
                    where = case.device_of[user]
                    if where == case.device_of[name]:
                        left[user].discard(name)
                    elif (name, where) not in arrival:
                        arrival[name, where] = now + rng.random() * 0.02
                        heapq.heappush(events, (arrival[name, where], "sent", name, where))
                    if not left[user]:
                        waiting.add(user)
            else:
                for user in (u for u in step if name in needed[u] and case.device_of[u] == device):
                    left[user].discard(name)
                    if not left[user]:
                        waiting.add(user)
        idle = start()
    return idle


@settings(max_examples=150, deadline=None)
@given(cases(), st.integers(0, 2**32))
def test_no_edge_lets_a_device_idle_however_late_receives_come(case: Case, seed: int) -> None:
    rng = random.Random(seed)
    found = case.edges()
    for step_kind in case.kinds:
        assert idle_while_work_waits(case, found, executed(case.view, step_kind), rng) == ""


def test_the_simulation_above_sees_head_of_line_blocking() -> None:
    view = view_of(node("far", []), node("first", ["far"]), node("second", []))
    device_of = {"far": "d1", "first": "d0", "second": "d0"}
    case = Case(view, device_of, dict.fromkeys(view.nodes, 1e-3), {"far": 0, "first": 1, "second": 2}, (kind("first", "second"),))
    assert case.edges() == ()
    late = Edge("first", "second", ties.Tie("first", None, "second", -1))
    assert idle_while_work_waits(case, [late], frozenset(view.nodes), random.Random(0)) == "second"


def fan(*priorities: int) -> Case:
    """A source and its independent readers on one device, of these priorities."""
    readers = [f"r{i}" for i in range(len(priorities))]
    view = view_of(node("s", []), *(node(name, ["s"]) for name in readers))
    priority = {"s": 0} | dict(zip(readers, priorities, strict=True))
    return Case(view, dict.fromkeys(view.nodes, "d0"), dict.fromkeys(view.nodes, 1e-3), priority, (kind(*readers),))


def test_a_fused_op_is_held_where_its_first_part_takes_its_input() -> None:
    """Costs of fused kernels lie with the last of their ops: `relu` of `conv`, of which `other` is to run first."""
    view = view_of(node("s", []), node("conv", ["s"]), node("relu", ["conv"]), node("other", ["s"]), node("after", ["relu"]))
    classes = Classes({}, {}, (("conv", "relu"),), {"conv": 0, "relu": 0}, frozenset())
    seconds = {"s": 0.0, "conv": 0.0, "relu": 1e-3, "other": 1e-3, "after": 0.0}
    priority = {"s": 0, "other": 1, "conv": 2, "relu": 3, "after": 4}
    case = Case(view, dict.fromkeys(view.nodes, "d0"), seconds, priority, (kind("after", "other"),), classes)
    assert case.edges() == (Edge("other", "relu", ties.Tie("other", None, "conv", 0)),)
    turned = Case(view, case.device_of, seconds, {**priority, "other": 9}, case.kinds, classes)
    assert turned.edges() == (Edge("relu", "other", ties.Tie("relu", ("after", 0), "other", -1)),)


def test_ops_that_wait_at_the_same_time_are_chained_by_priority() -> None:
    assert [(e.before, e.after) for e in fan(3, 1, 2).edges()] == [("r1", "r2"), ("r2", "r0")]


def test_cheap_ops_are_left_alone() -> None:
    case = fan(3, 1, 2)
    cheap = Case(case.view, case.device_of, {**case.seconds, "r2": 1e-6}, case.priority, case.kinds)
    assert [(e.before, e.after) for e in cheap.edges()] == [("r1", "r0")]


def test_ops_of_different_step_kinds_are_left_alone() -> None:
    case = fan(3, 1, 2)
    kinds = (kind("r0", "r1", "r2"), kind("r2"))
    assert [(e.before, e.after) for e in Case(case.view, case.device_of, case.seconds, case.priority, kinds).edges()] == [
        ("r1", "r0")
    ]


def test_a_step_that_feeds_what_comes_before_an_op_does_not_execute_it() -> None:
    view = view_of(node("x", []), node("a", ["x"]), node("b", ["a"]), node("c", ["b", "a:1"]))
    assert executed(view, kind("c", feeds=["b:0"])) == {"c", "a", "x"}
    assert executed(view, kind("c", feeds=["b:0", "a:1"])) == {"c"}
    assert executed(view, kind("c", feeds=["c:0"])) == frozenset()


def test_nothing_comes_after_an_op_that_may_never_run() -> None:
    """`first` needs what is dequeued, `second` may be what somebody else dequeues for."""
    view = view_of(node("q", [], "QueueDequeueV2"), node("first", ["^q"]), node("second", []))
    case = Case(
        view,
        dict.fromkeys(view.nodes, "d0"),
        {"first": 1e-3, "second": 1e-3},
        {"q": 0, "first": 1, "second": 2},
        (kind("first", "second"),),
    )
    assert case.edges() == ()


def test_devices_that_run_several_ops_at_once_are_kept_busy() -> None:
    needed: dict[str, list[str]] = {name: [] for name in "abcd"}
    two = dict.fromkeys(needed, Pool("threads", 2))
    plan = schedule(needed, two, dict.fromkeys(needed, 1.0), {"a": 0, "b": 1, "c": 2, "d": 3})
    assert [plan.start[n] for n in "abcd"] == [0.0, 0.0, 1.0, 1.0]
    assert {plan.before["c"], plan.before["d"]} == {"a", "b"}


@given(cases())
@settings(max_examples=100, deadline=None)
def test_a_schedule_keeps_needs_and_lanes(case: Case) -> None:
    needed = needs(case.view, case.view.nodes.keys())
    plan = schedule(needed, {n: POOLS[d] for n, d in case.device_of.items()}, case.seconds, case.priority)
    assert plan.finish.keys() == needed.keys()
    assert all(plan.finish[source] <= plan.ready[name] <= plan.start[name] for name in needed for source in needed[name])
    for device in DEVICES:
        mine = sorted((plan.start[n], plan.finish[n]) for n, d in case.device_of.items() if d == device and case.seconds[n] > 0)
        assert all(one[1] <= other[0] + 1e-12 for one, other in itertools.pairwise(mine))
