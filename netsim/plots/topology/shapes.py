"""A drawing of a topology as values: boxes in rows, lines between them, frames and captions.

Lengths are in units of which a GPU takes one; y grows upwards. How it looks is not known here."""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from netsim.base.values import dataclass
from netsim.topology.cluster import Cluster
from netsim.topology.graph import LINK_KINDS, Topology
from netsim.topology.network import Fabric

GAP, WIDE_GAP = 1.35, 2.3  # between the rows of a host, and of a fabric


@dataclass(frozen=True, slots=True)
class Box:
    """A node, or several that are drawn as one, by centre and extent."""

    kind: str
    x: float
    y: float
    width: float
    label: str
    height: float = 0.52
    dead: bool = False  # a fault took it out of the cluster

    @property
    def left(self) -> float:
        """Its left edge."""
        return self.x - self.width / 2

    @property
    def right(self) -> float:
        """Its right edge."""
        return self.x + self.width / 2


@dataclass(frozen=True, slots=True)
class Stroke:
    """Links between two boxes, by their numbers: `count` of them, bytes/s of one (`rate`) and of
    all in one direction, the utilisation of the busiest (0…1; NaN: unknown). `bend`: how far the
    line swings out, upwards if positive; `free`: it runs from centre to centre. `dead_fraction`: of
    the links in both directions, those without any bandwidth (0…1)."""

    tail: int
    head: int
    kind: str
    rate: float
    bandwidth: float
    count: int = 1
    used: float = float("nan")
    bend: float = 0.0
    free: bool = False
    dead_fraction: float = 0.0

    @property
    def is_dead(self) -> bool:
        """Whether nothing moves over it."""
        return self.dead_fraction == 1.0


@dataclass(frozen=True, slots=True)
class Caption:
    """A text at a place; `align` is left, center or right."""

    x: float
    y: float
    text: str
    align: str = "center"
    strong: bool = False


@dataclass(frozen=True, slots=True)
class Frame:
    """What belongs together, with a name."""

    left: float
    bottom: float
    right: float
    top: float
    label: str


@dataclass(frozen=True)
class Picture:
    """All that is drawn; captions of rows stand to the left of everything. `usable`: the part of
    a cable's line rate that its links have."""

    title: str
    subtitle: str = ""
    boxes: tuple[Box, ...] = ()
    lines: tuple[Stroke, ...] = ()
    captions: tuple[Caption, ...] = ()
    frames: tuple[Frame, ...] = ()
    rows: tuple[tuple[float, str], ...] = ()
    usable: float = 1.0

    def below(self, upper: "Picture") -> "Picture":
        """Both, `other` moved as a whole to stand below this one, in the middle."""
        drop = self.bottom - 0.9 - upper.top
        middle = (self.left + self.right - upper.left - upper.right) / 2
        moved = upper.moved(middle, drop)
        first = len(self.boxes)
        lines = (replace(one, tail=one.tail + first, head=one.head + first) for one in moved.lines)
        return replace(
            self,
            boxes=self.boxes + moved.boxes,
            lines=(*self.lines, *lines),
            captions=self.captions + moved.captions,
            frames=self.frames + moved.frames,
            rows=self.rows + moved.rows,
        )

    def moved(self, right: float, up: float) -> "Picture":
        """The same elsewhere."""
        return replace(
            self,
            boxes=tuple(replace(one, x=one.x + right, y=one.y + up) for one in self.boxes),
            captions=tuple(replace(one, x=one.x + right, y=one.y + up) for one in self.captions),
            frames=tuple(
                Frame(f.left + right, f.bottom + up, f.right + right, f.top + up, f.label)
                for f in self.frames
            ),
            rows=tuple((y + up, text) for y, text in self.rows),
        )

    @property
    def left(self) -> float:
        """Where it begins."""
        return min([one.left for one in self.boxes] + [f.left for f in self.frames])

    @property
    def right(self) -> float:
        """Where it ends, with the lines that swing out."""
        loops = [self.boxes[one.tail].x + 2 * one.bend for one in self.lines if one.free]
        return max([one.right for one in self.boxes] + [f.right for f in self.frames] + loops)

    @property
    def bottom(self) -> float:
        """Its lower edge, with the lines that swing out."""
        edges = [one.y - one.height / 2 for one in self.boxes] + [f.bottom for f in self.frames]
        ends = [min(self.boxes[one.tail].y, self.boxes[one.head].y) for one in self.lines]
        bent = [y + min(0.0, one.bend) - 0.45 for y, one in zip(ends, self.lines, strict=True)]
        return min(edges + bent)

    @property
    def top(self) -> float:
        """Its upper edge."""
        edges = [one.y + one.height / 2 for one in self.boxes] + [f.top + 0.3 for f in self.frames]
        ends = [max(self.boxes[one.tail].y, self.boxes[one.head].y) for one in self.lines]
        bent = [y + max(0.0, one.bend) + 0.35 for y, one in zip(ends, self.lines, strict=True)]
        return max(edges + bent)


def around(frame: Frame, boxes: list[Box], lines: list[Stroke]) -> Frame:
    """The frame, wide enough for lines that swing out below its boxes."""
    bottom = frame.bottom
    for line in lines:
        box = boxes[line.tail]
        if line.bend < 0 and frame.left <= box.x <= frame.right:
            bottom = min(bottom, box.y - box.height / 2 + line.bend - 0.2)
    return replace(frame, bottom=bottom)


@dataclass
class Sheet:
    """A picture in the making; `of` maps a node of the topology to the number of its box."""

    boxes: list[Box] = field(default_factory=list)
    captions: list[Caption] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    rows: list[tuple[float, str]] = field(default_factory=list)
    of: dict[str, int] = field(default_factory=dict)

    def add(self, box: Box, *nodes: str) -> int:
        """Draw a box that represents these nodes; returns its number."""
        self.boxes.append(box)
        self.of.update(dict.fromkeys(nodes, len(self.boxes) - 1))
        return len(self.boxes) - 1

    def picture(
        self, title: str, subtitle: str, lines: list[Stroke], usable: float = 1.0
    ) -> Picture:
        """All of it with lines, for which frames have room."""
        frames = tuple(around(frame, self.boxes, lines) for frame in self.frames)
        parts = tuple(self.boxes), tuple(lines), tuple(self.captions), frames, tuple(self.rows)
        return Picture(title, subtitle, *parts, usable)


T = TypeVar("T")

MOST_SINGLE = 20  # hosts up to which each has a box of its own
MOST_GROUPS, MOST_LEAVES = 16, 16


@dataclass(frozen=True, slots=True)
class Group:
    """Hosts from `first` to `last`; the class of all, their NVLink domain, and their switches."""

    first: int
    last: int
    kind: int
    domain: int
    switches: frozenset[int]

    @property
    def count(self) -> int:
        """The number of hosts."""
        return self.last - self.first + 1


def host_groups(cluster: Cluster) -> list[Group]:
    """All hosts, one by one or in groups."""
    switches = _switches(cluster)
    kinds, domains = cluster.host_class.tolist(), cluster.domain.tolist()
    shared = np.bincount(cluster.domain) > 1
    single = len(kinds) <= MOST_SINGLE
    groups: list[Group] = []
    for host, (kind, domain) in enumerate(zip(kinds, domains, strict=True)):
        where = domain if shared[domain] else -1
        group = Group(host, host, kind, where, switches[host])
        last = groups[-1] if groups else group
        same = (last.kind, last.domain, last.switches) == (kind, where, group.switches)
        if groups and same and not single:
            groups[-1] = Group(last.first, host, kind, where, group.switches)
        else:
            groups.append(group)
    return groups


def some_of(groups: list[Group]) -> list[Group]:
    """Those that are drawn: all, or the first and last where they or their switches are many."""
    most = min(len(groups), MOST_SINGLE if groups[0].count == 1 else MOST_GROUPS)
    while most > 2:
        chosen = ends_of(groups, most)
        if len({switch for group in chosen for switch in group.switches}) <= MOST_LEAVES:
            return chosen
        most -= 1
    return ends_of(groups, 2)


def ends_of(items: Sequence[T], most: int) -> list[T]:
    """The first and the last of a list, `most` in all."""
    return [item for item in slots_of(items, most) if item is not None]


def slots_of(items: Sequence[T], most: int) -> list[T | None]:
    """The first and the last of a list, `most` in all, and None where others are left out."""
    if len(items) <= most:
        return [*items]
    front = -(-most // 2)
    return [*items[:front], None, *items[len(items) - (most - front) :]]


def _switches(cluster: Cluster) -> list[frozenset[int]]:
    """The switches of the fabric (or groups of them, by the first) that each host has a NIC on."""
    found: list[set[int]] = [set() for _ in cluster.host_class]
    made = cluster.fabric
    if made is not None:
        access = made.tail < made.ports
        size = group_size(made)
        owners = cluster.ports.owner[made.tail[access]].tolist()
        switches = (made.head[access] - made.ports) // size * size
        for owner, switch in zip(owners, switches.tolist(), strict=True):
            found[owner].add(switch)
    return [frozenset(one) for one in found]


def group_size(fabric: Fabric) -> int:
    """The number of switches that are drawn as one: those of a group, if groups are equal."""
    if fabric.groups is None:
        return 1
    count = int(fabric.groups.max()) + 1
    size = len(fabric.groups) // count
    is_regular = np.array_equal(fabric.groups, np.repeat(np.arange(count), size))
    return size if is_regular and (count > 2 or size > MOST_LEAVES // 2) else 1


def lines_between(
    topology: Topology, of: Mapping[str, int], used: NDArray[np.float64] | None
) -> list[Stroke]:
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
    most, number = np.maximum(*total), np.maximum(*count).astype(int)
    dead_fractions = np.bincount(group, rate <= 0, size) / np.bincount(group, minlength=size)
    columns = (low[first], high[first], kinds[first], largest, most, number, busiest)
    values = zip(*(column.tolist() for column in columns), strict=True)
    return [
        Stroke(tail, head, LINK_KINDS[kind], rate, total, count, use, dead_fraction=dead)
        for (tail, head, kind, rate, total, count, use), dead in zip(
            values, dead_fractions.tolist(), strict=True
        )
    ]


def bent(lines: list[Stroke], boxes: list[Box]) -> list[Stroke]:
    """Lines between boxes of one row swing out below GPUs and above others, unless neighbours."""
    return [replace(line, bend=_bend(line, boxes)) for line in lines]


def _bend(line: Stroke, boxes: list[Box]) -> float:
    tail, head = boxes[line.tail], boxes[line.head]
    if abs(tail.y - head.y) > 1e-6:
        return 0.0
    low, high = sorted((tail.x, head.x))
    between = any(low < box.x < high and abs(box.y - tail.y) < 1e-6 for box in boxes)
    if not between and tail.kind != "gpu":
        return 0.0
    depth = float(0.3 + 0.28 * (high - low) ** 0.85)
    return -depth if tail.kind == "gpu" else min(depth, 1.6)
