"""The links and other resources that each distinct way draws on, with their weights."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from netsim.arrays import different
from netsim.errors import InputError
from netsim.program.distinct import Distinct, Way
from netsim.program.pack import Entries, Ints, pack, thrifty
from netsim.program.reduced import FabricTrees, through_fabric
from netsim.schedule import MULTICAST, SWITCH_REDUCE, TRANSFER, Fold, Schedule, Use, spelled_out
from netsim.topology import NODE_KINDS, Topology

_UNIT = ("sms", "proxy", "nic_msg", "host")  # resources that give one second a second
_PORTION = 1 << 15  # ways routed at a time, to bound temporary memory


class PlacementError(InputError, ValueError):
    """A schedule that cannot run on a topology; the message names ranks and rows."""


@dataclass
class Resources:
    """Numbers for resources other than wires, in order of first use."""

    first: int
    topology: Topology
    keys: list[tuple[str, int, int]] = field(default_factory=list)
    _tables: dict[tuple[str, int], NDArray[np.int64]] = field(default_factory=dict)

    def numbers(self, resource: str, index: int, owners: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of one resource of each owner (a GPU, NIC node or process)."""
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
        """What each of them gives a second; a resource the topology does not state never limits."""
        given = self.topology.capacities
        free = {name: 1.0 if name in _UNIT else np.inf for name, _, _ in self.keys}
        return np.array(
            [given[n][owner] if n in given else free[n] for n, owner, _ in self.keys], np.float64
        )

    def counts(self, fold: Fold, device: NDArray[np.int32]) -> NDArray[np.int32]:
        """How many like it each of them stands for."""
        rank = np.full(len(self.topology), 0, np.int32)
        rank[device] = np.arange(len(device))
        found = []
        for resource, owner, index in self.keys:
            alike, place = fold.ranks, owner
            if resource == "nic_msg":
                alike = fold.nodes
            elif resource != "host":
                place = int(rank[owner])
                alike = fold.blocks[index] if resource == "sm" else fold.ranks
            found.append(int(alike.count[place]))
        return np.array(found, np.int32)

    def kind(self, number: int) -> str:
        """The name of the resource with a number."""
        return self.keys[number - self.first][0]

    def name(self, number: int) -> str:
        """A resource in words, such as `hbm(node0.gpu3)` or `sm(node0.gpu3, 5)`."""
        resource, owner, index = self.keys[number - self.first]
        place: object = f"process {owner}"
        if resource == "nic_msg":
            place = self.topology.nodes[owner]
        elif resource != "host":
            place = self.topology.gpus[owner]
        return f"{resource}({place}, {index})" if resource == "sm" else f"{resource}({place})"


@dataclass
class Ways:
    """Turns distinct ways into paths on one topology."""

    schedule: Schedule
    topology: Topology
    device: NDArray[np.int32]
    process: NDArray[np.int32]
    resources: Resources

    @cached_property
    def fabric(self) -> FabricTrees:
        """Trees through switches of the fabric that reduce."""
        return FabricTrees(self.topology)

    def paths(
        self, found: Distinct
    ) -> tuple[NDArray[np.int64], Ints, NDArray[np.float64], NDArray[np.float64]]:
        """Pointers, links, weights and latencies of all ways, in CSR form."""
        latency = np.zeros(len(found.klass))
        entries: list[Entries] = []
        for number, way in enumerate(found.classes):
            mine = np.flatnonzero(found.klass == number).astype(np.int32)
            if len(mine) > _PORTION:  # by destination, for the sake of routers that search
                mine = mine[np.argsort(found.dst[mine], kind="stable")]
            for first in range(0, len(mine), _PORTION):
                self._portion(way, mine[first : first + _PORTION], found, latency, entries)
        return (*pack(entries, len(latency)), thrifty(latency))

    def _portion(
        self,
        way: Way,
        mine: Ints,
        found: Distinct,
        latency: NDArray[np.float64],
        entries: list[Entries],
    ) -> None:
        """Add the entries of some ways of one class."""
        src, dst = found.src[mine], found.dst[mine]
        wires = self._wires(way, mine, src, dst, latency)
        weight = wires[2] * (way.wire * way.multiplicity)
        entries.append((wires[0], *self._folded_wires(way, wires[1], weight)))
        entries.extend(self._use(way, use, mine, src, dst, wires) for use in way.uses)

    def _wires(
        self,
        way: Way,
        mine: Ints,
        src: Ints,
        dst: Ints,
        latency: NDArray[np.float64],
    ) -> Entries:
        if way.kind in (MULTICAST, SWITCH_REDUCE):
            return self._trees(way, mine, src, dst, latency)
        if way.kind != TRANSFER:
            none = np.zeros(0, np.int32)
            return none, none, np.zeros(0)
        channel = np.full(len(mine), way.channel, np.int32)
        routes = self.topology.routes(self.device[src], self.device[dst], channel, way.route)
        latency[mine] = routes.latency
        owner = np.repeat(mine, np.diff(routes.ptr))
        return owner, self.topology.links.resource[routes.link], routes.fraction

    def _trees(
        self,
        way: Way,
        mine: Ints,
        src: Ints,
        dst: Ints,
        latency: NDArray[np.float64],
    ) -> Entries:
        """Each link of the tree between a GPU and a group carries the data once."""
        down = way.kind == MULTICAST
        root, group = (src, dst) if down else (dst, src)
        if through_fabric(way.route):
            return self._fabric_trees(way, mine, root, group, latency)
        place, member = spelled_out(self.schedule.groups, group)
        others = np.flatnonzero(member != root[place])
        alone = np.bincount(place[others], minlength=len(mine)) == 0
        if alone.any():
            where = int(root[alone][0])
            raise PlacementError(f"rank {where}: a group of its own needs no switch")
        near, far = root[place[others]], member[others].astype(np.int32)
        owner, links, delay = self._routes((near, far) if down else (far, near), way)
        slowest = np.zeros(len(mine))
        np.maximum.at(slowest, place[others], delay)
        latency[mine] = slowest
        # The switch gives to, or takes from, a root in the group like any other member.
        within, first = np.unique(place[others], return_index=True)
        inside = np.isin(within, place[member == root[place]])
        within, near, far = within[inside], near[first[inside]], far[first[inside]]
        back_owner, back, _ = self._routes((far, near) if down else (near, far), way)
        ends = np.append(back_owner, -1) if down else np.append(-1, back_owner)
        at = np.flatnonzero(np.diff(ends))  # the last link down, the first one up
        keys = np.concatenate([place[others][owner], within[back_owner[at]]]).astype(np.int64)
        wires = len(self.topology.links)
        found = different(keys * wires + np.concatenate([links, back[at]]))
        return mine[found // wires], (found % wires).astype(np.int32), np.ones(len(found))

    def _fabric_trees(
        self, way: Way, mine: Ints, root: Ints, group: Ints, latency: NDArray[np.float64]
    ) -> Entries:
        """The same through switches of the fabric."""
        none = np.zeros(0, np.int32)
        parts: list[Entries] = [(none, none, np.zeros(0))]  # no row may be of this class
        for number, rank, members in zip(mine, root, group, strict=True):
            devices = self.device[np.array(self.schedule.groups[members])]
            links, delay = self.fabric.links(
                int(self.device[rank]), devices, way.route, way.channel, down=way.kind == MULTICAST
            )
            latency[number] = delay
            links = self.topology.links.resource[links]
            parts.append((np.full(len(links), number, np.int32), links, np.ones(len(links))))
        return tuple(np.concatenate(column) for column in zip(*parts, strict=True))  # type: ignore[return-value]

    def _routes(self, ends: tuple[Ints, Ints], way: Way) -> tuple[Ints, Ints, NDArray[np.float64]]:
        """The pair and the link of every hop on the way between some pairs; the latency of each."""
        src, dst = ends
        channel = np.full(len(src), way.channel, np.int32)
        routes = self.topology.routes(self.device[src], self.device[dst], channel, way.route)
        owner = np.repeat(np.arange(len(src), dtype=np.int32), np.diff(routes.ptr))
        return owner, self.topology.links.resource[routes.link], routes.latency

    def _use(
        self,
        way: Way,
        use: Use,
        mine: Ints,
        src: Ints,
        dst: Ints,
        wires: Entries,
    ) -> Entries:
        rank = src if use.end == "src" or way.kind not in (TRANSFER, SWITCH_REDUCE) else dst
        if use.resource == "nic_msg":
            who, owners = self._nics(use, wires)
        elif use.resource == "proxy" and use.end == "src" and way.kind == TRANSFER:
            who, owners = mine, self._last_gpus(mine, self.device[rank], wires)
        elif use.resource == "host":
            who, owners = mine, self.process[rank].astype(np.int64)
        else:
            who, owners = mine, self.device[rank].astype(np.int64)
        # One of `multiplicity` equal channels has an SM of its own; everything else they share.
        times = 1 if use.resource == "sm" else way.multiplicity
        weight = np.full(len(owners), use.weight * times)
        if self.schedule.fold is None:
            links = self.resources.numbers(use.resource, use.index, owners).astype(np.int32)
            return who, links, weight
        return who, *self._folded_use(self.schedule.fold, way, use, owners, weight)

    def _folded_wires(
        self, way: Way, links: Ints, weight: NDArray[np.float64]
    ) -> tuple[Ints, NDArray[np.float64]]:
        """On the wire that stands for each: what all copies together draw on one such wire."""
        fold = self.schedule.fold
        if fold is None:
            return links, thrifty(weight)
        wires = fold.wires
        return wires.first[links], weight * (way.copies / wires.count[links])

    def _folded_use(
        self,
        fold: Fold,
        way: Way,
        use: Use,
        owners: NDArray[np.int64],
        weight: NDArray[np.float64],
    ) -> tuple[Ints, NDArray[np.float64]]:
        """The same for other resources; a rank's SM of a channel may be that of another channel."""
        if use.resource == "sm":
            blocks, ranks = fold.blocks[use.index], self._rank_of[owners]
            first = blocks.first[ranks]
            links = np.empty(len(owners), np.int32)
            for channel in different(first // self.schedule.ranks).tolist():
                mine = first // self.schedule.ranks == channel
                here = self.device[first[mine] % self.schedule.ranks].astype(np.int64)
                links[mine] = self.resources.numbers("sm", channel, here)
            return links, weight * (way.copies / blocks.count[ranks])
        if use.resource == "nic_msg":
            leads, count = fold.nodes.first[owners].astype(np.int64), fold.nodes.count[owners]
        else:
            place = self._rank_of[owners]
            leads = self.device[fold.ranks.first[place]].astype(np.int64)
            count = fold.ranks.count[place]
        links = self.resources.numbers(use.resource, use.index, leads).astype(np.int32)
        return links, weight * (way.copies / count)

    @cached_property
    def _rank_of(self) -> NDArray[np.int32]:
        """The rank of every device."""
        ranks = np.full(len(self.topology), -1, np.int32)
        ranks[self.device] = np.arange(len(self.device))
        return ranks

    def _last_gpus(self, mine: Ints, own: Ints, wires: Entries) -> NDArray[np.int64]:
        """The GPU from which each way's data leaves its host: a relay (PXN), or the sender."""
        owner, link, _ = wires
        device = np.full(len(self.topology.node_kinds), -1, np.int64)
        device[self.topology.gpu_nodes] = np.arange(len(self.topology))
        at = device[self.topology.links.tail[link]]
        ways, last = np.unique(owner[at >= 0][::-1], return_index=True)
        found = own.astype(np.int64)
        place = np.searchsorted(mine, ways, sorter=np.argsort(mine))
        found[np.argsort(mine)[place]] = at[at >= 0][::-1][last]
        return found

    def _nics(self, use: Use, wires: Entries) -> tuple[Ints, NDArray[np.int64]]:
        """The first NIC (sending end) or the last one (receiving end) of every way that has one."""
        is_nic = self.topology.node_kinds == NODE_KINDS.index("nic")
        owner, link, _ = wires
        at = self.topology.links.head if use.end == "src" else self.topology.links.tail
        on_nic = is_nic[at[link]]
        ways, nics = owner[on_nic], at[link[on_nic]].astype(np.int64)
        if use.end == "dst":
            ways, nics = ways[::-1], nics[::-1]
        who, place = np.unique(ways, return_index=True)
        return who, nics[place]
