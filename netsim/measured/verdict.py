"""The verdict on a measured run: whether it is as fast as its simulation, by size band.

On each side, the limit of a size is the wider one of the user's tolerance and the interval of its
class (80 % of the validated systems of the class lie within it, so that a run within it shows no
fault). Times of small operations mostly consist of launches, whose cost differs from host to host.
So the launch cost is inferred from the smallest sizes of the log before small bands are judged.
"""

from collections.abc import Sequence
from math import exp, inf, log, log1p
from statistics import median

from netsim.base.values import dataclass, grouped
from netsim.measured.compare import MICRO, Compared
from netsim.nccl.constants import HOST, KERNEL
from netsim.results.margins import least_fraction
from netsim.results.row import BANDS, Joined, Row, band_of
from netsim.tasks.resolve import ResolvedCell
from netsim.tasks.validation import class_of

SMALL_BANDS = BANDS[:2]  # bands whose times are judged with the inferred launch cost
FLAT_FACTOR = 1.25  # up to this factor on the fastest size, a time consists of launches only
# An inferred launch cost is accepted between a third and three times the usual one. A larger
# difference is a fault of a slow host, and its bands then fail.
LAUNCH_FACTOR = 3.0


@dataclass(frozen=True)
class BandVerdict:
    """The error of a band and its limits.

    `error` is the median of simulated / measured - 1, with the inferred launch cost included.
    `lowest` and `highest` are the errors that are allowed; `sizes_beyond` of the `sizes` are
    outside of them.
    """

    band: str
    error: float
    lowest: float
    highest: float
    sizes: int
    sizes_beyond: int

    @property
    def fails(self) -> bool:
        """Whether more than half of the sizes of the band are beyond the limits."""
        return 2 * self.sizes_beyond > self.sizes


@dataclass(frozen=True)
class Verdict:
    """The verdict on one run, by size band.

    `launch_us` is the inferred launch cost less the simulated one in microseconds (None if the log
    has no sizes small enough).
    """

    launch_us: float | None
    bands: tuple[BandVerdict, ...]

    @property
    def failed_bands(self) -> tuple[BandVerdict, ...]:
        """The bands beyond their limits."""
        return tuple(band for band in self.bands if band.fails)

    @property
    def fails(self) -> bool:
        """Whether a band fails, or no band could be judged."""
        return not self.bands or bool(self.failed_bands)

    @property
    def worst_band(self) -> BandVerdict | None:
        """The band with the largest error in either direction; None without bands."""
        return max(self.bands, key=lambda band: abs(log1p(band.error)), default=None)

    @property
    def slowest_band(self) -> BandVerdict | None:
        """The band in which the run took longest compared with its simulation."""
        return min(self.bands, key=lambda band: band.error, default=None)


def verdict_of(compared: Compared, tolerance: float, usual_launch: float) -> Verdict:
    """Return the verdict on a run.

    `tolerance` is a fraction; `usual_launch` is the simulated time to launch one operation, in
    seconds.
    """
    rows = [row for row in compared.rows if _is_timed(row)]
    launch_us = inferred_launch(rows, usual_launch)
    bands = grouped(rows, lambda row: band_of(_size_of(row)))
    return Verdict(
        launch_us,
        tuple(
            _band_verdict(
                band,
                bands[band],
                [_limits(row, tolerance) for row in bands[band]],
                launch_us or 0.0,
            )
            for band in BANDS
            if band in bands
        ),
    )


def gate_verdict(compared: Compared, resolved: ResolvedCell, confidence: float) -> Verdict:
    """Return the verdict on a run by a gate (the least acceptable bandwidth).

    A size fails if its bandwidth is below what a healthy machine reaches with the probability
    `confidence`. No launch cost is inferred, and no run is too fast.
    """
    rows = [row for row in compared.rows if _is_timed(row)]
    bands = grouped(rows, lambda row: band_of(_size_of(row)))
    where = class_of(resolved) if resolved.is_nccl else Joined("", "")
    verdicts = []
    for band in BANDS:
        if band in bands:
            fractions = [
                least_fraction(where, row.collective, _size_of(row), confidence)
                for row in bands[band]
            ]
            limits = [(log(fraction), inf) for fraction in fractions]
            verdicts.append(_band_verdict(band, bands[band], limits, 0.0))
    return Verdict(None, tuple(verdicts))


def usual_launch_cost(style: str, gpus_per_node: int, host: float | None = None) -> float:
    """Return the simulated seconds to launch one operation, on the host and on the GPU.

    With the launch style `single_process`, one process launches on all `gpus_per_node` GPUs one
    after the other. `host` is the seconds of one launch by the host; None: the usual time.
    """
    host_cost = HOST if host is None else host
    launches = gpus_per_node if style == "single_process" else 1
    return host_cost * launches + KERNEL


def inferred_launch(rows: Sequence[Row], usual_launch: float) -> float | None:
    """Return by how many microseconds a launch took longer than simulated (negative: shorter); None
    without small sizes.

    It is the median of measured - simulated over sizes up to 64 KiB whose simulated time is at most
    `FLAT_FACTOR` times the smallest. The launch cost that results is limited to `LAUNCH_FACTOR`
    times the usual one, and at least 1 / `LAUNCH_FACTOR` of it.
    """
    small = [row for row in rows if band_of(_size_of(row)) == BANDS[0]]
    if not small:
        return None
    fastest = min(_simulated(row) for row in small)
    flat = [row for row in small if _simulated(row) <= FLAT_FACTOR * fastest]
    difference = median(_measured(row) - _simulated(row) for row in flat)
    usual_us = usual_launch * MICRO
    lowest = usual_us / LAUNCH_FACTOR - usual_us
    highest = usual_us * LAUNCH_FACTOR - usual_us
    return min(max(difference, lowest), highest)


def _band_verdict(
    band: str, rows: Sequence[Row], limits: Sequence[tuple[float, float]], launch_us: float
) -> BandVerdict:
    """Return the verdict on a band.

    Args:
        band: name of the band.
        rows: its result rows.
        limits: the least and largest allowed log ratio of simulated over measured time of each row.
        launch_us: microseconds by which a launch takes longer than simulated.
    """
    added = launch_us if band in SMALL_BANDS else 0.0
    errors = [log(max(_simulated(row) + added, 1e-3) / _measured(row)) for row in rows]
    beyond = [
        not lowest <= error <= highest
        for error, (lowest, highest) in zip(errors, limits, strict=True)
    ]
    return BandVerdict(
        band=band,
        error=exp(median(errors)) - 1,
        lowest=exp(median(lowest for lowest, _ in limits)) - 1,
        highest=_error_of(median(highest for _, highest in limits)),
        sizes=len(rows),
        sizes_beyond=sum(beyond),
    )


def _error_of(log_ratio: float) -> float:
    """Return the error (simulated over measured - 1) of a log ratio."""
    return inf if log_ratio == inf else exp(log_ratio) - 1


def _limits(row: Row, tolerance: float) -> tuple[float, float]:
    """Return the least and the largest allowed log ratio of simulated over measured time of a row:
    on each side the wider one of its interval and the tolerance.
    """
    allowed = log1p(tolerance)
    if row.time_low_us is None or row.time_high_us is None:
        return -allowed, allowed
    lowest = -log(row.time_high_us / _simulated(row))
    highest = -log(row.time_low_us / _simulated(row))
    return min(lowest, -allowed), max(highest, allowed)


def _is_timed(row: Row) -> bool:
    """Whether a row has a measured and a simulated time."""
    return row.status == "ok" and row.time_us is not None and bool(row.measured_time_us)


def _simulated(row: Row) -> float:
    """Return the simulated time of a row in microseconds."""
    assert row.time_us is not None  # rows without a time are left out first
    return row.time_us


def _measured(row: Row) -> float:
    """Return the measured time of a row in microseconds."""
    assert row.measured_time_us is not None  # rows without a time are left out first
    return row.measured_time_us


def _size_of(row: Row) -> int:
    """Return the requested size of a row in bytes."""
    return row.size_asked or row.size_bytes or 0
