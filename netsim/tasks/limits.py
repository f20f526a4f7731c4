"""The lower bound on the time of a cell on its links, for any algorithm."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import cached_per_object
from netsim.metrics.bound import Limit, limit_of
from netsim.tasks.resolve import ResolvedCell

Matrix = tuple[tuple[int, ...], ...]


def limit_at(resolved: ResolvedCell, size: int) -> Limit:
    """The lower bound on the seconds of a cell at a size."""
    collective = resolved.collective(size)
    if collective.count == 0 and collective.name not in ("alltoallv", "barrier"):
        return Limit(0.0, 0.0, 0.0, "nothing has to move")
    matrix = collective.matrix if collective.name == "alltoallv" else None
    limit = _limit_of_a_byte(resolved, matrix)
    block = float(collective.element_bytes * (1 if matrix else collective.count))
    best = None if limit.best is None else limit.best * block
    return replace(limit, bandwidth=limit.bandwidth * block, best=best)


def limit_columns(
    resolved: ResolvedCell, size: int, seconds: float, *, is_single: bool
) -> dict[str, Any]:
    """The columns of a row about its lower bound. `seconds` is the time of the row.

    `is_single`: a single operation is timed. Operations back to back may overlap, so that only
    bandwidth bounds them and latency does not.
    """
    limit = limit_at(resolved, size)
    least = max(limit.bandwidth, limit.latency if is_single else 0.0)
    return {
        "limit_us": least * 1e6,
        "best_known_us": None if limit.best is None else max(least, limit.best) * 1e6,
        "of_limit_pct": 100 * least / seconds if seconds > 0 else None,
        "binds": limit.cut if least == limit.bandwidth else "latency between ranks",
    }


@cached_per_object
def _limit_of_a_byte(resolved: ResolvedCell, matrix: Matrix | None) -> Limit:
    """The lower bound if a block has one byte, from which that of any size follows in proportion.

    Without `matrix`, a block is the count of the collective. With `matrix` (alltoallv: elements
    from each rank to each rank), each element counts as one byte.
    """
    work = resolved.cell.scenario.collective
    config = resolved.cell.scenario.cluster
    members = () if config.graph is not None else config.members
    machines = [group.loaded.machine for group in members]
    has_nvls = any(
        machine.gpu.sm >= 90 and machine.scale_up and machine.scale_up.switches
        for machine in machines
    )
    return limit_of(
        resolved.topology,
        resolved.gpus[list(resolved.groups[0])],
        work.collective,
        float(work.collective != "barrier"),
        root=work.root,
        demand=_demand(resolved, matrix),
        nvls=has_nvls,
    )


def _demand(resolved: ResolvedCell, matrix: Matrix | None) -> NDArray[np.float64] | None:
    """What each rank (first axis) sends to each rank (second axis); None for collectives other than
    all-to-all, sendrecv and p2p.

    The unit is a block, or for alltoallv an element of `matrix`. Data that stays on its rank is
    left out.
    """
    work = resolved.cell.scenario.collective
    ranks = len(resolved.groups[0])
    if work.collective in ("alltoall", "alltoallv"):
        sent = 1.0 if matrix is None else np.array(matrix, np.float64)
        return np.asarray((1.0 - np.eye(ranks)) * sent)
    if work.collective not in ("sendrecv", "p2p"):
        return None
    ring = [(rank, (rank + 1) % ranks) for rank in range(ranks)]
    demand = np.zeros((ranks, ranks))
    for source, destination in work.pairs or ring:
        demand[source, destination] += source != destination
    return demand
