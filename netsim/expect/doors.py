"""The ways between nodes: by which NICs each channel leaves and enters them, or over NVLink (PXN).

Found for all hops of a channel at once, when one of them is asked for.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.nccl.channels import ChannelGraph
from netsim.nccl.node import NodeView
from netsim.nccl.repeated import Repeated
from netsim.nccl.seats import Seats

Ints = NDArray[np.int64]
Hop = tuple[int, int, int]  # channel, from, to


class Ways(Mapping[Hop, str]):
    """The way of every hop between nodes; `hops` are sources and destinations by channel."""

    def __init__(
        self,
        seats: Seats,
        views: Sequence[NodeView],
        graphs: Sequence[ChannelGraph],
        hops: Repeated[tuple[Ints, Ints]],
    ) -> None:
        self.seats, self.views, self.graphs, self.hops = seats, views, graphs, hops
        # All nodes have as many channels as the one with the fewest, and repeat those.
        self.channels = min(graph.n_channels for graph in graphs)
        self.period = lcm(hops.period, self.channels)
        self._known: dict[int, dict[tuple[int, int], str]] = {}

    def __getitem__(self, hop: Hop) -> str:
        return self.of(hop[0])[hop[1], hop[2]]

    def get(self, hop: Hop, default: Any = None) -> Any:
        """The way of a hop; asked for hops inside nodes as well, so without raising for them."""
        channel, src, dst = hop
        known = self._known.get(channel % self.period)
        return (self.of(channel) if known is None else known).get((src, dst), default)

    def __iter__(self) -> Iterator[Hop]:
        for channel in range(len(self.hops)):
            yield from ((channel, *pair) for pair in self.of(channel))

    def __len__(self) -> int:
        return sum(len(self.of(channel)) for channel in range(len(self.hops)))

    def of(self, channel: int) -> Mapping[tuple[int, int], str]:
        """The ways of one channel by (from, to)."""
        number = channel % self.period
        if number not in self._known:
            self._known[number] = self._found(channel)
        return self._known[number]

    def _found(self, channel: int) -> dict[tuple[int, int], str]:
        src, dst = self.hops[channel]
        node = self.seats.node
        away = np.flatnonzero(node[src] != node[dst])
        if not len(away):
            return {}
        src, dst = src[away], dst[away]
        own = channel % self.channels
        doors = [_doors(*kind, own) for kind in zip(self.views, self.graphs, strict=True)]
        width = max(map(len, doors))
        table = np.zeros((len(doors), width, 2), np.int64)
        for number, rows in enumerate(doors):
            table[number, : len(rows)] = rows
        leave, relayed = self._at(table, src).T
        arrive, _ = self._at(table, dst).T
        combined = np.column_stack([leave, arrive, relayed])
        kinds, which = np.unique(combined, axis=0, return_inverse=True)
        names = [_way(*kind) for kind in kinds.tolist()]
        ways = [names[number] for number in which.reshape(-1).tolist()]
        return dict(zip(zip(src.tolist(), dst.tolist(), strict=True), ways, strict=True))

    def _at(self, table: Ints, rank: Ints) -> Ints:
        found: Ints = table[self.seats.kind[self.seats.node[rank]], self.seats.place[rank]]
        return found


def _way(leave: int, arrive: int, relayed: int) -> str:
    """The name of a way by two NICs, the first of which may be that of another GPU (PXN)."""
    if relayed and leave == arrive:
        return "pxn"
    return f"{'pxn' if relayed else 'nic'}:{leave}:{arrive}"


def _doors(view: NodeView, graph: ChannelGraph, channel: int) -> list[tuple[int, bool]]:
    """For every GPU of a node, by place: its NIC on a channel, and whether another GPU passes its
    data on (PXN).
    """
    table, own = view.table, graph.channels[channel]
    assert own.nics is not None  # searched as one of several nodes
    system, found = table.graph, []
    for gpu in range(len(table.gpus)):
        net = table.nets[own.nics[0 if own.gpus[0] == gpu else 1]]
        relayed = table.type_of(table.gpus[system.local_ranks.index(gpu)], net) == "PXN"
        found.append((system.net(net).dev, relayed))
    return found
