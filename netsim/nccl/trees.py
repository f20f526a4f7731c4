"""NCCL's double binary tree over nodes, and how ranks of one channel hang together in it.

Between nodes a binary tree whose leaves are inner nodes of its twin; inside a node a chain whose
first GPU is on top. The pattern of the search says which GPUs talk to the network.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from netsim.nccl.channels import BALANCED_TREE, SPLIT_TREE
from netsim.nccl.seats import Seats, seats_of
from netsim.values import dataclass

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class NodePlace:
    """The place of one node in a tree: parent or -1, which child of it, and children or -1."""

    up: int
    child_number: int
    down: tuple[int, int]


@dataclass(frozen=True)
class Tree:
    """One channel's tree: for every rank its parent or -1 and its children, the chain's first."""

    up: tuple[int, ...]
    down: tuple[tuple[int, ...], ...]

    @property
    def root(self) -> int:
        """The rank without a parent."""
        return self.up.index(-1)


def binary_tree(n_nodes: int) -> tuple[NodePlace, ...]:
    """The first tree: rooted at node 0, leaves are the odd nodes."""
    return tuple(_place(node, n_nodes) for node in range(n_nodes))


def double_binary_tree(n_nodes: int) -> tuple[tuple[NodePlace, ...], tuple[NodePlace, ...]]:
    """Both trees; the second is the first mirrored (even) or shifted by one node (odd)."""
    first = binary_tree(n_nodes)
    return first, tuple(_twin(node, n_nodes, first) for node in range(n_nodes))


def _place(node: int, n_nodes: int) -> NodePlace:
    bit = node & -node if node else 1 << (n_nodes - 1).bit_length()
    if node == 0:
        return NodePlace(-1, -1, (-1, bit >> 1 if n_nodes > 1 else -1))
    up = (node ^ bit) | (bit << 1)
    if up >= n_nodes:
        up = node ^ bit
    if bit == 1:
        return NodePlace(up, int(node > up), (-1, -1))
    reach = bit >> 1
    while reach and node + reach >= n_nodes:
        reach >>= 1
    return NodePlace(up, int(node > up), (node - (bit >> 1), node + reach if reach else -1))


def _twin(node: int, n_nodes: int, first: tuple[NodePlace, ...]) -> NodePlace:
    even = n_nodes % 2 == 0
    place = first[n_nodes - 1 - node if even else (node - 1) % n_nodes]

    def back(other: int) -> int:
        if other < 0:
            return -1
        return n_nodes - 1 - other if even else (other + 1) % n_nodes

    return NodePlace(back(place.up), place.child_number, (back(place.down[0]), back(place.down[1])))


def channel_tree(
    orders: Sequence[Sequence[int]], pattern: int, places: Sequence[NodePlace]
) -> Tree:
    """The tree of one channel over all ranks; `orders` are each node's ranks in chain order."""
    return planted(seats_of(orders, map(len, orders)), pattern, children_of(places))


def children_of(places: Sequence[NodePlace]) -> Ints:
    """The two children of every node, -1 where there is none."""
    return np.array([place.down for place in places], np.int64).reshape(-1, 2)


def planted(seats: Seats, pattern: int, children: Ints) -> Tree:
    """The tree over ranks that sit in chain order; `children` are those of every node."""
    ranks, start = seats.ranks, seats.start
    up = np.full(len(ranks), -1, np.int64)
    inner = np.ones(len(ranks), bool)
    inner[start[:-1]] = False  # the first of a node is below no other of it
    below = np.flatnonzero(inner)
    up[ranks[below]] = ranks[below - 1]
    down: list[tuple[int, ...]] = [()] * len(ranks)
    for above, one in zip(ranks[below - 1].tolist(), ranks[below].tolist(), strict=True):
        down[above] = (one,)
    for number in (0, 1):
        node = np.flatnonzero(children[:, number] >= 0)
        parent = ranks[start[node] + np.minimum(_door(pattern, number), seats.size[node] - 1)]
        top = ranks[start[children[node, number]]]
        up[top] = parent
        for above, one in zip(parent.tolist(), top.tolist(), strict=True):
            down[above] = (*down[above], one)
    return Tree(tuple(up.tolist()), tuple(down))


def _door(pattern: int, child_number: int) -> int:
    """The place in the chain of the GPU that talks to a child node, where the chain reaches so
    far; the first talks to parents.
    """
    if pattern == BALANCED_TREE:
        return 1 if child_number == 0 else 0
    return 1 if pattern == SPLIT_TREE else 0
