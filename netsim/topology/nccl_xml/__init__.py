"""NCCL's topology XML (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE) as plain values, read and written.

Says what is in a host; what NCCL makes of it (paths, channels) is the business of `netsim.nccl`.
"""

from netsim.topology.nccl_xml.reader import parse_system, read_system
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
from netsim.topology.nccl_xml.writer import write_system

__all__ = [
    "C2c",
    "Cpu",
    "Gpu",
    "Net",
    "Nic",
    "NvLink",
    "Pci",
    "PciLink",
    "System",
    "parse_system",
    "read_system",
    "write_system",
]
