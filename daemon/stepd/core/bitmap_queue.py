"""Queues of integers from 0 to a limit from which the smallest is taken: bitmaps over bitmaps, in arrays, for kernels.

A bit of the lowest level stands for an integer, one of the next level for a word of the one below. A heap of a thousand keys takes
ten comparisons for one of them that no processor foresees; this takes two or three words. Where thousands of ops are ready a
simulation takes half of the time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from stepd.core.compiled import inlined, kernel
from stepd.core.problem import Index, Int

_ONE = np.int64(1)


@kernel
def levels_of(limit: int) -> Index:
    """Where the levels of a queue of integers below `limit` begin, the lowest first, and how many words it has."""
    levels: Index = np.zeros(12, dtype=np.int32)  # enough for 64 ** 11
    depth, words = 0, limit
    while depth == 0 or words > 1:
        words = (words + 63) >> 6
        levels[depth + 1] = levels[depth] + words
        depth += 1
    begin: Index = levels[: depth + 1].copy()
    return begin


@inlined
def push(words: Int, levels: Index, base: int, key: int) -> None:
    """Add `key`, which is not in the queue that starts at words[base]."""
    for level in range(len(levels) - 1):
        at = base + levels[level] + (key >> 6)
        words[at] |= _ONE << (key & 63)
        key >>= 6


@inlined
def pop(words: Int, levels: Index, base: int) -> int:
    """Take the smallest key out of the queue that starts at words[base], which is not empty."""
    key = 0
    for level in range(len(levels) - 2, -1, -1):
        key = (key << 6) + _lowest_bit(words[base + levels[level] + key])
    left = key
    for level in range(len(levels) - 1):
        at = base + levels[level] + (left >> 6)
        words[at] &= ~(_ONE << (left & 63))
        if words[at] != 0:
            break
        left >>= 6
    return key


def _lowest_bit(word: int) -> int:
    """Which bit is the lowest that is set, of a word in which one is."""
    plain = int(word)
    return (plain & -plain).bit_length() - 1


@intrinsic
def _trailing_zeros(_: Any, word: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), code


@overload(_lowest_bit)
def _compiled_lowest_bit(word: Any) -> Any:
    def lowest_bit(word: Any) -> Any:
        return _trailing_zeros(word)  # type: ignore[call-arg]

    return lowest_bit
