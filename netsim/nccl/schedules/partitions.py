"""The classes of equal ranks and channels of one call of NCCL on a topology.

Calls of many sizes have the same classes, so these are cached.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from netsim.collectives.collective import Collective
from netsim.nccl.schedules.equal_sends import partition_of_sends
from netsim.nccl.schedules.plan import Plan
from netsim.nccl.schedules.skeletons import (
    has_skeleton,
    lanes_of_skeleton,
    sizes_of_channels,
    skeleton_of,
)
from netsim.program.partition import (
    Placement,
    SaturableLinks,
    find_partition,
    find_partition_of_channels,
)
from netsim.schedule.partition import Partition


def partition_of_plan(
    collective: Collective, plan: Plan, placement: Placement, gpus_per_process: int
) -> Partition | None:
    """Return the classes of equal ranks and channels of a call; None if no two are equal.

    - `placement`: the topology, and the GPU of every rank.
    - `gpus_per_process`: the number of GPUs that one process launches one after the other. These
      are never equal.

    None also for collectives whose equal ranks are not sought. The result is cached with the
    communicator, and most other sizes use it, too.
    """
    launch_order = np.arange(collective.ranks) % gpus_per_process
    # The key contains the place, because groups of a training step share plans (and their cache)
    # wherever they are placed.
    place = placement.topology.token, placement.device.tobytes()
    if plan.transfers is not None:
        if not collective.count:
            return None
        channels = [work.channels for work in plan.transfers.works()]
        depends_on_channels = placement.topology.router.per_channel and channels
        sends_key = (
            "classes of sends",
            collective.name,
            collective.in_place,
            repr(depends_on_channels),
            gpus_per_process,
            place,
        )
        return plan.memo.of(
            sends_key, partial(partition_of_sends, collective, plan, placement, launch_order)
        )
    if not plan.work or not has_skeleton(collective, plan):
        return None
    sizes = sizes_of_channels(collective, plan)
    key = ("classes", collective.name, plan.algorithm, sizes, gpus_per_process, place)

    def partition() -> Partition | None:
        """Return the classes, from the skeleton of the call."""
        return find_partition(skeleton_of(collective, plan, launch_order), placement)

    return plan.memo.of(key, partition)


def partition_of_channels(
    collective: Collective, plan: Plan, placement: Placement, wires: NDArray[np.bool_]
) -> Partition | None:
    """Return the classes of equal channels if only some links can ever saturate.

    `wires` says for each link whether it can. Besides links, only proxies, NICs and SMs can
    saturate. None if refinement does not finish.
    """
    skeleton = skeleton_of(collective, plan, np.zeros(collective.ranks, np.int64))
    saturable = SaturableLinks(wires, np.array(plan.node))
    return find_partition_of_channels(skeleton, placement, saturable)


def ends_by_rank(
    plan: Plan, partition: Partition, ends: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the finish time of every rank in seconds, from those of simulated blocks.

    `ends` has as [channel, rank] the finish times of simulated blocks; other blocks finish with the
    block that represents them.
    """
    n_ranks = len(plan.node)
    end_of_class = np.zeros(int(partition.block.max()) + 1)
    for lane in lanes_of_skeleton(plan):
        if lane.number in partition.copies:
            classes = partition.block[lane.number * n_ranks : (lane.number + 1) * n_ranks]
            np.maximum.at(end_of_class, classes, ends[lane.work.channel])
    end_of_block = end_of_class[partition.block].reshape(-1, n_ranks)
    last: NDArray[np.float64] = end_of_block.max(axis=0)
    return last
