"""Numbers, capacities and names of the resources of a program that are not wires.

Wires have the lowest link numbers; memory, SMs, proxies, NIC messages and windows of connections
follow them, in the order in which rows first use them.
"""

from collections.abc import Iterator
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import different
from netsim.base.values import dataclass
from netsim.schedule.partition import Fold
from netsim.schedule.schedule import COMPUTING
from netsim.topology.graph import Topology

WINDOW = "window"  # the bytes that a connection may have in flight, divided by its round trip
SENDER = "sender"  # a NIC that sends over a link; it limits nothing, but senders are counted
# Resources whose weights are in seconds; their capacity is one second a second.
_IN_SECONDS = ("sms", "clock", "proxy", "nic_msg", "host")


@dataclass
class Resources:
    """The resources of a program that are not wires.

    - `first`: the number of the first of them; wires have the numbers below.
    - `keys`: for each of them its kind, its owner (a GPU, NIC node or process) and an index.
    """

    first: int
    topology: Topology
    keys: list[tuple[str, int, int]] = field(default_factory=list)
    _tables: dict[tuple[str, int], NDArray[np.int64]] = field(default_factory=dict)
    _windows: dict[tuple[Any, ...], tuple[int, float]] = field(default_factory=dict)

    def window(self, connection: tuple[Any, ...], rate: float) -> int:
        """Return the number of the window of a connection; if it is new, it is added.

        A window is a resource whose capacity `rate` (bytes/s) is the bytes that a connection may
        have in flight, divided by its round trip. The key `connection` begins with its two GPUs.
        """
        new = self.first + len(self.keys)
        number, _ = self._windows.setdefault(connection, (new, rate))
        if number == new:
            self.keys.append((WINDOW, *connection[:2]))
        return number

    def numbers(self, resource: str, index: int, owners: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return by entry of `owners` the number of its resource; new resources are added.

        - `resource`: the kind, such as "hbm".
        - `index`: distinguishes several resources of one kind and owner.
        """
        size = int(owners.max(initial=0)) + 1
        table = self._tables.get((resource, index), np.zeros(0, np.int64))
        if len(table) < size:
            table = np.append(table, np.full(size - len(table), -1))
        new = different(owners[table[owners] < 0])
        table[new] = self.first + len(self.keys) + np.arange(len(new))
        self.keys.extend((resource, int(owner), index) for owner in new)
        self._tables[resource, index] = table
        return table[owners]

    def capacity(self) -> NDArray[np.float64]:
        """Return the capacity of every resource in units a second.

        A resource whose capacity the topology does not state has an infinite one.
        """
        stated = self.topology.capacities
        capacities = []
        for resource, owner, _ in self.keys:
            if resource in stated:
                capacities.append(stated[resource][owner])
            else:
                capacities.append(1.0 if resource in _IN_SECONDS else np.inf)
        for number, rate in self._windows.values():
            capacities[number - self.first] = rate
        return np.array(capacities, np.float64)

    def changes(self) -> Iterator[tuple[float, int, float]]:
        """Yield changes of capacities for GPUs that become slower at some time.

        Each is (time in seconds, number of the resource, capacity from then on).
        """
        if not self.topology.slower:
            return
        slowed = {*self.topology.capacities, *COMPUTING}
        full_capacity = self.capacity().tolist()
        for time, gpu, fraction in self.topology.slower:
            for place, (resource, owner, _) in enumerate(self.keys):
                if owner == gpu and resource in slowed:
                    yield time, self.first + place, full_capacity[place] * fraction

    def counts(self, fold: Fold, device: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the number of equal resources that each resource represents.

        `device` is the GPU of every rank.
        """
        rank_of_gpu = np.full(len(self.topology), 0, np.int32)
        rank_of_gpu[device] = np.arange(len(device))
        counts = []
        for resource, owner, index in self.keys:
            if resource == "nic_msg":
                count = fold.nodes.count[owner]
            elif resource == "host":
                count = fold.ranks.count[owner]
            elif resource == "sm":
                count = fold.blocks[index].count[rank_of_gpu[owner]]
            else:
                count = fold.ranks.count[rank_of_gpu[owner]]
            counts.append(int(count))
        return np.array(counts, np.int32)

    def kind(self, number: int) -> str:
        """Return the kind of the resource with a number, such as `hbm`."""
        return self.keys[number - self.first][0]

    def name(self, number: int) -> str:
        """Return the name of a resource, such as `hbm(node0.gpu3)` or `sm(node0.gpu3, 5)`."""
        resource, owner, index = self.keys[number - self.first]
        if resource == SENDER:
            return f"{resource}({self.topology.nodes[owner]}, {self.topology.link_name(index)})"
        if resource == "host":
            return f"{resource}(process {owner})"
        if resource == "nic_msg":
            return f"{resource}({self.topology.nodes[owner]})"
        gpu = self.topology.gpus[owner]
        if resource == WINDOW:
            return f"{resource}({gpu}, {self.topology.gpus[index]})"
        return f"{resource}({gpu}, {index})" if resource == "sm" else f"{resource}({gpu})"
