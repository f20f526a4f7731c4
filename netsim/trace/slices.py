"""Slices: what a trace shows as bars, each on a track of one rank, in whole nanoseconds.

Viewers keep time in nanoseconds, and bars that overlap on one thread break their nesting; so times
are rounded once, here, and slices that overlap are put on lanes side by side.
"""

from collections import defaultdict
from collections.abc import Iterable
from heapq import heappop, heappush
from json import JSONEncoder
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Track = tuple[int, str, int, int]  # group, stream, channel, role
LAUNCH, KERNELS, COMPUTES, CHANNELS = range(4)
SEND, RECEIVE, LOCAL = range(3)
_ROLES = ("send", "recv", "copy")


as_json = JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
Nanoseconds = NDArray[np.int64]


class Slice(NamedTuple):
    """One bar: begin and end in nanoseconds, arguments as JSON, and the arrows that leave and reach
    it. Slices are shown in the order of the fields up to the name.
    """

    begin: int
    rank: int
    track: Track
    end: int
    name: str
    category: str
    args: str
    leaving: tuple[int, ...] = ()
    reaching: tuple[int, ...] = ()


_place_of = itemgetter(slice(Slice._fields.index("name") + 1))


def nanoseconds(seconds: NDArray[np.float64]) -> Nanoseconds:
    """The nearest whole nanoseconds."""
    return np.rint(seconds * 1e9).astype(np.int64)


def spans(begin: NDArray[np.float64], end: NDArray[np.float64]) -> tuple[Nanoseconds, Nanoseconds]:
    """Begins and ends in nanoseconds, at least one apart so that the slices can be seen."""
    first = nanoseconds(begin)
    return first, np.maximum(nanoseconds(end), first + 1)


def track_name(track: Track, lane: int) -> str:
    """The name of a thread: `ch0 send`, `gemm`, `collectives`, or `ch0 send · 2` for a lane."""
    group, stream, channel, role = track
    name = {LAUNCH: stream, KERNELS: "collectives", COMPUTES: stream or "compute"}.get(group)
    if name is None:
        name = f"{stream} ch{channel} {_ROLES[role]}".strip()
    return name if lane == 0 else f"{name} · {lane + 1}"


def lanes(slices: Iterable[Slice]) -> list[tuple[Slice, int]]:
    """Every slice with a lane of its track on which it overlaps no other, in order of time."""
    tracks: defaultdict[tuple[int, Track], tuple[list[int], list[tuple[int, int]]]]
    tracks = defaultdict(lambda: ([], []))  # lanes that are idle, and ends of those that are busy
    placed = []
    for item in sorted(slices, key=_place_of):
        begin, rank, track, end = item[:4]
        idle, busy = tracks[rank, track]
        while busy and busy[0][0] <= begin:
            heappush(idle, heappop(busy)[1])
        lane = heappop(idle) if idle else len(busy)
        heappush(busy, (end, lane))
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
