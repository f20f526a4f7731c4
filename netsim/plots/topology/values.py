"""A drawing of a topology as values: boxes in rows, lines between them, frames and captions.

Lengths are in units of which a GPU takes one; y grows upwards. How it looks is not known here.
"""

from dataclasses import dataclass, field, replace

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

    @property
    def left(self) -> float:
        """Its left edge."""
        return self.x - self.width / 2

    @property
    def right(self) -> float:
        """Its right edge."""
        return self.x + self.width / 2


@dataclass(frozen=True, slots=True)
class Line:
    """Links between two boxes, by their numbers: `count` of them, bytes/s of one (`rate`) and of
    all in one direction, the utilisation of the busiest (0…1; NaN: unknown). `bend`: how far the
    line swings out, upwards if positive; `free`: it runs from centre to centre.
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
    a cable's line rate that its links have.
    """

    title: str
    subtitle: str = ""
    boxes: tuple[Box, ...] = ()
    lines: tuple[Line, ...] = ()
    captions: tuple[Caption, ...] = ()
    frames: tuple[Frame, ...] = ()
    rows: tuple[tuple[float, str], ...] = ()
    usable: float = 1.0

    def below(self, other: "Picture") -> "Picture":
        """Both, `other` moved as a whole to stand below this one, in the middle."""
        drop = self.bottom - 0.9 - other.top
        middle = (self.left + self.right - other.left - other.right) / 2
        moved = other.moved(middle, drop)
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


def around(frame: Frame, boxes: list[Box], lines: list[Line]) -> Frame:
    """The frame, wide enough for lines that swing out below its boxes."""
    bottom = frame.bottom
    for line in lines:
        box = boxes[line.tail]
        if line.bend < 0 and frame.left <= box.x <= frame.right:
            bottom = min(bottom, box.y - box.height / 2 + line.bend - 0.2)
    return replace(frame, bottom=bottom)


@dataclass
class Sheet:
    """A picture in the making; `of` tells the box that stands for a node of the topology."""

    boxes: list[Box] = field(default_factory=list)
    captions: list[Caption] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    rows: list[tuple[float, str]] = field(default_factory=list)
    of: dict[str, int] = field(default_factory=dict)

    def add(self, box: Box, *nodes: str) -> int:
        """Draw a box that stands for nodes; its number."""
        self.boxes.append(box)
        self.of.update(dict.fromkeys(nodes, len(self.boxes) - 1))
        return len(self.boxes) - 1
