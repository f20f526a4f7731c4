"""A collective in few rows: what its real schedule sends which way, at the rate it reaches alone.

Simulated by itself, the coarse collective takes exactly as long as the real one, over the same
links with the same bytes. Beside others it shares links as if its bytes were spread evenly over
its time: that, and that nobody leaves it before the last, is the approximation.
"""

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from netsim.program import Program
from netsim.schedule import (
    COMPUTE,
    LOCAL_COPY,
    MARK,
    MULTICAST,
    SWITCH_REDUCE,
    TRANSFER,
    Style,
    Use,
)
from netsim.topology import LINK_KINDS
from netsim.workloads.lower import Coarse

KEPT = ("hbm", "nic_msg", "nvls")  # what other collectives and kernels share with this one
MOST_TARGETS = 8  # of one rank; more are stood for by some of them


@dataclass
class _Way:
    """All bytes of one way, and what they draw on, summed over rows."""

    style: Style
    src: int
    dst: int
    nbytes: float = 0.0
    wire: float = 0.0

    def __post_init__(self) -> None:
        self.uses: dict[tuple[str, str], float] = defaultdict(float)

    def add(self, style: Style, nbytes: float) -> None:
        self.nbytes += nbytes
        self.wire += style.wire * nbytes
        for use in style.uses:
            if use.resource in KEPT:
                self.uses[use.resource, use.end] += use.weight * nbytes

    def join(self, other: "_Way") -> None:
        """Stand for another way as well."""
        self.nbytes += other.nbytes
        self.wire += other.wire
        for use, weight in other.uses.items():
            self.uses[use] += weight


def coarse_of(
    program: Program, seconds: float, launch: float, sms: float, *, scale: float = 1.0
) -> Coarse:
    """The coarse form of a collective that takes `seconds` after its launch, of which `program` is
    a simulation, perhaps with fewer bytes: `scale` times as many are meant.

    `sms` is the part of a GPU's SMs that its channels hold.
    """
    ways = _thinned(_ways(program))
    held = _held(ways, seconds / scale, sms)
    amounts = [max(1, round(way.nbytes * scale)) for way in ways]
    styles = []
    for way, amount in zip(ways, amounts, strict=True):
        uses = [Use(what, end, w / way.nbytes) for (what, end), w in way.uses.items() if w > 0]
        uses += [Use("sms", end, held[rank]) for end, rank in _ends(way) if held[rank] > 0]
        styles.append(
            Style(
                kind=way.style.kind, channel=way.style.channel, route=way.style.route,
                latency=launch, cap=amount / seconds, wire=max(way.wire / way.nbytes, 1e-9),
                uses=tuple(uses),
            )
        )  # fmt: skip
    return Coarse(
        seconds=launch + seconds,
        styles=tuple(styles),
        src=np.array([way.src for way in ways], np.int32),
        dst=np.array([way.dst for way in ways], np.int32),
        amount=np.array(amounts, np.int64),
        groups=program.schedule.groups,
    )


def _ways(program: Program) -> list[_Way]:
    """Rows that move data, by kind, ends and wires; in order of their first row."""
    schedule = program.schedule
    amount = schedule.amount * schedule.style_column("multiplicity").astype(np.float64)
    moving = np.flatnonzero((amount > 0) & ~np.isin(schedule.kind, (MARK, COMPUTE, LOCAL_COPY)))
    path, styles = program.path[moving].astype(np.int64), len(schedule.styles)
    key, first, place = np.unique(
        path * styles + schedule.style[moving], return_index=True, return_inverse=True
    )
    total = np.bincount(place, amount[moving])
    wires = {int(one): _wires(program, int(one)) for one in np.unique(path)}
    found: dict[object, _Way] = {}
    for number in np.argsort(first).tolist():
        row = int(moving[first[number]])  # ranks of one path are the same: its wires are theirs
        style, src, dst = (
            schedule.styles[key[number] % styles], int(schedule.src[row]), int(schedule.dst[row])
        )  # fmt: skip
        name = (style.kind, src, dst, wires[int(key[number] // styles)])
        way = found.setdefault(name, _Way(style, src, dst))
        way.add(style, float(total[number]))
    return list(found.values())


def _wires(program: Program, path: int) -> tuple[int, ...]:
    """The wires of a path."""
    span = slice(int(program.paths.ptr[path]), int(program.paths.ptr[path + 1]))
    links = program.paths.link[span].tolist()
    return tuple(link for link in links if program.links.kind(link) in LINK_KINDS)


def _thinned(ways: list[_Way]) -> list[_Way]:
    """Where a rank sends to very many others, a few of them, evenly chosen, stand for all.

    Those that go over NVLink and those that leave the node stay apart.
    """
    targets: dict[int, list[_Way]] = defaultdict(list)
    kept: list[_Way] = []
    for way in ways:
        (targets[way.src] if way.style.kind == TRANSFER else kept).append(way)
    for mine in targets.values():
        kept += mine if len(mine) <= MOST_TARGETS else _some(mine)
    return kept


def _some(ways: list[_Way]) -> list[_Way]:
    """Some of the ways of one rank, in proportion to how many are alike, with the bytes of all."""
    alike: dict[str, list[_Way]] = defaultdict(list)
    for way in ways:
        alike[way.style.route].append(way)
    kept = []
    for near in alike.values():
        near.sort(key=lambda way: (way.dst < way.src, way.dst))
        # Each rank begins elsewhere, so that what all choose together is spread over all ranks.
        turn = near[0].src % len(near) if near[0].style.route else 0
        mine = near[turn:] + near[:turn]
        few = max(1, MOST_TARGETS * len(mine) // len(ways))
        edges = [k * len(mine) // few for k in range(few + 1)]
        for first, after in pairwise(edges):
            for other in mine[first + 1 : after]:
                mine[first].join(other)
            kept.append(mine[first])
    return kept


def _held(ways: list[_Way], seconds: float, sms: float) -> dict[int, float]:
    """By rank, the work-seconds of its SMs a byte that all its ways together add up to `sms`."""
    total: dict[int, float] = defaultdict(float)
    for way in ways:
        for _, rank in _ends(way):
            total[rank] += way.nbytes
    return {rank: sms * seconds / nbytes for rank, nbytes in total.items()}


def _ends(way: _Way) -> list[tuple[str, int]]:
    """The ranks at the ends of a way; of groups, only the single end."""
    if way.style.kind == MULTICAST:
        return [("src", way.src)]
    if way.style.kind == SWITCH_REDUCE:
        return [("dst", way.dst)]
    return [("src", way.src), ("dst", way.dst)]
