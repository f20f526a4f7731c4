"""Links between boxes: all that run between the same two become one line."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from netsim.plots.topology.values import Box, Line
from netsim.topology.graph import Topology
from netsim.topology.layout import LINK_KINDS


def lines_between(
    topology: Topology, of: Mapping[str, int], used: NDArray[np.float64] | None
) -> list[Line]:
    """The lines between boxes, given the box of each node that is drawn."""
    box = np.array([of.get(str(name), -1) for name in topology.nodes])
    links = topology.links
    a, b = box[links.tail], box[links.head]
    shown = np.flatnonzero((a >= 0) & (b >= 0) & (a != b))
    low, high = np.minimum(a, b)[shown], np.maximum(a, b)[shown]
    forward = (a < b)[shown]
    _, first, group = np.unique(low * (len(of) + 1) + high, True, True)
    size, rate, kinds = len(first), links.bandwidth[shown], links.kind[shown]
    total = [np.bincount(group, np.where(way, rate, 0.0), size) for way in (forward, ~forward)]
    count = [np.bincount(group, way, size) for way in (forward, ~forward)]
    largest, busiest = np.zeros(size), np.full(size, np.nan)
    np.maximum.at(largest, group, rate)
    if used is not None:
        np.fmax.at(busiest, group, used[shown])
    return [
        Line(
            int(low[i]),
            int(high[i]),
            LINK_KINDS[kinds[i]],
            float(largest[n]),
            float(max(total[0][n], total[1][n])),
            int(max(count[0][n], count[1][n])),
            float(busiest[n]),
        )
        for n, i in enumerate(first.tolist())
    ]


def bent(lines: list[Line], boxes: list[Box]) -> list[Line]:
    """Lines between boxes of one row swing out below GPUs and above others, unless neighbours."""
    return [replace(line, bend=_bend(line, boxes)) for line in lines]


def _bend(line: Line, boxes: list[Box]) -> float:
    one, other = boxes[line.tail], boxes[line.head]
    if abs(one.y - other.y) > 1e-6:
        return 0.0
    low, high = sorted((one.x, other.x))
    between = any(low < box.x < high and abs(box.y - one.y) < 1e-6 for box in boxes)
    if not between and one.kind != "gpu":
        return 0.0
    depth = float(0.3 + 0.28 * (high - low) ** 0.85)
    return -depth if one.kind == "gpu" else min(depth, 1.6)
