"""Which resources other than wires the rows of a route draw on, and with which weight."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import different
from netsim.base.values import dataclass
from netsim.program.distinct_routes import RouteClass
from netsim.program.path_entries import Entries, Ints
from netsim.program.resource_numbers import Resources
from netsim.schedule.partition import Fold
from netsim.schedule.schedule import SWITCH_REDUCE, TRANSFER, Schedule, Use
from netsim.topology.graph import NODE_KINDS, Topology


@dataclass
class ResourceUse:
    """Finds the resources other than wires that routes draw on.

    `device` is by rank its GPU in the topology, `process` by rank its process.
    """

    schedule: Schedule
    topology: Topology
    resources: Resources
    device: NDArray[np.int32]
    process: NDArray[np.int32]

    def entries(
        self, route_class: RouteClass, use: Use, numbers: Ints, src: Ints, dst: Ints, wires: Entries
    ) -> Entries:
        """Return the path entries of one use for some routes, as columns: route, resource, weight.

        - `route_class`: the class of these routes.
        - `use`: a use of the class, such as of the memory at the destination.
        - `numbers`, `src`, `dst`: the numbers and the endpoints of these routes.
        - `wires`: the links that these routes cross, in the direction of the data.
        """
        at_source = use.end == "src" or route_class.kind not in (TRANSFER, SWITCH_REDUCE)
        rank = src if at_source else dst
        is_transfer = route_class.kind == TRANSFER
        routes = numbers
        if use.resource == "nic_msg":
            routes, owners = self._nics(use, wires)
        elif use.resource == "proxy" and use.end == "src" and is_transfer:
            owners = self._last_gpus(numbers, self.device[rank], wires)
        elif use.resource == "host":
            owners = self.process[rank].astype(np.int64)
        else:
            owners = self.device[rank].astype(np.int64)
        # Each of `multiplicity` equal channels has its own SM; all other resources are shared.
        channels = 1 if use.resource == "sm" else route_class.multiplicity
        weight = np.full(len(owners), use.weight * channels)
        if self.schedule.fold is None:
            links = self.resources.numbers(use.resource, use.index, owners).astype(np.int32)
            return routes, links, weight
        return routes, *self._of_representatives(
            self.schedule.fold, route_class, use, owners, weight
        )

    def _of_representatives(
        self,
        fold: Fold,
        route_class: RouteClass,
        use: Use,
        owners: NDArray[np.int64],
        weight: NDArray[np.float64],
    ) -> tuple[Ints, NDArray[np.float64]]:
        """Return the resources of the representatives of some owners, and the weights on these.

        - `owners`: the GPU or NIC node of each route, whose resource would be used without a fold.
        - `weight`: the weight of each route without a fold.

        A resource that represents `count` equal ones carries 1 / `count` of all copies of a row.
        """
        if use.resource == "sm":
            return self._sms_of_representatives(fold, route_class, use, owners, weight)
        if use.resource == "nic_msg":
            representatives = fold.nodes.first[owners].astype(np.int64)
            count = fold.nodes.count[owners]
        else:
            rank = self._rank_of_gpu[owners]
            representatives = self.device[fold.ranks.first[rank]].astype(np.int64)
            count = fold.ranks.count[rank]
        links = self.resources.numbers(use.resource, use.index, representatives).astype(np.int32)
        return links, weight * (route_class.copies / count)

    def _sms_of_representatives(
        self,
        fold: Fold,
        route_class: RouteClass,
        use: Use,
        owners: NDArray[np.int64],
        weight: NDArray[np.float64],
    ) -> tuple[Ints, NDArray[np.float64]]:
        """Return the SMs of the representatives of blocks, and the weights on these.

        The arguments are those of `_of_representatives`. A block may be represented by a block of
        another channel: the representative has the number channel × ranks + rank.
        """
        blocks = fold.blocks[use.index]
        ranks = self._rank_of_gpu[owners]
        representatives = blocks.first[ranks]
        channels = representatives // self.schedule.ranks
        links = np.empty(len(owners), np.int32)
        for channel in different(channels).tolist():
            on_channel = channels == channel
            rank = representatives[on_channel] % self.schedule.ranks
            gpus = self.device[rank].astype(np.int64)
            links[on_channel] = self.resources.numbers("sm", channel, gpus)
        return links, weight * (route_class.copies / blocks.count[ranks])

    @cached_property
    def _rank_of_gpu(self) -> NDArray[np.int32]:
        """The rank that runs on each GPU, -1 if none does."""
        rank_of_gpu = np.full(len(self.topology), -1, np.int32)
        rank_of_gpu[self.device] = np.arange(len(self.device))
        return rank_of_gpu

    def _last_gpus(self, numbers: Ints, senders: Ints, wires: Entries) -> NDArray[np.int64]:
        """Return the GPU from which the data of each route leaves its host.

        It is the last GPU on the route: the sender, or a relay (PXN, `src/graph/paths.cc,
        ncclTopoComputePaths`). `senders` are the GPUs where the routes `numbers` begin.
        """
        owner, link, _ = wires
        gpu_of_node = np.full(len(self.topology.node_kinds), -1, np.int64)
        gpu_of_node[self.topology.gpu_nodes] = np.arange(len(self.topology))
        tail_gpu = gpu_of_node[self.topology.links.tail[link]]
        leaves_gpu = tail_gpu >= 0
        # np.unique returns the first index of each route: in reversed order that is its last entry.
        routes, last = np.unique(owner[leaves_gpu][::-1], return_index=True)
        last_gpus = senders.astype(np.int64)
        order = np.argsort(numbers)
        place = np.searchsorted(numbers, routes, sorter=order)
        last_gpus[order[place]] = tail_gpu[leaves_gpu][::-1][last]
        return last_gpus

    def _nics(self, use: Use, wires: Entries) -> tuple[Ints, NDArray[np.int64]]:
        """Return the numbers of the routes that cross a NIC, and the node of one NIC of each.

        For a use at the source it is the first NIC of the route, at the destination the last one.
        """
        is_nic = self.topology.node_kinds == NODE_KINDS.index("nic")
        owner, link, _ = wires
        links = self.topology.links
        node = links.head[link] if use.end == "src" else links.tail[link]
        on_nic = is_nic[node]
        routes = owner[on_nic]
        nics = node[on_nic].astype(np.int64)
        if use.end == "dst":
            routes = routes[::-1]
            nics = nics[::-1]
        distinct, place = np.unique(routes, return_index=True)
        return distinct, nics[place]
