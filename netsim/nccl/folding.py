"""A plan whose equal parts are written down once: what is alike is found on the topology."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from netsim.arrays import different
from netsim.collectives.collective import Collective
from netsim.nccl.schedules.plan import Plan
from netsim.nccl.schedules.skeletons import foldable, skeleton_of, works_alike
from netsim.nccl.sends_alike import equal_sends, sends_alike
from netsim.program.symmetry import symmetry_of
from netsim.topology import Topology

__all__ = ["equal_sends", "folded_plan", "written_share"]


def folded_plan(
    collective: Collective,
    plan: Plan,
    topology: Topology,
    device: NDArray[np.int32],
    per_process: int = 1,
) -> Plan:
    """The plan with what stands for what; as it is, where nothing does. The GPUs of a process,
    so many, start one after the other.
    """
    turn = np.arange(collective.ranks) % per_process
    if plan.transfers is not None:
        if not collective.count:
            return plan
        ways = topology.router.per_channel and [w.channels for w in plan.transfers.works()]
        asked = ("sends alike", collective.name, collective.in_place, repr(ways), per_process)
        if asked not in plan.memory:
            plan.memory[asked] = sends_alike(collective, plan, topology, device, turn)
        return replace(plan, symmetry=plan.memory[asked])
    if not plan.work or not foldable(collective, plan):  # nothing moves: nothing is alike
        return plan
    key = ("symmetry", collective.name, plan.algorithm, works_alike(collective, plan), per_process)
    if key not in plan.memory:
        skeleton = skeleton_of(collective, plan, turn)
        plan.memory[key] = symmetry_of(skeleton, topology, device)
    return replace(plan, symmetry=plan.memory[key])


def written_share(plan: Plan) -> float:
    """Which part of the blocks of a plan is written down."""
    if plan.symmetry is None:
        return 1.0
    return len(different(plan.symmetry.block)) / len(plan.symmetry.block)
