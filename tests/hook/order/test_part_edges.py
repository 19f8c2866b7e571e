"""Order edges where ops run in parts, on random graphs: acyclic by the pieces, within a device, by rising priority."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tensorflow")

from order_cases import DEVICES, POOLS, Case, cases, kind, node, view_of

from stepd.hook.order import priorities
from stepd.hook.order.edges import Edge, Wanted
from stepd.hook.order.part_edges import part_edges
from stepd.hook.order.pieces import piece, pieces_of
from stepd.hook.order.steps import executed
from stepd.hook.order.walk import sorted_by_needs
from stepd.hook.rewrite.chosen import Chosen
from stepd.hook.rewrite.slots import PARTIAL, WHOLE, Way, cut


def halves(inputs: int, devices: tuple[str, ...], whole: int = 0) -> Chosen:
    """An op in one part a device; its first `whole` inputs go to every part."""
    slots = tuple(WHOLE if k < whole else cut(0) for k in range(inputs))
    return Chosen(Way("0", slots, (cut(0),)), 1, tuple(range(len(devices) + 1)), devices)


def found(case: Case, chosen: dict[str, Chosen]) -> tuple[Edge, ...]:
    wanted = Wanted(case.priority, case.seconds)
    return part_edges(case.view, case.classes, case.kinds, wanted, chosen, case.device_of, POOLS)


@st.composite
def split_cases(draw: Any) -> tuple[Case, dict[str, Chosen]]:
    case = draw(cases())
    rng = random.Random(draw(st.integers(0, 2**32)))
    chosen = {}
    for name, op in case.view.nodes.items():
        inputs = sum(index >= 0 for _, index in op.inputs)
        if op.op == "Einsum" and rng.random() < 0.6:
            places = tuple(rng.choice(DEVICES) for _ in range(rng.choice((2, 2, 3))))
            chosen[name] = halves(inputs, places, rng.randint(0, inputs))
            if rng.random() < 0.2:
                chosen[name] = Chosen(Way("s", chosen[name].way.inputs, (PARTIAL,)), 1, chosen[name].bounds, places)
    return case, chosen


@settings(max_examples=150, deadline=None)
@given(split_cases())
def test_all_pieces_of_a_step_have_an_order_with_the_edges(drawn: tuple[Case, dict[str, Chosen]]) -> None:
    case, chosen = drawn
    made = found(case, chosen)
    for step_kind in case.kinds:
        step = executed(case.view, step_kind)
        pieces = pieces_of(case.view, step, chosen, case.device_of)
        ends = [(piece(e.tie.signal, e.parts[0]), piece(e.tie.held, e.parts[1])) for e in made]
        here = [(a, b) for a, b in ends if a in pieces.needed and b in pieces.needed]
        assert sorted_by_needs(pieces.needed, here) is not None
        assert all(a in step for a, b in [(e.tie.signal, e.tie.held) for e in made] if b in step), "an op is dragged into the step"


@settings(max_examples=150, deadline=None)
@given(split_cases())
def test_edges_rise_in_priority(drawn: tuple[Case, dict[str, Chosen]]) -> None:
    case, chosen = drawn
    for edge in found(case, chosen):
        assert case.priority[edge.before] < case.priority[edge.after]


def branches(first: str, second: str) -> tuple[Case, dict[str, Chosen]]:
    """Two ops in two parts, both ready at once, of which `first` is to go before `second`."""
    view = view_of(node("x", []), node("a", ["x"]), node("b", ["x"]), node("end", ["a", "b"]))
    priority = {"x": 0, first: 1, second: 2, "end": 3}
    case = Case(view, dict.fromkeys(view.nodes, "d0"), {"a": 4e-3, "b": 4e-3, "end": 1e-3}, priority, (kind("end"),))
    return case, {name: halves(1, ("d0", "d1")) for name in ("a", "b")}


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")])
def test_parts_that_wait_on_both_devices_go_in_the_order_that_is_wanted(first: str, second: str) -> None:
    made = {(e.before, e.after, e.parts) for e in found(*branches(first, second))}
    assert {(first, second, (k, k)) for k in (0, 1)} <= made


def test_parts_have_the_priority_of_their_op_on_the_native_executor() -> None:
    protos = [node(name, []).proto for name in ("a-stepd_1", "b-stepd_1", "a-stepd_1-part0", "a-stepd_1-cut0x0")]
    marked = priorities.with_table(protos, ["a", "b"], {"a": 7}, 3)
    assert marked == {"a-stepd_1": 7, "a-stepd_1-part0": 7}
