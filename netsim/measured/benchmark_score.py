"""The score of predictions in the open benchmark: errors by size band and by class of run.

The error of a question is predicted / measured - 1. The error of several questions is the median of
the factor by which predicted and measured time differ in either direction, less 1: predictions that
are all twice too slow have an error of 100 %, and so have those that are all twice too fast.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from netsim.base.values import dataclass, grouped
from netsim.measured.benchmark import (
    BENCHMARK,
    VERSION,
    Benchmark,
    BenchmarkRun,
    Predictions,
    QuestionKey,
)
from netsim.measured.compare import ALL, error_figures, weights_of
from netsim.measured.noise_floor import BandNoise, error_beyond
from netsim.results.row import BANDS, NVLINK, ONE_HOST, band_of

COLUMNS = (*BANDS, ALL)
NAME_WIDTH = 56
CELL_WIDTH = 14
NO_FIGURE = "-"


@dataclass(frozen=True)
class ScoredQuestion:
    """A question with the logarithm of predicted over measured time, if there is a prediction."""

    run: BenchmarkRun
    size_bytes: int
    log_ratio: float | None
    is_within: bool | None = None  # whether its interval holds the measured time

    @property
    def band(self) -> str:
        """The size band of the question."""
        return band_of(self.size_bytes)


@dataclass(frozen=True)
class BandScore:
    """The score of the questions of a size band; errors are fractions, None without an answer.

    In `median`, `p90` and `bias` (the signed median) every system has the same weight, in
    `median_by_run` every run. `within` is the fraction of intervals that hold the measured time,
    averaged over systems.
    """

    questions: int
    answered: int
    runs: int
    systems: int
    median: float | None = None
    median_by_run: float | None = None
    p90: float | None = None
    bias: float | None = None
    intervals: int = 0
    within: float | None = None


@dataclass(frozen=True)
class Score:
    """The score of predictions.

    Args:
        bands: the score of each size band and of all sizes.
        classes: the same for each class of runs, by the grouping and the name of the class.
        missing: sizes without an answer, by run.
        noise: the noise of the measurements by band.
    """

    name: str
    bands: Mapping[str, BandScore]
    classes: Mapping[str, Mapping[str, Mapping[str, BandScore]]]
    missing: Mapping[str, tuple[int, ...]]
    noise: Mapping[str, BandNoise]
    runs: int
    systems: int
    ignored: int

    def values(self) -> dict[str, Any]:
        """Return the score as plain values, as `--json` writes them."""
        return {
            "benchmark": BENCHMARK,
            "benchmark_version": VERSION,
            "predictions": self.name,
            "bands": {band: vars(score) for band, score in self.bands.items()},
            "noise": {band: vars(noise) for band, noise in self.noise.items()},
            "classes": {
                kind: {
                    name: {band: vars(score) for band, score in by_band.items()}
                    for name, by_band in members.items()
                }
                for kind, members in self.classes.items()
            },
            "missing": {run: list(sizes) for run, sizes in self.missing.items()},
        }


def score_of(
    predictions: Predictions, benchmark: Benchmark, noise: Mapping[str, BandNoise]
) -> Score:
    """Return the score of predictions in a benchmark; `noise` is the noise of its measurements by
    size band.
    """
    scored = [
        _scored(run, question.size_bytes, question.measured_us, predictions)
        for run in benchmark.runs
        for question in run.questions
    ]
    missing: dict[str, tuple[int, ...]] = {}
    for question in scored:
        if question.log_ratio is None:
            name = question.run.name
            missing[name] = (*missing.get(name, ()), question.size_bytes)
    return Score(
        name=predictions.name,
        bands=_by_band(scored),
        classes={
            kind: {name: _by_band(members) for name, members in sorted(groups.items())}
            for kind, class_name in CLASSES.items()
            if (groups := grouped(scored, _class_of_run(class_name)))
        },
        missing=missing,
        noise=noise,
        runs=len(benchmark.runs),
        systems=len({run.system for run in benchmark.runs}),
        ignored=predictions.ignored_count,
    )


def _scored(
    run: BenchmarkRun, size_bytes: int, measured_us: float, predictions: Predictions
) -> ScoredQuestion:
    """Return a question of a run with its prediction, if there is one."""
    key: QuestionKey = (run.name, size_bytes)
    prediction = predictions.times.get(key)
    if prediction is None:
        return ScoredQuestion(run, size_bytes, None)
    is_within = None
    if prediction.interval is not None:
        low, high = prediction.interval
        is_within = low <= measured_us <= high
    return ScoredQuestion(
        run, size_bytes, float(np.log(prediction.time_us / measured_us)), is_within
    )


def _transport_name(run: BenchmarkRun) -> str:
    """Return the transport between the GPUs of a run as a title of a table."""
    if run.joined.transport == ONE_HOST:
        return f"one host, {run.joined.kind}"
    if run.joined.transport == NVLINK:
        return "several hosts, NVLink"
    return f"several hosts, {run.joined.transport}"


def _class_name(run: BenchmarkRun) -> str:
    """Return the class of a run as a title of a table."""
    return f"{run.joined.machine}, {run.joined.transport}, {run.collective}"


# The groupings of the score table: for each, a function that returns the class of a run.
CLASSES: dict[str, Callable[[BenchmarkRun], str]] = {
    "transport": _transport_name,
    "collective": lambda run: run.collective,
    "machine": lambda run: run.joined.machine,
    "machine, transport, collective": _class_name,
}


def _class_of_run(class_name: Callable[[BenchmarkRun], str]) -> Callable[[ScoredQuestion], str]:
    """Return a function that returns the class of a scored question in the grouping
    `class_name`.
    """
    return lambda question: class_name(question.run)


def _by_band(scored: Sequence[ScoredQuestion]) -> dict[str, BandScore]:
    """Return the scores by size band, without empty bands, and the score of all questions."""
    by_band = grouped(scored, lambda question: question.band)
    scores = {band: _band_score(by_band[band]) for band in BANDS if band in by_band}
    scores[ALL] = _band_score(scored)
    return scores


def _band_score(scored: Sequence[ScoredQuestion]) -> BandScore:
    """Return the score of at least one question."""
    answered = [question for question in scored if question.log_ratio is not None]
    counts = BandScore(
        questions=len(scored),
        answered=len(answered),
        runs=len({question.run.name for question in answered}),
        systems=len({question.run.system for question in answered}),
    )
    if not answered:
        return counts
    ratios = np.array([question.log_ratio for question in answered], dtype=float)
    by_system = weights_of([question.run.system for question in answered])
    by_run = weights_of([question.run.name for question in answered])
    median, p90, bias = error_figures(ratios, by_system)
    with_interval = [question for question in answered if question.is_within is not None]
    within = None
    if with_interval:
        weights = weights_of([question.run.system for question in with_interval])
        within = float(
            np.average([bool(question.is_within) for question in with_interval], weights=weights)
        )
    return BandScore(
        questions=counts.questions,
        answered=counts.answered,
        runs=counts.runs,
        systems=counts.systems,
        median=median,
        median_by_run=error_figures(ratios, by_run)[0],
        p90=p90,
        bias=bias,
        intervals=len(with_interval),
        within=within,
    )


# **** The score as a table ****


def score_lines(score: Score) -> Iterator[str]:
    """Return the lines of the score table."""
    total = score.bands[ALL]
    yield f"# {BENCHMARK}, version {VERSION}: {score.name}"
    yield (
        f"# answered: {total.answered} of {total.questions} questions, "
        f"{total.runs} of {score.runs} runs, {total.systems} of {score.systems} systems"
    )
    if total.answered < total.questions:
        yield "# questions without an answer are not in the errors: compare scores of equal answers"
    if score.ignored:
        yield f"# not scored: {score.ignored} rows of runs or sizes that are not in the benchmark"
    yield "#"
    yield _line("# error in %", COLUMNS)
    for name, figure in TOTALS.items():
        figures = [figure(score.bands[band]) if band in score.bands else None for band in COLUMNS]
        if any(text is not None for text in figures):
            yield _line(f"  {name}", [text or NO_FIGURE for text in figures])
    yield _line(
        "  questions answered",
        [_answered(score.bands[band]) if band in score.bands else NO_FIGURE for band in COLUMNS],
    )
    yield from _noise_lines(score)
    for kind, members in score.classes.items():
        yield "#"
        yield _line(f"# median error in % by {kind}", COLUMNS, last="answered")
        for name, by_band in members.items():
            cells = [
                (_percent(by_band[band].median) if band in by_band else None) or NO_FIGURE
                for band in COLUMNS
            ]
            yield _line(f"  {name}", cells, last=_answered(by_band[ALL]))


def _noise_lines(score: Score) -> Iterator[str]:
    """Yield lines on the noise of the measurements, and on the error that remains when it is
    subtracted.
    """
    if not score.noise:
        return
    floors = {band: noise.floor for band, noise in score.noise.items()}
    yield _line(
        "  noise floor of the measurements",
        [_percent(floors.get(band)) or NO_FIGURE for band in COLUMNS],
    )
    beyond = []
    for band in COLUMNS:
        median = score.bands[band].median if band in score.bands else None
        if median is None or band not in floors:
            beyond.append(NO_FIGURE)
        else:
            beyond.append(f"{error_beyond(median, floors[band]) * 100:.1f}")
    yield _line("  median beyond the noise floor, by system", beyond)


def _line(name: str, cells: Sequence[str], last: str = "") -> str:
    """Return a line of the table: a name, a cell for each band and for all sizes, and perhaps a
    last cell.
    """
    text = f"{name:<{NAME_WIDTH}}" + "".join(f"{cell:>{CELL_WIDTH}}" for cell in cells)
    return f"{text}{last:>{CELL_WIDTH}}".rstrip()


def _percent(fraction: float | None) -> str | None:
    """Return a fraction as a text in percent; None for None."""
    return None if fraction is None else f"{fraction * 100:.1f}"


def _signed_percent(fraction: float | None) -> str | None:
    """Return a fraction as a text in percent with its sign; None for None."""
    return None if fraction is None else f"{fraction * 100:+.1f}"


def _answered(score: BandScore) -> str:
    """Return a text with the number of answered questions and of all questions."""
    return f"{score.answered}/{score.questions}"


# The first lines of the table: a title, and how the value of a band is printed.
TOTALS: dict[str, Callable[[BandScore], str | None]] = {
    "median, every system weighs the same": lambda score: _percent(score.median),
    "median, every run weighs the same": lambda score: _percent(score.median_by_run),
    "90th percentile, by system": lambda score: _percent(score.p90),
    "bias (signed median), by system": lambda score: _signed_percent(score.bias),
    "measured within the 80 % intervals, by system": lambda score: _percent(score.within),
}
