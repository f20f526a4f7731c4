"""volumes: how many bytes every rank sends and receives in a schedule, without local copies."""

import numpy as np
from numpy.typing import NDArray

from netsim.schedule import MULTICAST, SWITCH_REDUCE, TRANSFER, Schedule

Bytes = NDArray[np.float64]


def volumes(schedule: Schedule) -> tuple[Bytes, Bytes]:
    """The bytes that each rank sends, and those that it receives.

    A multicast leaves its sender once, and an in-switch reduction reaches its receiver once.
    """
    kind = schedule.kind
    nbytes: Bytes = np.multiply(schedule.amount, schedule.style_column("multiplicity"))
    plain = kind == TRANSFER
    sent, received = (
        np.bincount(end[plain], nbytes[plain], schedule.ranks).astype(np.float64)
        for end in (schedule.src, schedule.dst)
    )
    for row in np.flatnonzero((kind == MULTICAST) | (kind == SWITCH_REDUCE)).tolist():
        sources, targets = schedule.members(row)
        sent[list(sources)] += nbytes[row]
        received[list(targets)] += nbytes[row]
    return sent, received
