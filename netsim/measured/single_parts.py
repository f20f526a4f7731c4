"""Causes that concern a single part of a system: one NIC, link, rail, GPU or host.

A missing part is only a cause if the operation still runs without it. A missing NIC is a cause; a
dead GPU or a dead link to a host is none, since no log would have been written. TCP is only a cause
for the whole cluster (`hypotheses.py`), because NCCL joins all ranks by one network.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from netsim.base.values import dataclass
from netsim.tasks.resolve import ResolvedCell
from netsim.topology.graph import LINK_KINDS, Topology
from netsim.topology.machine import Machine
from netsim.yamlio.read import Source

# On more ranks, the simulation of a cluster with one different part takes minutes for each cause.
MOST_RANKS = 256
HALF = "50%"
GPU_TO_GPU = ("nvlink", "xgmi")
GPU_TO_HOST = ("pcie", "c2c")


def joined_titles(titles: Sequence[str]) -> list[str]:
    """Return the titles of causes; those with the same name are joined: `one GPU at half its speed
    (a or b)`.
    """
    places: dict[str, list[str]] = {}
    for title in titles:
        name, bracket, place = title.partition(" (")
        if not bracket or not title.endswith(")"):
            name = title
            place = ""
        places.setdefault(name, [])
        if place:
            places[name].append(place.removesuffix(")"))
    return [f"{name} ({' or '.join(parts)})" if parts else name for name, parts in places.items()]


@dataclass(frozen=True)
class Cause:
    """One possible cause of a deviation, to be simulated.

    Args:
        name: its title for the user.
        changes: the (key, value) pairs that are set in the scenario.
        place: the part that is changed, such as `node1.nic0`; it represents all parts of its kind
            that the operation uses in the same way.
    """

    name: str
    changes: tuple[tuple[str, Any], ...]
    place: str = ""

    @property
    def title(self) -> str:
        """The name of the cause with its place."""
        return f"{self.name} ({self.place})" if self.place else self.name


def with_override(source: Source, change: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return the changes (key, value) of a scenario that add an override of some hosts to its own
    overrides.
    """
    before = source.data.get("cluster", {}).get("overrides") or []
    return (("cluster.overrides", [*before, change]),)


def with_faults(source: Source, faults: Sequence[dict[str, Any]]) -> tuple[tuple[str, Any], ...]:
    """Return the changes (key, value) of a scenario that add faults to its own faults."""
    before = source.data.get("cluster", {}).get("faults") or []
    return (("cluster.faults", [*before, *faults]),)


def single_part_causes(source: Source, resolved: ResolvedCell, machine: Machine) -> Iterator[Cause]:
    """Yield the causes that concern a single part, each at representative places (`places_of`);
    none on more than `MOST_RANKS` ranks.
    """
    if len(resolved.gpus) > MOST_RANKS:
        return
    topology = resolved.topology
    hosts = _hosts_of(topology)
    if len(hosts) > 1 and machine.nics is not None:
        yield from _nics(source, topology, hosts, machine)
        yield from _fabric_link(source, topology)
    yield from _gpus(source, topology, hosts)


def places_of(hosts: Sequence[str]) -> list[str]:
    """Return the hosts at which a fault is tried: the first three and the last.

    In NCCL's trees these are the root, an inner node and leaves; in a ring all positions are
    equivalent.
    """
    return list(dict.fromkeys([*hosts[:3], hosts[-1]]))


def _hosts_of(topology: Topology) -> list[str]:
    """Return the names of the hosts of a topology."""
    return list(dict.fromkeys(str(gpu).partition(".")[0] for gpu in topology.gpus))


def _links_of(topology: Topology, node: str, kinds: Sequence[str]) -> list[str]:
    """Return the names of the links of some kinds that leave a node, in the form in which faults
    name them.
    """
    links = topology.links
    numbers = [LINK_KINDS.index(kind) for kind in kinds]
    tail = topology.node_number[node]
    names = [
        f"{node}-{topology.nodes[links.head[place]]}"
        for place in range(len(links.tail))
        if links.tail[place] == tail and links.kind[place] in numbers
    ]
    return list(dict.fromkeys(names))


def _at_half(links: Sequence[str]) -> list[dict[str, Any]]:
    """Return faults that leave half of the bandwidth of each link."""
    return [{"link": link, "bandwidth": HALF} for link in links]


def _nics(
    source: Source, topology: Topology, hosts: Sequence[str], machine: Machine
) -> Iterator[Cause]:
    """Yield causes at NICs: the link of one NIC, one missing NIC, one rail, all NICs of one host,
    no GPUDirect on one host.
    """
    used = sorted(
        {
            str(node).partition(".")[2]
            for node in topology.node_number
            if str(node).startswith(f"{hosts[0]}.nic") and _links_of(topology, str(node), ("nic",))
        }
    )
    if not used:
        return
    first_nic = used[0]
    for host in places_of(hosts):
        nic = f"{host}.{first_nic}"
        links = _links_of(topology, nic, ("nic",))
        name = "the link of one NIC at half its rate, which NCCL does not see"
        yield Cause(name, with_faults(source, _at_half(links)), nic)
        if len(used) > 1 and host != hosts[0]:  # that of the first host is among other causes
            yield Cause("one NIC missing on one host", with_faults(source, [{"nic": nic}]), nic)
    if len(used) > 1:
        rail = [
            link for host in hosts for link in _links_of(topology, f"{host}.{first_nic}", ("nic",))
        ]
        place = f"{first_nic} of every host"
        yield Cause("one rail at half its rate", with_faults(source, _at_half(rail)), place)
    for host in places_of(hosts)[:2]:
        if len(used) > 1:
            links = [
                link for nic in used for link in _links_of(topology, f"{host}.{nic}", ("nic",))
            ]
            name = "all NICs of one host at half their rate"
            yield Cause(name, with_faults(source, _at_half(links)), host)
        if machine.nics is not None and machine.nics.gpudirect:
            change = {"node": hosts.index(host), "machine": {"nics": {"gpudirect": False}}}
            yield Cause("no GPUDirect on one host", with_override(source, change), host)


def _fabric_link(source: Source, topology: Topology) -> Iterator[Cause]:
    """Yield the cause that one link between two switches is slow."""
    links = topology.links
    fabric = LINK_KINDS.index("fabric")
    place = next((n for n in range(len(links.tail)) if links.kind[n] == fabric), None)
    if place is None:
        return
    link = f"{topology.nodes[links.tail[place]]}-{topology.nodes[links.head[place]]}"
    for left, name in ((HALF, "at half its rate"), ("0%", "down")):
        fault = {"link": link, "bandwidth": left}
        yield Cause(f"one link between switches {name}", with_faults(source, [fault]), link)


def _gpus(source: Source, topology: Topology, hosts: Sequence[str]) -> Iterator[Cause]:
    """Yield causes at GPUs: one GPU at half its speed, with all its NVLinks at half rate, or with
    its PCIe link at half rate.
    """
    for host in places_of(hosts)[:2]:
        gpu = next(str(gpu) for gpu in topology.gpus if str(gpu).startswith(f"{host}."))
        fault = {"gpu": gpu, "slowdown": 2}
        yield Cause("one GPU at half its speed", with_faults(source, [fault]), gpu)
        for kinds, name in ((GPU_TO_GPU, "NVLinks"), (GPU_TO_HOST, "PCIe link")):
            links = _links_of(topology, gpu, kinds)
            if links:
                changes = with_faults(source, _at_half(links))
                yield Cause(f"the {name} of one GPU at half the rate", changes, gpu)
