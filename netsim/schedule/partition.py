"""Classes of equal members: of ranks, links, NICs, and of what ranks do on channels.

Where members do the same at the same time, one of them is written and represents its class. A
`Skeleton` says what is known of a schedule before its rows are written; from it and the topology
`program/partition.py` finds the classes.
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
    """The representative of every member (`first`), and the size of the class of each
    representative (`count`), both by the member's number."""

    first: Ints
    count: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """The representatives of a schedule of which not all members are written.

    - `ranks`: by rank. `wires`: by link. `nodes`: by node of the topology (only NICs matter).
    - `blocks`: by channel of the schedule and rank; here the representative is the number
      channel × ranks + rank.
    - `loose`: by link, whether it can never saturate, even if all its transfers run at the same
      time. If it is stated, no other resource can saturate but those that `TIGHT` of
      `program/place.py` lists. None: it is not stated.
    """

    ranks: EqualMembers
    wires: EqualMembers
    nodes: EqualMembers
    blocks: Mapping[int, EqualMembers] = field(default_factory=dict)
    loose: NDArray[np.bool_] | None = None

    @property
    def leaders(self) -> Ints:
        """The ranks that are representatives, of their class or of themselves alone."""
        return np.flatnonzero(self.ranks.first == np.arange(len(self.ranks.first))).astype(np.int32)


@dataclass(frozen=True, slots=True)
class Hops:
    """Connections between blocks: the numbers of both blocks, and a label that equal ones share."""

    src: Ints
    dst: Ints
    label: NDArray[np.int64]
    channel: int
    route: str


@dataclass(frozen=True, slots=True)
class Skeleton:
    """The blocks of a schedule and the hops between them, without its rows.

    A block is what one rank does on one channel: block i belongs to `rank[i]` and `channel[i]`.
    `lane` is, by block, the number of its part: parts do not wait for each other, so that each
    could be a schedule of its own. Blocks of one class must have the same `kind`. `turn` is, by
    rank, what distinguishes it from others besides its place, such as when it is launched."""

    ranks: int
    rank: Ints
    channel: Ints
    lane: Ints
    kind: NDArray[np.int64]
    hops: tuple[Hops, ...]
    turn: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Partition:
    """The classes of equal members of a schedule.

    `fold` has the representatives of ranks, links and NICs. `copies` has, for each lane that is
    written, how many lanes it represents. `block` has the class of every block of the skeleton."""

    fold: Fold
    copies: dict[int, int]
    block: NDArray[np.int64]

    @property
    def written_share(self) -> float:
        """The fraction of all blocks that is written."""
        return len(np.unique(self.block)) / len(self.block)


def written_share(partition: Partition | None) -> float:
    """The fraction of all blocks that is written: all of them without a partition."""
    return 1.0 if partition is None else partition.written_share
