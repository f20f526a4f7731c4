"""Prices and power of parts, each with its source, and the bill of a cluster."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from operator import itemgetter
from pathlib import Path

import numpy as np
from pydantic import Field

from netsim.base.errors import InputError
from netsim.base.units import UnitError, parse_bandwidth
from netsim.base.values import dataclass
from netsim.topology.cluster import Cluster
from netsim.yamlio.models import Model
from netsim.yamlio.read import read_source
from netsim.yamlio.validate import validate

DEFAULT = "default"
SHIPPED = Path(__file__).with_name("prices.yaml")  # the prices that come with netsim
OTHER = "other"  # the GPU whose price holds for models that have none
HOURS_A_YEAR = 8760


class PricedPart(Model):
    """The price of one part in US dollars, its power in watts, and the source of both."""

    usd: float | int = Field(ge=0)
    watts: float | int = Field(ge=0)
    source: str


class Prices(Model):
    """The prices of all parts: of ports, NICs and transceivers by rate, of GPUs by the first word
    of their model.

    An hour costs the price of the parts divided evenly over `lifetime_years`, and their energy at
    `usd_per_kwh`.
    """

    gpu: dict[str, PricedPart]
    nic: dict[str, PricedPart]
    switch_port: dict[str, PricedPart]
    optic: dict[str, PricedPart]
    cable: dict[str, PricedPart]
    lifetime_years: float | int = Field(default=4, gt=0)
    usd_per_kwh: float | int = Field(default=0.1, ge=0)

    def per_hour(self, cost_usd: float, power_w: float) -> float:
        """The US dollars per hour of parts that cost `cost_usd` and draw `power_w` watts."""
        return cost_usd / (self.lifetime_years * HOURS_A_YEAR) + power_w / 1000 * self.usd_per_kwh

    def of_gpu(self, model: str) -> PricedPart:
        """The price of a GPU by its model; if the model has none, that of `other` GPUs."""
        price = self.gpu.get(model.partition(" ")[0]) or self.gpu.get(OTHER)
        if price is None:
            raise InputError(f"prices: no GPU {model.partition(' ')[0]!r}, and no 'other'")
        return price

    def of_port(self, kind: str, rate: float) -> PricedPart:
        """The price of the slowest part of a kind (nic, switch_port, optic) that carries `rate`
        bytes/s.

        If no part is fast enough, that of the fastest part, scaled in proportion to the rate.
        """
        table: dict[str, PricedPart] = getattr(self, kind)
        rates = sorted(
            ((parse_bandwidth(text), part) for text, part in table.items()), key=itemgetter(0)
        )
        for speed, part in rates:
            if rate <= speed * (1 + 1e-9):
                return part
        speed, part = rates[-1]
        return PricedPart(
            usd=part.usd * rate / speed, watts=part.watts * rate / speed, source=part.source
        )


def load_prices(name: str = DEFAULT) -> Prices:
    """The prices in the file `name`, or by default those that come with netsim."""
    path = SHIPPED if name == DEFAULT else Path(name)
    return _read(path, path.stat().st_mtime_ns if path.exists() else 0)


@lru_cache(maxsize=8)
def _read(path: Path, stamp: int) -> Prices:
    """The prices in a file. `stamp` is the file's time of change, part of the cache's key, so that
    a changed file is read again.
    """
    source = read_source(path)
    prices = validate(Prices, source)
    for kind in ("nic", "switch_port", "optic"):
        for text in getattr(prices, kind):
            try:
                parse_bandwidth(text)
            except UnitError as error:
                raise source.error((kind, text), str(error), key=True) from None
        if not getattr(prices, kind):
            raise source.error((kind,), "expected at least one rate such as 400Gbps")
    if "any" not in prices.cable:
        raise source.error(("cable",), "expected any: {usd, watts, source}")
    return prices


Lot = tuple[PricedPart, float]  # a part and the number of such parts


@dataclass(frozen=True)
class Bill:
    """The bill of a cluster: numbers of parts, their price in US dollars and power in watts, and
    the cost of an hour.
    """

    switches: int
    cables: int
    nics: int
    gpus: int
    cost_usd: float
    power_w: float
    usd_per_hour: float


def bill_of(cluster: Cluster, gpu_models: Sequence[str], prices: Prices) -> Bill:
    """The bill of a cluster; `gpu_models` has the model of every GPU.

    Every cable joins two ports and has a transceiver at both ends. Links inside a host are included
    in the host. NICs without a fabric have no cable and are not counted.
    """
    fabric = cluster.fabric
    nics = len(cluster.ports) if fabric else 0
    lots = [(prices.of_gpu(model), float(count)) for model, count in Counter(gpu_models).items()]
    lots += _network(cluster, prices)
    cost_usd = sum(part.usd * times for part, times in lots)
    power_w = sum(part.watts * times for part, times in lots)
    return Bill(
        switches=len(fabric.switches) if fabric else 0,
        cables=len(fabric.tail) // 2 if fabric else 0,
        nics=nics,
        gpus=len(cluster.topology),
        cost_usd=cost_usd,
        power_w=power_w,
        usd_per_hour=prices.per_hour(cost_usd, power_w),
    )


def _network(cluster: Cluster, prices: Prices) -> Iterator[Lot]:
    """Yield (priced part, number of such parts) of the network: NICs, by the rate of all their
    ports together; then cables with their transceivers and switch ports, by the line rate of one
    port.
    """
    fabric = cluster.fabric
    if fabric is None:
        return
    nics = cluster.ports.rate.tolist()
    for rate, count in Counter(nics).items():
        yield prices.of_port("nic", rate), float(count)
    access = np.minimum(fabric.tail, fabric.head)[::2] < fabric.ports
    planes = int(access.sum()) // max(1, len(nics))
    for rate, count in Counter(nics).items():
        yield from _cables(rate / planes, planes * count, 1, prices)
    usable = cluster.transport.usable if cluster.transport else 1.0
    for rate, count in Counter(fabric.bandwidth[::2][~access].tolist()).items():
        yield from _cables(rate / usable, count, 2, prices)


def _cables(rate: float, count: int, switch_ports: int, prices: Prices) -> Iterator[Lot]:
    """Yield (priced part, number of such parts) for `count` cables of a line rate in bytes/s: their
    transceivers, one at each end, and `switch_ports` switch ports for each cable.
    """
    yield prices.cable["any"], float(count)
    yield prices.of_port("optic", rate), 2.0 * count
    yield prices.of_port("switch_port", rate), float(switch_ports * count)
