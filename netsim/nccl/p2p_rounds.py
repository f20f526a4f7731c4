"""The rounds in which ranks send to each other: who meets whom when, for all pairs by formula.

Every rank walks the same rounds, so that sends and receives of one round match. In a round a rank
sends as many groups and as many places further on as the order of both says.
"""

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from math import ceil, gcd
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from netsim.nccl.facts import Facts
from netsim.nccl.seats import Seats, seats_of
from netsim.nccl.settings import NO_SETTINGS, Settings
from netsim.values import dataclass

Ints = NDArray[np.int64]
BATCH = 8  # operations that share a channel's block at a time


@dataclass(frozen=True)
class Round:
    """What a rank does in one round, and the number of the round."""

    number: int
    send_to: int
    receive_from: int


@dataclass(frozen=True, eq=False)
class Rounds:
    """The rounds of a communicator: its ranks in groups of equal size (a row each), and how far
    rounds go on between groups (`far`) and inside them (`near`), those in the inner loop.
    """

    seats: Seats
    groups: Ints
    far: Ints
    near: Ints
    settings: Settings = NO_SETTINGS

    @property
    def n_nodes(self) -> int:
        """Nodes of the communicator."""
        return len(self.seats)

    @property
    def n_ranks(self) -> int:
        """Ranks of the communicator."""
        return self.groups.size

    def numbers(self, src: ArrayLike, dst: ArrayLike) -> Ints:
        """The round in which each source sends to its destination."""
        (group, place), far, near = self._places, len(self.far), len(self.near)
        between = (group[np.asarray(dst)] - group[np.asarray(src)]) % far
        inside = (place[np.asarray(dst)] - place[np.asarray(src)]) % near
        found: Ints = _turns(self.far)[between] * near + _turns(self.near)[inside]
        return found

    def met(self, rank: Ints, src: Ints, dst: Ints) -> Ints:
        """To whom each rank sends in the round in which a source sends to a destination."""
        (group, place), far, near = self._places, len(self.far), len(self.near)
        to = (group[rank] + group[dst] - group[src]) % far
        found: Ints = self.groups[to, (place[rank] + place[dst] - place[src]) % near]
        return found

    def of(self, rank: int) -> tuple[Round, ...]:
        """The rounds of a rank: with whom it exchanges data, itself first."""
        found = self._peers(rank, 1), self._peers(rank, -1)
        return tuple(Round(number, *both) for number, both in enumerate(zip(*found, strict=True)))

    def channels(self, number: Ints, total: int) -> Ints:
        """The first channel of some rounds: spread by reversing the bits of their numbers."""
        return first_channels(number, total, self.n_nodes, self._apart)

    def crosses(self, src: ArrayLike, dst: ArrayLike) -> NDArray[np.bool_]:
        """Whether each source sends over the network."""
        node = self.seats.node
        crossed: NDArray[np.bool_] = node[np.asarray(src)] != node[np.asarray(dst)]
        return crossed

    def _peers(self, rank: int, way: int) -> list[int]:
        own, place = (int(column[rank]) for column in self._places)
        rows = (own + way * self.far) % len(self.far)
        columns = (place + way * self.near) % len(self.near)
        peers: list[int] = self.groups[rows[:, None], columns].ravel().tolist()
        return peers

    @cached_property
    def _places(self) -> tuple[Ints, Ints]:
        """The group of every rank, and its place there."""
        found = np.empty((2, self.n_ranks), np.int64)
        found[:, self.groups] = np.indices(self.groups.shape)
        return found[0], found[1]

    @cached_property
    def _apart(self) -> int:
        """Ranks of a group as channels are spread over groups."""
        return group_size(self.seats.size.tolist(), self.settings)


def rounds_of(
    nodes: Sequence[Sequence[int]], facts: Facts, settings: Settings = NO_SETTINGS
) -> Rounds:
    """The rounds of a communicator over the ranks of `nodes`."""
    seats = seats_of(nodes, [0] * len(nodes))
    sizes = set(seats.size.tolist())
    if facts.p2p_rounds == "grouped":
        size = group_size(seats.size.tolist(), settings)
    else:
        size = sizes.pop() if len(sizes) == 1 else len(seats.ranks)
    groups = seats.ranks.reshape(-1, size)
    far, near = ORDERS[facts.p2p_rounds]
    steps = np.array(far(len(groups)), np.int64), np.array(near(size), np.int64)
    return Rounds(seats, groups, *steps, settings)


def quadratic_order(count: int) -> tuple[int, ...]:
    """0, 1, 3, 6, … modulo the next power of two: all numbers below `count`, each once."""
    power, delta, order = 1 << max(0, count - 1).bit_length(), 0, []
    for step in range(power):
        if delta < count:
            order.append(delta)
        delta = (delta + step + 1) % power
    return tuple(order)


def alternating_order(count: int) -> tuple[int, ...]:
    """Distances tried before 2.22: d, -d, and both from half way, outwards from 0."""
    half, found = count // 2, dict[int, None]()
    for distance in range(count):
        for delta in (distance, count - distance, half - distance, half + distance):
            found.setdefault(delta % count)
    return tuple(found)


def group_size(sizes: Collection[int], settings: Settings = NO_SETTINGS) -> int:
    """Ranks of one group of the rounds, from those of every node: the node when alone, else 8 or
    what divides all nodes.
    """
    return gcd(*(sizes if len(sizes) == 1 else (settings.p2p_group, *sizes)))


def first_channels(number: Ints, total: int, n_nodes: int, size: int) -> Ints:
    """The first channels of rounds over groups of `size`: spread by reversing bits of numbers."""
    if n_nodes > 1:
        group, local = np.divmod(number, size)
        number = group * ceil(size / BATCH) + local // BATCH
    bits = total.bit_length() - 1
    texts = [format(one, f"0{bits}b") if bits else "0" for one in range(total)]
    found: Ints = np.array([int(text[::-1], 2) for text in texts], np.int64)[number % total]
    return found


def distinct_rows(columns: Sequence[NDArray[Any]]) -> tuple[list[list[int]], Ints]:
    """The different rows of some columns, and which of them each row is."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        different, number = np.unique(column, return_inverse=True)
        code = code * max(1, len(different)) + number
    _, first, which = np.unique(code, return_index=True, return_inverse=True)
    return np.column_stack([column[first] for column in columns]).tolist(), which


def _turns(order: Ints) -> Ints:
    """When each number comes in an order."""
    turns = np.empty(len(order), np.int64)
    turns[order] = np.arange(len(order))
    return turns


# The orders of rounds between groups and inside them, by what an NCCL version does.
ORDERS: dict[str, tuple[Callable[[int], Sequence[int]], Callable[[int], Sequence[int]]]] = {
    "grouped": (quadratic_order, range),
    "quadratic": (quadratic_order, quadratic_order),
    "alternating": (alternating_order, range),
}
