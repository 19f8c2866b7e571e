"""From the devices that an algorithm would like to a placement that keeps colocation groups and kernel limits."""

from __future__ import annotations

import numpy as np

from stepd.core.prepared import Prepared
from stepd.core.problem import Index


def nearest_allowed(prepared: Prepared, wanted: Index) -> Index:
    """int32 [n]: every group on the device that most of its seconds want, or else on the one that runs it fastest.

    wanted: int [n], -1 for an op without a wish. Groups in which nobody has a wish go to their fastest device.
    """
    tables = prepared.tables
    groups, devices = prepared.group_seconds.shape
    with_wish = np.flatnonzero(wanted >= 0)
    votes = np.zeros((groups, devices))
    can = np.isfinite(tables.seconds)
    weight = np.where(can, tables.seconds, 0.0).max(axis=1, initial=0.0) + tables.resident * 1e-12 + 1e-12
    np.add.at(votes, (tables.group[with_wish], wanted[with_wish]), weight[with_wish])
    allowed = np.isfinite(prepared.group_seconds)
    votes[~allowed] = 0.0
    fastest = prepared.group_seconds.argmin(axis=1)
    home = np.where(votes.any(axis=1), votes.argmax(axis=1), fastest)
    return np.asarray(home[tables.group], dtype=np.int32)
