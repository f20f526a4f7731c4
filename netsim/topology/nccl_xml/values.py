"""The elements of NCCL's topology XML as frozen values, attribute by attribute.

Units are the file's own: link speeds as text, NIC speeds in Mb/s, latencies in µs, C2C in MB/s.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from netsim.values import dataclass


@dataclass(frozen=True)
class NvLink:
    """`count` NVLinks of a GPU to another GPU, to the CPU or to a switch (by `tclass`).

    RCCL's files have `xgmi` links in their place.
    """

    target: str
    count: int
    tclass: str
    xgmi: bool = False


@dataclass(frozen=True)
class C2c:
    """`count` chip-to-chip links of a GPU to its CPU, each of `bandwidth` MB/s."""

    bandwidth: int
    count: int


@dataclass(frozen=True)
class PciLink:
    """A link from this PCIe switch to another one beside the tree."""

    target: str


@dataclass(frozen=True)
class Gpu:
    """A GPU: CUDA device, compute capability (90 for 9.0), rank, and its links; `gcn` is the
    architecture of AMD's, such as gfx942.
    """

    dev: int
    sm: int
    rank: int | None = None
    gdr: bool = False
    mlopart: int | None = None
    nvlinks: tuple[NvLink, ...] = ()
    c2c: tuple[C2c, ...] = ()
    gcn: str = ""


@dataclass(frozen=True)
class Net:
    """A network port as its plugin shows it: `speed` in Mb/s, `latency` in µs."""

    name: str
    dev: int
    speed: int = 0
    latency: float = 0.0
    port: int = 0
    guid: str = "0x0"
    maxconn: int = 0
    gdr: bool = False
    coll: bool = False
    net: bool = True
    gin: int | None = None
    rma: int | None = None
    rail: int | None = None
    plane: int | None = None


@dataclass(frozen=True)
class Nic:
    """A network card with its ports."""

    nets: tuple[Net, ...] = ()


@dataclass(frozen=True)
class Pci:
    """A PCI device or bridge with what hangs below it; ids and class are hexadecimal text."""

    busid: str
    class_code: str = ""
    vendor: str = ""
    device: str = ""
    subsystem_vendor: str = ""
    subsystem_device: str = ""
    link_speed: str = ""
    link_width: int = 0
    gpu: Gpu | None = None
    nics: tuple[Nic, ...] = ()
    pcis: tuple["Pci", ...] = ()
    pci_links: tuple[PciLink, ...] = ()


@dataclass(frozen=True)
class Cpu:
    """A NUMA domain; CPUs with the same `host_hash` are in one host."""

    numaid: int
    host_hash: str = "0x0"
    affinity: str = ""
    arch: str = "x86_64"
    vendor: str = ""
    familyid: int = 0
    modelid: int = 0
    pcis: tuple[Pci, ...] = ()
    nics: tuple[Nic, ...] = ()


@dataclass(frozen=True)
class System:
    """One node as NCCL sees it: one host, or all hosts of an NVLink domain."""

    cpus: tuple[Cpu, ...]
    name: str = ""

    def pcis(self) -> Iterator[Pci]:
        """Every PCI device and bridge, in the order of the file."""
        for cpu in self.cpus:
            stack = list(reversed(cpu.pcis))
            while stack:
                pci = stack.pop()
                yield pci
                stack.extend(reversed(pci.pcis))

    def changed(self, change: Callable[[Pci], Pci]) -> "System":
        """The system with every PCIe device as `change` makes it; what is below it stays below."""

        def made(pci: Pci) -> Pci:
            return replace(change(pci), pcis=tuple(made(below) for below in pci.pcis))

        cpus = (replace(cpu, pcis=tuple(made(pci) for pci in cpu.pcis)) for cpu in self.cpus)
        return replace(self, cpus=tuple(cpus))

    def gpus(self) -> Iterator[Gpu]:
        """Every GPU, in the order of the file."""
        return (pci.gpu for pci in self.pcis() if pci.gpu is not None)

    def nets(self) -> Iterator[Net]:
        """Every network port, those below PCI first."""
        for pci in self.pcis():
            for nic in pci.nics:
                yield from nic.nets
        for cpu in self.cpus:
            for nic in cpu.nics:
                yield from nic.nets
