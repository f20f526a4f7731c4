"""The oracle files of tests/data/nccl, and what the 27 systems behind them are."""

import csv
from functools import lru_cache
from pathlib import Path

DATA = Path(__file__).parents[1] / "data" / "nccl"
NODES = (1, 2, 4, 8, 16)

# Per system: GPUs a node, compute capability, CPU vendor.
SYSTEMS = {
    "a100_1nic": (8, 80, "AMD"),
    "a100_1nic100": (8, 80, "AMD"),
    "a100_2nic": (8, 80, "AMD"),
    "a100_4nic": (8, 80, "AMD"),
    "a100_4nic100": (8, 80, "AMD"),
    "a100_8nic": (8, 80, "AMD"),
    "a100_tcp": (8, 80, "AMD"),
    "a100x4": (4, 80, "AMD"),
    "a100x4_1nic": (4, 80, "AMD"),
    "a10pcie4_intel": (4, 86, "Intel"),
    "a10pcie8_amd": (8, 86, "AMD"),
    "b200_8nic": (8, 100, "Intel"),
    "b200_8nic800": (8, 100, "Intel"),
    "dgx1v_1nic": (8, 70, "Intel"),
    "dgx1v_4nic": (8, 70, "Intel"),
    "dgx2_8nic": (16, 70, "Intel"),
    "dgxa100": (8, 80, "AMD"),
    "h100_1nic": (8, 90, "Intel"),
    "h100_2nic": (8, 90, "Intel"),
    "h100_4nic": (8, 90, "Intel"),
    "h100_8nic": (8, 90, "Intel"),
    "h100_8nic200": (8, 90, "Intel"),
    "h100x4": (4, 90, "Intel"),
    "l40s8sw": (8, 89, "AMD"),
    "v100pcie4": (4, 70, "Intel"),
    "v100pcie4sw": (4, 70, "Intel"),
}


@lru_cache
def rows(name: str) -> tuple[dict[str, str], ...]:
    """All rows of one oracle file."""
    with (DATA / name).open(newline="") as file:
        return tuple(csv.DictReader(file))


def rows_of(name: str, config: str, nodes: int) -> list[dict[str, str]]:
    """The rows of one system at one node count."""
    return [row for row in rows(name) if (row["config"], row["nodes"]) == (config, str(nodes))]
