"""A measured curve: what nccl-tests printed at each size of one run, and which time counts.

Knows neither topologies nor simulations.
"""

from dataclasses import dataclass

SAME_WORK = ("all_reduce", "broadcast", "reduce")  # in and out of place: the rest is noise


@dataclass(frozen=True, slots=True)
class Measured:
    """One row: times in seconds, None where nothing was given; `line` is where it was written."""

    size_bytes: int
    count: int | None = None
    dtype: str = "float"
    redop: str = ""
    root: int = -1
    out_of_place: float | None = None
    in_place: float | None = None
    line: int = 0

    def seconds(self, collective: str) -> float | None:
        """The time that counts, as the design defines it."""
        given = [t for t in (self.out_of_place, self.in_place) if t is not None]
        if not given:
            return None
        return min(given) if collective in SAME_WORK else given[0]

    def is_in_place(self, collective: str) -> bool:
        """Whether the time that counts is one in place that differs from one out of place."""
        return self.out_of_place is None and collective not in SAME_WORK
