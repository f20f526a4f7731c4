"""The bill of a cluster: its parts are counted from its fabric, then priced at their line rates."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from netsim.costs.prices import Part, Prices
from netsim.topology.cluster import Cluster

Lot = tuple[Part, float]


@dataclass(frozen=True)
class Bill:
    """Numbers of parts, and what they cost and draw together."""

    switches: int
    cables: int
    nics: int
    gpus: int
    cost_usd: float
    power_w: float


def bill_of(cluster: Cluster, gpu_models: Sequence[str], prices: Prices) -> Bill:
    """Price what a cluster has: every cable joins two ports, with a transceiver at either end.

    `gpu_models` names the model of every GPU. Links inside a host belong to the host; the NICs of a
    host that is alone have no cable and count for nothing.
    """
    fabric, nics = cluster.fabric, len(cluster.ports) if cluster.fabric else 0
    lots = [(prices.of_gpu(model), float(n)) for model, n in Counter(gpu_models).items()]
    lots += _network(cluster, prices)
    return Bill(
        switches=len(fabric.switches) if fabric else 0,
        cables=len(fabric.tail) // 2 if fabric else 0,
        nics=nics,
        gpus=len(cluster.topology),
        cost_usd=sum(part.usd * times for part, times in lots),
        power_w=sum(part.watts * times for part, times in lots),
    )


def _network(cluster: Cluster, prices: Prices) -> Iterator[Lot]:
    """NICs by what all their ports carry together; cables by the line rate of one of them."""
    fabric = cluster.fabric
    if fabric is None:
        return
    nics = cluster.ports.rate.tolist()
    for rate, count in Counter(nics).items():
        yield prices.of_port("nic", rate), float(count)
    planes = fabric.access // 2 // max(1, len(nics))
    for rate, count in Counter(nics).items():
        yield from _cables(rate / planes, planes * count, 1, prices)
    usable = cluster.transport.usable if cluster.transport else 1.0
    for rate, count in Counter(fabric.bandwidth[fabric.access :: 2].tolist()).items():
        yield from _cables(rate / usable, count, 2, prices)


def _cables(rate: float, count: int, switch_ports: int, prices: Prices) -> Iterator[Lot]:
    yield prices.cable["any"], float(count)
    yield prices.of_port("optic", rate), 2.0 * count
    yield prices.of_port("switch_port", rate), float(switch_ports * count)
