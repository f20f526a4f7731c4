"""NCCL's double binary tree over nodes, and how ranks of one channel hang together in it.

Between nodes a binary tree whose leaves are inner nodes of its twin; inside a node a chain whose
first GPU is on top. The pattern of the search says which GPUs talk to the network.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from netsim.nccl.channels import BALANCED_TREE, SPLIT_TREE


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
    n_ranks = sum(len(order) for order in orders)
    up, down = [-1] * n_ranks, [list[int]() for _ in range(n_ranks)]
    for order in orders:
        for above, below in pairwise(order):
            up[below] = above
            down[above].append(below)
    for node, place in enumerate(places):
        for number, child in enumerate(place.down):
            if child < 0:
                continue
            parent = orders[node][_door(pattern, number, len(orders[node]))]
            top = orders[child][0]
            up[top] = parent
            down[parent].append(top)
    return Tree(tuple(up), tuple(tuple(children) for children in down))


def _door(pattern: int, child_number: int, n_local: int) -> int:
    """The place in the chain of the GPU that talks to a child node; the first talks to parents."""
    if pattern == BALANCED_TREE:
        door = 1 if child_number == 0 else 0
    else:
        door = 1 if pattern == SPLIT_TREE else 0
    return min(door, n_local - 1)
