"""Trees: chunks are reduced on their way up and handed out on their way down, both at once.

A rank's block has a group of threads for each direction; the root does both in one pass. Broadcast
and Reduce of rings are the same along a chain: a tree without branches.
"""

from collections.abc import Mapping
from functools import partial
from itertools import pairwise

import numpy as np

from netsim.collectives.collective import Collective
from netsim.constants import value
from netsim.nccl.chunks import steps_of
from netsim.nccl.names import Algorithm, function_of
from netsim.nccl.schedules.branches import Branches
from netsim.nccl.schedules.climb import REGIONS, Climb
from netsim.nccl.schedules.cuts import chunk_table, segments
from netsim.nccl.schedules.hops import Channel
from netsim.nccl.schedules.output import Output, Turn, remembered
from netsim.nccl.schedules.plan import Plan, number_of, written
from netsim.nccl.schedules.ways import link_kinds, routes
from netsim.nccl.schedules.weave import Segments
from netsim.nccl.trees import Tree
from netsim.schedule import Schedule

SHARE = value("share.of_a_way")  # of a block's rate, for each way


def tree(collective: Collective, plan: Plan) -> Schedule:
    """AllReduce over all channels' trees."""
    return _over_trees(collective, plan, dict(enumerate(plan.trees)), SHARE)


def chain(collective: Collective, plan: Plan) -> Schedule:
    """Broadcast and Reduce along all channels' rings."""
    trees = {work.channel: chain_of(plan.rings[work.channel], collective) for work in plan.work}
    return _over_trees(collective, plan, trees, 1.0)


def chain_of(order: tuple[int, ...], collective: Collective) -> Tree:
    """A ring cut open at the root: from it on for Broadcast, up to it for Reduce."""
    at = order.index(collective.root)
    if collective.name == "broadcast":
        line = (*order[at:], *order[:at])
    else:
        line = (*order[: at + 1][::-1], *order[at + 1 :][::-1])
    up, down = [-1] * len(order), [tuple[int, ...]()] * len(order)
    for above, below in pairwise(line):
        up[below], down[above] = above, (below,)
    return Tree(tuple(up), tuple(down))


def _over_trees(
    collective: Collective, plan: Plan, trees: Mapping[int, Tree], share: float
) -> Schedule:
    output = Output(collective, places=plan.places, fold=plan.stands)
    algorithm: Algorithm = "Tree" if collective.name == "all_reduce" else "Ring"
    steps = steps_of(function_of(collective.name), algorithm, plan.protocol)
    keys = tree_keys(plan, trees)
    for lane in written(plan, keys):
        work = lane.work
        table = chunk_table(work, collective.element_bytes)
        cut = segments(plan, collective.element_bytes, table, steps=steps, threads=share)
        channel = Channel(plan, work.channel, lane.multiplicity, cut.subs, lane.copies)
        found = trees[work.channel]

        def turn(channel: Channel = channel, cut: Segments = cut, found: Tree = found) -> Turn:
            return Climb(channel, cut, Branches(found), collective.name, share).turn()

        key = (keys[work.channel], *channel.key, cut.subs, cut.slots, cut.whole)
        output.add(remembered(collective, plan, key, turn), cut, REGIONS)
    return output.close()


def tree_keys(plan: Plan, trees: Mapping[int, Tree]) -> dict[int, object]:
    """What tells channels apart: their trees, and the ways along them."""
    channels = {work.channel for work in plan.work}
    if plan.algorithm != "Tree":  # chains have other roots in other calls
        return {c: (trees[c], _routes(plan, c, trees[c])) for c in channels}
    return {c: number_of(plan, c, partial(_tree_and_ways, plan, c)) for c in channels}


def _tree_and_ways(plan: Plan, channel: int) -> tuple[object, ...]:
    found = plan.trees[channel]
    return found, _routes(plan, channel, found)


def _routes(plan: Plan, channel: int, found: Tree) -> tuple[str, ...]:
    up = np.array(found.up, np.int64)
    below = np.flatnonzero(up >= 0)
    src, dst = np.concatenate([below, up[below]]), np.concatenate([up[below], below])
    kind = link_kinds(plan, np.array(plan.node), src, dst)
    return tuple(routes(plan, channel, src, dst, kind).tolist())
