"""Where lines begin and end: at the edges of boxes, side by side so that they can be told apart."""

from collections import defaultdict

from netsim.plots.topology.values import Box, Line, Picture

Point = tuple[float, float]


def ends_of_lines(picture: Picture) -> list[tuple[Point, Point]]:
    """Where every line leaves its boxes: at their edges, side by side by where the others are."""
    sides: dict[tuple[int, int], list[tuple[float, int]]] = defaultdict(list)
    for number, line in enumerate(picture.lines):
        for one, other in ((line.tail, line.head), (line.head, line.tail)):
            side = _side(picture.boxes[one], picture.boxes[other], line)
            sides[one, side].append((picture.boxes[other].x, number))
    x: dict[tuple[int, int], float] = {}
    for (box, side), members in sides.items():
        for place, (far, number) in enumerate(sorted(members)):
            x[box, number] = _attach(picture.boxes[box], side, far, place, len(members))
    return [
        (
            _point(picture, line, line.tail, line.head, x[line.tail, number]),
            _point(picture, line, line.head, line.tail, x[line.head, number]),
        )
        for number, line in enumerate(picture.lines)
    ]


def _side(one: Box, other: Box, line: Line) -> int:
    """1 for the upper edge, -1 for the lower one, 0 for left or right."""
    if abs(one.y - other.y) > 1e-6:
        return 1 if other.y > one.y else -1
    return 0 if not line.bend else (1 if line.bend > 0 else -1)


def _attach(box: Box, side: int, other: float, place: int, count: int) -> float:
    if side == 0:
        return box.right if other > box.x else box.left
    if box.width > 2.2:
        return min(max(other, box.left + 0.15), box.right - 0.15)
    step = min(0.14, 0.72 * box.width / max(1, count))
    return box.x + (place - (count - 1) / 2) * step


def _point(picture: Picture, line: Line, one: int, other: int, x: float) -> Point:
    box = picture.boxes[one]
    if line.free:
        return box.x, box.y
    return x, box.y + _side(box, picture.boxes[other], line) * box.height / 2
