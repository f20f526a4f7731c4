"""Seats: which node every rank sits on and at which place there, as columns.

Nodes whose searches found the same are of one kind; what holds for a kind is worked out once. The
ranks of nodes may be numbered in any way.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Seats:
    """The ranks of all nodes one after the other, where each node's begin, and each node's kind.

    `first` are the nodes that stand for the kinds.
    """

    ranks: Ints
    start: Ints
    kind: Ints
    first: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.kind)

    @cached_property
    def size(self) -> Ints:
        """How many ranks each node has."""
        return np.diff(self.start)

    @cached_property
    def node(self) -> Ints:
        """The node of every rank."""
        return self._by_rank(np.repeat(np.arange(len(self)), self.size))

    @cached_property
    def place(self) -> Ints:
        """The place of every rank among those of its node."""
        return self._by_rank(np.arange(len(self.ranks)) - np.repeat(self.start[:-1], self.size))

    def in_order(self, orders: Sequence[Sequence[int]], case: Ints) -> "Seats":
        """The same with the ranks of node i in the order `orders[case[i]]` of places."""
        size = np.array([len(order) for order in orders], np.int64)[case]
        start = np.r_[0, np.cumsum(size)]
        ranks = np.empty(start[-1], np.int64)
        for number, order in enumerate(orders):
            mine = np.flatnonzero(case == number)[:, None]
            there = start[mine] + np.arange(len(order))
            ranks[there] = self.ranks[self.start[mine] + np.array(order, np.int64)]
        return Seats(ranks, start, self.kind, self.first)

    def _by_rank(self, column: Ints) -> Ints:
        result = np.empty(len(self.ranks), np.int64)
        result[self.ranks] = column
        return result


def seats_of(nodes: Iterable[Sequence[int]], kinds: Iterable[Hashable]) -> Seats:
    """The seats of nodes, given by their ranks; nodes with equal `kinds` are of one kind."""
    ranks = list(nodes)
    number: dict[Hashable, int] = {}
    kind = [number.setdefault(one, len(number)) for one in kinds]
    first = [kind.index(one) for one in range(len(number))]
    start = np.cumsum([0, *map(len, ranks)])
    flat = np.fromiter(chain.from_iterable(ranks), np.int64, int(start[-1]))
    return Seats(flat, start, np.array(kind, np.int64), tuple(first))
