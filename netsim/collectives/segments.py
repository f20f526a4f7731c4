"""Segments: a piecewise constant map from element positions to values.

What memory holds, and who touched it last, is constant over ranges; a range is cut only where a row
begins or ends. It knows nothing of what the values mean.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

Value = TypeVar("Value")
Part = tuple[int, int, Value]  # from, to (exclusive), value


class Segments(Generic[Value]):
    """The value of every position from 0 up, all equal at first."""

    def __init__(self, value: Value) -> None:
        self._starts = [0]
        self._values = [value]

    def span(self, start: int, stop: int) -> slice:
        """The segments that cover exactly a range, after cutting at its ends."""
        return slice(self._cut(start), self._cut(stop))

    def read(self, start: int, stop: int) -> list[Part[Value]]:
        """The values of a range, from left to right."""
        if start >= stop:
            return []
        span = self.span(start, stop)
        starts = self._starts[span]
        return list(zip(starts, [*starts[1:], stop], self._values[span], strict=True))

    def write(self, parts: Sequence[Part[Value]]) -> None:
        """Give a range new values; the parts follow each other without gaps."""
        if not parts:
            return
        span = self.span(parts[0][0], parts[-1][1])
        self._starts[span] = [part[0] for part in parts]
        self._values[span] = [part[2] for part in parts]

    def __iter__(self) -> Iterator[Part[Value]]:
        """All segments but the last, which has no end."""
        return zip(self._starts, self._starts[1:], self._values, strict=False)

    def _cut(self, position: int) -> int:
        index = bisect_left(self._starts, position)
        if index == len(self._starts) or self._starts[index] != position:
            self._starts.insert(index, position)
            self._values.insert(index, self._values[index - 1])
        return index
