"""Array indices in kernels count from the start: numba's code for negative ones, a quarter of a simulation's time, is left out.

numba has no option for that. What it knows of an index it decides in one function, which is asked here for the functions of this
package only; other code of the process is compiled as ever, and so are literal indices. Without that function in another version
of numba kernels are slower, and right. It must not know what a kernel does. `NUMBA_BOUNDSCHECK=1`, with a NUMBA_CACHE_DIR of its
own, finds kernels that break the rule.
"""

from __future__ import annotations

from inspect import signature
from typing import Any

from llvmlite import ir
from numba import types
from numba.np import arrayobj

# How the names of compiled functions begin.
_OURS = "_ZN5stepd"


def leave_out_negative() -> None:
    """From here on, kernels of this package are compiled for indices from 0 on."""
    original = getattr(arrayobj, "fix_integer_index", None)
    if original is None or len(signature(original).parameters) != 5 or getattr(original, "of_stepd", False):
        return

    def fix_integer_index(context: Any, builder: Any, kind: Any, index: Any, size: Any) -> Any:
        if kind.signed and not isinstance(index, ir.Constant) and builder.function.name.startswith(_OURS):
            return context.cast(builder, index, kind, types.intp)
        return original(context, builder, kind, index, size)

    fix_integer_index.of_stepd = True  # type: ignore[attr-defined]
    arrayobj.fix_integer_index = fix_integer_index
