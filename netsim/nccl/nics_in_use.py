"""The NICs of a system as NCCL has them: which it may use, and what their plugin says of them."""

from collections.abc import Iterator
from dataclasses import replace

from netsim.nccl.nic_names import NicNames
from netsim.nccl.settings import Settings
from netsim.nccl.variables import VariableError
from netsim.topology.nccl_xml import Net, Nic, Pci, System

SOCKETS = ("tcp",)  # transports whose NICs are network interfaces to NCCL


def with_nics(system: System, transport: str, settings: Settings) -> System:
    """The system with the NICs that NCCL may use on this transport."""
    sockets = transport in SOCKETS
    variable = "NCCL_SOCKET_IFNAME" if sockets else "NCCL_IB_HCA"
    names = settings.interfaces if sockets else settings.hcas
    if names is None:
        return system
    there = [_shown(net, sockets) for pci in _pcis(system) for nic in pci.nics for net in nic.nets]
    changed = replace(
        system,
        cpus=tuple(
            replace(cpu, pcis=tuple(_kept(pci, names, sockets) for pci in cpu.pcis))
            for cpu in system.cpus
        ),
    )
    if there and not any(nic.nets for pci in _pcis(changed) for nic in pci.nics):
        known = ", ".join(dict.fromkeys(there))
        raise VariableError(variable, f"it names none of the NICs {known}")
    return changed


def with_latency(system: System, microseconds: float) -> System:
    """The system whose NICs' plugin states a latency."""
    return replace(
        system,
        cpus=tuple(
            replace(cpu, pcis=tuple(_later(pci, microseconds) for pci in cpu.pcis))
            for cpu in system.cpus
        ),
    )


def _later(pci: Pci, microseconds: float) -> Pci:
    nics = (Nic(tuple(replace(net, latency=microseconds) for net in nic.nets)) for nic in pci.nics)
    below = tuple(_later(one, microseconds) for one in pci.pcis)
    return replace(pci, nics=tuple(nics), pcis=below)


def _kept(pci: Pci, names: NicNames, sockets: bool) -> Pci:
    nics = (
        Nic(tuple(net for net in nic.nets if names.admit(_shown(net, sockets), net.port)))
        for nic in pci.nics
    )
    below = tuple(_kept(one, names, sockets) for one in pci.pcis)
    return replace(pci, nics=tuple(nic for nic in nics if nic.nets), pcis=below)


def _shown(net: Net, sockets: bool) -> str:
    """What a port is called: as the file has it, or as an interface in order of devices."""
    return f"eth{net.dev}" if sockets else net.name


def _pcis(system: System) -> Iterator[Pci]:
    stack = [pci for cpu in system.cpus for pci in cpu.pcis]
    while stack:
        pci = stack.pop(0)
        yield pci
        stack = [*pci.pcis, *stack]
