"""What every fabric is: switches, cables between them and the NIC ports, and its equal-cost paths.

Ends are numbered: ports of NICs first, then switches. Port p is joined by links 2p (to its switch)
and 2p + 1 (from it); every further cable takes two links as well, up and down. Hosts are unknown.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Ports:
    """The NIC ports that a fabric joins: host, rail (number of the NIC in its host), bytes/s."""

    host: Ints
    rail: Ints
    rate: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.host)


@dataclass(frozen=True, slots=True)
class Terms:
    """What all fabrics take: rate of cables between switches (bytes/s), latency of one switch hop
    and of entering a NIC (seconds), and the usable part of every line rate.
    """

    link: float
    hop: float
    nic: float
    usable: float = 1.0


class Wiring(Protocol):
    """The paths between ports, by formula; each is a list of links between their switches."""

    def choices(self, src: Ints, dst: Ints) -> Ints:
        """How many equal-cost paths there are for every pair of ports; 0: not connected."""
        ...

    def hops(self, src: Ints, dst: Ints, choice: Ints) -> Ints:
        """The links of one path for every pair, padded with -1."""
        ...


@dataclass(frozen=True, slots=True)
class Fabric:
    """A fabric as columns; `tail` and `head` number ports, then switches from len(ports) on."""

    kind: str
    switches: tuple[str, ...]
    tail: Ints
    head: Ints
    bandwidth: NDArray[np.float64]
    latency: NDArray[np.float64]
    wiring: Wiring


def fabric(
    kind: str,
    switches: tuple[str, ...],
    ports: Ports,
    terms: Terms,
    leaf: Ints,
    cables: tuple[Ints, Ints],
    wiring: Wiring,
) -> Fabric:
    """A fabric whose port p is on switch `leaf[p]`, with cables between pairs of switches."""
    count = len(ports)
    low = np.concatenate([np.arange(count), count + cables[0]]).astype(np.int32)
    high = np.concatenate([count + leaf, count + cables[1]]).astype(np.int32)
    rate = np.concatenate([ports.rate, np.full(len(cables[0]), terms.link)]) * terms.usable
    down = np.full(len(low), terms.hop)
    down[:count] = terms.nic
    return Fabric(
        kind,
        switches,
        np.stack([low, high], axis=1).ravel(),
        np.stack([high, low], axis=1).ravel(),
        np.repeat(rate, 2),
        np.stack([np.full(len(low), terms.hop), down], axis=1).ravel(),
        wiring,
    )
