"""Judging devices by lower bounds first gives the device that a look at all of them gives, at every op of a schedule."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepd.core.compiled import kernel
from stepd.core.placement.device_choice import fastest_device, roomiest
from stepd.core.placement.partial_schedule import (
    Rules,
    can_run,
    fits,
    inputs_on,
    limits_of,
    new_partial,
    output_bytes,
    place,
    start_on,
)
from stepd.core.placement.timeline import earliest
from stepd.core.prepared import prepare


@kernel
def differences(tables, limits, rules, order):
    """Ops of a list schedule for which a look at every device finds another one."""
    state = new_partial(tables, limits, rules)
    found = 0
    for op in order:
        chosen = fastest_device(tables, limits, rules, state, op)
        best, best_finish, best_incoming = -1, np.inf, np.inf
        for device in range(len(tables.memory)):
            if can_run(tables, limits, state, op, device):
                ready, incoming = inputs_on(tables, rules, state, op, device)
                start = start_on(tables, rules, state, op, device, ready)
                if ready < np.inf:  # what it remembers of earlier looks changes no answer
                    found += start != earliest(state.busy, device, ready, tables.seconds[op, device], rules.insertion)
                finish = start + tables.seconds[op, device]
                better = finish < best_finish or (finish == best_finish < np.inf and incoming < best_incoming)
                if better and fits(tables, limits, state, op, device, incoming, output_bytes(tables, op)):
                    best, best_finish, best_incoming = device, finish, incoming
        found += chosen != best
        place(tables, limits, rules, state, op, best if best >= 0 else roomiest(tables, limits, state, op))
    return found


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_fastest_device_is_that_of_a_look_at_all(data, lab):
    problem = data.draw(lab.problems(max_ops=20, max_devices=6, memory=(12, 40, 10**6)))
    prepared = prepare(problem)
    rules = Rules(data.draw(st.booleans()), data.draw(st.booleans()), data.draw(st.sampled_from([2, 64])))
    assert differences(prepared.tables, limits_of(prepared, 1.0), rules, prepared.tables.topological) == 0
