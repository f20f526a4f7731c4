"""Colours, widths and names of what a drawing of a topology is made of."""

from matplotlib import colormaps
from matplotlib.colors import LinearSegmentedColormap

from netsim.plots.style import AMBER, BLUE, GREEN, GREY, ORANGE, PINK, SKY, tint

# Kind of box: colour, and how strongly it is filled.
BOXES = {
    "gpu": (GREEN, 0.30),
    "nvswitch": (GREEN, 0.16),
    "pcie": (BLUE, 0.16),
    "cpu": (AMBER, 0.30),
    "memory": (AMBER, 0.14),
    "nic": (SKY, 0.35),
    "switch": (GREY, 0.18),
    "host": (GREY, 0.05),
}
# Kind of link: colour and name.
LINKS = {
    "nvlink": (GREEN, "NVLink"),
    "xgmi": (PINK, "xGMI"),
    "c2c": (ORANGE, "C2C"),
    "pcie": (BLUE, "PCIe"),
    "upi": (AMBER, "between CPUs"),
    "hostmem": ("#8a6d00", "host memory"),
    "nic": ("#2b7fb0", "NIC cable"),
    "fabric": (GREY, "link"),
}
UNUSED = "#c9c9c9"
_HEAT = colormaps["YlOrRd"]
HEAT = LinearSegmentedColormap.from_list("use", [_HEAT(0.22 + 0.78 * x / 16) for x in range(17)])


def width_of(bandwidth: float) -> float:
    """The width of a line in points: by the root of its bandwidth, within bounds."""
    gigabytes = min(bandwidth, 1e15) / 1e9
    return float(min(6.5, max(0.6, 0.25 * gigabytes**0.5)))


def fill_of(kind: str) -> tuple[float, float, float]:
    """The inside of a box."""
    return tint(*BOXES[kind])
