"""The NICs of a system as NCCL has them: which it may use, and what their plugin says of them."""

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
    there = [_shown(net, sockets) for pci in system.pcis() for nic in pci.nics for net in nic.nets]
    changed = system.changed(lambda pci: _kept(pci, names, sockets))
    if there and not any(nic.nets for pci in changed.pcis() for nic in pci.nics):
        known = ", ".join(dict.fromkeys(there))
        raise VariableError(variable, f"it names none of the NICs {known}")
    return changed


def with_latency(system: System, microseconds: float) -> System:
    """The system whose NICs' plugin states a latency."""

    def stated(pci: Pci) -> Pci:
        nics = (tuple(replace(net, latency=microseconds) for net in nic.nets) for nic in pci.nics)
        return replace(pci, nics=tuple(map(Nic, nics)))

    return system.changed(stated)


def _kept(pci: Pci, names: NicNames, sockets: bool) -> Pci:
    nics = (
        Nic(tuple(net for net in nic.nets if names.admit(_shown(net, sockets), net.port)))
        for nic in pci.nics
    )
    return replace(pci, nics=tuple(nic for nic in nics if nic.nets))


def _shown(net: Net, sockets: bool) -> str:
    """What a port is called: as the file has it, or as an interface in order of devices."""
    return f"eth{net.dev}" if sockets else net.name
