"""Elements of NCCL's topology XML to values: checks every attribute, and what must be unique.

Reads what dumps contain and what people write by hand for NCCL_TOPO_FILE; `keep` marks, which
matter to NCCL only while it detects hardware, are accepted and dropped.
"""

import re
from pathlib import Path

from netsim.errors import ScenarioError, shown
from netsim.topology.nccl_xml.attributes import (
    flag,
    hexadecimal,
    integer,
    known,
    matching,
    optional_integer,
    real,
    text,
)
from netsim.topology.nccl_xml.elements import LARGEST_FILE, Element, parse_elements
from netsim.topology.nccl_xml.values import (
    C2c,
    Cpu,
    Gpu,
    Net,
    Nic,
    NvLink,
    Pci,
    PciLink,
    System,
)

BUS_ID = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2,4}:[0-9a-fA-F]{2}\.[0-9a-fA-F]", re.ASCII)
TARGET = re.compile(
    r"[0-9a-fA-F]{1,8}:[0-9a-fA-F]{1,4}:[0-9a-fA-F]{1,2}(?:\.[0-9a-fA-F])?", re.ASCII
)
SPEED = re.compile(r"(?:\d{1,3}(?:\.\d{1,2})? GT/s(?: PCIe)?|Unknown(?: speed)?)?", re.ASCII)
ARCHITECTURES = ("x86_64", "arm64", "ppc64")

CPU = {"numaid", "host_hash", "affinity", "arch", "vendor", "familyid", "modelid", "keep"}
PCI = {
    *("busid", "class", "vendor", "device", "subsystem_vendor", "subsystem_device"),
    *("link_speed", "link_width", "keep"),
}
NET = {
    *("name", "dev", "latency", "speed", "port", "guid", "maxconn", "gdr", "coll", "net"),
    *("gin", "rma", "rail", "plane", "keep"),
}


def read_system(path: Path) -> System:
    """The system that the file at `path` describes."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise ScenarioError(error.strerror or "cannot be read", source=str(path)) from None
    return parse_system(data, str(path))


def parse_system(data: bytes | str, source: str = "<xml>") -> System:
    """The system in an XML document; `source` names it in errors."""
    root = parse_elements(data.encode() if isinstance(data, str) else data, source)
    if root.name != "system":
        raise root.error(f"expected a system element at the top, got {root.name}")
    known(root, {"version", "name"}, {"cpu"})
    if text(root, "version") != "1":
        raise root.error(f"expected version 1, got {shown(text(root, 'version'))}", "version")
    _check_unique(root)
    system = System(tuple(_cpu(cpu) for cpu in _named(root, "cpu")), text(root, "name", ""))
    if not system.cpus:
        raise root.error("no cpu element")
    return system


def _named(element: Element, name: str) -> list[Element]:
    return [child for child in element.children if child.name == name]


def _cpu(element: Element) -> Cpu:
    known(element, CPU, {"pci", "nic"})
    arch = text(element, "arch", "x86_64")
    if arch not in ARCHITECTURES:
        raise element.error(
            f"expected one of {', '.join(ARCHITECTURES)}, got {shown(arch)}", "arch"
        )
    return Cpu(
        numaid=integer(element, "numaid", least=-1),
        host_hash=hexadecimal(element, "host_hash", "0x0"),
        affinity=text(element, "affinity", ""),
        arch=arch,
        vendor=text(element, "vendor", ""),
        familyid=integer(element, "familyid", 0),
        modelid=integer(element, "modelid", 0),
        pcis=tuple(_pci(child) for child in _named(element, "pci")),
        nics=tuple(_nic(child) for child in _named(element, "nic")),
    )


def _pci(element: Element) -> Pci:
    known(element, PCI, {"pci", "gpu", "nic", "pcilink"})
    gpus = _named(element, "gpu")
    if len(gpus) > 1:
        raise gpus[1].error("a pci element holds at most one gpu")
    speed = element.attributes.get("link_speed", "")
    if not SPEED.fullmatch(speed):
        expected = "expected a speed such as '16.0 GT/s PCIe'"
        raise element.error(f"{expected}, got {shown(speed)}", "link_speed")
    return Pci(
        busid=matching(element, "busid", BUS_ID, "a bus id such as 0000:07:00.0"),
        class_code=hexadecimal(element, "class", ""),
        vendor=hexadecimal(element, "vendor", ""),
        device=hexadecimal(element, "device", ""),
        subsystem_vendor=hexadecimal(element, "subsystem_vendor", ""),
        subsystem_device=hexadecimal(element, "subsystem_device", ""),
        link_speed=speed,
        link_width=integer(element, "link_width", 0, most=64),
        gpu=_gpu(gpus[0]) if gpus else None,
        nics=tuple(_nic(child) for child in _named(element, "nic")),
        pcis=tuple(_pci(child) for child in _named(element, "pci")),
        pci_links=tuple(_pci_link(child) for child in _named(element, "pcilink")),
    )


def _gpu(element: Element) -> Gpu:
    attributes = {"dev", "sm", "rank", "gdr", "mlopart", "gcn", "keep"}
    known(element, attributes, {"nvlink", "xgmi", "c2c"})
    rank = integer(element, "rank", -1, least=-1)
    return Gpu(
        dev=integer(element, "dev"),
        sm=integer(element, "sm", least=10, most=999),
        rank=None if rank == -1 else rank,
        gdr=flag(element, "gdr", default=False),
        mlopart=optional_integer(element, "mlopart"),
        gcn=_gcn(element),
        nvlinks=tuple(_nvlink(one) for one in element.children if one.name in ("nvlink", "xgmi")),
        c2c=tuple(_c2c(child) for child in _named(element, "c2c")),
    )


def _nvlink(element: Element) -> NvLink:
    known(element, {"target", "count", "tclass"}, set())
    return NvLink(
        target=matching(element, "target", TARGET, "a bus id"),
        count=integer(element, "count", least=1, most=1024),
        tclass=hexadecimal(element, "tclass", "0x0"),
        xgmi=element.name == "xgmi",
    )


def _gcn(element: Element) -> str:
    """The architecture of an AMD GPU; older RCCL writes 942 for gfx942."""
    written = text(element, "gcn", "").split(":")[0]
    return f"gfx{written}" if written.isalnum() and written[:1].isdigit() else written


def _c2c(element: Element) -> C2c:
    known(element, {"bw", "count"}, set())
    return C2c(integer(element, "bw", least=1), integer(element, "count", least=1, most=1024))


def _pci_link(element: Element) -> PciLink:
    known(element, {"target"}, set())
    return PciLink(matching(element, "target", BUS_ID, "a bus id such as 0000:07:00.0"))


def _nic(element: Element) -> Nic:
    known(element, {"keep"}, {"net"})
    return Nic(tuple(_net(child) for child in _named(element, "net")))


def _net(element: Element) -> Net:
    known(element, NET, set())
    return Net(
        name=text(element, "name", ""),
        dev=integer(element, "dev"),
        speed=integer(element, "speed", 0, least=-1),
        latency=real(element, "latency", 0.0),
        port=integer(element, "port", 0),
        guid=hexadecimal(element, "guid", "0x0"),
        maxconn=integer(element, "maxconn", 0),
        gdr=flag(element, "gdr", default=False),
        coll=flag(element, "coll", default=False),
        net=flag(element, "net", default=True),
        gin=optional_integer(element, "gin"),
        rma=optional_integer(element, "rma"),
        rail=optional_integer(element, "rail"),
        plane=optional_integer(element, "plane"),
    )


def _check_unique(root: Element) -> None:
    """Bus ids and NIC numbers are unique in a host, ranks in the whole system."""
    seen: dict[tuple[str, ...], Element] = {}
    for cpu in root.children:
        host = cpu.attributes.get("host_hash", "")
        for element in cpu.walk():
            for attribute, scope in UNIQUE.get(element.name, ()):
                value = element.attributes.get(attribute, "").lower()
                key = (element.name, attribute, host if scope == "host" else "", value)
                if value in ("", "-1"):
                    continue
                if key in seen:
                    message = f"{attribute} {value} is already used in line {seen[key].line}"
                    raise element.error(message, attribute)
                seen[key] = element


UNIQUE = {
    "pci": (("busid", "host"),),
    "gpu": (("rank", "system"),),
    "net": (("dev", "host"),),
    "cpu": (("numaid", "host"),),
}
