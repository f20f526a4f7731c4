"""The paths of distinct routes: all links and resources that each draws on, and its latency."""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import different
from netsim.base.values import dataclass
from netsim.program.distinct_routes import DistinctRoutes, RouteClass
from netsim.program.path_entries import Entries, Ints, broadcast_if_equal, no_entries, pack
from netsim.program.resource_numbers import SENDER, Resources
from netsim.program.resource_use import ResourceUse
from netsim.program.switch_trees import SwitchTrees
from netsim.schedule.schedule import MULTICAST, SWITCH_REDUCE, TRANSFER, Schedule
from netsim.topology.graph import LINK_KINDS, NODE_KINDS, Floats, Topology

_ROUTES_AT_A_TIME = 1 << 15  # bounds temporary memory


@dataclass
class PathBuilder:
    """Finds the paths of distinct routes on a topology.

    `device` is the GPU of every rank, `process` its process.
    """

    schedule: Schedule
    topology: Topology
    device: NDArray[np.int32]
    process: NDArray[np.int32]

    @cached_property
    def resources(self) -> Resources:
        """The resources other than wires that paths draw on."""
        return Resources(len(self.topology.links), self.topology)

    @cached_property
    def _trees(self) -> SwitchTrees:
        """The finder of the trees of multicasts and in-switch reductions; it is made once."""
        return SwitchTrees(self.schedule, self.topology, self.device)

    @cached_property
    def _use(self) -> ResourceUse:
        """The finder of resources other than wires (SMs, memory, proxies, ...); it is made once."""
        return ResourceUse(self.schedule, self.topology, self.resources, self.device, self.process)

    def paths(
        self, routes: DistinctRoutes
    ) -> tuple[NDArray[np.int64], Ints, NDArray[np.float64], NDArray[np.float64]]:
        """Return pointers, links, weights and latencies of the paths of all routes, in CSR form.

        The path of route r has the entries `pointers[r]` to `pointers[r + 1]` - 1 of links and
        weights. Latencies are in seconds.
        """
        latency = np.zeros(len(routes))
        blocks: list[Entries] = []
        order = np.argsort(routes.class_number, kind="stable").astype(np.int32)
        class_numbers = np.arange(len(routes.classes) + 1)
        bounds = np.searchsorted(routes.class_number[order], class_numbers)
        for class_number, route_class in enumerate(routes.classes):
            numbers = order[bounds[class_number] : bounds[class_number + 1]]
            if len(numbers) > _ROUTES_AT_A_TIME:
                # Sort by destination, because some routers search once for each destination.
                numbers = numbers[np.argsort(routes.dst[numbers], kind="stable")]
            for first in range(0, len(numbers), _ROUTES_AT_A_TIME):
                portion = numbers[first : first + _ROUTES_AT_A_TIME]
                self._add_entries(route_class, portion, routes, latency, blocks)
        return (*pack(blocks, len(latency)), broadcast_if_equal(latency))

    def _add_entries(
        self,
        route_class: RouteClass,
        numbers: Ints,
        routes: DistinctRoutes,
        latency: NDArray[np.float64],
        blocks: list[Entries],
    ) -> None:
        """Append the path entries of some routes to `blocks`, and write their latencies.

        - `route_class`: the class of these routes; `numbers`: their numbers in `routes`.
        - `latency`: by number of the route; the seconds of one traversal are written there.
        - `blocks`: blocks of entries, as in `pack`.
        """
        src = routes.src[numbers]
        dst = routes.dst[numbers]
        wires = self._wires(route_class, numbers, src, dst, latency)
        owner, link, fraction = wires
        weight = fraction * (route_class.wire * route_class.multiplicity)
        drawn = self.topology.links.resource[link]
        blocks.append((owner, *self._wires_of_representatives(route_class, drawn, weight)))
        blocks.extend(
            self._use.entries(route_class, use, numbers, src, dst, wires)
            for use in route_class.uses
        )
        if route_class.kind != TRANSFER:
            return
        window_bytes = self.topology.router.window
        if window_bytes < np.inf:
            round_trip = 2 * np.maximum(latency[numbers], 1e-12)
            rate = window_bytes / round_trip
            blocks.append(self._windows(route_class, numbers, (src, dst), wires, rate))
        if self.topology.router.incast > 0:
            blocks.extend(self._senders(wires))

    def _wires(
        self,
        route_class: RouteClass,
        numbers: Ints,
        src: Ints,
        dst: Ints,
        latency: NDArray[np.float64],
    ) -> Entries:
        """Return the links that the data of some routes crosses, as columns: route, link, fraction.

        The fraction is that of the data which crosses the link. Links have a direction here. A path
        draws on their resources, which both directions of a half-duplex link share.
        """
        if route_class.kind in (MULTICAST, SWITCH_REDUCE):
            return self._trees.entries(route_class, numbers, src, dst, latency)
        if route_class.kind != TRANSFER:
            return no_entries()
        channel = np.full(len(numbers), route_class.channel, np.int32)
        crossed = self.topology.routes(
            self.device[src], self.device[dst], channel, route_class.route
        )
        latency[numbers] = crossed.latency
        return np.repeat(numbers, np.diff(crossed.ptr)), crossed.link, crossed.fraction

    def _wires_of_representatives(
        self, route_class: RouteClass, links: Ints, weight: NDArray[np.float64]
    ) -> tuple[Ints, NDArray[np.float64]]:
        """Return the representatives of some links, and the weights on these.

        `weight` has the weights on `links` without a fold. A wire that represents `count` equal
        ones carries 1 / `count` of all copies of a row.
        """
        fold = self.schedule.fold
        if fold is None:
            return links, broadcast_if_equal(weight)
        wires = fold.wires
        return wires.first[links], weight * (route_class.copies / wires.count[links])

    def _windows(
        self,
        route_class: RouteClass,
        numbers: Ints,
        endpoints: tuple[Ints, Ints],
        wires: Entries,
        rate: Floats,
    ) -> Entries:
        """Return path entries that limit each route to its connection's window / round trip.

        Entries are columns: route, resource, bytes for each byte of data. Only routes for which
        this is less than the rate of their NICs have one.

        - `numbers`, `endpoints`: the numbers of the routes, and their sources and destinations.
        - `wires`: the links that these routes cross.
        - `rate`: window / round trip of each route, in bytes/s.

        A row for several equal channels (`multiplicity`) draws only once, because each channel has
        connections of its own.
        """
        owner, link, fraction = wires
        links = self.topology.links
        is_nic = links.kind[link] == LINK_KINDS.index("nic")
        nic_rate = np.zeros(int(numbers.max(initial=0)) + 1)
        np.maximum.at(nic_rate, owner[is_nic], (links.bandwidth[link] / fraction)[is_nic])
        slow = np.flatnonzero(rate < nic_rate[numbers])
        src, dst = endpoints
        pairs = zip(self.device[src[slow]].tolist(), self.device[dst[slow]].tolist(), strict=True)
        windows = [
            self.resources.window((*pair, route_class.channel, route_class.route), window_rate)
            for pair, window_rate in zip(pairs, rate[slow].tolist(), strict=True)
        ]
        return (
            numbers[slow],
            np.array(windows, np.int32),
            np.full(len(slow), route_class.wire),
        )

    def _senders(self, wires: Entries) -> Iterator[Entries]:
        """Yield the path entries of senders, by which an engine counts who sends to a NIC (incast).

        A sender is a resource for each link into a NIC and each NIC that sends over it; it limits
        nothing. The number of active senders decides on the link's capacity (`LinkTable.incast`).
        There is one block of entries (route, sender, weight 1) for each link. `wires` are the links
        that the routes cross.
        """
        owner, link, _ = wires
        links = self.topology.links
        is_nic = self.topology.node_kinds == NODE_KINDS.index("nic")
        is_cable = links.kind[link] == LINK_KINDS.index("nic")
        leaves_nic = is_cable & is_nic[links.tail[link]]
        enters_nic = is_cable & is_nic[links.head[link]]
        sender = np.zeros(int(owner.max(initial=0)) + 1, np.int64)
        # Written in reverse order, so that the first NIC of each route remains.
        sender[owner[leaves_nic][::-1]] = links.tail[link[leaves_nic]][::-1]
        entered = links.resource[link[enters_nic]]
        for receiver_link in different(entered).tolist():
            routes = owner[enters_nic][entered == receiver_link]
            numbers = self.resources.numbers(SENDER, receiver_link, sender[routes])
            yield routes, numbers.astype(np.int32), np.ones(len(routes))
