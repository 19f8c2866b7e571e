"""Who must lie where a sum does, so that the terms that it may not begin with are held while it begins. Pure.

AddN does not begin in a buffer that somebody else is still to read. A reader on another device, be it a GPU or a worker, is sent
the value as soon as it is there: the buffer may be free again by the time the sum's last term comes. It must not know what moves.
"""

from __future__ import annotations

from collections.abc import Iterator

from stepd.hook.engine import graphview, sums
from stepd.hook.engine.graphview import GraphView


def holders(view: GraphView) -> Iterator[tuple[str, str]]:
    """Pairs of an op that reads a term of a sum after the sum has added it, or through which another does, and the term."""
    held = {name: found for name, node in view.nodes.items() if (found := sums.held_terms(view, node))}
    bits = {name: 1 << k for k, name in enumerate(held)}
    before = graphview.ancestors_among(view, bits) if bits else {}
    for name, terms in held.items():
        for term, readers in terms.items():
            later = {reader for reader in readers if before[reader] & bits[name]}
            through = {reader for reader in readers if later and view.nodes[reader].op in sums.VIEWS}
            yield from ((reader, term) for reader in sorted(later | through))
