"""Which rows of a schedule go the same way: the same ends, with the same weights.

Millions of rows usually take a few thousand ways; everything that costs is done once for each.
"""

import numpy as np
from numpy.typing import NDArray

from netsim.arrays import different
from netsim.schedule import COMPUTE, LOCAL_COPY, MARK, Schedule, Style, Use
from netsim.values import dataclass

_DENSE = 1 << 25  # largest table of (class, source, destination) that is looked up directly
_SMALL, _WORTH = 1 << 16, 64  # cells that cost nothing; cells a row that cost more than sorting
_CHUNK = 1 << 18  # rows treated at a time: few enough for the processor's caches


@dataclass(frozen=True, slots=True)
class Way:
    """What the rows of one class have in common, apart from their ends."""

    kind: int
    wire: float
    multiplicity: int
    uses: tuple[Use, ...]
    route: str
    channel: int
    copies: int = 1


@dataclass(frozen=True, slots=True)
class Distinct:
    """The number of the way of every row (-1: none), and class, source and destination of each."""

    path: NDArray[np.int32]
    classes: tuple[Way, ...]
    klass: NDArray[np.int32]
    src: NDArray[np.int32]
    dst: NDArray[np.int32]


def distinct_ways(schedule: Schedule, *, per_channel: bool) -> Distinct:
    """Find the distinct (class, source, destination) of all rows; marks go nowhere."""
    classes: dict[Way, int] = {}
    of_style = np.array(
        [
            -1 if s.kind == MARK else classes.setdefault(_way(s, per_channel), len(classes))
            for s in schedule.styles
        ],
        np.int64,
    )
    width = max(schedule.ranks, len(schedule.groups))
    size = len(classes) * width * width
    keys = _Keys(schedule, of_style if size > _DENSE else of_style.astype(np.int32), width)
    dense = size <= min(_DENSE, max(_SMALL, _WORTH * len(schedule)))
    path, ways = _by_table(keys, size) if dense else _by_sorting(keys)
    return Distinct(path, tuple(classes), *_apart(ways, width))


def _apart(ways: NDArray[np.int64], width: int) -> tuple[NDArray[np.int32], ...]:
    """The class, source and destination of every key: there are few classes and many ways."""
    pair = ways // width
    dst = (ways - pair * width).astype(np.int32)
    klass = (pair // width).astype(np.int32)
    pair -= klass.astype(np.int64) * width
    return klass, pair.astype(np.int32), dst


def _way(style: Style, per_channel: bool) -> Way:
    uses = style.uses
    if style.kind == COMPUTE:
        uses = (*uses, Use("sms", "src", 1.0))
    if style.kind == LOCAL_COPY and not any(use.resource == "hbm" for use in uses):
        uses = (*uses, Use("hbm", "src", 2.0 if style.op == 0 else 3.0))
    channel = style.channel if per_channel else 0
    return Way(style.kind, style.wire, style.multiplicity, uses, style.route, channel, style.copies)


@dataclass(frozen=True, slots=True)
class _Keys:
    """The key of every row, computed a chunk at a time; -1 for marks. It is as wide an integer as
    `of_style`.
    """

    schedule: Schedule
    of_style: NDArray[np.int64] | NDArray[np.int32]
    width: int

    def chunk(self, first: int) -> NDArray[np.int64] | NDArray[np.int32]:
        rows = slice(first, first + _CHUNK)
        key = klass = self.of_style[self.schedule.style[rows]]
        key = key * self.width
        key += self.schedule.src[rows]
        key *= self.width
        key += self.schedule.dst[rows]
        key[klass < 0] = -1
        return key


def _by_table(keys: _Keys, size: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    rows = len(keys.schedule)
    number = np.full(size + 1, -1, np.int32)  # the last cell, index -1, stays for marks
    path = np.empty(rows, np.int32)  # the keys, until they have numbers
    for first in range(0, rows, _CHUNK):
        key = keys.chunk(first)
        number[key] = 0
        path[first : first + _CHUNK] = key
    number[-1] = -1
    ways = np.flatnonzero(number == 0)
    number[ways] = np.arange(len(ways), dtype=np.int32)
    for first in range(0, rows, _CHUNK):
        path[first : first + _CHUNK] = number[path[first : first + _CHUNK]]
    return path, ways


def _by_sorting(keys: _Keys) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    rows = len(keys.schedule)
    parts = [different(keys.chunk(first)) for first in range(0, rows, _CHUNK)]
    ways = different(np.concatenate([np.zeros(0, np.int64), *parts]))
    ways = ways[ways >= 0]
    path = np.empty(rows, np.int32)
    for first in range(0, rows, _CHUNK):
        key = keys.chunk(first)
        path[first : first + _CHUNK] = np.where(key < 0, -1, np.searchsorted(ways, key))
    return path, ways
