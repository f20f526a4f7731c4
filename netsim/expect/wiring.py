"""How the ranks of a communicator hang together: rings, trees, heads, links and NICs by channel.

The same for all calls of a communicator. Which channels a call uses is the business of `plans`.
What nodes of one kind have in common is found once for all of them.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from netsim.expect.doors import Hop, Ways
from netsim.expect.inside import Pair, links_inside
from netsim.expect.nodes import Node
from netsim.nccl.channels import Channel, ChannelGraph
from netsim.nccl.communicator import Communicator
from netsim.nccl.executed import Layout, laid_out
from netsim.nccl.node import NodeView
from netsim.nccl.repeated import Repeated
from netsim.nccl.seats import Seats, seats_of
from netsim.nccl.trees import Tree
from netsim.values import dataclass

Ints = NDArray[np.int64]
GPU_OWN = "net"  # each GPU's own NIC


@dataclass(frozen=True)
class Heads:
    """Ranks that reduce in a switch, by node, and the NIC of each to the network."""

    ranks: tuple[tuple[int, ...], ...] = ()
    doors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chains:
    """By channel: each node's ranks from its head on, and the NIC of the heads."""

    ranks: tuple[tuple[tuple[int, ...], ...], ...] = ()
    doors: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Wiring:
    """How the ranks of a communicator hang together, each part found when it is asked for."""

    comm: Communicator
    nodes: Sequence[Node]

    @cached_property
    def seats(self) -> Seats:
        """Which node every rank sits on."""
        return seats_of([node.ranks for node in self.nodes], [id(node.view) for node in self.nodes])

    @cached_property
    def views(self) -> tuple[NodeView, ...]:
        """What NCCL found on each kind of node."""
        return tuple(self.nodes[number].view for number in self.seats.first)

    @cached_property
    def node(self) -> tuple[int, ...]:
        """The node of every rank."""
        return tuple(self.seats.node.tolist())

    @property
    def rings(self) -> Sequence[tuple[int, ...]]:
        """The ring of every channel, as ranks in order."""
        return self._layout.rings

    @property
    def trees(self) -> Sequence[Tree]:
        """The tree of every channel."""
        return self._layout.trees

    @cached_property
    def nvls(self) -> Heads:
        """The heads that switches inside nodes reach."""
        return _heads(self.nodes, self.seats, [view.nvls for view in self.views])

    @cached_property
    def direct(self) -> Heads:
        """The heads that switches of the network reach, and by which NICs."""
        return _heads(self.nodes, self.seats, [view.collnet_direct for view in self.views])

    @cached_property
    def chains(self) -> Chains:
        """The chains from these heads on."""
        return _chains(self.nodes, self.seats, self.comm.n_channels)

    @property
    def link(self) -> str:
        """The usual kind of link inside nodes."""
        return self._links[0]

    @property
    def links(self) -> Mapping[Pair, str]:
        """The exceptions, by source and destination."""
        return self._links[1]

    @cached_property
    def ring_routes(self) -> Mapping[Hop, str]:
        """The ways of rings between nodes."""
        found = Repeated(self.comm.n_channels, self._layout.rings.period, self._around)
        return Ways(self.seats, self.views, [view.ring for view in self.views], found)

    @cached_property
    def tree_routes(self) -> Mapping[Hop, str]:
        """The ways of trees between nodes, in both directions of every edge."""
        found = Repeated(self.comm.n_channels, self._layout.trees.period, self._edges)
        return Ways(self.seats, self.views, [view.tree for view in self.views], found)

    @cached_property
    def _layout(self) -> Layout:
        rings, trees = [view.ring for view in self.views], [view.tree for view in self.views]
        return laid_out(rings, trees, self.seats, self.comm.n_channels)

    @cached_property
    def _links(self) -> tuple[str, Mapping[Pair, str]]:
        return links_inside(self.comm, self.seats, self.views)

    def _around(self, channel: int) -> tuple[Ints, Ints]:
        ring = np.array(self.rings[channel], np.int64)
        return ring, np.roll(ring, -1)

    def _edges(self, channel: int) -> tuple[Ints, Ints]:
        up = np.array(self.trees[channel].up, np.int64)
        below = np.flatnonzero(up >= 0)
        return np.r_[below, up[below]], np.r_[up[below], below]


def _heads(nodes: Sequence[Node], seats: Seats, graphs: Sequence[ChannelGraph | None]) -> Heads:
    """The heads of one search, in the order of its channels: as many as every node has."""
    found = []
    for number, graph in zip(seats.first, graphs, strict=True):
        firsts: dict[int, str] = {}
        for channel in graph.channels if graph else ():
            firsts.setdefault(channel.gpus[0], _door(nodes[number], channel))
        found.append(firsts)
    count = min(map(len, found))
    ranks = _of_nodes(nodes, seats, [list(firsts)[:count] for firsts in found])
    doors = zip(*(tuple(firsts.values()) for firsts in found), strict=False)
    return Heads(ranks, tuple(_common(same) for same in doors))


def _chains(nodes: Sequence[Node], seats: Seats, n_channels: int) -> Chains:
    """The chains of CollNet on all executed channels, as often as those of the search fit in."""
    kinds = [nodes[number] for number in seats.first]
    graphs = [node.view.collnet_chain for node in kinds]
    searched = min(graph.n_channels if graph else 0 for graph in graphs)
    if not searched:
        return Chains()
    orders, doors = [], []
    for number in range(searched):
        own = [graph.channels[number] for graph in graphs if graph]
        orders.append(_of_nodes(nodes, seats, [one.gpus for one in own]))
        doors.append(_common([_door(node, one) for node, one in zip(kinds, own, strict=True)]))
    return Chains(
        tuple(orders[channel % searched] for channel in range(n_channels)),
        tuple(doors[channel % searched] for channel in range(n_channels)),
    )


def _of_nodes(
    nodes: Sequence[Node], seats: Seats, places: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], ...]:
    """The ranks at some places of every node, given by its kind."""
    kinds = seats.kind.tolist()
    pairs = zip(nodes, kinds, strict=True)
    return tuple(tuple(node.ranks[place] for place in places[kind]) for node, kind in pairs)


def _door(node: Node, channel: Channel) -> str:
    """The way by which the first GPU of a channel reaches the network."""
    if channel.nics is None:
        return GPU_OWN
    table = node.view.table
    return f"nic:{table.graph.net(table.nets[channel.nics[0]]).dev}"


def _common(doors: Sequence[str]) -> str:
    """One way for all nodes; each GPU's own where they differ."""
    return doors[0] if len(set(doors)) == 1 else GPU_OWN
