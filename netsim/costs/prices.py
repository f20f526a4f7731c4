"""Prices and watts of parts, every figure with its source; and the bill of a cluster."""

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
SHIPPED = Path(__file__).with_name("prices.yaml")
OTHER = "other"
HOURS_A_YEAR = 8760


class Part(Model):
    """One part: its price and what it draws, and who says so."""

    usd: float | int = Field(ge=0)
    watts: float | int = Field(ge=0)
    source: str


class Prices(Model):
    """All parts; those of ports by their rate, GPUs by the first word of their model.

    What an hour costs follows from both: parts are written off evenly over `lifetime_years`, and
    what they draw costs `usd_per_kwh`.
    """

    gpu: dict[str, Part]
    nic: dict[str, Part]
    switch_port: dict[str, Part]
    optic: dict[str, Part]
    cable: dict[str, Part]
    lifetime_years: float | int = Field(default=4, gt=0)
    usd_per_kwh: float | int = Field(default=0.1, ge=0)

    def per_hour(self, cost_usd: float, power_w: float) -> float:
        """US dollars an hour of parts that cost and draw so much."""
        return cost_usd / (self.lifetime_years * HOURS_A_YEAR) + power_w / 1000 * self.usd_per_kwh

    def of_gpu(self, model: str) -> Part:
        """A GPU by its model."""
        price = self.gpu.get(model.partition(" ")[0]) or self.gpu.get(OTHER)
        if price is None:
            raise InputError(f"prices: no GPU {model.partition(' ')[0]!r}, and no 'other'")
        return price

    def of_port(self, kind: str, rate: float) -> Part:
        """The cheapest part of a kind that carries a rate (bytes/s); of the fastest, in parts."""
        table: dict[str, Part] = getattr(self, kind)
        rates = sorted(
            ((parse_bandwidth(text), part) for text, part in table.items()), key=itemgetter(0)
        )
        for speed, part in rates:
            if rate <= speed * (1 + 1e-9):
                return part
        speed, part = rates[-1]
        return Part(
            usd=part.usd * rate / speed, watts=part.watts * rate / speed, source=part.source
        )


def load_prices(name: str = DEFAULT) -> Prices:
    """The prices of a file, or those that come with netsim."""
    path = SHIPPED if name == DEFAULT else Path(name)
    return _read(path, path.stat().st_mtime_ns if path.exists() else 0)


@lru_cache(maxsize=8)
def _read(path: Path, stamp: int) -> Prices:
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


Lot = tuple[Part, float]


@dataclass(frozen=True)
class Bill:
    """Numbers of parts, what they cost and draw together, and what an hour of them costs."""

    switches: int
    cables: int
    nics: int
    gpus: int
    cost_usd: float
    power_w: float
    usd_per_hour: float


def bill_of(cluster: Cluster, gpu_models: Sequence[str], prices: Prices) -> Bill:
    """Price what a cluster has: every cable joins two ports, with a transceiver at either end.
    `gpu_models` names the model of every GPU. Links inside a host belong to the host; the NICs of a
    host that is alone have no cable and count for nothing."""
    fabric, nics = cluster.fabric, len(cluster.ports) if cluster.fabric else 0
    lots = [(prices.of_gpu(model), float(n)) for model, n in Counter(gpu_models).items()]
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
    """NICs by what all their ports carry together; cables by the line rate of one of them."""
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
    yield prices.cable["any"], float(count)
    yield prices.of_port("optic", rate), 2.0 * count
    yield prices.of_port("switch_port", rate), float(switch_ports * count)
