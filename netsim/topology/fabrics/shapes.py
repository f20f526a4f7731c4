"""How many switches a Clos network needs, and which networks cannot be built."""

from collections.abc import Callable
from dataclasses import replace
from math import ceil
from typing import Any

from netsim.topology.fabrics.clos import Shape
from netsim.topology.fabrics.fabric import Fabric
from netsim.topology.layout import TopologyError

FEWEST_SPINES = 4  # as the scalable unit of a DGX SuperPOD has: losing one leaves most
# Ports of one switch: 64 as InfiniBand NDR, more where switch chips of 51.2 and 102.4 Tb/s are
# split into slower ports. Where nobody says which, the smallest that reaches all hosts.
SWITCH_PORTS = (64, 128, 256, 512)
_ROUND = 1e-9


def uplinks_for(down: int, ratio: float, oversubscription: float) -> int:
    """Uplinks of a leaf with `down` ports, each `ratio` times as fast as an uplink."""
    return max(1, ceil(down * ratio / oversubscription - _ROUND))


def widest_leaf(radix: int, ratio: float, oversubscription: float) -> int:
    """The most ports down that leave a leaf enough ports up."""
    down = int(radix / (1 + ratio / oversubscription) + _ROUND) + 1
    while down > 1 and down + uplinks_for(down, ratio, oversubscription) > radix:
        down -= 1
    if down + uplinks_for(down, ratio, oversubscription) > radix:
        raise TopologyError(f"ports: a switch of {radix} ports is too small for any leaf")
    return down


def clos_shape(
    leaves: int, down: int, uplinks: int, radix: int, spines: int | None = None, *, unit: int = 0
) -> Shape:
    """Two levels where the spines have enough ports, else three with pods of whole `unit`s of
    leaves (0: three levels are not offered).
    """
    if leaves == 1:
        _fits("a leaf", down, 0, radix)
        return Shape(1, 1, 0, 0)
    _fits("a leaf", down, uplinks, radix)
    if spines is not None:
        if uplinks % spines:
            raise TopologyError(f"spines: {uplinks} uplinks a leaf do not spread over {spines}")
        _fits("a spine", leaves * uplinks // spines, 0, radix)
        return Shape(leaves, leaves, spines, uplinks)
    for count in range(min(uplinks, FEWEST_SPINES), uplinks + 1):
        if _spreads(uplinks, count, leaves, radix):
            return Shape(leaves, leaves, count, uplinks)
    if not unit:
        raise TopologyError(
            f"ports: {leaves} leaves need spines of {leaves} ports, but a switch has {radix}; take "
            "larger switches, more nodes a leaf, or a fabric of three levels"
        )
    return _three_levels(leaves, uplinks, radix, unit)


def _three_levels(leaves: int, uplinks: int, radix: int, unit: int) -> Shape:
    pod_leaves = radix // 2 // unit * unit or radix // 2
    pods = ceil(leaves / pod_leaves)
    _fits("a spine", pod_leaves, pod_leaves, radix)
    if pods > radix:
        raise TopologyError(
            f"ports: {leaves} leaves in {pods} pods need cores of {pods} ports, but a switch has "
            f"{radix}; three levels reach no further"
        )
    cores = next(n for n in range(1, pod_leaves + 1) if _spreads(pod_leaves, n, pods, radix))
    return Shape(leaves, pod_leaves, uplinks, uplinks, pod_leaves, cores)


def _spreads(links: int, switches: int, below: int, radix: int) -> bool:
    """Whether so many links from each of those below spread evenly over switches with the ports."""
    return links % switches == 0 and below * (links // switches) <= radix


def _fits(switch: str, down: int, up: int, radix: int) -> None:
    if down + up > radix:
        raise TopologyError(
            f"ports: {switch} with {down} ports down and {up} up needs {down + up}, but a switch "
            f"has {radix}"
        )


def of_usual_switches(build: Callable[..., Fabric], given: dict[str, Any]) -> Fabric:
    """A fabric of the smallest switches that reach all hosts, and what is to be told of it."""
    refused: list[TopologyError] = []
    for radix in SWITCH_PORTS:
        try:
            made = build(**{**given, "radix": radix})
        except TopologyError as error:
            if not error.message.startswith("ports: "):
                raise
            refused.append(error)
            continue
        if not refused:
            return made
        note = f"assumed: switches of {radix} ports, for those of {SWITCH_PORTS[0]} do not reach "
        return replace(made, note=f"{note}all hosts (cluster.fabric.ports names others)")
    raise refused[0]
