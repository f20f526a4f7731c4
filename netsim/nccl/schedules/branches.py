"""The branches of a tree as tables: parents, children and levels of all ranks at once."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from netsim.nccl.trees import Tree

Ints = NDArray[np.int64]
MOST = 3  # children of a rank
NONE = -1


@dataclass(frozen=True, eq=False)
class Branches:
    """One channel's tree."""

    tree: Tree

    @cached_property
    def up(self) -> Ints:
        """The parent of every rank, -1 for the root."""
        return np.array(self.tree.up, np.int64)

    @cached_property
    def children(self) -> Ints:
        """Those of every rank (second axis), by number; -1 where there is none."""
        table = np.full((MOST, len(self.up)), NONE)
        for rank, children in enumerate(self.tree.down):
            table[: len(children), rank] = children
        return table

    @cached_property
    def number(self) -> Ints:
        """Which child of its parent every rank is."""
        found = np.zeros(len(self.up), np.int64)
        for number, children in enumerate(self.children):
            found[children[children >= 0]] = number
        return found

    @cached_property
    def fan(self) -> Ints:
        """How many children every rank has."""
        found: Ints = (self.children >= 0).sum(axis=0)
        return found

    @cached_property
    def depth(self) -> Ints:
        """How far below the root every rank is."""
        found, level = np.zeros(len(self.up), np.int64), np.array([self.root])
        while level.size:
            below = self.children[:, level]
            found[below[below >= 0]] = np.broadcast_to(found[level] + 1, below.shape)[below >= 0]
            level = below[below >= 0]
        return found

    @property
    def root(self) -> int:
        """The rank without a parent."""
        return self.tree.root

    @cached_property
    def below(self) -> Ints:
        """All ranks that have a parent."""
        return np.flatnonzero(self.up >= 0)

    @cached_property
    def top(self) -> list[int]:
        """The children of the root."""
        return list(self.tree.down[self.root])
