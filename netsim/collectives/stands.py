"""Stands: which lanes of an algorithm are written down, and for how many each one stands."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from netsim.schedule import Builder, Fold, Style
from netsim.values import dataclass

Ints = NDArray[np.int64] | NDArray[np.int32]
Rows = NDArray[np.int32]


@dataclass(frozen=True)
class Stands:
    """By lane (channel · ranks + rank): the one that stands for it, and how many that one is for.

    Rows of the others are not written down; what waits for them waits for those that stand in.
    `bundled`: rows that follow each other on one way may be one.
    """

    fold: Fold
    first: Rows
    count: Rows
    bundled: bool = True

    @property
    def leading(self) -> Rows:
        """The lanes that stand for others or themselves."""
        return np.flatnonzero(self.first == np.arange(len(self.first))).astype(np.int32)

    def written(self, lanes: Ints) -> NDArray[np.int64]:
        """Which of some lanes are written down."""
        return np.flatnonzero(self.first[lanes] == lanes)

    def styles(self, builder: Builder, styles: Style | Rows, lanes: Ints) -> Rows:
        """The styles of rows of some lanes: each stands for as many as its lane does."""
        if isinstance(styles, Style):
            styles = np.full(len(lanes), builder.style(styles), np.int32)
        return copied(builder, styles, self.count[lanes])


def copied(builder: Builder, styles: Rows, copies: Rows) -> Rows:
    """The numbers of the same styles for rows that stand for so many."""
    known = builder.styles
    width = int(copies.max(initial=1)) + 1
    code, place = np.unique(styles.astype(np.int64) * width + copies, return_inverse=True)
    pairs: Sequence[tuple[int, int]] = [divmod(one, width) for one in code.tolist()]
    numbers = [builder.style(replace(known[style], copies=times)) for style, times in pairs]
    found: Rows = np.array(numbers, np.int32)[place.reshape(styles.shape)]
    return found
