"""Order edges on random graphs: acyclic, harmless to every step kind, and never a reason for a device to idle."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tensorflow")


from order_cases import DEVICES, POOLS, Case, cases, kind, node, view_of

from stepd.core import enforced
from stepd.hook.engine.classify import Classes
from stepd.hook.order import control, edges, ties
from stepd.hook.order.edges import Edge
from stepd.hook.order.schedule import Pool, schedule
from stepd.hook.order.steps import executed
from stepd.hook.order.walk import needs, sorted_by_needs


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
    fused = node("conv", ["s"]), node("relu", ["conv"])
    view = view_of(node("s", []), *fused, node("other", ["s"], "Tanh"), node("after", ["relu"]))
    classes = Classes({}, {}, (("conv", "relu"),), {"conv": 0, "relu": 0}, frozenset())
    seconds = {"s": 0.0, "conv": 0.0, "relu": 1e-3, "other": 1e-3, "after": 0.0}
    priority = {"s": 0, "other": 1, "conv": 2, "relu": 3, "after": 4}
    case = Case(view, dict.fromkeys(view.nodes, "d0"), seconds, priority, (kind("after", "other"),), classes)
    assert case.edges() == (Edge("other", "relu", ties.Tie("other", None, "conv", 0)),)
    turned = Case(view, case.device_of, seconds, {**priority, "other": 9}, case.kinds, classes)
    assert turned.edges() == (Edge("relu", "other", ties.Tie("relu", ("after", 0), "other", -1)),)


def test_ops_that_wait_at_the_same_time_are_chained_by_priority() -> None:
    assert [(e.before, e.after) for e in fan(3, 1, 2).edges()] == [("r1", "r2"), ("r2", "r0")]


def test_an_op_waits_for_all_that_come_before_it_where_one_of_them_may_run_much_earlier() -> None:
    """In the plan the device runs `first`, `urgent`, `aside`, `late`. `aside` cannot be held for `urgent`, which waits for `far`:
    in a step in which `far` is late it runs long before, and then `late` must not run beside `urgent`."""
    view = view_of(node("far", []), node("first", []), node("urgent", ["far"]), node("aside", []), node("late", ["far"]))
    priority = {"far": 0, "first": 1, "urgent": 2, "aside": 3, "late": 4}
    seconds = dict.fromkeys(view.nodes, 1e-3) | {"first": 2e-3}
    step = kind("first", "urgent", "aside", "late")
    case = Case(view, dict.fromkeys(view.nodes, "d0") | {"far": "d1"}, seconds, priority, (step,))
    found = {(edge.before, edge.after) for edge in case.edges()}
    assert found == {("first", "urgent"), ("first", "aside"), ("aside", "late"), ("urgent", "late")}


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


def test_plans_leave_the_same_ops_unordered() -> None:
    """The daemon may not import the hook: what it takes to be unordered is written down twice."""
    assert (enforced.COSTLY_SHARE, enforced.COSTLY_SECONDS) == (edges.COSTLY_SHARE, edges.COSTLY_SECONDS)
