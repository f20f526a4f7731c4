"""Which ranks of a call's sends and receives do the same, on a topology.

Where all sends are equal, who sends to whom when depends only on how far the two are from each
other in the order of rounds. So ranks are alike in rotations of that order which the topology
shares, and one of them stands for the others. Rotations are found by colours from the sends of a
few rounds; others check what was found.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from netsim.arrays import different
from netsim.collectives.collective import Collective
from netsim.nccl.schedules.plan import Plan
from netsim.nccl.schedules.rounds import Columns, Transfers
from netsim.nccl.schedules.ways import link_kinds
from netsim.program.odd import odd_one
from netsim.program.refine import Classes, classes, holds, hop_colours
from netsim.program.symmetry import alike
from netsim.schedule import Alike, Fold, Hops, Skeleton, Symmetry
from netsim.topology import Topology

Ints = NDArray[np.int64]
EQUAL = ("alltoall", "sendrecv")  # collectives whose sends are all equal
MOST_SENDS = 1 << 17  # that are all looked at; of more, those of some rounds
MOST_RANKS = 1 << 15  # of larger ones even representatives have too many sends
CHECKED = 4  # further distances between groups whose sends check what was found
MOST_HELD = 1 << 18  # sends that are held against what stands for them
ROUNDS = 64  # of telling apart
LINKS = 16  # more than there are kinds of links


def equal_sends(name: str, ranks: int) -> bool:
    """Whether all sends of a collective are equal, and so few that it is worth comparing them."""
    return name in EQUAL and ranks <= MOST_RANKS


def sends_alike(
    collective: Collective,
    plan: Plan,
    topology: Topology,
    device: NDArray[np.int32],
    turn: Ints,
) -> Symmetry | None:
    """What stands for what; None if nothing does. `turn` is what tells a rank from others."""
    transfers = plan.transfers
    if transfers is None or not equal_sends(collective.name, collective.ranks):
        return None
    sketch = _Sketch(plan, turn, by_channel=topology.router.per_channel)
    sketched, checks = _looked_at(transfers)
    if checks and odd_one(topology, device):  # which sends of few rounds may not meet
        return None
    found = classes(sketch.of(sketched), topology, device, ROUNDS)
    if found is None or not all(holds(found, sketch.of(one), topology, device) for one in checks):
        return None
    ranks = alike(found.ranks)
    if (ranks.count == 1).all():
        return None
    blocks = {
        channel: Alike(ranks.first + np.int32(channel * collective.ranks), ranks.count)
        for channel in range(transfers.sends.channels.total)
    }
    fold = Fold(ranks, alike(found.wires), alike(found.nodes), blocks)
    if checks and not _stands(transfers, fold, found, sketch, topology, device):
        return None
    return Symmetry(fold, {}, np.unique(ranks.first, return_inverse=True)[1])


def _looked_at(transfers: Transfers) -> tuple[Columns, list[Columns]]:
    """The sends by which ranks are told apart, and others to check that."""
    rounds = transfers.rounds
    if transfers.collective.name != "alltoall" or rounds.n_ranks**2 <= MOST_SENDS:
        return transfers.columns, []
    far = len(rounds.far)
    some = {0, 1, far // 2}
    others = sorted(set(range(far)) - some)
    seen = np.random.default_rng(far).permutation(others)[:CHECKED].tolist()
    return _apart(transfers, sorted(some)), [_apart(transfers, [one]) for one in seen]


def _apart(transfers: Transfers, distances: Iterable[int]) -> Columns:
    """The sends of all ranks to groups so far away."""
    groups = transfers.rounds.groups
    src = np.repeat(groups, groups.shape[1], axis=1)
    dst = np.tile(groups, groups.shape[1])
    ends = [(src.ravel(), np.roll(dst, -distance, 0).ravel()) for distance in distances]
    return transfers.among(*(np.concatenate(column) for column in zip(*ends, strict=True)))


class _Sketch:
    """Skeletons of sends: of every rank one block, and a hop for each of its sends, or for each
    channel of it if the way depends on that.
    """

    def __init__(self, plan: Plan, turn: Ints, *, by_channel: bool) -> None:
        self.plan, self.turn, self.by_channel = plan, turn, by_channel
        self.node = np.array(plan.node)

    def of(self, sends: Columns) -> Skeleton:
        """The skeleton of some sends."""
        n = len(self.turn)
        zero = np.zeros(n, np.int32)
        ranks = np.arange(n, dtype=np.int32)
        return Skeleton(
            n, ranks, zero, zero, zero.astype(np.int64), tuple(self._hops(sends)), self.turn
        )

    def _hops(self, sends: Columns) -> Iterable[Hops]:
        away = sends.src != sends.dst
        link = link_kinds(self.plan, self.node, sends.src, sends.dst)
        for kind in different(link[away]).tolist():
            mine = np.flatnonzero(away & (link == kind))
            route = self.plan.route_of(0, int(sends.src[mine[0]]), int(sends.dst[mine[0]]))
            label = sends.number[mine] * LINKS + kind
            ends = sends.src[mine].astype(np.int32), sends.dst[mine].astype(np.int32)
            if not self.by_channel:
                yield Hops(*ends, label, 0, route)
                continue
            for work in different(sends.work[mine]).tolist():
                some = np.flatnonzero(sends.work[mine] == work)
                for part, channel in enumerate(sends.works[work].channels):
                    both = ends[0][some], ends[1][some]
                    yield Hops(*both, label[some] * len(self.node) + part, channel, route)


def _stands(
    transfers: Transfers,
    fold: Fold,
    found: Classes,
    sketch: _Sketch,
    topology: Topology,
    device: NDArray[np.int32],
) -> bool:
    """Whether what ranks that stand for others receive is like what stands for it: all of it, or
    some where there is very much.
    """
    src, dst, _ = transfers.into(fold.leaders.astype(np.int64))
    if len(src) > MOST_HELD:
        some = np.random.default_rng(len(src)).choice(len(src), MOST_HELD, replace=False)
        src, dst = src[some], dst[some]
    leader = fold.ranks.first[src].astype(np.int64)
    sent = transfers.among(leader, transfers.rounds.met(leader, src, dst))
    received = transfers.among(src, dst)
    like = hop_colours(found, sketch.of(sent), topology, device)
    return bool(np.isin(hop_colours(found, sketch.of(received), topology, device), like).all())
