"""NCCL's own schedules: what its blocks and proxies do for a call that it has planned."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from netsim.collectives.collective import Collective
from netsim.nccl.mechanism import Mechanism
from netsim.nccl.schedules.collnet_chain import collnet_chain
from netsim.nccl.schedules.collnet_direct import collnet_direct
from netsim.nccl.schedules.network_blocks import network_blocks
from netsim.nccl.schedules.nvls import nvls
from netsim.nccl.schedules.nvls_network import nvls_network
from netsim.nccl.schedules.nvls_tree import nvls_tree
from netsim.nccl.schedules.output import Output
from netsim.nccl.schedules.pat import pat
from netsim.nccl.schedules.plan import Plan, Transfer, Work
from netsim.nccl.schedules.ring import ring
from netsim.nccl.schedules.rounds import Transfers
from netsim.nccl.schedules.send_recv import send_recv
from netsim.nccl.schedules.shorter import coarser, loops_of, shorter
from netsim.nccl.schedules.tree import chain, tree
from netsim.nccl.schedules.walks import WALKS
from netsim.schedule import Schedule
from netsim.topology import Topology

__all__ = [
    "GENERATORS",
    "WALKS",
    "Plan",
    "Transfer",
    "Transfers",
    "Work",
    "coarser",
    "loops_of",
    "schedule_of",
    "shorter",
    "with_blocks",
]

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
    "Ring": _ring,
    "Tree": tree,
    "NVLS": _nvls,
    "NVLSTree": nvls_tree,
    "PAT": pat,
    "CollNetDirect": _direct,
    "CollNetChain": collnet_chain,
    "SendRecv": send_recv,
}


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
    """A topology whose GPUs have blocks of that rate, which the rows of one channel share.

    The blocks of a GPU that a fault slows are slower by as much.
    """
    key = "with blocks", mechanism.rate.simple
    if key not in topology.memory:
        rate = np.full(len(topology), mechanism.rate.simple) * topology.capacities.get("sms", 1.0)
        made = replace(topology, capacities={**topology.capacities, "sm": rate})
        topology.memory[key] = made
    found: Topology = topology.memory[key]
    return found
