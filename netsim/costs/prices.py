"""Prices and watts of parts, read from a small file; every figure with its source."""

from functools import lru_cache
from pathlib import Path

from pydantic import Field

from netsim.errors import InputError
from netsim.units import UnitError, parse_bandwidth
from netsim.yamlio.model import Model
from netsim.yamlio.source import read_source
from netsim.yamlio.validate import validate

DEFAULT = "default"
SHIPPED = Path(__file__).with_name("prices.yaml")
OTHER = "other"


class Part(Model):
    """One part: its price and what it draws, and who says so."""

    usd: float | int = Field(ge=0)
    watts: float | int = Field(ge=0)
    source: str


class Prices(Model):
    """All parts; those of ports by their rate, GPUs by the first word of their model."""

    gpu: dict[str, Part]
    nic: dict[str, Part]
    switch_port: dict[str, Part]
    optic: dict[str, Part]
    cable: dict[str, Part]

    def of_gpu(self, model: str) -> Part:
        """A GPU by its model."""
        found = self.gpu.get(model.partition(" ")[0]) or self.gpu.get(OTHER)
        if found is None:
            raise InputError(f"prices: no GPU {model.partition(' ')[0]!r}, and no 'other'")
        return found

    def of_port(self, kind: str, rate: float) -> Part:
        """The cheapest part of a kind that carries a rate (bytes/s); of the fastest, in parts."""
        table: dict[str, Part] = getattr(self, kind)
        known = sorted(((parse_bandwidth(text), part) for text, part in table.items()), key=_speed)
        for speed, part in known:
            if rate <= speed * (1 + 1e-9):
                return part
        speed, part = known[-1]
        return Part(usd=part.usd * rate / speed, watts=part.watts * rate / speed,
                    source=part.source)  # fmt: skip


def _speed(entry: tuple[float, Part]) -> float:
    return entry[0]


def load_prices(name: str = DEFAULT) -> Prices:
    """The prices of a file, or those that come with netsim."""
    path = SHIPPED if name == DEFAULT else Path(name)
    stamp = path.stat().st_mtime_ns if path.exists() else 0
    return _read(path, stamp)


@lru_cache(maxsize=8)
def _read(path: Path, stamp: int) -> Prices:
    del stamp
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
