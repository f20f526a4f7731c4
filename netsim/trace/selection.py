"""Which rows a file shows when a run has more than anyone could open, and how the file says so."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from netsim.program import Timeline


@dataclass(frozen=True, slots=True)
class Written:
    """A file that was written; `note` says what it leaves out, and is empty if that is nothing."""

    path: Path
    note: str = ""


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows shown, in row order, out of `total`; those left out start at `until` or later."""

    rows: NDArray[np.int64]
    total: int
    until: float

    @property
    def whole(self) -> bool:
        """Whether nothing is left out."""
        return len(self.rows) == self.total

    def note(self) -> str:
        """What is left out, in words."""
        if self.whole:
            return ""
        return (
            f"holds the first {len(self.rows)} of {self.total} rows, "
            f"those that start before {self.until * 1e6:.6g} us"
        )


def first_rows(timeline: Timeline, most: int) -> Selection:
    """The rows that start first, at most so many."""
    if most < 1:
        raise ValueError(f"rows: expected at least 1, got {most}")
    total = len(timeline)
    if total <= most:
        return Selection(np.arange(total), total, timeline.makespan)
    order = np.argsort(timeline.start, kind="stable")
    until = float(timeline.start[order[most]])
    return Selection(np.sort(order[:most]), total, until)
