"""Figures of a `calibration` section: a value by dotted name, its unit by the name, its stamp."""

from collections.abc import Mapping
from typing import Any, Literal

from netsim.units import parse_bandwidth, parse_ratio, parse_time
from netsim.yamlio.model import Model

Stamp = Literal["measured", "calibrated", "vendor", "transferred", "assumed"]
MACHINE = ("scale_up.link_bandwidth", "cpu.memory_bandwidth")
USABLE = "transport.usable"
TRANSPORT = (USABLE, "transport.latency", "transport.nic_cap")
BOTH_WAYS = "pcie.both_ways"
RATIOS = (USABLE, "nvls_efficiency", BOTH_WAYS, "host_memory.ll", "host_memory.simple")
RATES = (*MACHINE, "transport.nic_cap")

Kind = Literal["time", "rate", "ratio"]


class Figure(Model):
    """A value with its unit, where it is from, and between what it probably lies."""

    value: str | float
    stamp: Stamp = "calibrated"
    low: str | float | None = None
    high: str | float | None = None


def kind_of(name: str) -> Kind:
    """What a figure of this name is measured in."""
    if name in RATIOS:
        return "ratio"
    rates = name in RATES or name.startswith("rate.") or name.endswith("_rate")
    return "rate" if rates else "time"


def value_of(name: str, figure: Figure) -> float:
    """The value of a figure in SI units."""
    read: Mapping[Kind, Any] = {"time": parse_time, "rate": parse_bandwidth, "ratio": parse_ratio}
    return float(read[kind_of(name)](figure.value))


def written(name: str, value: float) -> str:
    """A value as a topology file has it."""
    kind = kind_of(name)
    if kind == "time":
        return f"{value * 1e6:.4g}us"
    return f"{value / 1e9:.5g}GB/s" if kind == "rate" else f"{value:.4g}"
