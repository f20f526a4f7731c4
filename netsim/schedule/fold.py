"""Fold: which ranks, links and blocks of a symmetric whole stand for which.

Rows that do the same at the same times are written down once. A row's `copies` are the rows that it
stands for; what they draw on links that are alike is drawn on one of them.
"""

from collections.abc import Mapping
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from netsim.values import dataclass

Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Alike:
    """By number: which one stands for it, and how many that one stands for."""

    first: Ints
    count: Ints


@dataclass(frozen=True, slots=True)
class Fold:
    """What stands for what: `ranks` by rank, `wires` by link, `nodes` by node of the topology (of
    NICs), `blocks` by rank for each channel that is written down: the first is coded as
    channel × ranks + rank.
    """

    ranks: Alike
    wires: Alike
    nodes: Alike
    blocks: Mapping[int, Alike] = field(default_factory=dict)

    @property
    def leaders(self) -> Ints:
        """The ranks that stand for others or themselves."""
        return np.flatnonzero(self.ranks.first == np.arange(len(self.ranks.first))).astype(np.int32)


@dataclass(frozen=True, slots=True)
class Hops:
    """Ways that data goes between blocks: numbers of blocks, and what each pair has in common."""

    src: Ints
    dst: Ints
    label: NDArray[np.int64]
    channel: int
    route: str


@dataclass(frozen=True, slots=True)
class Skeleton:
    """What a schedule is made of, without its rows: blocks and the hops between them.

    A block is what one rank does on one channel; `lane` numbers parts that can be written down
    without the others, `kind` says what else blocks must have in common to be alike. `turn` is
    that of a rank: what tells it from others besides where it is.
    """

    ranks: int
    rank: Ints
    channel: Ints
    lane: Ints
    kind: NDArray[np.int64]
    hops: tuple[Hops, ...]
    turn: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Symmetry:
    """A Fold, and what it leaves to be written down: the lanes that stand for `copies` each, and
    the class of every block.
    """

    fold: Fold
    copies: dict[int, int]
    block: NDArray[np.int64]
