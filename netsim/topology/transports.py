"""Transports as profiles: what a kind of network makes of NICs and switches.

Only what is physical is here; what protocols cost on top is the business of `netsim.nccl`.
"""

from math import inf
from typing import Literal

from netsim.values import dataclass

TransportName = Literal["infiniband", "roce", "efa", "tcpxo", "slingshot", "tcp", "nvlink"]


@dataclass(frozen=True, slots=True)
class Transport:
    """A kind of network.

    `hop` is one switch hop in seconds; `usable` the part of a line rate that carries data, at most
    `nic_cap` bytes/s a NIC. `latency` is what a message takes end to end beyond NICs, cables and
    switches, `stated_latency` what its plugin tells NCCL of that (seconds; the
    plugins of NCCL 2.18 and later). `groups`: NICs beyond one a GPU
    appear as one. `routing` is how its switches usually choose between equal paths. `source` says
    where the figures are from.
    """

    name: str
    hop: float
    usable: float
    source: str
    nic_cap: float = inf
    latency: float = 0.0
    stated_latency: float = 0.0
    gpudirect: bool = True
    groups: bool = False
    routing: str = "static"


TRANSPORTS = {
    one.name: one
    for one in (
        Transport(
            "infiniband",
            hop=230e-9,
            usable=0.982,
            source="hop: 130 ns a switch (QM8700 data sheet), 20 m of cable; usable: a ring over "
            "8 x 400G reaches 392.7 GB/s (measured/, gjaion_h100_2x8_all_reduce_2)",
        ),
        Transport(
            "roce",
            hop=700e-9,
            usable=0.98,
            source="hop: 600 ns a switch (Tomahawk class, estimate) and 20 m of cable; usable: 82 "
            "bytes of headers and gap a 4 KiB packet; no loss to congestion",
            routing="ecmp",
        ),
        Transport(
            "efa",
            hop=1e-6,
            usable=0.876,
            source="usable: 43.8 GB/s of 4 x 100G (measured/, aws_p4d_a100_2x8_all_reduce_1); "
            "hop: estimate; latency: what two hops of a tree of LL take more than on InfiniBand "
            "(aws_p5_h100_2x8_all_reduce_1); stated: as aws-ofi-nccl tells NCCL",
            latency=20e-6,
            stated_latency=75e-6,
            groups=True,
            routing="spray",
        ),
        Transport(
            "tcpxo",
            hop=1e-6,
            usable=0.9,
            source="estimates; no measured run gives the rate of its NICs",
            latency=10e-6,
            routing="ecmp",
        ),
        Transport(
            "slingshot",
            hop=350e-9,
            usable=0.923,
            source="hop: 350 ns in the mean (De Sensi et al., SC20); usable: 92.3 GB/s of 4 x 200G "
            "(measured/, alps_gh200_16x4_all_reduce_1)",
            routing="spray",
        ),
        Transport(
            "tcp",
            hop=1e-6,
            usable=0.94,
            source="cap: 9.4 GB/s of two NICs (measured/, polaris_a100_tcp_2x4_all_reduce_1); "
            "latency: 15-30 µs one way (NCCL 2.30, src/graph/tuning.cc)",
            nic_cap=4.7e9,
            latency=15e-6,
            gpudirect=False,
            routing="ecmp",
        ),
        Transport("nvlink", hop=200e-9, usable=1.0, source="NVLink between hosts; no NICs"),
    )
}
