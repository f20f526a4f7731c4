"""A cluster from its parts: hosts of machines, their faults, and the fabric between them."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from netsim.errors import suggest
from netsim.topology.adjust import with_figures, with_nics
from netsim.topology.calibration import calibrated_machine, calibrated_transport
from netsim.topology.cluster import Cluster, Plan, join
from netsim.topology.config import ClusterConfig
from netsim.topology.fabrics.config import (
    NvlinkDomain,
    RailOptimized,
    SingleSwitch,
    build_fabric,
    policy_of,
)
from netsim.topology.fabrics.fabric import Fabric, Ints
from netsim.topology.fabrics.select import Policy
from netsim.topology.faults import dead_inside, missing_nics, with_faults
from netsim.topology.host import Host, make_host
from netsim.topology.hosts import Group
from netsim.topology.layout import TopologyError
from netsim.topology.machine import Machine
from netsim.topology.transports import TRANSPORTS, Transport
from netsim.yamlio.model import FieldError


def assembled(config: ClusterConfig) -> Cluster:
    """The cluster of a section that names machines."""
    members = config.members
    transport = _transport(config)
    hosts, host_class = _Classes(config, transport).of_all()
    total = len(host_class)
    plan = Plan(
        " + ".join(f"{group.nodes} x {group.loaded.name}" for group in members),
        hosts,
        host_class,
        _domains(hosts, host_class),
        tuple(f"node{number}" for number in range(total)),
        placed(config, total),
    )
    fabric = config.network or _usual(plan)
    made = None
    if total > 1 and len(plan.ports):
        key = "fabric" if fabric is config.fabric or config.fabric is None else "fabric.between"
        made = _fabric(fabric, plan, fabric.nodes or total, transport, key)
    policy = _policy(config, fabric, transport, plan, made)
    cluster = join(plan, made, policy, rail=fabric.routing == "rail")
    told = [made.note if made else "", *(group.loaded.note for group in members)]
    notes = tuple(dict.fromkeys(note for note in told if note))
    topology = with_faults(cluster.topology, config.faults) if config.faults else cluster.topology
    return replace(cluster, topology=topology, notes=notes, transport=transport)


def _fabric(config: Any, plan: Plan, size: int, transport: Transport, key: str) -> Fabric:
    try:
        return build_fabric(config, plan.ports, size, transport)
    except TopologyError as error:
        raise TopologyError(f"{key}.{error.message}") from None


def _transport(config: ClusterConfig) -> Transport:
    named = config.network.transport if config.network else None
    usual = config.members[0].loaded.machine.transport
    return calibrated_transport(TRANSPORTS[named or usual], _calibration_of(config))


def _calibration_of(config: ClusterConfig) -> Machine:
    """The first machine, with a calibration that holds for all hosts."""
    machine = config.members[0].loaded.machine
    for one in config.overrides:
        if not one.hosts and "calibration" in one.machine:
            machine = with_figures(machine, {"calibration": one.machine["calibration"]})
    return machine


def _usual(plan: Plan) -> Any:
    """Rail-optimized and non-blocking where hosts have several NICs, else a single switch."""
    if plan.ports.rail.max(initial=0) > 0:
        return RailOptimized(kind="rail-optimized")
    return SingleSwitch(kind="single-switch")


def placed(config: ClusterConfig, total: int) -> Ints:
    """The host of the fabric that each host of the job is."""
    size = (config.network.nodes if config.network else None) or total
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


def _policy(
    config: ClusterConfig, fabric: Any, transport: Transport, plan: Plan, made: Fabric | None
) -> Policy:
    """The policy, with the links of the fabric that faults leave nothing of."""
    policy = policy_of(fabric, transport)
    if made is None or not any(fault.dead for fault in config.faults):
        return policy
    healthy = join(plan, made, policy).topology
    broken = with_faults(healthy, [fault for fault in config.faults if fault.dead])
    return replace(policy, dead=(broken.links.bandwidth == 0)[-len(made.tail) :])


def _domains(hosts: tuple[Host, ...], host_class: Ints) -> Ints:
    """A number for every NVLink domain: neighbouring hosts of equal machines fill one by one."""
    sizes = np.array([h.machine.scale_up.hosts if h.machine.scale_up else 1 for h in hosts])
    domain = np.zeros(len(host_class), np.int32)
    number, left, last = -1, 0, 0
    for host, size in enumerate(sizes[host_class].tolist()):
        if not left or size != last:
            number, left, last = number + 1, size, size
        domain[host] = number
        left -= 1
    return domain


@dataclass
class _Classes:
    """The classes of hosts of a cluster, made as they are met."""

    config: ClusterConfig
    transport: Transport
    had: list[tuple[int, ...]] = field(default_factory=list)  # NICs before faults, by class
    nics: set[str] = field(default_factory=set)

    def of_all(self) -> tuple[tuple[Host, ...], Ints]:
        """All classes, and the class of every host."""
        known: dict[Any, int] = {}
        classes: list[Host] = []
        result: list[int] = []
        for member, group in enumerate(self.config.members):
            for _ in range(group.nodes):
                key = (member, *self._peculiar(len(result)))
                if key not in known:
                    known[key] = len(classes)
                    classes.append(self._host(group, *key[1:]))
                result.append(known[key])
                names = (f"node{len(result) - 1}.nic{nic}" for nic in self.had[known[key]])
                self.nics.update(names if self.config.faults else ())
        self._check_hosts(len(result))
        return tuple(classes), np.array(result, np.int32)

    def _peculiar(self, host: int) -> tuple[Any, ...]:
        """What sets a host apart from others of its group: overrides, dead links, missing NICs."""
        if not self.config.overrides and not self.config.faults:
            return (), (), frozenset()
        numbers = [n for n, one in enumerate(self.config.overrides) if one.applies(host)]
        name = f"node{host}"
        dead = dead_inside(self.config.faults, name)
        return tuple(numbers), dead, frozenset(missing_nics(self.config.faults, name))

    def _check_hosts(self, total: int) -> None:
        for number, one in enumerate(self.config.overrides):
            for host in one.hosts:
                if host >= total:
                    message = f"the cluster has hosts 0 to {total - 1}, got {host}"
                    raise FieldError(message, "overrides", number, "node")
        for number, fault in enumerate(self.config.faults):
            if fault.nic is not None and fault.nic not in self.nics:
                hint = suggest(fault.nic, sorted(self.nics)[:4096])
                raise FieldError(f"there is no NIC '{fault.nic}'{hint}", "faults", number, "nic")

    def _host(
        self, group: Group, overrides: tuple[int, ...], dead: tuple[str, ...], gone: frozenset[int]
    ) -> Host:
        machine = group.loaded.machine
        gpus = group.gpus or tuple(range(group.gpus_per_node or machine.gpu.count))
        network = self.config.network
        rate = group.nic or (network.nic if network else None)
        if group.p2p is not None:
            machine = machine.model_copy(update={"p2p": group.p2p})
        if isinstance(self.config.fabric, NvlinkDomain):
            machine = _in_domain(machine, self.config.fabric.hosts)
        nics: tuple[int, ...] | None = None
        for number in overrides:
            one = self.config.overrides[number]
            machine = with_figures(machine, one.machine, "overrides", number, "machine")
            nics = one.nics if one.nics is not None else nics
        machine = calibrated_machine(machine)
        machine = with_nics(machine, group.nics_per_node, rate, gpus, self.transport)
        have = range(machine.nics.count if machine.nics else 0)
        for number in overrides:
            _check_nics(self.config.overrides[number].nics or (), len(have), number)
        self.had.append(tuple(have if nics is None else nics))
        left = [nic for nic in (have if nics is None else nics) if nic not in gone]
        return make_host(machine, gpus, dead, left)


def _in_domain(machine: Machine, hosts: int) -> Machine:
    if machine.scale_up is None or machine.scale_up.switches is None:
        raise FieldError("an NVLink domain needs a machine with NVSwitches", "fabric", "kind")
    scale_up = machine.scale_up.model_copy(update={"hosts": hosts})
    return machine.model_copy(update={"scale_up": scale_up})


def _check_nics(nics: tuple[int, ...], count: int, override: int) -> None:
    for place, nic in enumerate(nics):
        if nic >= count:
            have = f"NICs 0 to {count - 1}" if count else "no NICs"
            message = f"the host has {have}, got {nic}"
            raise FieldError(message, "overrides", override, "nics", place)
