"""Idle gaps, held against a plain list of busy intervals."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stepd.core.placement.timeline import earliest, earliest_on_all, new_timelines, take


def first_start(busy, ready, duration):
    """The earliest start from `ready` on that meets none of the `busy` intervals."""
    starts = [ready, *(end for _, end in busy if end >= ready)]
    return min(s for s in starts if all(s + duration <= a or s >= b for a, b in busy))


# Quarters of a second add up exactly.
quarters = st.integers(1, 40).map(lambda k: k / 4)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0, 1]), st.integers(0, 60).map(lambda k: k / 4), quarters), max_size=30))
def test_what_is_taken_is_the_earliest_room_there_is(requests):
    lines = new_timelines(2, 64, 0.0)
    busy = ([], [])
    for row, ready, duration in requests:
        start = earliest(lines, row, ready, duration, True)
        assert start == first_start(busy[row], ready, duration)
        assert earliest(lines, row, ready, duration, False) == max([ready, *(end for _, end in busy[row])])
        take(lines, row, start, duration)
        busy[row].append((start, start + duration))
    both = earliest_on_all(lines, np.array([0, 1], dtype=np.int32), 1.0, 2.0)
    assert both == first_start([*busy[0], *busy[1]], 1.0, 2.0)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60).map(lambda k: k / 4), quarters), max_size=30))
def test_a_short_memory_of_gaps_never_books_a_resource_twice(requests):
    lines = new_timelines(1, 2, 0.0)
    busy = []
    for ready, duration in requests:
        start = earliest(lines, 0, ready, duration, True)
        assert start >= first_start(busy, ready, duration)
        take(lines, 0, start, duration)
        busy.append((start, start + duration))
    busy.sort()
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(busy))


def test_what_takes_no_time_needs_no_gap():
    lines = new_timelines(1, 8, 0.0)
    take(lines, 0, 0.0, 5.0)
    assert earliest(lines, 0, 1.0, 0.0, True) == 1.0
    take(lines, 0, 1.0, 0.0)
    assert earliest(lines, 0, 0.0, 1.0, True) == 5.0
