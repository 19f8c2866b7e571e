"""What is in parts, handed to devices: the largest part first, each where it adds up to least (Graham's LPT rule).

It knows no graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepd.core.problem import Float, Index


@dataclass(frozen=True, eq=False)
class Shares:
    """What parts take of each device, and what is there already: items float64 [parts, d], there float64 [d]."""

    items: Float
    there: Float


def least_first(*kinds: Shares) -> Index:
    """The device of each part, 0..d - 1, the largest first, each where it adds up to least; of several kinds, the largest share."""
    whole = [max(float(kind.items.mean(axis=1).sum()), 1e-30) for kind in kinds]
    items = np.stack([kind.items / all_of_it for kind, all_of_it in zip(kinds, whole, strict=True)])
    there = np.stack([kind.there / all_of_it for kind, all_of_it in zip(kinds, whole, strict=True)])
    device = np.zeros(items.shape[1], dtype=np.int32)
    for part in np.argsort(-items.max(axis=(0, 2), initial=0.0), kind="stable"):
        device[part] = np.argmin((there + items[:, part]).max(axis=0))
        there[:, device[part]] += items[:, part, device[part]]
    return device
