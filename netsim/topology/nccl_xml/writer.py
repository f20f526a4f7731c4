"""A system back to NCCL's topology XML, such that reading it gives an equal system.

Attributes that are at their default and that NCCL's own dumps omit are left out.
"""

from collections.abc import Iterator
from xml.sax.saxutils import quoteattr

from netsim.topology.nccl_xml.values import Cpu, Gpu, Net, Nic, Pci, System


def write_system(system: System) -> str:
    """The XML text of `system`, two blanks a level."""
    name = f" name={quoteattr(system.name)}" if system.name else ""
    lines = [f'<system version="1"{name}>']
    for cpu in system.cpus:
        lines += ("  " + line for line in _cpu(cpu))
    return "\n".join([*lines, "</system>"]) + "\n"


def _element(name: str, attributes: dict[str, object], children: list[str]) -> Iterator[str]:
    written = "".join(
        f" {key}={quoteattr(_text(value))}"
        for key, value in attributes.items()
        if value is not None
    )
    if not children:
        yield f"<{name}{written}/>"
        return
    yield f"<{name}{written}>"
    yield from ("  " + line for line in children)
    yield f"</{name}>"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return repr(value) if isinstance(value, float) else str(value)


def _cpu(cpu: Cpu) -> Iterator[str]:
    attributes: dict[str, object] = {
        "host_hash": cpu.host_hash,
        "numaid": cpu.numaid,
        "affinity": cpu.affinity,
        "arch": cpu.arch,
        "vendor": cpu.vendor,
        "familyid": cpu.familyid,
        "modelid": cpu.modelid,
    }
    children = [line for pci in cpu.pcis for line in _pci(pci)]
    children += (line for nic in cpu.nics for line in _nic(nic))
    return _element("cpu", attributes, children)


def _pci(pci: Pci) -> Iterator[str]:
    attributes: dict[str, object] = {
        "busid": pci.busid,
        "class": pci.class_code or None,
        "vendor": pci.vendor or None,
        "device": pci.device or None,
        "subsystem_vendor": pci.subsystem_vendor or None,
        "subsystem_device": pci.subsystem_device or None,
        "link_speed": pci.link_speed,
        "link_width": pci.link_width,
    }
    children = list(_gpu(pci.gpu)) if pci.gpu is not None else []
    children += (line for nic in pci.nics for line in _nic(nic))
    children += (line for below in pci.pcis for line in _pci(below))
    for link in pci.pci_links:
        children += _element("pcilink", {"target": link.target}, [])
    return _element("pci", attributes, children)


def _gpu(gpu: Gpu) -> Iterator[str]:
    attributes: dict[str, object] = {
        "dev": gpu.dev,
        "sm": gpu.sm,
        "rank": gpu.rank,
        "gdr": gpu.gdr,
        "mlopart": gpu.mlopart,
        "gcn": gpu.gcn or None,
    }
    children: list[str] = []
    for link in gpu.nvlinks:
        to: dict[str, object] = {"target": link.target, "count": link.count, "tclass": link.tclass}
        children += _element("xgmi" if link.xgmi else "nvlink", to, [])
    for c2c in gpu.c2c:
        children += _element("c2c", {"bw": c2c.bandwidth, "count": c2c.count}, [])
    return _element("gpu", attributes, children)


def _nic(nic: Nic) -> Iterator[str]:
    return _element("nic", {}, [line for net in nic.nets for line in _net(net)])


def _net(net: Net) -> Iterator[str]:
    attributes: dict[str, object] = {
        "name": net.name,
        "dev": net.dev,
        "latency": net.latency,
        "speed": net.speed,
        "port": net.port,
        "guid": net.guid,
        "maxconn": net.maxconn,
        "gdr": net.gdr,
        "coll": net.coll,
        "net": net.net,
        "gin": net.gin,
        "rma": net.rma,
        "rail": net.rail,
        "plane": net.plane,
    }
    return _element("net", attributes, [])
