"""What NCCL sees of a host: the machine as values of NCCL's topology XML.

Bus ids are invented (in PCI domain 0: switches from 10, NICs from 40, GPUs from 80; bridges are in
domain 1). GPUs of other makers are shown as the most similar NVIDIA GPUs, which is an assumption.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from netsim.topology.cluster import Cluster
from netsim.topology.foreign import nccl_xml
from netsim.topology.graph import NODE_KINDS
from netsim.topology.host import Host
from netsim.topology.machine import Machine, PcieLink, node_of

SPEEDS = {
    1: "2.5 GT/s PCIe", 2: "5.0 GT/s PCIe", 3: "8.0 GT/s PCIe", 4: "16.0 GT/s PCIe",
    5: "32.0 GT/s PCIe", 6: "64.0 GT/s PCIe",
}  # fmt: skip
VENDORS = {"intel": "GenuineIntel", "amd": "AuthenticAMD", "arm": "ARM", "zhaoxin": "  Shanghai  "}
SWITCH_TARGET = "fffffff:ffff:ff"
BRIDGE_CLASS = "0x060400"
GPU_CLASS = "0x030200"
NIC_CLASS = "0x020700"
NVSWITCH_CLASS = "0x068000"
PEER_CLASS = "0x030200"
PORT_NAMES = {"efa": "rdmap", "slingshot": "cxi", "tcp": "eth", "tcpxo": "eth"}
# PCI class of AMD's Instinct GPUs, and AMD's PCI vendor.
AMD_CLASS = "0x120000"
AMD_VENDOR = "0x1002"
HIP_FEATURES = 38911  # `arch` of every GPU in RCCL's models: HIP's flags of what a device can do
ASSUMED_SM = 90  # for GPUs that NCCL does not know
ASSUMED_LINK = 20.6e9  # what NCCL counts for one NVLink of such a GPU (NCCL 2.30, src/graph/topo.h)


def host_system(host: Host, host_number: int = 0, first_rank: int = 0) -> nccl_xml.XmlSystem:
    """Return one host as NCCL sees it; its GPUs have ranks from `first_rank` on in device order."""
    machine, cpu, nics = host.machine, host.machine.cpu, host.rail.tolist()
    cpus = (
        nccl_xml.XmlCpu(
            numaid=domain,
            host_hash=f"{host_number:#x}",
            affinity="ffffffff",
            arch=cpu.arch,
            vendor=VENDORS.get(cpu.vendor, cpu.vendor),
            familyid=cpu.family,
            modelid=cpu.model_id,
            pcis=_below(machine, f"cpu{domain}", host.gpus, nics, first_rank),
        )
        for domain in range(cpu.domains)
    )
    return nccl_xml.XmlSystem(tuple(cpus))


def node_system(cluster: Cluster, node: int) -> nccl_xml.XmlSystem:
    """Return node `node` in NCCL's sense: the hosts of one NVLink domain, which usually is a single
    host.
    """
    hosts = [number for number, domain in enumerate(cluster.domain.tolist()) if domain == node]
    cpus: list[nccl_xml.XmlCpu] = []
    rank = 0
    for place, number in enumerate(hosts):
        host = cluster.hosts[int(cluster.host_class[number])]
        cpus += host_system(host, place, rank).cpus
        rank += len(host.gpus)
    system = nccl_xml.XmlSystem(tuple(cpus))
    layout = cluster.topology.layout
    if (layout.reduces & (layout.kinds == NODE_KINDS.index("switch"))).any():
        return system.with_ports(partial(replace, coll=True))
    return system


def exported_system(cluster: Cluster, node: int) -> nccl_xml.XmlSystem:
    """Return a node as NCCL's topology dump shows it, or with AMD's GPUs as RCCL's dump does.

    RCCL's dump has version 2, xGMI links with their true number, and the number of compute units in
    place of the compute capability.
    """
    system = node_system(cluster, node)
    number = int(np.flatnonzero(cluster.domain == node)[0])
    host = cluster.hosts[int(cluster.host_class[number])]
    if host.machine.gpu.sm:
        return system
    machine = host.machine
    code = AMD_CLASS if machine.gpu.arch.startswith("gfx9") else GPU_CLASS

    def as_rccl(pci: nccl_xml.XmlPci) -> nccl_xml.XmlPci:
        if pci.gpu is None:
            return pci
        links = _links_to_peers(machine, pci.gpu.dev, host.gpus)
        gpu = replace(
            pci.gpu,
            sm=machine.gpu.sms,
            arch=HIP_FEATURES,
            nvlinks=tuple(
                nccl_xml.XmlNvLink(gpu_bus(peer), count, code, xgmi=True)
                for peer, count in links.items()
            ),
        )
        return replace(pci, class_code=code, vendor=AMD_VENDOR, gpu=gpu)

    return replace(system.changed(as_rccl), version=nccl_xml.RCCL_VERSION)


def _below(
    machine: Machine, place: str, gpus: Sequence[int], nics: Sequence[int], first_rank: int
) -> tuple[nccl_xml.XmlPci, ...]:
    """Return the PCI devices directly below a CPU or switch `place`: GPUs, then NICs, then further
    switches with what is below them.

    Args:
        machine: the machine.
        place: such as `cpu0` or `pcie1`.
        gpus: numbers of the GPUs in use.
        nics: numbers of the NICs in use.
        first_rank: rank of the first of `gpus`.
    """
    devices: list[nccl_xml.XmlPci] = []
    for slot, gpu in enumerate(gpus):
        if node_of(machine.gpu_at(gpu)) == place:
            devices.append(_gpu(machine, gpu, first_rank + slot, gpus))
    devices += [_nic(machine, nic) for nic in nics if node_of(machine.nic_at(nic)) == place]
    if machine.pcie.bridged and place.startswith("pcie"):
        devices = [_bridged(pci) for pci in devices]
    for number, parent in enumerate(machine.switches_at):
        if parent == place:
            below = _below(machine, f"pcie{number}", gpus, nics, first_rank)
            link = machine.pcie.uplink(number)
            devices.append(_pci(f"0000:{0x10 + number:02x}:00.0", BRIDGE_CLASS, link, below))
    return tuple(devices)


def _pci(
    busid: str, code: str, link: PcieLink, below: tuple[nccl_xml.XmlPci, ...] = ()
) -> nccl_xml.XmlPci:
    return nccl_xml.XmlPci(
        busid,
        class_code=code,
        vendor="0x0",
        device="0x0",
        subsystem_vendor="0x0",
        subsystem_device="0x0",
        link_speed=SPEEDS[link.generation],
        link_width=link.width,
        pcis=below,
    )


def _bridged(pci: nccl_xml.XmlPci) -> nccl_xml.XmlPci:
    busid = pci.busid.replace("0000:", "0001:", 1)
    return replace(pci, busid=busid, class_code=BRIDGE_CLASS, gpu=None, nics=(), pcis=(pci,))


def _gpu(machine: Machine, gpu: int, rank: int, gpus: Sequence[int]) -> nccl_xml.XmlPci:
    value = nccl_xml.XmlGpu(
        dev=gpu,
        sm=machine.gpu.sm or ASSUMED_SM,
        rank=rank,
        gdr=machine.p2p,  # drivers that refuse one refuse the other
        gcn="" if machine.gpu.sm else machine.gpu.arch,
        nvlinks=_nvlinks(machine, gpu, gpus),
        c2c=(nccl_xml.XmlC2c(round(machine.c2c.bandwidth / 1e6), 1),) if machine.c2c else (),
    )
    return replace(_pci(gpu_bus(gpu), GPU_CLASS, machine.link_of(machine.gpu, gpu)), gpu=value)


def _nvlinks(machine: Machine, gpu: int, gpus: Sequence[int]) -> tuple[nccl_xml.XmlNvLink, ...]:
    scale_up = machine.scale_up
    if scale_up is None or not scale_up.fitted:
        return ()
    if scale_up.switches is not None:
        links = scale_up.switch_links(gpu)
        return (nccl_xml.XmlNvLink(SWITCH_TARGET, links, NVSWITCH_CLASS),) if links else ()
    times = max(1, round(scale_up.link_bandwidth / ASSUMED_LINK)) if not machine.gpu.sm else 1
    return tuple(
        nccl_xml.XmlNvLink(gpu_bus(peer), count * times, PEER_CLASS)
        for peer, count in _links_to_peers(machine, gpu, gpus).items()
    )


def _links_to_peers(machine: Machine, gpu: int, gpus: Sequence[int]) -> dict[int, int]:
    """Return the number of links from a GPU to each of the GPUs `gpus` that it has links to."""
    scale_up = machine.scale_up
    if scale_up is None or not scale_up.fitted or scale_up.switches is not None:
        return {}
    counts = {frozenset((a, b)): count for a, b, count in scale_up.pairs(machine.gpu.count)}
    links = {peer: counts.get(frozenset((gpu, peer)), 0) for peer in gpus if peer != gpu}
    return {peer: count for peer, count in links.items() if count}


def _nic(machine: Machine, nic: int) -> nccl_xml.XmlPci:
    assert machine.nics is not None
    net = nccl_xml.XmlNet(
        name=f"{PORT_NAMES.get(machine.transport, 'mlx5_')}{nic}",
        dev=nic,
        speed=round(machine.nics.rates[nic] * 8 / 1e6),
        port=1,
        guid=f"{0x1000 + nic:#x}",
        maxconn=131072,
        gdr=machine.nics.gpudirect,
    )
    link = machine.link_of(machine.nics, nic)
    return replace(
        _pci(f"0000:{0x40 + nic:02x}:00.0", NIC_CLASS, link), nics=(nccl_xml.XmlNic((net,)),)
    )


def gpu_bus(gpu: int) -> str:
    """Return the invented bus id of a GPU."""
    return f"0000:{0x80 + gpu:02x}:00.0"
