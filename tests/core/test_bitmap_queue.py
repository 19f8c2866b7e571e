"""The queue of integers against the heap of the standard library."""

import heapq

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from numpy.testing import assert_equal

from stepd.core.bitmap_queue import levels_of, pop, push
from stepd.core.compiled import interpreted
from stepd.core.problem import Index, Int


@njit
def _push(words: Int, levels: Index, base: int, key: int) -> None:
    push(words, levels, base, key)


@njit
def _pop(words: Int, levels: Index, base: int) -> int:
    return pop(words, levels, base)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([1, 63, 64, 65, 4096, 4097, 300_000]), st.data(), st.booleans())
def test_the_smallest_comes_first(limit: int, data: st.DataObject, compiled: bool) -> None:
    put, take = (_push, _pop) if compiled else (interpreted(push), interpreted(pop))
    levels = levels_of(limit)
    base = 3
    words = np.zeros(base + levels[-1] + 1, dtype=np.int64)
    heap: list[int] = []
    key = st.one_of(st.integers(0, limit - 1), st.just(limit - 1), st.integers(0, min(limit, 70) - 1))
    for number in data.draw(st.lists(st.one_of(key, st.none()), max_size=60)):
        if number is None and heap:
            assert_equal(take(words, levels, base), heapq.heappop(heap))
        elif number is not None and number not in heap:
            put(words, levels, base, np.int32(number))
            heapq.heappush(heap, number)
    while heap:
        assert_equal(take(words, levels, base), heapq.heappop(heap))
    assert not words.any()
