"""The one place that says how kernels are compiled: plain Python functions under numba, cached, without the GIL.

A kernel is written so that it runs unchanged with the compiler off (NUMBA_DISABLE_JIT=1): that is its oracle. It takes
arrays of always the same dtypes (index arrays int32, bytes int64, seconds float64, all writeable and C-contiguous) so that
each kernel is compiled for one signature only; calls between kernels pass every integer as int64. Indices are never negative
(`indices`). A cached kernel that calls a kernel of another file does not notice when that file changes; so whoever imports kernels
first lets `stepd.kernels.cache` choose a folder for the sources as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import FunctionType
from typing import Any, TypeVar, cast

from numba import njit, types

from stepd.core.indices import leave_out_negative

F = TypeVar("F", bound=Callable[..., Any])

# The entry from C would be one more unpacking of all arrays to compile, and nobody calls it.
COMMON: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
leave_out_negative()


def kernel(function: F) -> F:
    """Compile `function` on its first call, keep the result on disk, run it without the GIL."""
    return _compiled(function)


def lean(function: F) -> F:
    """As `kernel`, for functions that create no arrays: compiled without reference counts, which cost more than the arithmetic."""
    return _compiled(function, _nrt=False)


def inner(function: F) -> F:
    """As `lean`, for functions that only other kernels call: the entry from Python, a large part of their code, is left out."""
    return _compiled(function, _nrt=False, no_cpython_wrapper=True)


def inlined(function: F) -> F:
    """As `inner`, its code put into every caller. A call hands over each field of each array of its tuples, hundreds of values:
    in the innermost loops that costs more than the work. For functions that are small or called from one or two places."""
    return _compiled(function, _nrt=False, no_cpython_wrapper=True, forceinline=True)


def compilations(function: Callable[..., Any]) -> int:
    """How often this process had to compile `function` since the cache did not have it; 0 with the compiler off."""
    stats = getattr(function, "stats", None)
    return sum(stats.cache_misses.values()) if stats is not None else 0


def at_hand(function: Callable[..., Any]) -> bool:
    """Whether calling `function` compiles nothing: it was called before, numba's cache has it, or the compiler is off."""
    dispatcher: Any = function
    if not hasattr(dispatcher, "py_func") or dispatcher.signatures:
        return True
    try:  # numba has no public way to ask its cache
        return bool(dispatcher._cache._cache_file._load_index())
    except (AttributeError, OSError):
        return False


@lru_cache(maxsize=16)
def interpreted(function: F) -> F:
    """`function` and all kernels that it calls as the plain Python that they are written in: slow, and nothing to compile."""
    return cast(F, _plain(function, {}))


def _plain(function: Any, known: dict[Any, Any]) -> Any:
    source = getattr(function, "py_func", None)
    if source is None:
        return function
    if source not in known:
        names = dict(source.__globals__)
        known[source] = FunctionType(source.__code__, names, source.__name__, source.__defaults__, source.__closure__)
        for name in source.__code__.co_names:
            if hasattr(names.get(name), "py_func"):
                names[name] = _plain(names[name], known)
    return known[source]


def _compiled(function: F, **options: Any) -> F:
    """numba compiles anew for an int32, an int64, each constant, and even what a variable holds before a loop: widen them all."""
    dispatcher: Any = njit(**COMMON, **options)(function)
    if hasattr(dispatcher, "get_call_template"):  # not with the compiler off
        template = dispatcher.get_call_template
        dispatcher.get_call_template = lambda arguments, keywords: template(tuple(map(_widened, arguments)), keywords)
    return cast(F, dispatcher)


def _widened(kind: Any) -> Any:
    plain: Any = types.unliteral(kind)  # type: ignore[no-untyped-call]
    return types.int64 if isinstance(plain, types.Integer) else plain
