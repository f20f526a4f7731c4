"""Build a cluster: hosts laid out one after the other and joined by a fabric into one Topology.

GPUs are named `node0.gpu3` and so on. All hosts of a class have the same inner layout, so that the
numbers of a host's nodes and links are those of its class plus an offset.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.base.errors import InputError, ScenarioError, shown
from netsim.base.values import dataclass
from netsim.topology import faults, graph
from netsim.topology.config import ClusterConfig, HostGroup
from netsim.topology.fabrics.config import (
    NvlinkDomain,
    RailOptimized,
    SingleSwitch,
    build_fabric,
    build_sites,
    policy_of,
)
from netsim.topology.faults import NO_DAMAGE, Damage, find_damage, notes_on_names, with_overrides
from netsim.topology.host import Host, make_host
from netsim.topology.load import with_figures, with_nics
from netsim.topology.machine import (
    TRANSPORTS,
    Machine,
    Transport,
    both_ways,
    calibrated_machine,
    calibrated_transport,
    oldest_machine,
)
from netsim.topology.network import Fabric, Policy, Ports, Selection, links_of_ports, without_ports
from netsim.topology.router import ClusterRouter, Places, stack_tables
from netsim.yamlio.models import FieldError
from netsim.yamlio.read import KeyPath, Source
from netsim.yamlio.validate import validate


@dataclass(frozen=True, slots=True)
class Cluster:
    """A topology with its hosts and fabric.

    Args:
        hosts: one Host for each class of equal hosts.
        host_class: class of every host, an index of `hosts`.
        domain: number of the NVLink domain of every host.
        gpu_host: host of every GPU.
        ports: the NIC ports of all hosts.
        fabric: the network between hosts; None without one.
        transport: kind of network.
        notes: messages for the user.
        dead_nics: NICs that faults removed, as `node2.nic3`.
    """

    topology: graph.Topology
    hosts: tuple[Host, ...]
    host_class: graph.Ints
    domain: graph.Ints
    gpu_host: graph.Ints
    ports: Ports
    fabric: Fabric | None = None
    transport: Transport | None = None
    notes: tuple[str, ...] = ()
    dead_nics: tuple[str, ...] = ()
    """The NICs that faults took out, as `node2.nic3`."""

    @property
    def routing(self) -> str:
        """The routing policy of the fabric, such as `ecmp`; "" without a fabric."""
        router = self.topology.router
        if not isinstance(router, ClusterRouter) or router.selection is None:
            return ""
        return "rail" if router.rail else router.selection.policy.routing

    def machine_of(self, host: int) -> Machine:
        """Return the machine of a host."""
        return self.hosts[int(self.host_class[host])].machine


@dataclass(frozen=True, slots=True)
class HostPlan:
    """The hosts of a cluster before they are laid out.

    Args:
        name: name of the cluster.
        hosts: one Host for each class of equal hosts.
        host_class: class of every host, an index of `hosts`.
        domain: number of the NVLink domain of every host.
        names: name of every host.
        position: position of every host in the fabric.
    """

    name: str
    hosts: tuple[Host, ...]
    host_class: graph.Ints
    domain: graph.Ints
    names: tuple[str, ...]
    position: graph.Ints

    def per_host(self, counts: Sequence[int]) -> graph.Ints:
        """Return for each host the entry of `counts` for its class."""
        return np.array(counts, np.int32)[self.host_class]

    @property
    def ports(self) -> Ports:
        """The NIC ports of all hosts, host by host."""
        nics = self.per_host([host.nics for host in self.hosts])
        host = np.repeat(np.arange(len(nics), dtype=np.int32), nics)
        rail = _tiled(self, [host.rail for host in self.hosts])
        rates = [np.array(h.machine.nics.rates if h.machine.nics else ()) for h in self.hosts]
        rate = _tiled(self, [given[h.rail] for given, h in zip(rates, self.hosts, strict=True)])
        return Ports(self.position[host], rail, rate, host)


def _buses(hosts: Sequence[Host]) -> graph.Floats:
    """Return the bytes per second of every GPU's PCIe link, both directions together.

    A row for each class of hosts, a column for each GPU of the host; infinite where a host has
    fewer GPUs.
    """
    limits = np.full((len(hosts), max(len(host.gpus) for host in hosts)), np.inf)
    for number, host in enumerate(hosts):
        rates = [host.machine.link_of(host.machine.gpu, gpu).usable for gpu in host.gpus]
        limits[number, : len(rates)] = both_ways(host.machine) * np.array(rates)
    return limits


def join(plan: HostPlan, fabric: Fabric | None, policy: Policy, *, rail: bool = False) -> Cluster:
    """Lay out the hosts of a plan and the fabric between them; return the cluster.

    `policy` says how connections choose paths. `rail` is True for routing `rail`, with which data
    changes to the receiver's rail inside the sender's host.
    """
    ports = plan.ports
    places = _places(plan)
    layout = _layout(plan, fabric, ports)
    gpus = [
        f"{plan.names[h]}.gpu{plan.hosts[plan.host_class[h]].gpus[s]}"
        for h, s in zip(places.gpu_host.tolist(), places.gpu_slot.tolist(), strict=True)
    ]
    hosts_links = len(layout.links) - (len(fabric.tail) if fabric else 0)
    selection = Selection(fabric, policy) if fabric else None
    router = ClusterRouter(places, stack_tables(plan.hosts), selection, hosts_links, rail)
    memory = np.array([host.machine.gpu.memory_bandwidth for host in plan.hosts])
    bus = _buses(plan.hosts)[plan.host_class[places.gpu_host], places.gpu_slot]
    capacities = {"hbm": memory[plan.host_class][places.gpu_host], "bus": bus}
    topology = graph.Topology(plan.name, layout, tuple(gpus), router, capacities)
    return Cluster(
        topology, plan.hosts, plan.host_class, plan.domain, places.gpu_host, ports, fabric
    )


def _starts(counts: graph.Ints) -> graph.Ints:
    """Return for each owner the number of its first item, if owner i has `counts[i]` items and all
    items are numbered in order: [2, 3, 1] gives [0, 2, 5].
    """
    return (np.cumsum(counts) - counts).astype(np.int32)


def _places(plan: HostPlan) -> Places:
    """Return where each host and each GPU is: for each host its class, its NVLink domain, its first
    link and its first NIC port; for each GPU its host and its number inside it.
    """
    gpus = plan.per_host([len(host.gpus) for host in plan.hosts])
    owner = np.repeat(np.arange(len(gpus), dtype=np.int32), gpus)
    slot = np.arange(len(owner), dtype=np.int32) - np.repeat(_starts(gpus), gpus)
    return Places(
        plan.host_class,
        plan.domain,
        _starts(plan.per_host([len(host.layout.links) for host in plan.hosts])),
        _starts(plan.per_host([host.nics for host in plan.hosts])),
        owner,
        slot,
    )


def _layout(plan: HostPlan, fabric: Fabric | None, ports: Ports) -> graph.Layout:
    """Return the nodes and links of all hosts, followed by those of the fabric. `ports` are the NIC
    ports of the plan.
    """
    layouts = [host.layout for host in plan.hosts]
    host_layouts = [layouts[kind] for kind in plan.host_class.tolist()]
    first_node = _starts(plan.per_host([len(layout.nodes) for layout in layouts]))
    pairs = zip(plan.names, host_layouts, strict=True)
    names: list[str] = [f"{name}.{node}" for name, part in pairs for node in part.nodes]
    of_nodes = [
        _tiled(plan, [getattr(layout, name) for layout in layouts])
        for name in ("kinds", "passes", "reduces")
    ]
    columns = _host_links(plan, first_node)
    if fabric is not None:
        nics = [plan.hosts[k].nic_node for k in plan.host_class.tolist()]
        port_node = np.concatenate(nics) + first_node[ports.owner]
        ends = np.concatenate([port_node, len(names) + np.arange(len(fabric.switches))])
        columns = _with_fabric(columns, fabric, ends.astype(np.int32))
        names.extend(fabric.switches)
        of_switch = np.int8(graph.NODE_KINDS.index("switch")), True, fabric.reduces
        of_nodes = [
            np.append(column, np.full(len(fabric.switches), layout))
            for column, layout in zip(of_nodes, of_switch, strict=True)
        ]
    layout = graph.Layout(
        tuple(names), of_nodes[0], of_nodes[1], graph.Links(**columns), of_nodes[2]
    )
    return _with_shared_switches(plan, layout, first_node)


def _tiled(plan: HostPlan, parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Return one column for all hosts: host by host, the entry of `parts` for the class of the
    host, joined to one array.
    """
    return np.concatenate([parts[kind] for kind in plan.host_class.tolist()])


def _host_links(plan: HostPlan, first_node: graph.Ints) -> dict[str, NDArray[Any]]:
    """Return the links of all hosts as columns by name. `first_node` is the number of each host's
    first node.
    """
    links = [host.layout.links for host in plan.hosts]
    counts = plan.per_host([len(one) for one in links])
    first_link = np.repeat(_starts(counts), counts)
    node = np.repeat(first_node, counts)
    columns = {
        name: _tiled(plan, [getattr(one, name) for one in links]) for name in graph.Links.__slots__
    }
    columns["tail"] = (columns["tail"] + node).astype(np.int32)
    columns["head"] = (columns["head"] + node).astype(np.int32)
    columns["resource"] = (columns["resource"] + first_link).astype(np.int32)
    return columns


def _with_fabric(
    columns: dict[str, NDArray[Any]], fabric: Fabric, ends: graph.Ints
) -> dict[str, NDArray[Any]]:
    """Return the links of all hosts followed by those of the fabric, as columns by name.

    `columns` are the links of the hosts; `ends` is the node number in the topology of each node of
    the fabric (NIC ports, then switches).
    """
    count = len(fabric.tail)
    before = len(columns["tail"])
    kind = np.full(count, graph.LINK_KINDS.index("fabric"), np.int8)
    outside = np.minimum(fabric.tail, fabric.head) < fabric.ports
    kind[outside] = graph.LINK_KINDS.index("nic")
    added = {
        "tail": ends[fabric.tail],
        "head": ends[fabric.head],
        "bandwidth": fabric.bandwidth,
        "latency": fabric.latency,
        "kind": kind,
        "resource": np.arange(before, before + count, dtype=np.int32),
    }
    return {name: np.concatenate([columns[name], added[name]]) for name in columns}


def _with_shared_switches(
    plan: HostPlan, layout: graph.Layout, first_node: graph.Ints
) -> graph.Layout:
    """Merge the NVSwitches of all hosts of an NVLink domain into one node, `nvlink0.nvswitch0` for
    domain 0.

    `first_node` is the number of each host's first node. Without domains of several hosts the
    layout stays as it is.
    """
    ups = [(host, host.machine.scale_up) for host in plan.hosts]
    local = [h.layout.nodes.index("nvswitch0") if up and up.hosts > 1 else -1 for h, up in ups]
    if max(local) < 0:
        return layout
    offset = plan.per_host(local)
    node = (first_node + offset)[offset >= 0]
    _, first, group = np.unique(plan.domain[offset >= 0], return_index=True, return_inverse=True)
    target = np.arange(len(layout.nodes))
    target[node] = node[first][group]
    keep = target == np.arange(len(target))
    number = (np.cumsum(keep) - 1)[target].astype(np.int32)
    names = np.array(layout.nodes, object)
    names[node[first]] = [f"nvlink{n}.nvswitch0" for n in range(len(first))]
    links = replace(layout.links, tail=number[layout.links.tail], head=number[layout.links.head])
    kinds, passes, reduces = (
        column[keep] for column in (layout.kinds, layout.passes, layout.reduces)
    )
    return graph.Layout(tuple(names[keep]), kinds, passes, links, reduces)


def assemble(config: ClusterConfig) -> Cluster:
    """Build the cluster of a `cluster` section that names machines.

    Faults are looked up by name in the healthy cluster. NICs that are dead from the start are then
    removed, and routes avoid links that are dead from the start.
    """
    transport = _transport(config)
    parts = _Parts(config, transport)
    healthy = parts.cluster(NO_DAMAGE)
    named = [override.link for override in config.overrides if override.link]
    named += [fault.link for fault in config.faults if fault.link]
    notes = [parts.fabric.note if parts.fabric else ""]
    notes += [group.loaded.note for group in config.members]
    cluster = _with_faults(parts, healthy) if config.faults else healthy
    cluster = replace(cluster, topology=with_spray_rates(cluster.topology))
    notes += notes_on_names(healthy.topology, named)
    return replace(
        cluster, notes=tuple(dict.fromkeys(note for note in notes if note)), transport=transport
    )


def _with_faults(parts: "_Parts", healthy: Cluster) -> Cluster:
    """Return the cluster with its faults applied, built anew if NICs or links are dead from the
    start.
    """
    usable = parts.transport.usable
    effects = faults.effects_of(healthy.topology, parts.config.faults, usable)
    damage = find_damage(healthy.topology, effects)
    if damage == NO_DAMAGE:
        topology = faults.with_effects(healthy.topology, effects)
        return replace(healthy, topology=topology)
    damaged = parts.cluster(damage)
    moved = faults.moved_effects(effects, healthy.topology, damaged.topology)
    dead_nics = [
        f"{host}.nic{number}" for host, nics in damage.nics.items() for number in sorted(nics)
    ]
    topology = faults.with_effects(damaged.topology, moved)
    return replace(damaged, topology=topology, dead_nics=tuple(dead_nics))


def with_spray_rates(topology: graph.Topology) -> graph.Topology:
    """Return the topology with the `bandwidth_ratio` of its routing policy set from permanent
    faults and overrides; unchanged if every live link of the fabric has its bandwidth as built.
    """
    router = topology.router
    if not isinstance(router, ClusterRouter) or router.selection is None:
        return topology
    selection = router.selection
    built = selection.fabric.bandwidth
    bandwidth = topology.links.bandwidth[router.fabric_links :]  # the fabric's links come last
    ratio = np.ones(len(built))
    is_changed = (bandwidth > 0) & (bandwidth != built) & np.isfinite(built)
    ratio[is_changed] = bandwidth[is_changed] / built[is_changed]
    if not is_changed.any():
        return topology
    policy = replace(selection.policy, bandwidth_ratio=ratio)
    return replace(topology, router=replace(router, selection=replace(selection, policy=policy)))


class _Parts:
    """The hosts and the fabric of a cluster section, from which a healthy or damaged cluster is
    built.
    """

    def __init__(self, config: ClusterConfig, transport: Transport) -> None:
        self.config = config
        self.transport = transport
        self.plan = self._plan(NO_DAMAGE)
        plan = self.plan
        described = config.network or usual_fabric(int(plan.ports.rail.max(initial=0)) + 1)
        self.described = described
        self.fabric: Fabric | None = None
        is_joined = len(plan.host_class) > 1 or isinstance(config.network, SingleSwitch)
        if is_joined and len(plan.ports):
            is_outer = described is config.fabric or config.fabric is None
            key = "fabric" if is_outer else "fabric.between"
            self.fabric = _fabric(config, described, plan, transport, key)

    def _plan(self, damage: Damage) -> HostPlan:
        """Plan the hosts, without the links inside hosts and the NICs that are dead in `damage`."""
        config = self.config
        hosts, host_class = _Classes(config, self.transport, damage).of_all()
        total = len(host_class)
        return HostPlan(
            " + ".join(f"{group.nodes} x {group.loaded.name}" for group in config.members),
            hosts,
            host_class,
            _domains(hosts, host_class),
            tuple(f"node{number}" for number in range(total)),
            positions_in_fabric(config, total),
        )

    def cluster(self, damage: Damage) -> Cluster:
        """Return the cluster without the NICs that are dead in `damage`, and without their cables.

        Dead links stay in it, but no route crosses them. Other faults are not applied: all rates
        and latencies are the healthy ones, or those of `overrides`.
        """
        config = self.config
        transport = self.transport
        plan = self.plan
        fabric = self.fabric
        policy = policy_of(self.described, transport, self.plan.ports.fastest_rate)
        if config.sites is not None and self.described.window is None:
            # Only between sites is the round trip long enough for the window of a connection to
            # matter.
            policy = replace(policy, window=transport.window)
        if damage != NO_DAMAGE:
            plan = self._plan(damage)
            if fabric is not None:
                present = self._ports_present(plan)
                dead = self._dead_cables(damage)
                if dead.any():
                    policy = replace(policy, dead=dead[links_of_ports(fabric, present)])
                fabric = without_ports(fabric, present)
        cluster = join(plan, fabric, policy, rail=self.described.routing == "rail")
        if not any(override.link for override in config.overrides):
            return cluster
        overridden = with_overrides(cluster.topology, config.overrides, transport.usable)
        return replace(cluster, topology=overridden)

    def _ports_present(self, plan: HostPlan) -> NDArray[np.bool_]:
        """Mask over the ports of the healthy cluster: True if the plan still has the port."""
        remaining = set(zip(plan.ports.owner.tolist(), plan.ports.rail.tolist(), strict=True))
        healthy = self.plan.ports
        ports = zip(healthy.owner.tolist(), healthy.rail.tolist(), strict=True)
        return np.array([port in remaining for port in ports], bool)

    def _dead_cables(self, damage: Damage) -> NDArray[np.bool_]:
        """Mask over the links of the healthy fabric: True if the link is dead.

        In the healthy topology the links of the fabric come last.
        """
        assert self.fabric is not None
        counts = [len(host.layout.links) for host in self.plan.hosts]
        first = int(self.plan.per_host(counts).sum())
        dead = np.zeros(len(self.fabric.tail), bool)
        dead[[link - first for link in damage.links if link >= first]] = True
        return dead


def _fabric(
    config: ClusterConfig, fabric: Any, plan: HostPlan, transport: Transport, key: str
) -> Fabric:
    """Build the fabric between the hosts, or that of several sites.

    Args:
        config: the `cluster` section.
        fabric: the model of the fabric, one of `fabrics.config`.
        plan: the hosts.
        transport: the transport.
        key: key of the fabric in the file, for error messages.
    """
    total = len(plan.host_class)
    sites = config.sites
    hosts = () if sites is None else sites.hosts(total)
    inside = np.cumsum(hosts)[:-1]
    if len(inside) and (plan.domain[inside] == plan.domain[inside - 1]).any():
        raise FieldError("a border of sites parts an NVLink domain", "sites")
    try:
        if sites is None:
            return build_fabric(fabric, plan.ports, fabric.nodes or total, transport)
        return build_sites(fabric, plan.ports, hosts, transport, sites)
    except graph.TopologyError as error:
        raise graph.TopologyError(f"{key}.{error.message}") from None


def _transport(config: ClusterConfig) -> Transport:
    """Return the transport of the cluster, with the figures of the `calibration` of its oldest
    machine.
    """
    named = config.network.transport if config.network else None
    machine = oldest_machine(group.loaded.machine for group in config.members)
    usual = config.usual_transport
    for override in config.overrides:
        if not override.hosts and "calibration" in override.machine:  # it holds for all hosts
            machine = with_figures(machine, {"calibration": override.machine["calibration"]})
    return calibrated_transport(TRANSPORTS[named or usual], machine)


def usual_fabric(nics: int) -> Any:
    """Return the fabric for a file that names none: a single switch if hosts have one NIC, else a
    rail-optimized fabric without oversubscription. `nics` is the number of NICs of a host.
    """
    if nics > 1:
        return RailOptimized(kind="rail-optimized")
    return SingleSwitch(kind="single-switch")


def positions_in_fabric(config: ClusterConfig, total: int) -> graph.Ints:
    """Return the position in the fabric of every host of the job, by the key `placement`. `total`
    is the number of hosts of the job.
    """
    size = (config.network.nodes if config.network else None) or total
    if config.sites is not None and config.sites.hosts(total) and size != total:
        raise FieldError("has no meaning beside sites: each joins its hosts", "fabric", "nodes")
    if size < total:
        raise FieldError(
            f"the fabric joins {size} hosts, the cluster has {total}", "fabric", "nodes"
        )
    chosen = config.placement
    if chosen == "spread":
        return (np.arange(total) * size // total).astype(np.int32)
    if chosen == "random":
        return np.random.default_rng(config.seed).permutation(size)[:total].astype(np.int32)
    if chosen == "contiguous":
        return np.arange(total, dtype=np.int32)
    if len(chosen) != total or len(set(chosen)) < total or max(chosen) >= size:
        raise FieldError(
            f"expected {total} different hosts of the fabric's {size} (0 to {size - 1}), "
            f"got {list(chosen)}",
            "placement",
        )
    return np.array(chosen, np.int32)


def _domains(hosts: tuple[Host, ...], host_class: graph.Ints) -> graph.Ints:
    """Return the number of the NVLink domain of every host.

    Consecutive hosts whose machines have domains of the same size fill one domain after the other:
    with domains of 2 hosts, hosts 0 to 4 are in domains 0, 0, 1, 1, 2.
    """
    sizes = np.array([h.machine.scale_up.hosts if h.machine.scale_up else 1 for h in hosts])
    domain = np.zeros(len(host_class), np.int32)
    number = -1
    hosts_left = 0
    last_size = 0
    for host, size in enumerate(sizes[host_class].tolist()):
        if not hosts_left or size != last_size:
            number = number + 1
            hosts_left = size
            last_size = size
        domain[host] = number
        hosts_left -= 1
    return domain


@dataclass
class _Classes:
    """Groups the hosts of a cluster into classes of equal hosts."""

    config: ClusterConfig
    transport: Transport
    damage: Damage = NO_DAMAGE

    def of_all(self) -> tuple[tuple[Host, ...], graph.Ints]:
        """Return one Host for each class, and the class of every host."""
        class_numbers: dict[Any, int] = {}
        classes: list[Host] = []
        result: list[int] = []
        for member, group in enumerate(self.config.members):
            for _ in range(group.nodes):
                key = (member, *self._peculiar(len(result)))
                if key not in class_numbers:
                    class_numbers[key] = len(classes)
                    classes.append(self._host(group, *key[1:]))
                result.append(class_numbers[key])
        self._check_hosts(len(result))
        return tuple(classes), np.array(result, np.int32)

    def _peculiar(self, host: int) -> tuple[Any, ...]:
        """Return what distinguishes a host from others of its group: the numbers of the overrides
        that apply to it, its dead links and its dead NICs. Hosts of a group are equal if this tuple
        is.
        """
        if not self.config.overrides and self.damage == NO_DAMAGE:
            return (), (), frozenset()
        numbers = [n for n, override in enumerate(self.config.overrides) if override.applies(host)]
        name = f"node{host}"
        return tuple(numbers), self.damage.links_in(name), self.damage.nics_of(name)

    def _check_hosts(self, total: int) -> None:
        """Refuse overrides of hosts that do not exist."""
        for number, override in enumerate(self.config.overrides):
            for host in override.hosts:
                if host >= total:
                    message = f"the cluster has hosts 0 to {total - 1}, got {host}"
                    raise FieldError(message, "overrides", number, "node")

    def _host(
        self,
        group: HostGroup,
        overrides: tuple[int, ...],
        dead: tuple[str, ...],
        dead_nics: frozenset[int],
    ) -> Host:
        """Make the Host of a class.

        Args:
            group: the group of the hosts.
            overrides: numbers of the overrides that change the host.
            dead: dead links inside the host, such as `gpu0->pcie0`.
            dead_nics: numbers of its dead NICs.
        """
        machine = group.loaded.machine
        gpus = group.gpus or tuple(range(group.gpus_per_node or machine.gpu.count))
        rate = self.config.nic_rate_of(group)
        if group.p2p is not None:
            machine = machine.model_copy(update={"p2p": group.p2p})
        if isinstance(self.config.fabric, NvlinkDomain):
            scale_up = machine.scale_up
            hosts = self.config.fabric.hosts
            if scale_up is None or scale_up.switches is None:
                message = "an NVLink domain needs a machine with NVSwitches"
                raise FieldError(message, "fabric", "kind")
            changed = {"scale_up": scale_up.model_copy(update={"hosts": hosts})}
            machine = machine.model_copy(update=changed)
        nics: tuple[int, ...] | None = None
        for number in overrides:
            override = self.config.overrides[number]
            machine = with_figures(machine, override.machine, "overrides", number, "machine")
            nics = override.nics if override.nics is not None else nics
        machine = calibrated_machine(machine)
        machine = with_nics(machine, group.nics_per_node, rate, gpus, self.transport)
        nic_numbers = range(machine.nics.count if machine.nics else 0)
        for number in overrides:
            _check_nics(self.config.overrides[number].nics or (), len(nic_numbers), number)
        remaining_nics = [
            nic for nic in (nic_numbers if nics is None else nics) if nic not in dead_nics
        ]
        return make_host(machine, gpus, dead, remaining_nics)


def _check_nics(nics: tuple[int, ...], count: int, override: int) -> None:
    """Refuse NICs that a host with `count` NICs does not have. `override` is the number of the
    override that lists them.
    """
    for place, nic in enumerate(nics):
        if nic >= count:
            have = f"NICs 0 to {count - 1}" if count else "no NICs"
            message = f"the host has {have}, got {nic}"
            raise FieldError(message, "overrides", override, "nics", place)


FIELD = re.compile(r"([a-z_]+(?:\.\w+)*): (.*)", re.DOTALL)


def build_topology(config: ClusterConfig | Mapping[str, Any]) -> graph.Topology:
    """Return the topology of a `cluster` section.

    `config` is a mapping with the keys of a scenario file, or the section of a scenario
    (`cell.scenario.cluster`). An InputError says why a topology cannot be built.

    >>> topology = build_topology({"machine": "dgx-h100", "nodes": 2})
    >>> len(topology), topology.name
    (16, '2 x dgx-h100')
    """
    if isinstance(config, Mapping):
        config = validate(ClusterConfig, Source("cluster", dict(config)))
    if not isinstance(config, ClusterConfig):
        raise InputError(
            f"build_topology: expected a cluster section, got {shown(config)}",
            hint='such as {"machine": "dgx-h100", "nodes": 2}',
        )
    if config.graph is None:
        return build_cluster(config).topology
    topology = config.graph.build()
    return faults.with_faults(topology, config.faults) if config.faults else topology


def build_at(config: ClusterConfig, source: Source, path: KeyPath = ("cluster",)) -> graph.Topology:
    """Build the topology of the `cluster` section at `path` of a file; errors state the line in the
    source.
    """
    try:
        return build_topology(config)
    except graph.TopologyError as error:
        raise placed_in(source, error, path) from None


def placed_in(source: Source, error: graph.TopologyError, path: KeyPath) -> ScenarioError:
    """Return a ScenarioError with the position in the source of the key that the TopologyError is
    about.

    The message of a TopologyError may begin with this key, such as `fabric.nodes: …`. `path` is the
    path of the section.
    """
    match = FIELD.fullmatch(error.message)
    field, message = match.groups() if match else ("", error.message)
    keys = [int(key) if key.isdigit() else key for key in field.split(".") if key]
    return source.error((*path, *keys), message)


def build_cluster(config: ClusterConfig) -> "Cluster":
    """Build the cluster of a section that names machines. Every error is a TopologyError whose
    message begins with the key that it is about.
    """
    try:
        return assemble(config)
    except FieldError as error:
        path = ".".join(map(str, error.path))
        raise graph.TopologyError(f"{path}: {error.message}" if path else error.message) from None
