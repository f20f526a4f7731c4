"""Classes of equal members: of ranks, links, NICs, and of blocks (what a rank does on a channel).

If the members of a class do the same at the same time, only one of them, the representative, is
written. A `Skeleton` says what is known of a schedule before its rows are written; from it and the
topology `program/partition.py` finds the classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from netsim.base.values import dataclass

Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class EqualMembers:
    """The classes of some members (ranks, links, nodes or blocks), by the number of the member.

    - `first`: the representative of each member.
    - `count`: the number of members in the class of each representative.
    """

    first: Ints
    count: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """The classes of equal ranks, links, nodes and blocks, if only representatives are written.

    - `ranks`: by rank. `wires`: by link. `nodes`: by node of the topology (only NICs matter).
    - `blocks`: by channel, then by rank; the representative has the number channel × ranks + rank.
    - `loose`: by link, whether it can never saturate, even if all its transfers run at the same
      time. None: not known. If it is given, then of the resources that are not links only those in
      `TIGHT` of `program/place.py` can saturate.
    """

    ranks: EqualMembers
    wires: EqualMembers
    nodes: EqualMembers
    blocks: Mapping[int, EqualMembers] = field(default_factory=dict)
    loose: NDArray[np.bool_] | None = None

    @property
    def leaders(self) -> Ints:
        """The ranks that are their own representative."""
        return np.flatnonzero(self.ranks.first == np.arange(len(self.ranks.first))).astype(np.int32)


@dataclass(frozen=True, slots=True)
class Hops:
    """Messages between blocks of one channel over one named route.

    - `src`, `dst`: the numbers of the sending and of the receiving block.
    - `label`: a number; messages with different labels are never equal.
    """

    src: Ints
    dst: Ints
    label: NDArray[np.int64]
    channel: int
    route: str


@dataclass(frozen=True, slots=True)
class Skeleton:
    """The blocks of a schedule and the messages between them, without its rows.

    - `ranks`: number of ranks.
    - `rank`, `channel`: by block, its rank and its channel.
    - `lane`: by block, the number of its lane: a part of the schedule that waits for no other part,
      so that it could be a schedule of its own.
    - `kind`: by block, a number; blocks with different numbers are never equal.
    - `hops`: the messages.
    - `rank_kind`: by rank, a number; ranks with different numbers are never equal. It distinguishes
      ranks in something other than their place in the topology, such as the order of their
      launches.
    """

    ranks: int
    rank: Ints
    channel: Ints
    lane: Ints
    kind: NDArray[np.int64]
    hops: tuple[Hops, ...]
    rank_kind: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Partition:
    """The classes of equal members of a schedule, in three forms.

    - `fold`: the representatives of ranks, links, NICs and blocks.
    - `copies`: by lane that is written, how many lanes it represents.
    - `block`: by block of the skeleton, the number of its class.
    """

    fold: Fold
    copies: dict[int, int]
    block: NDArray[np.int64]

    @property
    def written_share(self) -> float:
        """The number of classes of blocks divided by the number of blocks.

        It is the fraction of blocks that is written.
        """
        return len(np.unique(self.block)) / len(self.block)


def written_share(partition: Partition | None) -> float:
    """The fraction of all blocks that is written; 1 without a partition."""
    return 1.0 if partition is None else partition.written_share
