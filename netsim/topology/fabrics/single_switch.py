"""One switch that joins all NICs and never blocks."""

from dataclasses import dataclass

import numpy as np

from netsim.topology.fabrics.fabric import Fabric, Ints, Ports, Terms, fabric


@dataclass(frozen=True, slots=True)
class _Wiring:
    """Every port reaches every other through the one switch."""

    def choices(self, src: Ints, dst: Ints) -> Ints:
        return np.ones(len(src), np.int32)

    def hops(self, src: Ints, dst: Ints, choice: Ints) -> Ints:
        return np.zeros((len(src), 0), np.int32)


def single_switch(ports: Ports, terms: Terms) -> Fabric:
    """All ports on `switch0`."""
    none = np.zeros(0, np.int32)
    leaf = np.zeros(len(ports), np.int32)
    return fabric("single-switch", ("switch0",), ports, terms, leaf, (none, none), _Wiring())
