"""What changed between two sets of measured runs of one system, beyond the noise of repeats.

Runs of both sets are matched by collective, data type, root and number of ranks, then by size. The
change of a size is the ratio of its times after and before; that of a band is the median over its
sizes.

Noise. The standard deviation of the logarithm of a time between repeats is pooled from two sources:
repeats in the sets, over the sizes of a band, and published ones. Published repeats of one system
(AIConfigurator tables, docs/measured.md) differ by 0.65 % in the median and by 1.6 % at the third
quartile: a standard deviation of 0.016 / (1.15 * sqrt(2)) = 1 %. They count as `PUBLISHED_REPEATS`
repeats, so that a few repeats in the sets with little noise change little, and many of them decide.
If the repeats in the sets have more noise than the pooled value, their noise is used.

Verdict. A band is slower or faster if its change is larger than noise makes it in all but
`FALSE_ALARMS` of comparisons of equal sets, all bands of a comparison taken together. The sizes of
a band count as one, because the noise of a whole run shifts all of them. A band also changes if two
neighboring sizes do by themselves, as where a tuner chooses another algorithm at some sizes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import exp, log, sqrt
from statistics import median
from typing import Any, Literal

import numpy as np
from scipy.special import stdtrit

from netsim.base.errors import InputError
from netsim.base.values import dataclass, grouped
from netsim.measured.hypotheses import Explained, Tried, ranked, tried
from netsim.measured.logs import LogRun, MeasuredRow
from netsim.results.row import BANDS, band_of
from netsim.yamlio.read import Source

PUBLISHED_NOISE = 0.01  # standard deviation of log time between repeats, see above
PUBLISHED_REPEATS = 8  # for which it counts beside repeats in the sets
FALSE_ALARMS = 0.01  # of comparisons of equal sets in which some band is called slower or faster
MICRO = 1e6

Change = Literal["slower", "faster", "same"]


@dataclass(frozen=True)
class RunKind:
    """What runs must have in common to be compared; `ranks` is None if logs do not state it."""

    collective: str
    dtype: str
    root: int
    ranks: int | None

    def __str__(self) -> str:
        """The kind in words: `all_reduce of float on 16 ranks`."""
        ranks = "" if self.ranks is None else f" on {self.ranks} ranks"
        return f"{self.collective} of {self.dtype}{ranks}"


@dataclass(frozen=True)
class SizeChange:
    """The times of one size in seconds, with one value for each repeat.

    `log_limit` is the largest |log ratio| that noise explains.
    """

    size_bytes: int
    before: tuple[float, ...]
    after: tuple[float, ...]
    log_limit: float = 0.0

    @property
    def log_ratio(self) -> float:
        """The logarithm of the time after over the time before, of medians of repeats."""
        return log(median(self.after) / median(self.before))

    @property
    def ratio(self) -> float:
        """The time after over the time before."""
        return exp(self.log_ratio)

    @property
    def change(self) -> Change:
        """`slower` or `faster` if the size changed by more than noise explains, else `same`."""
        return _change_of(self.log_ratio, self.log_limit)


@dataclass(frozen=True)
class BandChange:
    """The change of one size band.

    `noise` is the standard deviation of the log time of one repeat, `repeats` the number of repeats
    in the sets from which it was computed (0: only published ones were used).
    """

    band: str
    sizes: tuple[SizeChange, ...]
    noise: float
    repeats: int
    log_limit: float

    @property
    def log_ratio(self) -> float:
        """The median of the log ratios of its sizes."""
        return median(size.log_ratio for size in self.sizes)

    @property
    def ratio(self) -> float:
        """The time after over the time before: the median of the sizes."""
        return exp(self.log_ratio)

    @property
    def changed_sizes(self) -> tuple[SizeChange, ...]:
        """Sizes that changed by more than noise explains, together with a neighboring size."""
        members: dict[int, SizeChange] = {}
        for left, right in pairwise(self.sizes):
            if left.change == right.change != "same":
                members[left.size_bytes] = left
                members[right.size_bytes] = right
        return tuple(members.values())

    @property
    def change(self) -> Change:
        """`slower`, `faster` or `same`; `slower` if some of its sizes are slower and some
        faster.
        """
        changes = {_change_of(self.log_ratio, self.log_limit)}
        changes |= {size.change for size in self.changed_sizes}
        if "slower" in changes:
            return "slower"
        return "faster" if "faster" in changes else "same"


@dataclass(frozen=True)
class KindChange:
    """The changes of one kind of runs; `run` is a run before the change with the sizes that both
    sets have.
    """

    kind: RunKind
    run: LogRun
    bands: tuple[BandChange, ...]

    @property
    def sizes(self) -> list[SizeChange]:
        """All sizes in ascending order."""
        return [size for band in self.bands for size in band.sizes]

    @property
    def is_slower(self) -> bool:
        """Whether a band is slower."""
        return any(band.change == "slower" for band in self.bands)

    @property
    def is_faster(self) -> bool:
        """Whether a band is faster and no band is slower."""
        return not self.is_slower and any(band.change == "faster" for band in self.bands)


def changes_between(before: Sequence[LogRun], after: Sequence[LogRun]) -> list[KindChange]:
    """Return what changed, for every kind of runs that both sets have.

    Raises an InputError if the sets have no kind or no size in common.
    """
    old = grouped(before, kind_of)
    new = grouped(after, kind_of)
    common = [kind for kind in old if kind in new]
    if not common:
        raise InputError(
            f"nothing to compare: before are {_listed(old)}, after {_listed(new)}",
            hint="both sets need runs of the same collective, data type and ranks",
        )
    pairs = {kind: _sizes_of(old[kind], new[kind]) for kind in common}
    pairs = {kind: sizes for kind, sizes in pairs.items() if sizes}
    if not pairs:
        raise InputError(f"nothing to compare: {common[0]}: no size is in both sets")
    band_count = sum(len({band_of(s.size_bytes) for s in sizes}) for sizes in pairs.values())
    size_count = sum(map(len, pairs.values()))
    return [
        KindChange(
            kind,
            _run_before(old[kind][0], sizes),
            tuple(_bands(sizes, band_count, size_count)),
        )
        for kind, sizes in pairs.items()
    ]


def left_out(before: Sequence[LogRun], after: Sequence[LogRun]) -> Iterator[str]:
    """Yield a sentence for each kind of runs that only one of the sets has."""
    kinds = ({kind_of(run): None for run in before}, {kind_of(run): None for run in after})
    for place, (members, others) in zip(("before", "after"), (kinds, kinds[::-1]), strict=True):
        for kind in members:
            if kind not in others:
                yield f"not compared: {kind} is only in the set {place}"


def kind_of(run: LogRun) -> RunKind:
    """Return the kind of a run: only runs of the same kind are compared."""
    first = run.rows[0] if run.rows else MeasuredRow(0)
    return RunKind(run.collective, first.dtype, max(first.root, 0), run.listed_ranks)


def _listed(kinds: Iterable[RunKind]) -> str:
    """Return a text that lists kinds of runs."""
    return ", ".join(map(str, kinds))


def _sizes_of(before: Sequence[LogRun], after: Sequence[LogRun]) -> list[SizeChange]:
    """Return the times of the sizes that both sets have, in ascending order."""
    old = _times_by_size(before)
    new = _times_by_size(after)
    return [SizeChange(size, old[size], new[size]) for size in sorted(set(old) & set(new))]


def _times_by_size(runs: Sequence[LogRun]) -> dict[int, tuple[float, ...]]:
    """Return the seconds of every size in bytes, one value for each repeat."""
    times: dict[int, list[float]] = {}
    for run in runs:
        for row in run.rows:
            seconds = row.seconds(run.collective)
            if seconds and row.size_bytes > 0:
                times.setdefault(row.size_bytes, []).append(seconds)
    return {size: tuple(values) for size, values in times.items()}


def _run_before(run: LogRun, sizes: Sequence[SizeChange]) -> LogRun:
    """Return `run`, the first run before the change, with the median time of each compared size."""
    rows = {row.size_bytes: row for row in run.rows}
    template = run.rows[0]
    chosen = [
        replace(
            rows.get(size.size_bytes, template),
            size_bytes=size.size_bytes,
            out_of_place=median(size.before),
            in_place=None,
        )
        for size in sizes
    ]
    return replace(run, rows=tuple(chosen))


def _bands(sizes: Sequence[SizeChange], band_count: int, size_count: int) -> Iterator[BandChange]:
    """Yield the bands of one kind of runs.

    `band_count` and `size_count` are those of the whole comparison. The limits are chosen so that
    all its bands together cause a false alarm in `FALSE_ALARMS` of comparisons, and so do all its
    sizes together.
    """
    members = grouped(sizes, lambda size: band_of(size.size_bytes))
    for band in BANDS:
        if band not in members:
            continue
        noise, freedom = pooled_noise(members[band])
        repeats = (
            median(len(size.before) for size in members[band]),
            median(len(size.after) for size in members[band]),
        )
        band_limit = limit_of(noise, freedom, repeats, band_count)
        single_limit = limit_of(noise, freedom, repeats, size_count)
        limited = tuple(replace(size, log_limit=single_limit) for size in members[band])
        yield BandChange(
            band=band, sizes=limited, noise=noise, repeats=freedom, log_limit=band_limit
        )


def pooled_noise(sizes: Sequence[SizeChange]) -> tuple[float, int]:
    """Return the noise of a band, and the number of repeats in the sets from which it was computed.

    The noise is the standard deviation of log times between repeats of one size in one set, pooled
    over sizes, sets and the published repeats; it is at least the noise of the sets alone. The
    first time of each size and set does not count as a repeat.
    """
    squares = 0.0
    freedom = 0
    for size in sizes:
        for times in (size.before, size.after):
            logs = np.log(times)
            squares += float(((logs - logs.mean()) ** 2).sum())
            freedom += len(times) - 1
    published = PUBLISHED_REPEATS * PUBLISHED_NOISE**2
    pooled = (published + squares) / (PUBLISHED_REPEATS + freedom)
    in_sets = squares / freedom if freedom else 0.0
    return sqrt(max(pooled, in_sets)), freedom


def limit_of(noise: float, freedom: int, repeats: tuple[float, float], tests: int) -> float:
    """Return the largest |log ratio| that noise explains if `tests` such ratios are examined.

    Args:
        noise: standard deviation of the log time of one repeat.
        freedom: number of repeats from which it was computed, without the published ones.
        repeats: number of repeats before and after.
        tests: number of ratios.

    Noise that was computed from few repeats may be larger in truth, which Student's distribution
    takes into account.
    """
    probability = 1 - FALSE_ALARMS / (2 * tests)
    quantile = float(stdtrit(PUBLISHED_REPEATS + freedom, probability))
    return quantile * noise * sqrt(1 / repeats[0] + 1 / repeats[1])


def _change_of(log_ratio: float, log_limit: float) -> Change:
    """Return whether a log ratio means slower, faster or the same, if noise explains up to
    `log_limit`.
    """
    if abs(log_ratio) <= log_limit:
        return "same"
    return "slower" if log_ratio > 0 else "faster"


def explained_change(source: Source, change: KindChange) -> list[Explained]:
    """Return how well each possible cause explains a change, the best first.

    Each cause is simulated, and the ratio of its times to the usual ones is compared with the
    measured ratio. If the system became faster, the cause is assumed to have existed before the
    change.
    """
    run = change.run
    simulated = tried(source, run)
    ratios = {size.size_bytes: size.ratio for size in change.sizes}
    rows = []
    for row, seconds in zip(simulated.rows, simulated.usual.tolist(), strict=True):
        ratio = ratios[row.size_bytes]
        if change.is_faster:
            ratio = 1 / ratio
        rows.append(replace(row, out_of_place=seconds * ratio, in_place=None))
    return ranked(Tried(tuple(rows), simulated.usual, simulated.times), run.collective)


def as_record(changes: Sequence[KindChange]) -> list[dict[str, Any]]:
    """Return the changes as plain values for JSON; times in microseconds."""
    return [
        {
            "collective": change.kind.collective,
            "dtype": change.kind.dtype,
            "root": change.kind.root,
            "ranks": change.kind.ranks,
            "regression": change.is_slower,
            "bands": [_band_record(band) for band in change.bands],
            "sizes": [_size_record(size) for size in change.sizes],
        }
        for change in changes
    ]


def _band_record(band: BandChange) -> Mapping[str, Any]:
    """Return one band as plain values for JSON."""
    return {
        "band": band.band,
        "ratio": band.ratio,
        "lowest_ratio_of_noise": exp(-band.log_limit),
        "highest_ratio_of_noise": exp(band.log_limit),
        "noise": band.noise,
        "repeats": band.repeats,
        "change": band.change,
        "changed_sizes": [size.size_bytes for size in band.changed_sizes],
    }


def _size_record(size: SizeChange) -> Mapping[str, Any]:
    """Return one size as plain values for JSON; times in microseconds."""
    return {
        "size_bytes": size.size_bytes,
        "before_us": [time * MICRO for time in size.before],
        "after_us": [time * MICRO for time in size.after],
        "ratio": size.ratio,
        "change": size.change,
    }
