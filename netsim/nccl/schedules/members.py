"""Members: the heads and ranks of nodes whose rows are written down, for all that are alike."""

from collections.abc import Sequence

from netsim.nccl.schedules.hops import Channel
from netsim.nccl.schedules.plan import Lane, Plan, kept_places
from netsim.values import dataclass


@dataclass(frozen=True)
class Members:
    """The heads and ranks of a node that are written down, by number, and what rows cost that
    there are for each head, for each rank, or for each rank and head.
    """

    heads: tuple[int, ...]
    ranks: tuple[int, ...]
    by_head: Channel
    by_rank: Channel
    of_both: Channel

    @property
    def key(self) -> tuple[object, ...]:
        """What a turn depends on."""
        return *self.by_head.key, *self.by_rank.key, self.heads, self.ranks


def members_of(plan: Plan, lane: Lane, nodes: Sequence[Sequence[int]], pieces: int = 1) -> Members:
    """Those of a lane: one for all that are alike."""
    heads, by_head = kept_places(plan, lane, plan.heads)
    ranks, by_rank = kept_places(plan, lane, nodes)
    channels = (
        Channel(plan, lane.work.channel, lane.multiplicity, pieces, lane.copies * times)
        for times in (by_head, by_rank, by_head * by_rank)
    )
    return Members(heads, ranks, *channels)
