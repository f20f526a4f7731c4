"""The router of clusters: routes between GPUs, for many pairs at once.

In one host a route is in the tables of the host's class. In one NVLink domain it is the sender's
link to the NVSwitches and the receiver's link from them. Otherwise it is the route from GPU to NIC,
the fabric's path from NIC port to NIC port, and the route from NIC to GPU.
"""

from collections.abc import Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

from netsim.base.values import dataclass
from netsim.topology import graph
from netsim.topology.graph import (
    Ints,
    Longs,
    RouteOptions,
    Router,
    Routes,
    Topology,
    TopologyError,
    joined,
)
from netsim.topology.host import Host, widened
from netsim.topology.network import Paths, Selection, merge_rows
from netsim.topology.routing import pack_routes

_PORTION = 1 << 15  # pairs treated at a time, to bound temporary memory


@dataclass(frozen=True, slots=True)
class Places:
    """The numbers that locate hosts and GPUs in a cluster.

    Args:
        host_class: class of every host.
        domain: NVLink domain of every host.
        first_link: number in the topology of every host's first link.
        first_port: number in the fabric of every host's first NIC port.
        gpu_host: host of every GPU.
        gpu_slot: number of every GPU among the used ones of its host.
    """

    host_class: Ints
    domain: Ints
    first_link: Ints
    first_port: Ints
    gpu_host: Ints
    gpu_slot: Ints


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of all classes of hosts: the first axis of each is the class, the others are those
    of the table of this name in `Host`.

    `rail` is the rail of each NIC of a host, `slot` the number of the NIC inside the host for each
    rail; -1: the host has no NIC on this rail.
    """

    peer: Ints
    staged: Ints
    out: Ints
    into: Ints
    relay: Ints
    local: Ints
    egress: Ints
    ingress: Ints
    rail: Ints
    slot: Ints


@dataclass(frozen=True)
class ClusterRouter(Router):
    """Finds the routes of a cluster.

    Args:
        places: the position of hosts and GPUs.
        tables: routes inside hosts.
        selection: paths through the fabric; None without one.
        fabric_links: number in the topology of the fabric's first link.
        rail: whether data usually changes to the receiver's rail inside the sender's host (PXN).
    """

    places: Places
    tables: Tables
    selection: Selection | None
    fabric_links: int
    rail: bool = False

    @property
    def per_channel(self) -> bool:
        """Whether different channels between the same GPUs may take different routes: if hashes
        choose them, if a GPU has several NICs, if messages choose a path by load, or if windows
        limit connections.
        """
        return (
            self.choices > 1
            or self.window < inf
            or (self.selection is not None and self.selection.policy.hashed)
            or self.tables.local.shape[2] > 1
        )

    @property
    def window(self) -> float:
        """Bytes that all connections (queue pairs) of a message together may have in flight;
        infinite without a fabric.
        """
        if self.selection is None:
            return inf
        policy = self.selection.policy
        return policy.window * (policy.qps if self.queue_pairs_in_turn == 1 else 1)

    @property
    def incast(self) -> float:
        """The fraction by which a NIC takes longer to receive a byte for each further sender to
        it.
        """
        return self.selection.policy.incast if self.selection else 0.0

    @property
    def by_load(self) -> bool:
        """Whether paths, or the rate at which NICs receive, depend on other traffic."""
        return self.choices > 1 or self.incast > 0

    @property
    def choices(self) -> int:
        """The number of paths from which a message chooses when it starts; the route `way@n` is the
        nth.
        """
        return self.selection.choices if self.selection else 1

    @property
    def queue_pairs_in_turn(self) -> int:
        """The number of queue pairs of a connection that successive messages use in turn; 1 if
        every message is divided among all queue pairs.
        """
        policy = self.selection.policy if self.selection else None
        return policy.qps if policy and policy.hashed and not policy.split else 1

    @property
    def hashed_routing(self) -> str:
        """The routing policy if it chooses paths by a hash, else an empty text."""
        policy = self.selection.policy if self.selection else None
        return policy.routing if policy and policy.hashed else ""

    def routes(self, topology: Topology, src: Ints, dst: Ints, channel: Ints, way: str) -> Routes:
        """Return the routes from device `src[i]` to device `dst[i]` on channel `channel[i]`; `way`
        is the name of the route (see RouteOptions).
        """
        wanted = graph.parse_route_options(way)
        if self.rail and not way.partition("@")[0]:
            wanted = RouteOptions(relay=True, queue=wanted.queue)
        ends = [slice(first, first + _PORTION) for first in range(0, len(src), _PORTION)]
        parts = [self._routes(topology, src[s], dst[s], channel[s], wanted) for s in ends]
        return parts[0] if len(parts) == 1 else joined(parts)

    def _routes(
        self, topology: Topology, src: Ints, dst: Ints, channel: Ints, wanted: RouteOptions
    ) -> Routes:
        at = self.places
        here = at.gpu_host[src]
        there = at.gpu_host[dst]
        inside = (here == there) & (not wanted.network)
        shared = ~inside & (at.domain[here] == at.domain[there]) & (not wanted.network)
        shared &= (self._link(self.tables.egress, src) >= 0) & (here != there)
        shared &= self._link(self.tables.ingress, dst) >= 0
        parts: list[tuple[Longs, Paths]] = []
        for mask, find in ((inside, self._inside), (shared, self._shared)):
            rows = np.flatnonzero(mask)
            if len(rows):
                parts.append((rows, find(src[rows], dst[rows], wanted)))
        rows = np.flatnonzero(~inside & ~shared)
        if len(rows):
            ends = src[rows], dst[rows]
            parts.append((rows, self._outside(topology, ends, channel[rows], wanted)))
        return pack_routes(topology, *merge_rows(len(src), parts))

    def _inside(self, src: Ints, dst: Ints, wanted: RouteOptions) -> Paths:
        at = self.places
        tables = self.tables
        host = at.gpu_host[src]
        table = tables.staged if wanted.staged else tables.peer
        hops = table[at.host_class[host], at.gpu_slot[src], at.gpu_slot[dst]]
        return _undivided(_moved(hops, at.first_link[host]))

    def _shared(self, src: Ints, dst: Ints, wanted: RouteOptions) -> Paths:
        ends = (self._link(self.tables.egress, src), self._link(self.tables.ingress, dst))
        return _undivided(np.stack(ends, axis=1))

    def _link(self, table: Ints, gpu: Ints) -> Ints:
        at = self.places
        host = at.gpu_host[gpu]
        local = table[at.host_class[host], at.gpu_slot[gpu]]
        return np.where(local >= 0, local + at.first_link[host], -1)

    def _outside(
        self, topology: Topology, ends: tuple[Ints, Ints], channel: Ints, wanted: RouteOptions
    ) -> Paths:
        if self.selection is None:
            raise TopologyError(
                f"{topology.name}: {_between(topology, ends)}: no fabric joins them"
            )
        at = self.places
        here = at.gpu_host[ends[0]]
        there = at.gpu_host[ends[1]]
        leave, arrive = self._nics(topology, ends, channel, wanted)
        leave, relayed = self._onto_rail(here, there, leave, arrive, wanted)
        ports = at.first_port[here] + leave, at.first_port[there] + arrive
        if (unjoined := ~self.selection.built.joined(*ports)).any():
            pair = _between(topology, (ends[0][unjoined], ends[1][unjoined]))
            raise TopologyError(f"{topology.name}: {pair}: the fabric does not join their NICs")
        relay = self._row(self.tables.relay, ends[0], leave)
        direct = widened(self._row(self.tables.out, ends[0], leave), relay.shape[1])
        out = _moved(np.where(relayed[:, None], relay, direct), at.first_link[here])
        middle, part = self.selection.paths(*ports, channel, wanted.queue)
        middle = np.where(middle >= 0, middle + self.fabric_links, -1)
        into = self.tables.into[at.host_class[there], arrive, at.gpu_slot[ends[1]]]
        hops = np.concatenate([out, middle, _moved(into, at.first_link[there])], axis=1)
        fraction = np.ones(hops.shape)
        fraction[:, out.shape[1] : out.shape[1] + middle.shape[1]] = part
        return hops.astype(np.int32), fraction

    def _onto_rail(
        self, here: Ints, there: Ints, leave: Ints, arrive: Ints, wanted: RouteOptions
    ) -> tuple[Ints, NDArray[np.bool_]]:
        """Return for each pair the NIC that data leaves by, and whether the route to this NIC is
        over NVLink (PXN).

        Args:
            here: host of the sender.
            there: host of the receiver.
            leave: the sender's usual NIC, or that named by the route.
            arrive: the receiver's NIC.
            wanted: the options of the route.

        Data goes over NVLink if the route says so, or if the fabric does not connect the two NICs.
        It then leaves by the NIC on the receiver's rail, unless the route names a NIC that the
        fabric does connect.
        """
        at = self.places
        assert self.selection is not None
        apart = ~self.selection.built.joined(
            at.first_port[here] + leave, at.first_port[there] + arrive
        )
        relayed = apart | wanted.relay
        same_rail = self._slot(here, self.tables.rail[at.host_class[there], arrive])
        moved = apart if wanted.leave >= 0 else relayed
        return np.where(moved & (same_rail >= 0), same_rail, leave), relayed

    def _slot(self, host: Ints, rail: Ints | int) -> Ints:
        """Return for each host the number inside it of its NIC on a rail; -1 if it has none."""
        table = self.tables.slot
        inside = np.minimum(rail, table.shape[1] - 1)
        return np.where(rail == inside, table[self.places.host_class[host], inside], -1)

    def _row(self, table: Ints, gpu: Ints, nic: Ints) -> Ints:
        at = self.places
        return table[at.host_class[at.gpu_host[gpu]], at.gpu_slot[gpu], nic]

    def _nics(
        self, topology: Topology, ends: tuple[Ints, Ints], channel: Ints, wanted: RouteOptions
    ) -> tuple[Ints, Ints]:
        at = self.places
        tables = self.tables
        result = []
        for gpu, stated in zip(ends, (wanted.leave, wanted.arrive), strict=True):
            host = at.gpu_host[gpu]
            local_nics = tables.local[at.host_class[host], at.gpu_slot[gpu]]
            slot = np.full_like(host, -1)
            if local_nics.size:
                slot = local_nics[np.arange(len(gpu)), channel % local_nics.shape[1]]
            if stated >= 0:
                slot = self._slot(host, stated)
            if (slot < 0).any():
                name = str(topology.gpus[int(gpu[np.flatnonzero(slot < 0)[0]])]).partition(".")[0]
                problem = f"no NIC {stated}" if stated >= 0 else "no NIC"
                raise TopologyError(f"{topology.name}: {name} has {problem}")
            result.append(slot)
        return result[0], result[1]


def stack_tables(hosts: Sequence[Host]) -> Tables:
    """Return the tables of several classes of hosts, padded with -1 to the size of the largest."""
    columns = {}
    for name in ("peer", "staged", "out", "into", "relay", "local", "egress", "ingress", "rail"):
        parts = [getattr(host, name) for host in hosts]
        shape = tuple(max(sizes) for sizes in zip(*(part.shape for part in parts), strict=True))
        stacked = np.full((len(parts), *shape), -1, np.int32)
        for number, part in enumerate(parts):
            corner = tuple(slice(size) for size in part.shape)
            stacked[number][corner] = part
        columns[name] = stacked
    for number, host in enumerate(hosts):  # a GPU with fewer NICs than another takes turns as well
        have = host.local.shape[1]
        want = columns["local"].shape[2]
        if 0 < have < want:
            columns["local"][number, : len(host.gpus)] = host.local[:, np.arange(want) % have]
    slot = np.full((len(hosts), int(columns["rail"].max(initial=0)) + 1), -1, np.int32)
    for number, host in enumerate(hosts):
        slot[number, host.rail] = np.arange(host.nics)
    return Tables(**columns, slot=slot)


def _undivided(hops: Ints) -> Paths:
    return hops, np.ones(hops.shape)


def _moved(hops: Ints, first: Ints) -> Ints:
    return np.where(hops >= 0, hops + first[:, None], -1)


def _between(topology: Topology, ends: tuple[Ints, Ints]) -> str:
    return " to ".join(str(topology.gpus[int(end[0])]) for end in ends)
