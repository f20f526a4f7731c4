"""A machine back to the YAML that reads as the same machine."""

from typing import Any

import yaml

from netsim.topology.machine import Machine

_BANDWIDTHS = ("memory_bandwidth", "link_bandwidth", "bandwidth", "link", "rate", "rate_each")
_SIZES = ("memory",)


def machine_yaml(machine: Machine) -> str:
    """The text of a machine file."""
    plain = with_units(machine.model_dump(mode="python", exclude_defaults=True), "")
    return yaml.safe_dump(plain, sort_keys=False, default_flow_style=None, width=100)


def with_units(value: Any, key: str, parent: str = "") -> Any:
    """Quantities with units again, tuples as lists; `parent` is the last part that they are in."""
    if isinstance(value, dict):
        return {name: with_units(one, name, key) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [with_units(one, key, parent) for one in value]
    if parent == "latencies":
        return f"{value * 1e9:.12g}ns"
    if parent == "flops":
        return f"{value / 1e12:.15g}TFLOPS"
    if key in _BANDWIDTHS and isinstance(value, float):
        return f"{value / 1e9:.15g}GB/s"
    return f"{value}B" if key in _SIZES and isinstance(value, int) else value
