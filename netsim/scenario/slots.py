"""NICs that a scenario asks for and that their PCIe slots cannot feed."""

from collections.abc import Iterator

from netsim.scenario.cells import Cell
from netsim.units import format_bandwidth

_SLOWER = 0.9  # part of a NIC's rate from which a slot counts as enough


def slow_slots(cell: Cell) -> Iterator[str]:
    """What of a NIC rate that was asked for cannot be used, machine by machine."""
    cluster = cell.scenario.cluster
    asked = getattr(cluster.network, "nic", None)
    for group in cluster.members:
        loaded, rate = group.loaded, group.nic or asked
        nics = loaded.machine.nics
        if nics is None or not rate:
            continue
        slots = [loaded.machine.link_of(nics, number).usable for number in range(nics.count)]
        if min(slots) < _SLOWER * rate:
            yield (
                f"note: NICs of {rate * 8e-9:.4g}Gbps are faster than their PCIe slots in "
                f"{loaded.name}, which carry {format_bandwidth(min(slots))} of "
                f"{format_bandwidth(rate)}"
            )
