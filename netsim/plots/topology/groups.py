"""Hosts that are drawn as one box: neighbours of one kind on the same switches."""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from netsim.topology.cluster import Cluster
from netsim.topology.fabrics.dragonfly import Dragonfly
from netsim.topology.fabrics.fabric import Fabric

T = TypeVar("T")

MOST_SINGLE = 20  # hosts up to which each has a box of its own
MOST_GROUPS, MOST_LEAVES = 16, 16


@dataclass(frozen=True, slots=True)
class Group:
    """Hosts from `first` to `last`; the class of all, their NVLink domain, and their switches."""

    first: int
    last: int
    kind: int
    domain: int
    switches: frozenset[int]

    @property
    def count(self) -> int:
        """The number of hosts."""
        return self.last - self.first + 1


def host_groups(cluster: Cluster) -> list[Group]:
    """All hosts, one by one or in groups."""
    switches = _switches(cluster)
    kinds, domains = cluster.host_class.tolist(), cluster.domain.tolist()
    shared = np.bincount(cluster.domain) > 1
    single = len(kinds) <= MOST_SINGLE
    groups: list[Group] = []
    for host, (kind, domain) in enumerate(zip(kinds, domains, strict=True)):
        where = domain if shared[domain] else -1
        one = Group(host, host, kind, where, switches[host])
        last = groups[-1] if groups else None
        if (
            last
            and not single
            and (kind, where, one.switches)
            == (
                last.kind,
                last.domain,
                last.switches,
            )
        ):
            groups[-1] = Group(last.first, host, kind, where, one.switches)
        else:
            groups.append(one)
    return groups


def some_of(groups: list[Group]) -> list[Group]:
    """Those that are drawn: all, or the first and last where they or their switches are many."""
    most = min(len(groups), MOST_SINGLE if groups[0].count == 1 else MOST_GROUPS)
    while most > 2:
        some = ends_of(groups, most)
        if len({switch for group in some for switch in group.switches}) <= MOST_LEAVES:
            return some
        most -= 1
    return ends_of(groups, 2)


def ends_of(items: list[T], most: int) -> list[T]:
    """The first and the last of a list, `most` in all."""
    if len(items) <= most:
        return items
    front = -(-most // 2)
    return items[:front] + items[len(items) - (most - front) :]


def _switches(cluster: Cluster) -> list[frozenset[int]]:
    """The switches of the fabric (or groups of them, by the first) that each host has a NIC on."""
    found: list[set[int]] = [set() for _ in cluster.host_class]
    made = cluster.fabric
    if made is not None:
        access = made.tail < made.ports
        size = group_size(made)
        owners = cluster.ports.owner[made.tail[access]].tolist()
        switches = (made.head[access] - made.ports) // size * size
        for owner, switch in zip(owners, switches.tolist(), strict=True):
            found[owner].add(switch)
    return [frozenset(one) for one in found]


def group_size(fabric: Fabric) -> int:
    """How many switches are drawn as one: the routers of a group of a dragonfly, else one."""
    wiring = fabric.wiring
    if isinstance(wiring, Dragonfly) and (wiring.groups > 2 or wiring.routers > MOST_LEAVES // 2):
        return wiring.routers
    return 1
