"""One switch that joins all NICs and never blocks."""

import numpy as np

from netsim.topology.fabrics.fabric import Cables, Fabric, Ints, Ports, Terms, columns, fabric
from netsim.values import dataclass


@dataclass(frozen=True, slots=True)
class OneSwitch:
    """Every port reaches every other through the one switch."""

    def choices(self, src: Ints, dst: Ints) -> Ints:
        """One path."""
        return np.ones(len(src), np.int32)

    def hops(self, src: Ints, dst: Ints, choice: Ints) -> Ints:
        """Up and down."""
        return columns(2 * src, 2 * dst + 1)

    def order(self, dst: Ints) -> Ints:
        """By destination port."""
        return dst


def single_switch(ports: Ports, terms: Terms) -> Fabric:
    """All ports on `switch0`."""
    none = np.zeros(0, np.int32)
    leaf = np.zeros(len(ports), np.int32)
    tiers = (("switch", ("switch0",)),)
    return fabric("single-switch", tiers, ports, terms, leaf, Cables(none, none), OneSwitch())
