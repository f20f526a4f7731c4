"""What every fabric is: switches, cables between them and the NIC ports, and its equal-cost paths.

Ends are numbered: ports of NICs first, then switches. Every cable takes two links, up (from its
first end) and down; those of the ports come first, so port p has links 2p and 2p + 1.
"""

from math import inf
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from netsim.values import dataclass

Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Ports:
    """The NIC ports that a fabric joins: host of the fabric, rail (number of the NIC in its host),
    bytes/s, and the host of the job that it belongs to.
    """

    host: Ints
    rail: Ints
    rate: NDArray[np.float64]
    owner: Ints

    def __len__(self) -> int:
        return len(self.host)


@dataclass(frozen=True, slots=True)
class Terms:
    """What all fabrics take: rate of cables between switches (bytes/s), latency of one switch hop
    and of entering a NIC (seconds), the usable part of every line rate, and at most how much of it
    a NIC carries.
    """

    link: float
    hop: float
    nic: float
    usable: float = 1.0
    nic_cap: float = inf

    def port(self, rate: NDArray[np.float64]) -> NDArray[np.float64]:
        """What NIC ports of a line rate carry, bytes/s."""
        return np.minimum(rate * self.usable, self.nic_cap)


class Wiring(Protocol):
    """The paths between ports, by formula."""

    def choices(self, src: Ints, dst: Ints) -> Ints:
        """How many equal-cost paths there are for every pair of ports; 0: not connected."""
        ...

    def hops(self, src: Ints, dst: Ints, choice: Ints) -> Ints:
        """The links of one path for every pair, port to port, padded with -1."""
        ...

    def order(self, dst: Ints) -> Ints:
        """The number by which static routing picks a path to each port, modulo the choices."""
        ...


@dataclass(frozen=True, slots=True)
class Fabric:
    """A fabric as columns; `tail` and `head` number ports, then switches from `ports` on.

    The first `access` links join ports to switches; `tiers` names the switches' levels from the
    NICs up, with the number of the first switch of each. `reduces`: its switches add up data on
    its way (SHARP). `note` is what was assumed.
    """

    kind: str
    ports: int
    switches: tuple[str, ...]
    tiers: tuple[tuple[str, int], ...]
    access: int
    tail: Ints
    head: Ints
    bandwidth: NDArray[np.float64]
    latency: NDArray[np.float64]
    wiring: Wiring
    reduces: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Cables:
    """Cables between two switches each, by number of the switch."""

    low: Ints
    high: Ints

    def __len__(self) -> int:
        return len(self.low)


def fabric(
    kind: str,
    tiers: tuple[tuple[str, tuple[str, ...]], ...],
    ports: Ports,
    terms: Terms,
    leaf: Ints,
    cables: Cables,
    wiring: Wiring,
) -> Fabric:
    """Port p is on switch `leaf[p]` (given twice: NICs of two ports, each of half their rate)."""
    count, planes = len(ports), len(leaf) // max(1, len(ports))
    low = np.r_[np.tile(np.arange(count), planes), count + cables.low].astype(np.int32)
    high = np.r_[count + leaf, count + cables.high].astype(np.int32)
    access = np.tile(terms.port(ports.rate) / max(1, planes), planes)
    rate = np.r_[access, [terms.link * terms.usable] * len(cables)]
    down = np.where(np.arange(len(low)) < len(leaf), terms.nic, terms.hop)
    firsts = np.cumsum([0, *(len(names) for _, names in tiers)]).tolist()
    return Fabric(
        kind,
        count,
        tuple(name for _, names in tiers for name in names),
        tuple((level, first) for (level, _), first in zip(tiers, firsts, strict=False)),
        2 * len(leaf),
        np.stack([low, high], axis=1).ravel(),
        np.stack([high, low], axis=1).ravel(),
        np.repeat(rate, 2),
        np.stack([np.full(len(low), terms.hop), down], axis=1).ravel(),
        wiring,
    )


def columns(*parts: Ints) -> Ints:
    """Links of many paths, one column a hop."""
    return np.stack(parts, axis=1).astype(np.int32)


def numbered(name: str, count: int) -> tuple[str, ...]:
    """`name0`, `name1`, …"""
    return tuple(f"{name}{number}" for number in range(count))
