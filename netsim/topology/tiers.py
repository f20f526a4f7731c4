"""The tiers of a fabric: how many switches, and what each has below, beside and above it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from netsim.topology.fabrics.fabric import Fabric


@dataclass(frozen=True, slots=True)
class Side:
    """Ports of the fullest switch of a tier towards one side, and what they carry together."""

    ports: int
    bandwidth: float


@dataclass(frozen=True, slots=True)
class Tier:
    """Switches of one level. `ratio` is the most that any has below, over what it has above."""

    name: str
    switches: int
    down: Side
    across: Side
    up: Side
    ratio: float

    @property
    def ports(self) -> int:
        """Ports in use of the fullest switch."""
        return self.down.ports + self.across.ports + self.up.ports


def tiers_of(fabric: Fabric) -> tuple[Tier, ...]:
    """The tiers from the NICs up; those without switches are left out."""
    firsts = np.array([first for _, first in fabric.tiers])
    level = np.searchsorted(firsts, np.arange(len(fabric.switches)), side="right")
    rank = np.concatenate([np.zeros(fabric.ports, np.int64), level])  # NICs 0, leaves 1, ...
    counts, carried = [], []
    steps = np.sign(rank[fabric.head] - rank[fabric.tail])
    for step in (-1, 0, 1):
        mine = steps == step
        tail, size = fabric.tail[mine], len(rank)
        counts.append(np.bincount(tail, minlength=size)[fabric.ports :])
        carried.append(np.bincount(tail, fabric.bandwidth[mine], size)[fabric.ports :])
    found = []
    for number, (name, _) in enumerate(fabric.tiers, 1):
        mine = level == number
        if mine.any():
            down, across, up = (
                _side(c[mine], b[mine]) for c, b in zip(counts, carried, strict=True)
            )
            ratio = _ratio(carried[0][mine], carried[2][mine])
            found.append(Tier(name, int(mine.sum()), down, across, up, ratio))
    return tuple(found)


def _side(counts: NDArray[np.int64], carried: NDArray[np.float64]) -> Side:
    fullest = int(counts.argmax())
    return Side(int(counts[fullest]), float(carried[fullest]))


def _ratio(down: NDArray[np.float64], up: NDArray[np.float64]) -> float:
    """0 where nothing is above."""
    some = up > 0
    return float((down[some] / up[some]).max()) if some.any() else 0.0
