"""What cells have in common: topologies and communicators, each made once and kept for others.

Only for speed: whoever asks for them gets the same.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import field
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from netsim.arrays import different
from netsim.communicators import split_ranks
from netsim.expect import job, network, settings
from netsim.nccl import version
from netsim.nccl.names import NCCL_NAMES
from netsim.scenario.cells import Cell
from netsim.scenario.models import Scenario
from netsim.topology import Topology, TopologyError
from netsim.topology.build import build_at, build_cluster
from netsim.values import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from netsim.expect.job import Job
    from netsim.expect.settings import Wishes
    from netsim.topology.cluster import Cluster

SPLIT_VARIABLE = "NCCL_TESTS_SPLIT"


@dataclass(frozen=True)
class Built:
    """A topology, the cluster that it is unless it is a plain graph, and the communicators that
    cells had in it, by what they ask of NCCL; `alike` is what was found of textbook algorithms.
    No other has its `number`.
    """

    topology: Topology
    cluster: Cluster | None
    jobs: dict[str, list[Job]] = field(default_factory=dict)
    alike: dict[object, Any] = field(default_factory=dict)
    number: int = field(default_factory=count().__next__)


# The last ones that were built, by what cells ask of a cluster.
_BUILT: OrderedDict[str, Built] = OrderedDict()
MOST_BUILT = 32


def built(cell: Cell) -> Built:
    """The topology of a cell, perhaps from an earlier cell."""
    config, key = cell.scenario.cluster, cell.cluster
    by_nccl = config.graph is None and cell.scenario.collective.algorithm in NCCL_NAMES
    if key and by_nccl:  # NCCL's variables choose NICs
        key += repr(sorted(cell.scenario.nccl.env.items()))
    if key in _BUILT:
        _BUILT.move_to_end(key)
        return _BUILT[key]
    cluster = None
    if config.graph is None:
        if by_nccl:
            config = network.networked(config, wishes_of(cell.scenario).settings())
        try:
            cluster = build_cluster(config)
        except TopologyError:
            return Built(build_at(config, cell.source), None)  # raises it with its place
    found = Built(build_at(config, cell.source) if cluster is None else cluster.topology, cluster)
    if key:
        _BUILT[key] = found
        while len(_BUILT) > MOST_BUILT:
            _BUILT.popitem(last=False)
    return found


def groups_of(cell: Cell, found: Built) -> tuple[tuple[int, ...], ...]:
    """The ranks of every communicator; what the cluster has not is said with its place."""
    source, work, available = cell.source, cell.scenario.collective, len(found.topology)
    if work.ranks is not None and max(work.ranks) >= available:
        place = ("workload", "ranks", work.ranks.index(max(work.ranks)))
        raise source.error(place, f"expected GPUs in 0..{available - 1}, got {max(work.ranks)}")
    try:
        split = work.split or cell.scenario.nccl.env.get(SPLIT_VARIABLE)
        groups = split_ranks(split, available if work.ranks is None else len(work.ranks))
    except ValueError as error:
        raise source.error(("workload", "split"), str(error)) from None
    return tuple(tuple(group) for group in groups)


def refuse_unjoined(
    cell: Cell, found: Built, gpus: NDArray[np.int32], groups: Sequence[Sequence[int]]
) -> None:
    """Refuse communicators over hosts that nothing joins: none of them has a NIC."""
    cluster = found.cluster
    if cluster is None or cluster.fabric is not None:
        return
    domain = cluster.domain[cluster.gpu_host[gpus]]
    if any(len(different(domain[list(group)])) > 1 for group in groups):
        message = "nothing joins these hosts: they have no NIC"
        raise cell.source.error(("cluster",), message, key=True)


def wishes_of(scenario: Scenario) -> Wishes:
    """What a scenario asks of NCCL."""
    nccl, work = scenario.nccl, scenario.collective
    of = version.parse_version(nccl.version)
    return settings.Wishes(of, nccl.env, work.algorithm, work.protocol, nccl.tuner, nccl.graph)


def jobs_of(
    cell: Cell, cluster: Cluster, ranks: Sequence[NDArray[np.int32]], wishes: Wishes
) -> list[Job]:
    """The communicators of a cell, by the GPUs of each; in a cluster without GPUDirect where NCCL
    makes no use of it.
    """
    jobs = [job.job_of(cluster, gpus, wishes) for gpus in ranks]
    if not all(network.loses_gpudirect(one) for one in jobs):
        return jobs
    config = network.networked(cell.scenario.cluster, wishes.settings())
    cluster = build_cluster(network.without_gpudirect(config))
    return [job.job_of(cluster, gpus, wishes) for gpus in ranks]
