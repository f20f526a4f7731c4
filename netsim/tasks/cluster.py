"""The communicators of a workload: which GPUs communicate with each other, in rank order."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from itertools import count

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import Memo, different
from netsim.base.values import dataclass, grouped
from netsim.nccl import facts, job
from netsim.nccl.job import NcclJob, Wishes
from netsim.scenario.cells import Cell
from netsim.scenario.models import Scenario
from netsim.topology.cluster import Cluster, build_at, build_cluster
from netsim.topology.graph import Topology, TopologyError

_SPLIT = re.compile(r"(MOD|DIV|AND|OR)\s*(0[xX][0-9a-fA-F]+|[0-9]+)", re.IGNORECASE)

_COLOURS: dict[str, Callable[[int, int], int]] = {
    "MOD": lambda rank, value: rank % value,
    "DIV": lambda rank, value: rank // value,
    "AND": lambda rank, value: rank & value,
    "OR": lambda rank, value: rank | value,
}


def split_ranks(text: str | None, ranks: int) -> list[list[int]]:
    """The ranks of each communicator, as NCCL_TESTS_SPLIT divides `ranks` ranks: `MOD 8`, `DIV 4`,
    `AND 0x7`.

    `text` None: one communicator. Communicators of unequal sizes are refused.
    """
    if text is None:
        return [list(range(ranks))]
    match = _SPLIT.fullmatch(text.strip())
    if not match:
        raise ValueError(f"expected a split such as 'MOD 8', 'DIV 4' or 'AND 0x7', got {text!r}")
    operation = match[1].upper()
    value = int(match[2], 0)
    if operation in ("MOD", "DIV") and value < 1:
        raise ValueError(f"expected {operation} with a number of at least 1, got {text!r}")
    groups = grouped(range(ranks), lambda rank: _COLOURS[operation](rank, value))
    if len(sizes := sorted({len(group) for group in groups.values()})) > 1:
        raise ValueError(f"makes communicators of unequal sizes {sizes}")
    return list(groups.values())


# **** Shared topologies **** Topologies and communicators that several cells share; each is built
# once. These caches only save time; results do not depend on them.

SPLIT_VARIABLE = "NCCL_TESTS_SPLIT"
QPS_VARIABLE = "NCCL_IB_QPS_PER_CONNECTION"  # how they are used, versions differ in


MOST_JOBS = 32
"""The communicators that are kept of each cluster: cells that follow one another share few."""


@dataclass(frozen=True)
class Built:
    """A topology that was built.

    - `cluster`: the cluster that it belongs to; None for a plain graph.
    - `jobs`: a cache of the communicators of the last cells on it, by their settings of NCCL.
    - `number`: a number that no other topology in this process has.
    """

    topology: Topology
    cluster: Cluster | None
    jobs: Memo = field(default_factory=partial(Memo, MOST_JOBS))
    number: int = field(default_factory=count().__next__)


BUILT = Memo(32)  # the clusters that were built last, by the settings that they depend on


def built(cell: Cell) -> Built:
    """The topology and cluster of a cell, from the cache if an earlier cell has the same."""
    config = cell.scenario.cluster
    key = cell.cluster
    by_nccl = config.graph is None and cell.scenario.collective.is_nccl
    if key and by_nccl:  # NCCL's variables choose NICs
        env = cell.scenario.nccl.env
        key += repr(sorted(env.items())) + cell.scenario.nccl.version * (QPS_VARIABLE in env)

    def made() -> Built:
        if config.graph is not None:
            return Built(build_at(config, cell.source), None)
        used = config
        if by_nccl:
            wishes = wishes_of(cell.scenario)
            used = job.apply_network_settings(config, wishes.settings(), wishes.version)
        try:
            cluster = build_cluster(used)
        except TopologyError:
            return Built(build_at(used, cell.source), None)  # raises it with its place
        return Built(cluster.topology, cluster)

    return BUILT.of(key, made) if key else made()


def groups_of(cell: Cell, cluster: Built) -> tuple[tuple[int, ...], ...]:
    """The ranks of every communicator of a cell: for each communicator, its members, numbered from
    0 over the GPUs in use.

    If the file names a GPU that the cluster lacks, the error shows its place in the file.
    """
    source = cell.source
    work = cell.scenario.collective
    available = len(cluster.topology)
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
    cell: Cell, built: Built, gpus: NDArray[np.int32], groups: Sequence[Sequence[int]]
) -> None:
    """Raise an error for a communicator whose hosts no network connects, because some have
    no NIC.
    """
    cluster = built.cluster
    if cluster is None:
        return
    hosts_with_nics = set() if cluster.fabric is None else set(cluster.ports.owner.tolist())
    host_of_rank = cluster.gpu_host[gpus]
    for group in groups:
        hosts = host_of_rank[list(group)]
        if len(different(cluster.domain[hosts])) == 1:
            continue
        unjoined = [host for host in different(hosts).tolist() if host not in hosts_with_nics]
        if unjoined:
            are_all = len(unjoined) == len(different(hosts))
            subject = "they have" if are_all else f"node{unjoined[0]} has"
            message = f"nothing joins these hosts: {subject} no NIC"
            raise cell.source.error(("cluster",), message, key=True)


def wishes_of(scenario: Scenario) -> Wishes:
    """The settings of NCCL in a scenario: version, variables, and forced algorithm, protocol, tuner
    and graph.
    """
    nccl = scenario.nccl
    work = scenario.collective
    of = facts.parse_version(nccl.version)
    return job.Wishes(of, nccl.env, work.algorithm, work.protocol, nccl.tuner, nccl.graph)


def jobs_of(
    cell: Cell, cluster: Cluster, ranks: Sequence[NDArray[np.int32]], wishes: Wishes
) -> list[NcclJob]:
    """The communicators of a cell; `ranks` are the GPUs of each.

    If no communicator uses GPUDirect RDMA, they are made on a cluster without it.
    """
    jobs = [job.job_of(cluster, gpus, wishes) for gpus in ranks]
    if not all(job.loses_gpudirect(one) for one in jobs):
        return jobs
    config = job.apply_network_settings(cell.scenario.cluster, wishes.settings(), wishes.version)
    cluster = build_cluster(job.without_gpudirect(config))
    return [job.job_of(cluster, gpus, wishes) for gpus in ranks]
