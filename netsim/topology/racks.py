"""Which hosts of a cluster form a rack: those of one NVLink domain, or those below the same leaf
switches.
"""

from collections.abc import Hashable, Sequence

from netsim.base.values import dataclass
from netsim.topology.cluster import Cluster

NVLINK_DOMAIN = "one NVLink domain each"
BELOW_ONE_LEAF = "the hosts below the same leaf switches"


@dataclass(frozen=True)
class Racks:
    """The numbers of the hosts of every rack; `meaning` says what makes them one rack."""

    hosts: tuple[tuple[int, ...], ...]
    meaning: str


def racks_of(cluster: Cluster) -> Racks:
    """Return the racks of a cluster.

    If NVLink joins hosts, a rack is an NVLink domain (the `nvidia.com/gpu.clique` of Kubernetes).
    Otherwise the hosts whose NICs are cabled to the same leaf switches are one rack, which is the
    scalable unit of a rail-optimized fabric. Without a fabric all hosts are one rack.
    """
    domains = cluster.domain.tolist()
    if len(set(domains)) < len(domains):
        return Racks(_grouped(domains), NVLINK_DOMAIN)
    return Racks(_grouped(_leaves_by_host(cluster)), BELOW_ONE_LEAF)


def _leaves_by_host(cluster: Cluster) -> list[frozenset[int]]:
    """Return for each host the numbers of the switches that its NICs are cabled to."""
    leaves: list[set[int]] = [set() for _ in cluster.host_class]
    fabric = cluster.fabric
    if fabric is not None:
        owner = cluster.ports.owner.tolist()
        # The nodes of a fabric are numbered: the ports of NICs come first, then the switches.
        for tail, head in zip(fabric.tail.tolist(), fabric.head.tolist(), strict=True):
            if tail < fabric.ports <= head:
                leaves[owner[tail]].add(head)
    return [frozenset(switches) for switches in leaves]


def _grouped(keys: Sequence[Hashable]) -> tuple[tuple[int, ...], ...]:
    """Return groups of positions with equal keys, in the order in which the keys first appear: keys
    a, b, a give ((0, 2), (1,)).
    """
    groups: dict[Hashable, list[int]] = {}
    for number, key in enumerate(keys):
        groups.setdefault(key, []).append(number)
    return tuple(tuple(hosts) for hosts in groups.values())
