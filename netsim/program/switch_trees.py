"""Find the links of rows that switches multicast or reduce: a tree between a GPU and a group.

The switches of a node (NVSwitch) need no search: the tree is the union of the routes between the
GPU and the members of the group. The names of routes through switches of the fabric (SHARP) begin
with `sharp:` (from a group to one GPU, or from one GPU to a group) or `sharp-all:` (from a group to
all of it in one stream). In the second case the stream belongs to the row that reduces, and the row
that multicasts crosses no link. After the colon comes the route from GPU to NIC, see
`parse_route_options`.
"""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import different
from netsim.base.values import dataclass
from netsim.program.distinct_routes import RouteClass
from netsim.program.path_entries import Entries, Ints, no_entries
from netsim.program.program import PlacementError
from netsim.schedule.schedule import MULTICAST, Schedule, spelled_out
from netsim.topology.graph import Topology
from netsim.topology.reduction import SwitchReduction

ONE_WAY = "sharp"
BOTH_WAYS = "sharp-all"


@dataclass
class SwitchTrees:
    """Finds the trees of rows that switches multicast or reduce.

    `device` is by rank its GPU in the topology.
    """

    schedule: Schedule
    topology: Topology
    device: NDArray[np.int32]

    @cached_property
    def fabric(self) -> SwitchReduction:
        """The trees through switches of the fabric.

        They are made only if a row needs one, because the library for the search takes as long to
        import as it takes to simulate a million rows.
        """
        return SwitchReduction(self.topology)

    def entries(
        self,
        route_class: RouteClass,
        numbers: Ints,
        src: Ints,
        dst: Ints,
        latency: NDArray[np.float64],
    ) -> Entries:
        """Return the links of the trees of some routes, as columns: route, link, weight.

        The weight is 1, or less for a half-duplex link that a tree crosses in both directions.

        - `route_class`: the class of these routes; `numbers`: their numbers.
        - `src`, `dst`: the endpoints of each route: one is a rank, the other a group of ranks.
        - `latency`: by number of the route; the seconds to the farthest member are written there.
        """
        is_multicast = route_class.kind == MULTICAST
        root = src if is_multicast else dst
        group = dst if is_multicast else src
        if route_class.route.partition(":")[0] in (ONE_WAY, BOTH_WAYS):
            return self._fabric_trees(route_class, numbers, root, group, latency)
        return self._node_trees(route_class, numbers, root, group, latency)

    def _node_trees(
        self,
        route_class: RouteClass,
        numbers: Ints,
        root: Ints,
        group: Ints,
        latency: NDArray[np.float64],
    ) -> Entries:
        """Return the trees through switches of a node: each link carries the data once.

        `root` is the rank and `group` the group of each route; see `entries`.
        """
        is_multicast = route_class.kind == MULTICAST
        place, member = spelled_out(self.schedule.groups, group)
        others = np.flatnonzero(member != root[place])
        is_alone = np.bincount(place[others], minlength=len(numbers)) == 0
        if is_alone.any():
            rank = int(root[is_alone][0])
            raise PlacementError(f"rank {rank}: a group of its own needs no switch")
        near = root[place[others]]
        far = member[others].astype(np.int32)
        endpoints = (near, far) if is_multicast else (far, near)
        owner, links, seconds = self._routes(endpoints, route_class)
        slowest = np.zeros(len(numbers))
        np.maximum.at(slowest, place[others], seconds)
        latency[numbers] = slowest
        # A root that belongs to the group also exchanges data with the switch as a member: add the
        # link between the switch and the root that the route to or from another member shows.
        within, first = np.unique(place[others], return_index=True)
        is_member = np.isin(within, place[member == root[place]])
        within = within[is_member]
        near = near[first[is_member]]
        far = far[first[is_member]]
        endpoints = (far, near) if is_multicast else (near, far)
        back_owner, back_links, _ = self._routes(endpoints, route_class)
        # The last link of each route leads down to the root, the first one up from it.
        edges = np.append(back_owner, -1) if is_multicast else np.append(-1, back_owner)
        at_root = np.flatnonzero(np.diff(edges))
        tree = np.concatenate([place[others][owner], within[back_owner[at_root]]]).astype(np.int64)
        return self._once(numbers, tree, np.concatenate([links, back_links[at_root]]))

    def _once(self, numbers: Ints, tree: NDArray[np.int64], links: Ints) -> Entries:
        """Return each link of each tree once, as columns: route, link, weight.

        `tree` is for each of `links` the index in `numbers` of its route. The two directions of a
        half-duplex link share a capacity: if a tree crosses both, each has half the weight.
        """
        link_count = len(self.topology.links)
        distinct = different(tree * link_count + links)
        tree = distinct // link_count
        link = (distinct % link_count).astype(np.int32)
        drawn = tree * link_count + self.topology.links.resource[link]
        weight = np.ones(len(distinct))
        if (drawn != distinct).any():  # there are half-duplex links
            _, place, directions = np.unique(drawn, return_inverse=True, return_counts=True)
            weight /= directions[place]
        return numbers[tree], link, weight

    def _fabric_trees(
        self,
        route_class: RouteClass,
        numbers: Ints,
        root: Ints,
        group: Ints,
        latency: NDArray[np.float64],
    ) -> Entries:
        """Return the trees through switches of the fabric; `root` and `group` are those of each
        route.
        """
        kind, _, options = route_class.route.partition(":")
        blocks: list[Entries] = [no_entries()]  # there may be no route of this class
        for number, rank, members in zip(numbers, root, group, strict=True):
            devices = self.device[np.array(self.schedule.groups[members])]
            links, seconds = self.fabric.links(
                int(self.device[rank]),
                (devices, options, route_class.channel),
                down=route_class.kind == MULTICAST,
                all_at_once=kind == BOTH_WAYS,
            )
            latency[number] = seconds
            blocks.append((np.full(len(links), number, np.int32), links, np.ones(len(links))))
        owner, link, weight = (np.concatenate(column) for column in zip(*blocks, strict=True))
        return owner, link, weight

    def _routes(
        self, endpoints: tuple[Ints, Ints], route_class: RouteClass
    ) -> tuple[Ints, Ints, NDArray[np.float64]]:
        """Return the routes between pairs of ranks: two columns by hop, and one by pair.

        The columns by hop are the index of the pair and the link; that by pair is the latency in
        seconds. `endpoints` are the sources and the destinations.
        """
        src, dst = endpoints
        channel = np.full(len(src), route_class.channel, np.int32)
        routes = self.topology.routes(
            self.device[src], self.device[dst], channel, route_class.route
        )
        owner = np.repeat(np.arange(len(src), dtype=np.int32), np.diff(routes.ptr))
        return owner, routes.link, routes.latency
