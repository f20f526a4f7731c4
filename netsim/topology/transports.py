"""Transports as profiles: what a kind of network makes of NICs and switches.

Only what is physical is here; what protocols cost on top is the business of `netsim.nccl`.
"""

from math import inf
from typing import Literal

from netsim.constants import value
from netsim.values import dataclass

TransportName = Literal["infiniband", "roce", "efa", "tcpxo", "slingshot", "tcp", "nvlink"]


@dataclass(frozen=True, slots=True)
class Transport:
    """A kind of network.

    `hop` is one switch hop in seconds; `usable` the part of a line rate that carries data, at most
    `nic_cap` bytes/s a NIC. `latency` is what a message takes end to end beyond NICs, cables and
    switches, `stated_latency` what its plugin tells NCCL of that (seconds; the
    plugins of NCCL 2.18 and later). `groups`: NICs beyond one a GPU
    appear as one. `routing` is how its switches usually choose between equal paths. Where the
    figures are from is in `netsim.constants`.
    """

    name: str
    hop: float
    usable: float
    nic_cap: float = inf
    latency: float = 0.0
    stated_latency: float = 0.0
    gpudirect: bool = True
    groups: bool = False
    routing: str = "static"


TRANSPORTS = {
    one.name: one
    for one in (
        Transport("infiniband", hop=value("infiniband.hop"), usable=value("infiniband.usable")),
        Transport("roce", hop=value("roce.hop"), usable=value("roce.usable"), routing="ecmp"),
        Transport(
            "efa",
            hop=value("efa.hop"),
            usable=value("efa.usable"),
            latency=value("efa.latency"),
            stated_latency=value("efa.stated_latency"),
            groups=True,
            routing="spray",
        ),
        Transport(
            "tcpxo",
            hop=value("tcpxo.hop"),
            usable=value("tcpxo.usable"),
            latency=value("tcpxo.latency"),
            routing="ecmp",
        ),
        Transport(
            "slingshot",
            hop=value("slingshot.hop"),
            usable=value("slingshot.usable"),
            routing="spray",
        ),
        Transport(
            "tcp",
            hop=value("tcp.hop"),
            usable=value("tcp.usable"),
            nic_cap=value("tcp.nic_cap"),
            latency=value("tcp.latency"),
            gpudirect=False,
            routing="ecmp",
        ),
        Transport("nvlink", hop=value("nvlink.wire_hop"), usable=value("nvlink.usable")),
    )
}
