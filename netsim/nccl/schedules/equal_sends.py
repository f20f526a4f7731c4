"""Which ranks of an alltoall or sendrecv do the same, on a topology.

All messages of these collectives have the same size, so who sends to whom and when depends only on
the distance of the two ranks in the order of NCCL's rounds. If a rotation of that order maps the
topology onto itself, it maps each rank to an equal one, and one of them represents the others.

The classes of a small collective are refined with all of its messages. A large one (1,024 ranks
have a million messages) is refined with the messages of a few distances between groups of ranks.
Messages of other distances then check the classes: if they would divide a class, these distances
are added and the refinement starts again. In the end every message that a representative receives
is compared with the message that is written in its place; if there are too many, a sample of them.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from netsim.base.memo import different
from netsim.collectives.collective import Collective
from netsim.nccl.schedules.plan import Ints, Plan
from netsim.nccl.schedules.primitives import link_kinds
from netsim.nccl.schedules.skeletons import MAX_LINK_KINDS
from netsim.nccl.schedules.transfers import Columns, Transfers
from netsim.program.odd_parts import first_odd_part
from netsim.program.partition import (
    Coloring,
    Placement,
    equal_members,
    hop_colors,
    is_stable,
    refine,
)
from netsim.schedule.extent import ALL
from netsim.schedule.partition import EqualMembers, Fold, Hops, Partition, Skeleton

WITH_EQUAL_SENDS = ("alltoall", "sendrecv")
"""Collectives whose messages are all equal."""
MAX_REFINED_MESSAGES = 1 << 17
"""Messages that are all refined; of more, those of some distances."""
MAX_RANKS = 1 << 15
"""Ranks of which even the representatives have too many messages."""
DISTANCES_PER_CHECK = 4
"""Further distances between groups whose messages check the classes."""
MAX_COMPARED_MESSAGES = 1 << 18
"""Messages that are compared in the end."""
MAX_ROUNDS = 64
"""Rounds of refinement."""


def has_equal_sends(name: str, ranks: int) -> bool:
    """Return whether all messages of a collective have one size, and equal ranks can be sought.

    Equal ranks are not sought for more than `MAX_RANKS` ranks, which have too many messages.
    """
    return name in WITH_EQUAL_SENDS and ranks <= MAX_RANKS


def partition_of_sends(
    collective: Collective, plan: Plan, placement: Placement, launch_order: Ints
) -> Partition | None:
    """Return the classes of equal ranks of grouped sends; None if no two ranks are equal.

    - `placement`: the topology, and the GPU of every rank.
    - `launch_order`: by rank, its place among the GPUs that its process launches one after the
      other. Ranks with different places are not equal.
    """
    transfers = plan.transfers
    if transfers is None or not has_equal_sends(collective.name, collective.ranks):
        return None
    skeletons = _Skeletons(plan, launch_order, by_channel=placement.topology.router.per_channel)
    is_small = collective.name != "alltoall" or transfers.rounds.n_ranks**2 <= MAX_REFINED_MESSAGES
    if is_small:
        coloring = refine(skeletons.of(transfers.columns), placement, MAX_ROUNDS)
    elif first_odd_part(placement):  # messages of a few rounds might not meet the odd part
        return None
    else:
        coloring = _refined_by_distances(transfers, skeletons, placement)
    if coloring is None:
        return None
    ranks = equal_members(coloring.ranks)
    if (ranks.count == 1).all():
        return None
    blocks = {
        channel: EqualMembers(ranks.first + np.int32(channel * collective.ranks), ranks.count)
        for channel in range(transfers.sends.channels.total)
    }
    fold = Fold(ranks, equal_members(coloring.wires), equal_members(coloring.nodes), blocks)
    if not is_small and not _receives_the_same(transfers, fold, coloring, skeletons, placement):
        return None
    return Partition(fold, {}, np.unique(ranks.first, return_inverse=True)[1])


def _refined_by_distances(
    transfers: Transfers, skeletons: _Skeletons, placement: Placement
) -> Coloring | None:
    """Return the colors of ranks and links, refined with the messages of a few distances.

    Distances are those between groups of ranks. Messages of other distances check the result. None
    if no two ranks have the same color.
    """
    distance_count = len(transfers.rounds.far)
    refined = sorted({0, 1, distance_count // 2})
    shuffled = np.random.default_rng(distance_count).permutation(np.arange(2, distance_count))
    unchecked = [distance for distance in shuffled.tolist() if distance not in refined]
    while True:
        messages = _messages_at(transfers, refined)
        coloring = refine(skeletons.of(messages), placement, MAX_ROUNDS)
        if coloring is None or len(different(coloring.ranks)) == transfers.rounds.n_ranks:
            return None
        checks = unchecked[:DISTANCES_PER_CHECK]
        unchecked = unchecked[DISTANCES_PER_CHECK:]
        dividing = [
            distance
            for distance in checks
            if not is_stable(coloring, skeletons.of(_messages_at(transfers, [distance])), placement)
        ]
        if not dividing:
            return coloring
        refined += dividing


def _messages_at(transfers: Transfers, distances: Iterable[int]) -> Columns:
    """Return all messages between ranks whose groups are one of `distances` apart."""
    groups = transfers.rounds.groups
    src = np.repeat(groups, groups.shape[1], axis=1)
    dst = np.tile(groups, groups.shape[1])
    ends = [(src.ravel(), np.roll(dst, -distance, 0).ravel()) for distance in distances]
    src_of_all, dst_of_all = (np.concatenate(column) for column in zip(*ends, strict=True))
    return transfers.among(src_of_all, dst_of_all)


class _Skeletons:
    """Makes skeletons of messages.

    A skeleton has one block for each rank, and a hop for each message, or with `by_channel` for
    each channel of a message, because the route depends on the channel.
    """

    def __init__(self, plan: Plan, launch_order: Ints, *, by_channel: bool) -> None:
        self.plan = plan
        self.launch_order = launch_order
        self.by_channel = by_channel
        self.node = np.array(plan.node)

    def of(self, messages: Columns) -> Skeleton:
        """Return the skeleton of these messages."""
        n_ranks = len(self.launch_order)
        zeros = np.zeros(n_ranks, np.int32)
        ranks = np.arange(n_ranks, dtype=np.int32)
        hops = tuple(self._hops(messages))
        return Skeleton(
            n_ranks, ranks, zeros, zeros, zeros.astype(np.int64), hops, self.launch_order
        )

    def _hops(self, messages: Columns) -> Iterable[Hops]:
        """Yield the hops of these messages; those of one `Hops` have one route and one channel."""
        is_sent = messages.src != messages.dst
        link = link_kinds(self.plan, self.node, messages.src, messages.dst)
        for kind in different(link[is_sent]).tolist():
            of_kind = np.flatnonzero(is_sent & (link == kind))
            first_pair = int(messages.src[of_kind[0]]), int(messages.dst[of_kind[0]])
            route = self.plan.route_of(0, *first_pair)
            label = messages.number[of_kind] * MAX_LINK_KINDS + kind
            src = messages.src[of_kind].astype(np.int32)
            dst = messages.dst[of_kind].astype(np.int32)
            if not self.by_channel:
                yield Hops(src, dst, label, 0, route)
                continue
            for work in different(messages.work[of_kind]).tolist():
                of_work = np.flatnonzero(messages.work[of_kind] == work)
                for part, channel in enumerate(messages.works[work].channels):
                    label_of_part = label[of_work] * len(self.node) + part
                    yield Hops(src[of_work], dst[of_work], label_of_part, channel, route)


def _receives_the_same(
    transfers: Transfers,
    fold: Fold,
    coloring: Coloring,
    skeletons: _Skeletons,
    placement: Placement,
) -> bool:
    """Return whether representatives receive the same as if all messages were written.

    Only the messages that representatives send are written. A message to a representative from a
    rank s is replaced by the message that the representative of s sends in the same round. Both
    must have the same color. If there are very many messages, a sample of them is compared.

    - `fold`: the representatives; `coloring`: the colors of ranks and links.
    - `skeletons`: makes the skeletons from which messages get their colors.
    """
    src, dst, _ = transfers.into(fold.leaders.astype(np.int64), ALL)
    if len(src) > MAX_COMPARED_MESSAGES:
        sample = np.random.default_rng(len(src)).choice(
            len(src), MAX_COMPARED_MESSAGES, replace=False
        )
        src = src[sample]
        dst = dst[sample]
    leader = fold.ranks.first[src].astype(np.int64)
    written = transfers.among(leader, transfers.rounds.peers_in_round(leader, src, dst))
    received = transfers.among(src, dst)
    written_colors = hop_colors(coloring, skeletons.of(written), placement)
    received_colors = hop_colors(coloring, skeletons.of(received), placement)
    return bool(np.isin(received_colors, written_colors).all())
