"""Values that runs fetch beside what the program asks for: drawn from all that a run computes, and the same in every process.

What is read beside an update (references, what only hands them on) is left out, as is what lies in a condition or a loop.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow.compat.v1 as tf
from recorder import describe, digest

MANY = 2  # values beside those that are asked for
GROWTHS = 10  # runs of a session that add ops to its graph
HANDS_ON = ("Identity", "Reshape", "Squeeze", "ExpandDims", "StopGradient", "PreventGradient", "Snapshot", "Bitcast", "IdentityN")
NEVER = ("Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond", "RefSwitch", "RefMerge", "RefEnter", "Placeholder")


class Peeks:
    """What was seen since `taken` was last called."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()
        self._chosen: dict[Any, list[tf.Tensor]] = {}

    def taken(self) -> list[list[Any]]:
        """Every value's name and digest, and how often it was seen; in no order, since threads may run side by side."""
        seen, self._seen, self._chosen = self._seen, Counter(), {}
        return [[name, count] for name, count in sorted(seen.items())]

    def of(self, known: Callable[..., Any], seed: str, grows: bool) -> Callable[..., Any]:
        """`known`, a session's `run`, that peeks."""

        def run(session: Any, fetches: Any, *args: Any, **named: Any) -> Any:
            feeds = args[0] if args else named.get("feed_dict")
            more = self._more(session, fetches, feeds, seed, grows)
            if not more:
                return known(session, fetches, *args, **named)
            result, values = known(session, (fetches, more), *args, **named)
            for tensor, value in zip(more, values, strict=True):
                self._seen[f"{tensor.name} {digest(str(describe(value)).encode())[:12]}"] += 1
            return result

        return run

    def _more(self, session: Any, fetches: Any, feeds: Any, seed: str, grows: bool) -> list[tf.Tensor]:
        graph = session.graph
        try:
            wanted = [graph.as_graph_element(one) for one in tf.nest.flatten(fetches)]
            fed = {graph.as_graph_element(one).name for one in feeds or ()}
        except Exception:  # not the run of a plain nest: it says itself what is wrong, or knows more kinds of fetches
            return []
        key = (graph, tuple(sorted(one.name for one in wanted)), tuple(sorted(fed)))
        if key not in self._chosen:
            drawn = random.Random(f"{seed} {key[1:]}")
            found = sorted(set(computed(wanted, fed)), key=lambda tensor: tensor.name)
            self._chosen[key] = drawn.sample(found, min(MANY, len(found)))
        chosen = self._chosen[key]
        grown = session.__dict__.setdefault("_grown", 0)
        if not grows or not chosen or graph.finalized or grown == GROWTHS:
            return chosen
        session._grown += 1
        return [*chosen, *grow(graph, chosen[0], gradients=grown % 3 == 1)]


def computed(wanted: list[Any], fed: set[str]) -> Iterator[tf.Tensor]:
    """What a run of `wanted` computes of values that can be fetched without changing what they are."""
    seen: set[tf.Operation] = set()
    left = [one if isinstance(one, tf.Operation) else one.op for one in wanted if one.name not in fed]
    while left:
        op = left.pop()
        if op in seen:
            continue
        seen.add(op)
        left += [tensor.op for tensor in op.inputs if tensor.name not in fed] + list(op.control_inputs)
        yield from (tensor for tensor in op.outputs if tensor.name not in fed and is_a_value(tensor))


def is_a_value(tensor: tf.Tensor) -> bool:
    op = tensor.op
    if op._get_control_flow_context() is not None or op.type in NEVER or not op.graph.is_fetchable(tensor):
        return False
    if tensor.dtype._is_ref_dtype or tensor.dtype in (tf.resource, tf.variant):
        return False
    while op.type in HANDS_ON and op.inputs:
        if op.inputs[0].dtype._is_ref_dtype:
            return False
        op = op.inputs[0].op
    return not (op.inputs and op.inputs[0].dtype._is_ref_dtype)


def grow(graph: tf.Graph, tensor: tf.Tensor, gradients: bool) -> list[tf.Tensor]:
    """New ops that depend on `tensor`: its gradient by a variable, or a product."""
    if not tensor.dtype.is_floating:
        return []
    with graph.as_default(), tf.control_dependencies(None), graph.device(None), tf.name_scope("grown"):
        by = tf.trainable_variables()[:1] if gradients and not references(graph) else []
        try:
            found = [one for one in tf.gradients(tensor, by) if isinstance(one, tf.Tensor)] if by else []
        except Exception:  # what has no gradient
            found = []
        return found or [tf.multiply(tensor, tf.cast(1.5, tensor.dtype))]


def references(graph: tf.Graph) -> bool:
    """Does it have reference variables? A new gradient would read their memory beside the updates."""
    return any(output.dtype._is_ref_dtype for op in graph.get_operations() for output in op.outputs)
