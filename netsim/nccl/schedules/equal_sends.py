"""Which ranks of an alltoall or sendrecv do the same, on a topology.

All messages of these collectives are equal, so who sends to whom and when depends only on how far
apart the two are in the order of NCCL's rounds. Ranks are equal in rotations of that order which
the topology shares, and one of them represents the others.

A small collective is refined with all of its messages. A large one (1,024 ranks have a million
messages) is refined with the messages of a few distances between groups. Messages of other
distances then check the classes: if they would divide them, these distances are added and the
refinement begins anew. In the end every message that a representative receives is compared with
the one that is written in its place; of very many messages, a sample.
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
    """Whether all messages of a collective are equal, and few enough to look for equal ranks."""
    return name in WITH_EQUAL_SENDS and ranks <= MAX_RANKS


def partition_of_sends(
    collective: Collective, plan: Plan, placement: Placement, turn: Ints
) -> Partition | None:
    """The classes of equal ranks; None if no two ranks are equal.

    `turn` is, by rank, what distinguishes it from others besides its place."""
    transfers = plan.transfers
    if transfers is None or not has_equal_sends(collective.name, collective.ranks):
        return None
    skeletons = _Skeletons(plan, turn, by_channel=placement.topology.router.per_channel)
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
    """The coloring by messages of a few distances between groups, checked with others."""
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
    """All messages between ranks of groups that are some distances apart."""
    groups = transfers.rounds.groups
    src = np.repeat(groups, groups.shape[1], axis=1)
    dst = np.tile(groups, groups.shape[1])
    ends = [(src.ravel(), np.roll(dst, -distance, 0).ravel()) for distance in distances]
    src_of_all, dst_of_all = (np.concatenate(column) for column in zip(*ends, strict=True))
    return transfers.among(src_of_all, dst_of_all)


class _Skeletons:
    """Skeletons of messages: one block for each rank, and a hop for each message, or for each of
    its channels if the route depends on the channel."""

    def __init__(self, plan: Plan, turn: Ints, *, by_channel: bool) -> None:
        self.plan = plan
        self.turn = turn
        self.by_channel = by_channel
        self.node = np.array(plan.node)

    def of(self, messages: Columns) -> Skeleton:
        """The skeleton of some messages."""
        n_ranks = len(self.turn)
        zeros = np.zeros(n_ranks, np.int32)
        ranks = np.arange(n_ranks, dtype=np.int32)
        hops = tuple(self._hops(messages))
        return Skeleton(n_ranks, ranks, zeros, zeros, zeros.astype(np.int64), hops, self.turn)

    def _hops(self, messages: Columns) -> Iterable[Hops]:
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
    """Whether each message that a representative receives has the color of the message that is
    written in its place: the one that the sender's representative sends in the same round."""
    src, dst, _ = transfers.into(fold.leaders.astype(np.int64), ALL)
    if len(src) > MAX_COMPARED_MESSAGES:
        sample = np.random.default_rng(len(src)).choice(
            len(src), MAX_COMPARED_MESSAGES, replace=False
        )
        src = src[sample]
        dst = dst[sample]
    leader = fold.ranks.first[src].astype(np.int64)
    written = transfers.among(leader, transfers.rounds.met(leader, src, dst))
    received = transfers.among(src, dst)
    written_colors = hop_colors(coloring, skeletons.of(written), placement)
    received_colors = hop_colors(coloring, skeletons.of(received), placement)
    return bool(np.isin(received_colors, written_colors).all())
