"""Static shapes of a tf.Graph's tensors, as rules want them. The only place of this room that knows a graph object."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

Shape = tuple[int, ...]


def static_shapes(graph: Any) -> Callable[[str, int], Shape | None]:
    """A function (op, output) -> shape with -1 for unknown dimensions, None for an unknown rank or tensor.

    `graph` is a tf.Graph; it is read when the function is called, and not kept alive by it.
    """
    kept = weakref.ref(graph)

    def shape(name: str, index: int) -> Shape | None:
        try:
            dims = kept().get_operation_by_name(name).outputs[index].shape  # type: ignore[union-attr]
            return None if dims.rank is None else tuple(-1 if d is None else int(d) for d in dims.as_list())
        except (AttributeError, KeyError, IndexError, ValueError):
            return None

    return shape
