"""The open benchmark on the command line: `netsim accuracy` with `--questions`, `--score` or
`--baseline`. docs/benchmark.md explains how to take part."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from netsim.base.errors import InputError
from netsim.base.files import write_text
from netsim.base.values import dataclass
from netsim.cli.options import BaselineName
from netsim.cli.output import check_outputs, print_lines, refuse_output_as_input, wrote
from netsim.measured.accuracy import chosen
from netsim.measured.baselines import baseline_of
from netsim.measured.benchmark import (
    Benchmark,
    Predictions,
    benchmark_of,
    predictions_csv,
    questions_text,
    read_predictions,
)
from netsim.measured.benchmark_score import Score, score_lines, score_of
from netsim.measured.index import IndexEntry, read_index
from netsim.measured.noise_floor import noise_by_band, repeated_times

MOST_SIZES = 8  # sizes without an answer that a line names


@dataclass(frozen=True)
class BenchmarkOptions:
    """Which task of the open benchmark is done (questions, score or baseline), and which files are
    written.
    """

    questions: Path | None = None
    score: Path | None = None
    baseline: BaselineName | None = None
    predictions: Path | None = None
    json_file: Path | None = None
    only: tuple[str, ...] = ()
    is_quiet: bool = False

    def is_used(self) -> bool:
        """Whether the command line has any option of the open benchmark."""
        options = (self.questions, self.score, self.baseline, self.predictions)
        return any(option is not None for option in options)


def run_benchmark(
    index: Path, options: BenchmarkOptions, other_options: Mapping[str, object]
) -> None:
    """Write the questions of an index, or score the predictions of a file or of a baseline.

    `other_options` has the values, by flag, of those options of `netsim accuracy` that need a
    simulation; an InputError is raised if one is set.
    """
    flag = _only_mode(options)
    _refuse_others(flag, other_options)
    outputs = {
        "--questions": options.questions,
        "--predictions": options.predictions,
        "--json": options.json_file,
    }
    check_outputs(outputs)
    corpus = read_index(index)
    entries = chosen(corpus, options.only)
    inputs = [index, *(entry.folder / entry.text("file") for entry in corpus)]
    if options.score is not None:
        inputs.append(options.score)
    for output in outputs.values():
        refuse_output_as_input(output, inputs)
    benchmark = benchmark_of(entries, corpus)
    if options.questions is not None:
        _write_questions(benchmark, options.questions, is_quiet=options.is_quiet)
        return
    if options.score is not None:
        predictions = read_predictions(options.score, benchmark)
    else:
        predictions = _baseline_predictions(benchmark, corpus, options)
    score = score_of(predictions, benchmark, noise_by_band(repeated_times(corpus)))
    print_lines(score_lines(score))
    if not options.is_quiet:
        print_lines(excluded_lines(benchmark), err=True)
        print_lines(missing_lines(score, benchmark), err=True)
    if options.json_file is not None:
        write_text(options.json_file, json.dumps(score.values(), indent=1) + "\n")


def _only_mode(options: BenchmarkOptions) -> str:
    """The one flag of `--questions`, `--score` and `--baseline` that was given.

    Raises an InputError if several were given, or an option that does not go with the flag.
    """
    modes = {
        "--questions": options.questions,
        "--score": options.score,
        "--baseline": options.baseline,
    }
    flags = [flag for flag, value in modes.items() if value is not None]
    if not flags:
        raise InputError("--predictions: goes with --baseline, whose predictions it writes")
    if len(flags) > 1:
        raise InputError(f"{' and '.join(flags)}: expected one of these options at a time")
    if options.predictions is not None and flags != ["--baseline"]:
        raise InputError(
            f"--predictions: goes with --baseline, got {flags[0]}",
            hint="--score FILE reads predictions",
        )
    if options.json_file is not None and flags == ["--questions"]:
        raise InputError("--json: goes without --questions, which has no score to write")
    return flags[0]


def _refuse_others(flag: str, other_options: Mapping[str, object]) -> None:
    """Raise an InputError if one of `other_options` (values by flag) is set beside `flag`."""
    for other_flag, value in other_options.items():
        if value:
            raise InputError(f"{other_flag}: goes without {flag}, which simulates nothing")


def _write_questions(benchmark: Benchmark, path: Path, *, is_quiet: bool) -> None:
    """Write the questions of the benchmark to a file, and print how many there are."""
    write_text(path, questions_text(benchmark, path))
    systems = len({run.system for run in benchmark.runs})
    print_lines(
        [
            f"{benchmark.question_count()} questions of {len(benchmark.runs)} runs "
            f"on {systems} systems"
        ]
    )
    if not is_quiet:
        print_lines(excluded_lines(benchmark), err=True)
        wrote(path)


def _baseline_predictions(
    benchmark: Benchmark, corpus: Sequence[IndexEntry], options: BenchmarkOptions
) -> Predictions:
    """The times that a baseline predicts for the questions; also written to the file of
    `--predictions`, if given.
    """
    assert options.baseline is not None
    baseline = baseline_of(options.baseline, benchmark, benchmark_of(corpus))
    if not options.is_quiet:
        print_lines((f"{options.baseline}: {note}" for note in baseline.notes), err=True)
    if options.predictions is not None:
        write_text(options.predictions, predictions_csv(benchmark, baseline.predictions.times))
        if not options.is_quiet:
            wrote(options.predictions)
    return baseline.predictions


def excluded_lines(benchmark: Benchmark) -> Iterator[str]:
    """A line for each run of the index that is not part of the benchmark, with the reason."""
    for name, reason in benchmark.excluded.items():
        yield f"not in the benchmark: {name}: {reason.removeprefix(f'{name}: ')}"


def missing_lines(score: Score, benchmark: Benchmark) -> Iterator[str]:
    """Yield a line for each run of which not every size has a prediction; it names the first of
    those sizes, in bytes.
    """
    counts = {run.name: len(run.questions) for run in benchmark.runs}
    for name, sizes in score.missing.items():
        if len(sizes) == counts[name]:
            yield f"no answer: {name}: all {len(sizes)} sizes"
            continue
        first = ", ".join(map(str, sizes[:MOST_SIZES]))
        more = len(sizes) - MOST_SIZES
        rest = f" and {more} more" if more > 0 else ""
        yield f"no answer: {name}: {len(sizes)} of {counts[name]} sizes: {first}{rest} B"
