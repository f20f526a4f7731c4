"""NCCL's own schedules: what its blocks and proxies do for a call that it has planned."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from netsim.collectives.collective import Collective
from netsim.nccl.constants import Mechanism
from netsim.nccl.schedules.collnet import (
    collnet_chain,
    collnet_direct,
    network_blocks,
    nvls_network,
)
from netsim.nccl.schedules.nvls import nvls, nvls_tree
from netsim.nccl.schedules.pat import pat
from netsim.nccl.schedules.plan import Plan
from netsim.nccl.schedules.ring import WALKS, ring
from netsim.nccl.schedules.send_recv import send_recv
from netsim.nccl.schedules.tree import chain, tree
from netsim.nccl.schedules.writing import Output
from netsim.schedule.schedule import Schedule
from netsim.topology.graph import Topology

Generator = Callable[[Collective, Plan], Schedule]


def _ring(collective: Collective, plan: Plan) -> Schedule:
    return (ring if collective.name in WALKS else chain)(collective, plan)


def _nvls(collective: Collective, plan: Plan) -> Schedule:
    if len(plan.heads) == 1:
        return nvls(collective, plan)
    return (nvls_network if collective.name == "all_reduce" else network_blocks)(collective, plan)


def _direct(collective: Collective, plan: Plan) -> Schedule:
    return (collnet_direct if collective.name == "all_reduce" else network_blocks)(collective, plan)


GENERATORS: dict[str, Generator] = {
    "Ring": _ring, "Tree": tree, "NVLS": _nvls, "NVLSTree": nvls_tree, "PAT": pat,
    "CollNetDirect": _direct, "CollNetChain": collnet_chain, "SendRecv": send_recv,
}  # fmt: skip


def schedule_of(collective: Collective, plan: Plan) -> Schedule:
    """The schedule of one call as NCCL runs it."""
    if len(plan.node) != collective.ranks:
        raise ValueError(f"node: expected {collective.ranks} ranks, got {len(plan.node)}")
    if plan.algorithm not in GENERATORS:
        known = ", ".join(GENERATORS)
        raise ValueError(f"algorithm: expected one of {known}, got {plan.algorithm!r}")
    if collective.ranks == 1:
        return Output(collective).close()
    return GENERATORS[plan.algorithm](collective, plan)


def with_blocks(topology: Topology, mechanism: Mechanism) -> Topology:
    """A topology whose GPUs have blocks of that rate; a slowed GPU's are slower by as much."""
    key = "with blocks", mechanism.rate.simple
    if key not in topology.memory:
        rate = np.full(len(topology), mechanism.rate.simple) * topology.capacities.get("sms", 1.0)
        made = replace(topology, capacities={**topology.capacities, "sm": rate})
        topology.memory[key] = made
    found: Topology = topology.memory[key]
    return found
