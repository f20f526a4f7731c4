"""Which hosts of a cluster are in one rack: one NVLink domain, or below the same leaf switches."""

from collections.abc import Hashable, Sequence

from netsim.base.values import dataclass
from netsim.topology.cluster import Cluster

NVLINK_DOMAIN = "one NVLink domain each"
BELOW_ONE_LEAF = "the hosts below the same leaf switches"


@dataclass(frozen=True)
class Racks:
    """The hosts of every rack, by number, in order; `meaning` says what makes them one rack."""

    hosts: tuple[tuple[int, ...], ...]
    meaning: str


def racks_of(cluster: Cluster) -> Racks:
    """The racks of a cluster.

    If NVLink joins hosts, a rack is an NVLink domain (the `nvidia.com/gpu.clique` of Kubernetes).
    Otherwise the hosts whose NICs are cabled to the same leaf switches are one rack, which is the
    scalable unit of a rail-optimized fabric. Without a fabric all hosts are one rack."""
    domains = cluster.domain.tolist()
    if len(set(domains)) < len(domains):
        return Racks(_grouped(domains), NVLINK_DOMAIN)
    return Racks(_grouped(_leaves_by_host(cluster)), BELOW_ONE_LEAF)


def _leaves_by_host(cluster: Cluster) -> list[frozenset[int]]:
    """The numbers of the switches to which the NICs of every host are cabled."""
    leaves: list[set[int]] = [set() for _ in cluster.host_class]
    fabric = cluster.fabric
    if fabric is not None:
        owner = cluster.ports.owner.tolist()
        # Ends of links are numbered: the ports of NICs come first, then the switches.
        for tail, head in zip(fabric.tail.tolist(), fabric.head.tolist(), strict=True):
            if tail < fabric.ports <= head:
                leaves[owner[tail]].add(head)
    return [frozenset(switches) for switches in leaves]


def _grouped(keys: Sequence[Hashable]) -> tuple[tuple[int, ...], ...]:
    """The positions of equal keys together, in the order in which keys appear first."""
    groups: dict[Hashable, list[int]] = {}
    for number, key in enumerate(keys):
        groups.setdefault(key, []).append(number)
    return tuple(tuple(hosts) for hosts in groups.values())
