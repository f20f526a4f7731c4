"""Slices: what a trace shows as bars, each on a track of one rank, in whole nanoseconds.

Viewers keep time in nanoseconds, and bars that overlap on one thread break their nesting; so times
are rounded once, here, and slices that overlap are put on lanes side by side.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush

Track = tuple[int, str, int, int]  # group, stream, channel, role
LAUNCH, KERNELS, COMPUTES, CHANNELS = range(4)
SEND, RECEIVE, LOCAL = range(3)
_ROLES = ("send", "recv", "copy")


@dataclass(frozen=True, slots=True)
class Slice:
    """One bar: begin and end in nanoseconds, and the arrows that leave and reach it."""

    rank: int
    track: Track
    begin: int
    end: int
    name: str
    category: str
    args: Mapping[str, object] = field(default_factory=dict)
    leaving: tuple[int, ...] = ()
    reaching: tuple[int, ...] = ()


def nanoseconds(seconds: float) -> int:
    """The nearest whole nanosecond."""
    return round(seconds * 1e9)


def span(begin: float, end: float) -> tuple[int, int]:
    """Begin and end in nanoseconds, at least one apart so that the slice can be seen."""
    first = nanoseconds(begin)
    return first, max(nanoseconds(end), first + 1)


def track_name(track: Track, lane: int) -> str:
    """The name of a thread: `ch0 send`, `gemm`, `collectives`, or `ch0 send · 2` for a lane."""
    group, stream, channel, role = track
    name = {LAUNCH: stream, KERNELS: "collectives", COMPUTES: stream or "compute"}.get(group)
    if name is None:
        name = f"{stream} ch{channel} {_ROLES[role]}".strip()
    return name if lane == 0 else f"{name} · {lane + 1}"


def lanes(slices: Iterable[Slice]) -> list[tuple[Slice, int]]:
    """Every slice with a lane of its track on which it overlaps no other, in order of time."""
    free: dict[tuple[int, Track], list[int]] = {}
    taken: dict[tuple[int, Track], list[tuple[int, int]]] = {}
    placed = []
    for item in sorted(slices, key=lambda s: (s.begin, s.rank, s.track, s.end, s.name)):
        track = (item.rank, item.track)
        idle, busy = free.setdefault(track, []), taken.setdefault(track, [])
        while busy and busy[0][0] <= item.begin:
            heappush(idle, heappop(busy)[1])
        lane = heappop(idle) if idle else len(busy)
        heappush(busy, (item.end, lane))
        placed.append((item, lane))
    return placed


def threads(placed: Iterable[tuple[Slice, int]]) -> dict[tuple[int, Track, int], int]:
    """A thread number, from 1, for every lane of every rank, in the order in which to show them."""
    used = sorted({(item.rank, item.track, lane) for item, lane in placed})
    numbers: dict[tuple[int, Track, int], int] = {}
    before, number = -1, 0
    for rank, track, lane in used:
        number = number + 1 if rank == before else 1
        before = rank
        numbers[rank, track, lane] = number
    return numbers
