"""A drawing of a topology as values: boxes in rows, lines between them, frames and captions.

The unit of length is the width of a GPU; y grows upwards. Colors and fonts are in `draw`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from netsim.base.values import dataclass
from netsim.topology.cluster import Cluster
from netsim.topology.graph import LINK_KINDS, Topology
from netsim.topology.network import Fabric

GAP = 1.35  # between the rows of a host
WIDE_GAP = 2.3  # between the rows of a fabric


@dataclass(frozen=True, slots=True)
class Box:
    """A box for one node or for several: its center, width, height and label."""

    kind: str
    x: float
    y: float
    width: float
    label: str
    height: float = 0.52
    dead: bool = False  # a fault removed it from the cluster

    @property
    def left(self) -> float:
        """The x of the box's left edge."""
        return self.x - self.width / 2

    @property
    def right(self) -> float:
        """The x of the box's right edge."""
        return self.x + self.width / 2


@dataclass(frozen=True, slots=True)
class Stroke:
    """The links between two boxes, drawn as one line.

    Fields:
        tail, head: the numbers of the boxes.
        rate: bytes/s of one link.
        bandwidth: bytes/s of all links in one direction.
        count: the number of links.
        used: the utilization of the busiest link (0 to 1; NaN if unknown).
        bend: how far the line swings out, upwards if positive.
        free: whether the line runs from center to center.
        dead_fraction: the fraction of the links, in both directions, that have no bandwidth.
    """

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
        """Whether none of the links has any bandwidth."""
        return self.dead_fraction == 1.0


@dataclass(frozen=True, slots=True)
class Caption:
    """A text at the point (x, y); `align` is left, center or right."""

    x: float
    y: float
    text: str
    align: str = "center"
    strong: bool = False


@dataclass(frozen=True, slots=True)
class Frame:
    """A rectangle with a name around boxes that belong together."""

    left: float
    bottom: float
    right: float
    top: float
    label: str


@dataclass(frozen=True)
class Drawing:
    """All parts of a drawing. `rows` are (y, text) of captions at the left margin.

    `usable` is the fraction of a cable's line rate that its links can use.
    """

    title: str
    subtitle: str = ""
    boxes: tuple[Box, ...] = ()
    lines: tuple[Stroke, ...] = ()
    captions: tuple[Caption, ...] = ()
    frames: tuple[Frame, ...] = ()
    rows: tuple[tuple[float, str], ...] = ()
    usable: float = 1.0

    def below(self, upper: "Drawing") -> "Drawing":
        """One drawing that has this one below and `upper` above, both centered."""
        drop = self.bottom - 0.9 - upper.top
        middle = (self.left + self.right - upper.left - upper.right) / 2
        moved = upper.moved(middle, drop)
        first = len(self.boxes)
        lines = (
            replace(line, tail=line.tail + first, head=line.head + first) for line in moved.lines
        )
        return replace(
            self,
            boxes=self.boxes + moved.boxes,
            lines=(*self.lines, *lines),
            captions=self.captions + moved.captions,
            frames=self.frames + moved.frames,
            rows=self.rows + moved.rows,
        )

    def moved(self, right: float, up: float) -> "Drawing":
        """The drawing, moved by `right` and `up`."""
        frames = [
            Frame(
                left=frame.left + right,
                bottom=frame.bottom + up,
                right=frame.right + right,
                top=frame.top + up,
                label=frame.label,
            )
            for frame in self.frames
        ]
        return replace(
            self,
            boxes=tuple(replace(box, x=box.x + right, y=box.y + up) for box in self.boxes),
            captions=tuple(
                replace(caption, x=caption.x + right, y=caption.y + up) for caption in self.captions
            ),
            frames=tuple(frames),
            rows=tuple((y + up, text) for y, text in self.rows),
        )

    @property
    def left(self) -> float:
        """The x of the drawing's left edge."""
        return min([box.left for box in self.boxes] + [frame.left for frame in self.frames])

    @property
    def right(self) -> float:
        """The x of the drawing's right edge, including lines that swing out."""
        boxes = [box.right for box in self.boxes]
        frames = [frame.right for frame in self.frames]
        loops = [self.boxes[line.tail].x + 2 * line.bend for line in self.lines if line.free]
        return max(boxes + frames + loops)

    @property
    def bottom(self) -> float:
        """The y of the drawing's lower edge, including lines that swing out."""
        edges = [box.y - box.height / 2 for box in self.boxes]
        edges += [frame.bottom for frame in self.frames]
        for line in self.lines:
            end = min(self.boxes[line.tail].y, self.boxes[line.head].y)
            edges.append(end + min(0.0, line.bend) - 0.45)
        return min(edges)

    @property
    def top(self) -> float:
        """The y of the drawing's upper edge, including lines that swing out and the names of
        frames.
        """
        edges = [box.y + box.height / 2 for box in self.boxes]
        edges += [frame.top + 0.3 for frame in self.frames]
        for line in self.lines:
            end = max(self.boxes[line.tail].y, self.boxes[line.head].y)
            edges.append(end + max(0.0, line.bend) + 0.35)
        return max(edges)


def around(frame: Frame, boxes: list[Box], lines: list[Stroke]) -> Frame:
    """The frame, extended downwards to contain the lines that swing out below its boxes."""
    bottom = frame.bottom
    for line in lines:
        box = boxes[line.tail]
        if line.bend < 0 and frame.left <= box.x <= frame.right:
            bottom = min(bottom, box.y - box.height / 2 + line.bend - 0.2)
    return replace(frame, bottom=bottom)


@dataclass
class DrawingSheet:
    """A drawing in preparation.

    - `rows`: (y, text) of captions at the left margin.
    - `of`: by name of a node of the topology, the number of the box that represents it.
    """

    boxes: list[Box] = field(default_factory=list)
    captions: list[Caption] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    rows: list[tuple[float, str]] = field(default_factory=list)
    of: dict[str, int] = field(default_factory=dict)

    def add(self, box: Box, *nodes: str) -> int:
        """Add a box that represents the nodes of the topology called `nodes`; return its number."""
        self.boxes.append(box)
        self.of.update(dict.fromkeys(nodes, len(self.boxes) - 1))
        return len(self.boxes) - 1

    def picture(
        self, title: str, subtitle: str, lines: list[Stroke], usable: float = 1.0
    ) -> Drawing:
        """The finished drawing with its lines; frames are extended to contain lines
        that swing out.
        """
        frames = tuple(around(frame, self.boxes, lines) for frame in self.frames)
        return Drawing(
            title,
            subtitle,
            boxes=tuple(self.boxes),
            lines=tuple(lines),
            captions=tuple(self.captions),
            frames=frames,
            rows=tuple(self.rows),
            usable=usable,
        )


T = TypeVar("T")

MOST_SINGLE = 20  # up to this many hosts, each has a box of its own
MOST_GROUPS = 16  # most boxes for groups of hosts
MOST_LEAVES = 16  # most leaf switches that are drawn


@dataclass(frozen=True, slots=True)
class DrawnHosts:
    """Consecutive hosts that are drawn as one box: numbers `first` to `last`.

    - `kind`: their class in the cluster.
    - `domain`: the number of their NVLink domain; -1 if it has a single host.
    - `switches`: numbers of the leaf switches to which they are connected.
    """

    first: int
    last: int
    kind: int
    domain: int
    switches: frozenset[int]

    @property
    def count(self) -> int:
        """The number of hosts."""
        return self.last - self.first + 1


def host_groups(cluster: Cluster) -> list[DrawnHosts]:
    """All hosts, one by one if they are few, else in groups of consecutive equal hosts."""
    switches = _switches(cluster)
    kinds = cluster.host_class.tolist()
    domains = cluster.domain.tolist()
    shared = np.bincount(cluster.domain) > 1
    single = len(kinds) <= MOST_SINGLE
    groups: list[DrawnHosts] = []
    for host, (kind, domain) in enumerate(zip(kinds, domains, strict=True)):
        where = domain if shared[domain] else -1
        group = DrawnHosts(first=host, last=host, kind=kind, domain=where, switches=switches[host])
        last = groups[-1] if groups else group
        same = (last.kind, last.domain, last.switches) == (kind, where, group.switches)
        if groups and same and not single:
            groups[-1] = DrawnHosts(
                first=last.first, last=host, kind=kind, domain=where, switches=group.switches
            )
        else:
            groups.append(group)
    return groups


def some_of(groups: list[DrawnHosts]) -> list[DrawnHosts]:
    """The groups of hosts to draw: all of them, or the first ones and the last ones if there are
    too many groups or leaf switches.
    """
    most = min(len(groups), MOST_SINGLE if groups[0].count == 1 else MOST_GROUPS)
    while most > 2:
        chosen = ends_of(groups, most)
        if len({switch for group in chosen for switch in group.switches}) <= MOST_LEAVES:
            return chosen
        most -= 1
    return ends_of(groups, 2)


def ends_of(items: Sequence[T], most: int) -> list[T]:
    """The first ones and the last ones of `items`, `most` in total; all of them if they are no
    more.
    """
    return [item for item in slots_of(items, most) if item is not None]


def slots_of(items: Sequence[T], most: int) -> list[T | None]:
    """All items if they are at most `most`; otherwise the first ones and the last ones, `most` in
    total, with one None between them.
    """
    if len(items) <= most:
        return [*items]
    front = -(-most // 2)
    return [*items[:front], None, *items[len(items) - (most - front) :]]


def _switches(cluster: Cluster) -> list[frozenset[int]]:
    """For each host, the switches of the fabric to which its NICs are connected.

    If groups of switches are drawn as one, each group is represented by its first switch.
    """
    switches_of_host: list[set[int]] = [set() for _ in cluster.host_class]
    made = cluster.fabric
    if made is not None:
        access = made.tail < made.ports
        size = group_size(made)
        owners = cluster.ports.owner[made.tail[access]].tolist()
        switches = (made.head[access] - made.ports) // size * size
        for owner, switch in zip(owners, switches.tolist(), strict=True):
            switches_of_host[owner].add(switch)
    return [frozenset(connected) for connected in switches_of_host]


def group_size(fabric: Fabric) -> int:
    """The number of switches drawn as one box: those of a group if all groups are equally large,
    else 1.
    """
    if fabric.groups is None:
        return 1
    count = int(fabric.groups.max()) + 1
    size = len(fabric.groups) // count
    is_regular = np.array_equal(fabric.groups, np.repeat(np.arange(count), size))
    return size if is_regular and (count > 2 or size > MOST_LEAVES // 2) else 1


def lines_between(
    topology: Topology, of: Mapping[str, int], used: NDArray[np.float64] | None
) -> list[Stroke]:
    """The lines of a drawing: one for all links between two boxes.

    - `of`: by name of a node of the topology, the number of its box; nodes that are not drawn are
      left out.
    - `used`: by link, its utilization (0 to 1); None if it is not known.
    """
    box = np.array([of.get(str(name), -1) for name in topology.nodes])
    links = topology.links
    a = box[links.tail]
    b = box[links.head]
    shown = np.flatnonzero((a >= 0) & (b >= 0) & (a != b))
    low = np.minimum(a, b)[shown]
    high = np.maximum(a, b)[shown]
    forward = (a < b)[shown]
    _, first, group = np.unique(low * (len(of) + 1) + high, True, True)
    size = len(first)
    rate = links.bandwidth[shown]
    kinds = links.kind[shown]
    total = [np.bincount(group, np.where(way, rate, 0.0), size) for way in (forward, ~forward)]
    count = [np.bincount(group, way, size) for way in (forward, ~forward)]
    largest = np.zeros(size)
    busiest = np.full(size, np.nan)
    np.maximum.at(largest, group, rate)
    if used is not None:
        np.fmax.at(busiest, group, used[shown])
    most = np.maximum(*total)
    number = np.maximum(*count).astype(int)
    dead_fractions = np.bincount(group, rate <= 0, size) / np.bincount(group, minlength=size)
    columns = (low[first], high[first], kinds[first], largest, most, number, busiest)
    values = zip(*(column.tolist() for column in columns), strict=True)
    return [
        Stroke(
            tail=tail,
            head=head,
            kind=LINK_KINDS[kind],
            rate=rate,
            bandwidth=total,
            count=count,
            used=use,
            dead_fraction=dead,
        )
        for (tail, head, kind, rate, total, count, use), dead in zip(
            values, dead_fractions.tolist(), strict=True
        )
    ]


def bent(lines: list[Stroke], boxes: list[Box]) -> list[Stroke]:
    """The lines with their bends. A line swings out if it joins two boxes of one row with another
    box between them, or two GPUs of one row.
    """
    return [replace(line, bend=_bend(line, boxes)) for line in lines]


def _bend(line: Stroke, boxes: list[Box]) -> float:
    """How far a line swings out: negative (downwards) between GPUs, positive between other boxes, 0
    if straight.
    """
    tail = boxes[line.tail]
    head = boxes[line.head]
    if abs(tail.y - head.y) > 1e-6:
        return 0.0
    low, high = sorted((tail.x, head.x))
    between = any(low < box.x < high and abs(box.y - tail.y) < 1e-6 for box in boxes)
    if not between and tail.kind != "gpu":
        return 0.0
    depth = float(0.3 + 0.28 * (high - low) ** 0.85)
    return -depth if tail.kind == "gpu" else min(depth, 1.6)
