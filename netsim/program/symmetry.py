"""Symmetry: the Fold of a schedule on a topology, found from its Skeleton."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from netsim.arrays import different
from netsim.program.refine import MOST_ROUNDS, Classes, Colours, classes, holds, mixed
from netsim.schedule import Alike, Fold, Skeleton, Symmetry
from netsim.topology import Topology


def symmetry_of(
    skeleton: Skeleton,
    topology: Topology,
    device: NDArray[np.int32],
    checks: Sequence[Skeleton] = (),
    rounds: int = MOST_ROUNDS,
) -> Symmetry | None:
    """What of a skeleton is alike on a topology; None if that is not found, or if further hops
    (`checks`) are not alike where it is, or not in so many rounds.
    """
    found = classes(skeleton, topology, device, rounds)
    if found is None or not all(holds(found, one, topology, device) for one in checks):
        return None
    return symmetry_in(skeleton, found)


def symmetry_in(skeleton: Skeleton, found: Classes) -> Symmetry:
    """What is alike in classes that were found."""
    copies = _lanes(skeleton, found.blocks)
    fold = Fold(
        alike(found.ranks),
        alike(found.wires),
        alike(found.nodes),
        _blocks(skeleton, found, copies),
    )
    return Symmetry(fold, copies, np.unique(found.blocks, return_inverse=True)[1])


def alike(colours: Colours) -> Alike:
    """The first of each colour, and how many have it."""
    _, first, place, count = np.unique(
        colours, return_index=True, return_inverse=True, return_counts=True
    )
    return Alike(first[place].astype(np.int32), count[place].astype(np.int32))


def _lanes(skeleton: Skeleton, colours: Colours) -> dict[int, int]:
    """The first of the lanes that have the same blocks, and how many they are."""
    lanes = int(skeleton.lane.max(initial=-1)) + 1
    total = np.zeros(lanes, np.uint64)
    np.add.at(total, skeleton.lane, mixed(colours))
    _, first, count = np.unique(total, return_index=True, return_counts=True)
    return dict(sorted(zip(first.tolist(), count.tolist(), strict=True)))


def _blocks(skeleton: Skeleton, found: Classes, copies: dict[int, int]) -> dict[int, Alike]:
    """Whose SM stands for whose, by channel: those of a rank on one channel are one."""
    code = skeleton.channel.astype(np.int64) * skeleton.ranks + skeleton.rank
    own, place = np.unique(code, return_inverse=True)
    total = np.zeros(len(own), np.uint64)
    np.add.at(total, place, mixed(found.blocks))
    same = alike(total)
    kept = different(skeleton.channel[np.isin(skeleton.lane, list(copies))])
    result = {}
    for channel in kept.tolist():
        mine = np.flatnonzero(own // skeleton.ranks == channel)
        first = np.zeros(skeleton.ranks, np.int64)
        count = np.ones(skeleton.ranks, np.int32)
        rank = own[mine] % skeleton.ranks
        first[rank], count[rank] = own[same.first[mine]], same.count[mine]
        result[channel] = Alike(first.astype(np.int64), count)
    return result
