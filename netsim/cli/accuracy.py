"""`netsim accuracy`: compares every measured run of an index with its simulation; prints the
errors.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import typer

from netsim.base.errors import InputError, LostError
from netsim.base.files import preset_folder, write_text
from netsim.base.startup import on
from netsim.base.values import dataclass, grouped
from netsim.cli.benchmark import BenchmarkOptions, run_benchmark
from netsim.cli.options import BaselineName
from netsim.cli.output import INTERRUPTED, check_outputs, print_lines, refuse_output_as_input, tell
from netsim.cli.workers import memory_of
from netsim.measured import accuracy, novelty
from netsim.measured.accuracy_records import AccuracyRecords, open_records
from netsim.measured.compare import ALL, ComparedPoint, by_band
from netsim.measured.estimate import switched_off
from netsim.measured.healthy import healthy_points, margins_text
from netsim.measured.index import IndexEntry, joined_by, read_index
from netsim.measured.noise_floor import noise_by_band, noise_table, repeated_times
from netsim.measured.training import ComparedSteps, by_note, is_published, page_of, tables
from netsim.plots.results import MOST_CURVES, plot_accuracy
from netsim.results import novelty as novelties
from netsim.results.margins import MARGINS
from netsim.results.row import BANDS, INTERVALS, band_of

MOST_CHANGES = 12
TRAINING = ("measured/training.yaml", "scenarios/measured/training.yaml")
NAME = 36
NO_FIGURE = "-"


@dataclass(frozen=True)
class AccuracyOptions:
    """The options of `netsim accuracy`, as they were given (`netsim/cli/verbs/accuracy.py` has
    their help).
    """

    json_file: Path | None = None
    plots: Path | None = None
    page: Path | None = None
    jobs: int | None = None
    memory: str | None = None
    only: list[str] | None = None
    against: Path | None = None
    predict: Path | None = None
    predicted: Path | None = None
    leave: bool = False
    novelty: bool = False
    without: list[str] | None = None
    resume: bool = False
    questions: Path | None = None
    score: Path | None = None
    baseline: BaselineName | None = None
    predictions: Path | None = None
    quiet: bool = False

    def of_benchmark(self) -> BenchmarkOptions:
        """The options that concern the open benchmark (`netsim/cli/benchmark.py`)."""
        return BenchmarkOptions(
            questions=self.questions,
            score=self.score,
            baseline=self.baseline,
            predictions=self.predictions,
            json_file=self.json_file,
            only=tuple(self.only or ()),
            is_quiet=self.quiet,
        )

    def of_simulation(self) -> dict[str, object]:
        """The values of the options, by flag, that need a simulation of the index; the open
        benchmark refuses them.
        """
        return {
            "--plots": self.plots,
            "--page": self.page,
            "--jobs": self.jobs,
            "--memory": self.memory,
            "--against": self.against,
            "--predict": self.predict,
            "--predicted": self.predicted,
            "--leave-out": self.leave,
            "--novelty": self.novelty,
            "--without": self.without,
            "--resume": self.resume,
        }


def print_accuracy(index: Path, options: AccuracyOptions) -> None:
    """Simulate every run of an index and print the error by run, machine, collective and size.

    With options of the open benchmark, write the questions of the index or score predictions
    instead; with `--predicted`, read the simulated times from a file.
    """
    if options.of_benchmark().is_used():
        run_benchmark(_index_of_collectives(index), options.of_benchmark(), options.of_simulation())
        return
    before = accuracy.read_accuracy(options.against) if options.against else ()
    files = {"--json": options.json_file, "--page": options.page, "--predict": options.predict}
    check_outputs(files, plots=options.plots)
    index = _index(index)
    for output in files.values():
        refuse_output_as_input(output, _input_files(index, options))
    if is_published(index):
        _steps(index, options)
        return
    corpus = read_index(index)
    entries = accuracy.chosen(corpus, options.only or ())
    if options.predicted is not None:
        results, within = accuracy.from_forecast(options.predicted, entries)
        _write(results, entries, replace(options, page=None), None, before)
        tell(within)
    else:
        results = _simulated(index, corpus, entries, options, before)
    for line in _asides(results, options.quiet):
        tell(line)
    if results.missing:
        runs = len({point.run for point in results.points})
        left = ", no page is written" if options.page is not None else ""
        tell(f"interrupted: only what was finished is shown ({runs} runs){left}")
        raise typer.Exit(INTERRUPTED)
    if results.lost:
        raise typer.Exit(LostError.exit_code)


def _input_files(index: Path, options: AccuracyOptions) -> Iterator[Path]:
    """Yield the files that the command reads: the index, the tables of its runs,
    earlier results.
    """
    yield index
    yield from (path for path in (options.against, options.predicted) if path is not None)
    if index.is_file() and not is_published(index):
        for entry in read_index(index):
            yield entry.folder / entry.text("file")


def _simulated(
    index: Path,
    corpus: Sequence[IndexEntry],
    entries: Sequence[IndexEntry],
    options: AccuracyOptions,
    before: Sequence[ComparedPoint],
) -> accuracy.Accuracy:
    """Simulate the chosen `entries` of an index, and print and write the requested outputs.

    Entries that the journal of an interrupted command holds are not simulated again with
    `--resume`. `corpus` has all entries of the index, for fits; `before` the points of an earlier
    result to compare with.
    """
    entries = accuracy.questions(entries) if options.predict is not None else entries
    if options.novelty and not options.leave:
        raise InputError("--novelty: needs --leave-out", hint="add --leave-out")
    if options.without and options.page is not None:
        raise InputError("--without: goes without --page, which is of all constants")
    off = [switched_off(one) for one in options.without or ()]
    figures = accuracy.figures_off(entries, off)
    with open_records(index, resume=options.resume, tell=tell) as records:
        results = accuracy.run_index(
            entries,
            options.jobs,
            memory=memory_of(options.memory),
            tell=tell,
            records=records,
            figures=figures,
        )
        if options.leave and not results.missing:
            on("runs left out")
            results = accuracy.leave_out(results, entries, corpus, options.jobs, None, records, off)
        errors: list[novelty.NoveltyError] = []
        if options.novelty and not results.missing:
            errors = _novelty_errors(results, entries, corpus, options, records)
        if options.predict is not None:
            write_text(options.predict, accuracy.forecast_text(results, entries))
        else:
            classes = None if options.only else accuracy.results_path(index)
            _write(results, entries, options, classes, before, errors)
        if not (results.missing or results.lost):
            records.finish()
    return results


def _novelty_errors(
    results: accuracy.Accuracy,
    entries: Sequence[IndexEntry],
    corpus: Sequence[IndexEntry],
    options: AccuracyOptions,
    records: AccuracyRecords,
) -> list[novelty.NoveltyError]:
    """Return the errors of each novelty class by size band (`netsim/measured/novelty.py`).

    `results` has the runs simulated without their own system. Here they are simulated again with
    constants that are fitted without all systems of their machine and transport (level TRANSPORT),
    and without all systems of their machine (level KIND).
    """
    points = {novelty.SYSTEM: results.left_out}
    for level in (novelty.TRANSPORT, novelty.KIND):
        on(f"runs left out by {level}")
        points[level] = novelty.left_out_by(
            level, results, entries, corpus, options.jobs, None, records
        )
    healthy = [point for point in results.left_out if point.healthy]
    is_within = accuracy.points_within(healthy, entries)
    return novelty.novelty_errors(novelty.by_novelty(points, corpus), is_within)


def _write(
    results: accuracy.Accuracy,
    entries: Sequence[IndexEntry],
    options: AccuracyOptions,
    classes: Path | None,
    before: Sequence[ComparedPoint],
    errors: Sequence[novelty.NoveltyError] = (),
) -> None:
    page = options.page
    if options.json_file is not None:
        write_text(options.json_file, results.json())
    print_lines(report(results))
    print_lines(noise_report(results, entries))
    if errors:
        print_lines(novelty.printed_rows(errors))
    print_lines(_changes(results.points, before))
    if options.plots is not None:
        _pictures(results, options.plots)
    if page is not None and results.points and not results.missing and not results.lost:
        folder = page.parent / page.stem
        pictures = {
            name: [f"{page.stem}/{file.name}" for file in files]
            for name, files in _pictures(results, folder).items()
        }
        rows = list(novelty.page_rows(errors))
        write_text(page, accuracy.page_text(results, entries, pictures, rows))
        if classes is not None:
            points = results.left_out or results.points
            write_text(classes, accuracy.classes_of(points, entries))
            write_text(
                accuracy.results_path(classes, INTERVALS), accuracy.intervals_text(points, entries)
            )
            if errors:
                write_text(
                    accuracy.results_path(classes, novelties.ERRORS), novelty.errors_text(errors)
                )
                write_text(
                    accuracy.results_path(classes, novelties.MEASURED),
                    novelty.traits_text(entries),
                )
            where = {entry.id: joined_by(entry) for entry in entries}
            margins = margins_text(healthy_points(points, where))
            write_text(accuracy.results_path(classes, MARGINS), margins)


def _index(path: Path) -> Path:
    """The file that INDEX names; for `measured`, `training.yaml` and similar names without such a
    file, the index that comes with netsim.
    """
    folder = preset_folder("scenarios") / "measured"
    if path.is_file():
        return path
    if path.name == "training.yaml" and path.as_posix() in (*TRAINING, path.name):
        return folder / path.name
    is_corpus = path.as_posix() in (
        "measured",
        "scenarios/measured",
        "scenarios/measured/index.yaml",
    )
    return folder / "index.yaml" if is_corpus else path


def _index_of_collectives(path: Path) -> Path:
    """The index file that a path names; raises an InputError if it lists training steps."""
    index = _index(path)
    if is_published(index):
        raise InputError(
            f"{index}: lists training steps, but the benchmark is of collectives",
            hint="leave INDEX away to take the corpus of collectives",
        )
    return index


def _steps(index: Path, options: AccuracyOptions) -> None:
    """Simulate the training steps of an index, print their errors, and write the
    requested files.
    """
    corpus = read_index(index, ())
    entries = accuracy.chosen(corpus, options.only or ())
    with open_records(index, resume=options.resume, tell=tell) as records:
        if options.leave:
            steps = accuracy.steps_left_out(entries, corpus, options.jobs, None, records)
        else:
            steps = accuracy.journaled_steps(entries, options.jobs, None, records)
        _write_steps(steps, entries, options)
        if not steps.missing:
            records.finish()
    if not options.quiet:
        for note, ids in by_note(steps.compared).items():
            typer.echo(f"assumed: {note}: {len(ids)} steps", err=True)
    for id_, reason in steps.failed.items():
        typer.echo(f"not simulated: {id_}: {reason.removeprefix(f'{id_}: ')}", err=True)
    if steps.missing:
        typer.echo(f"interrupted: {steps.missing} entries are missing", err=True)
        raise typer.Exit(INTERRUPTED)


def _write_steps(
    steps: ComparedSteps, entries: Sequence[IndexEntry], options: AccuracyOptions
) -> None:
    """Print the errors of training steps, and write the files of `--json` and `--page`."""
    if options.json_file is not None:
        write_text(options.json_file, steps.json())
    print_lines(_steps_report(steps))
    if options.page is not None and steps.compared and not steps.missing:
        sources = {entry.id: entry.text("source") for entry in entries}
        write_text(options.page, page_of(steps, sources))


def _steps_report(steps: ComparedSteps) -> Iterator[str]:
    """Yield a line for each training step, then tables of the errors by group of steps."""
    if not steps.compared:
        return
    yield f"# {'step':<{NAME}}{'GPUs':>7}{'published, s':>14}{'simulated, s':>14}{'error':>9}"
    for step in steps.compared:
        published = step.published
        error = step.simulated / published.seconds - 1
        name = f"{published.id[:NAME]:<{NAME}}"
        times = f"{published.seconds:>14.4g}{step.simulated:>14.4g}"
        yield f"  {name}{published.gpus:>7}{times}{error:>9.1%}"
    for part, part_steps in (("", steps.compared), (", left out", steps.left_out)):
        for title, table in tables(part_steps) if part_steps else ():
            yield f"#\n# {title + part:<{NAME}}{'steps':>7}{'median':>10}{'p90':>8}{'bias':>9}"
            for name, error_ in table.items():
                figures = f"{error_.median:>10.1%}{error_.p90:>8.0%}{error_.bias:>+9.1%}"
                yield f"  {name:<{NAME}}{error_.steps:>7}{figures}"


def _pictures(results: accuracy.Accuracy, folder: Path) -> dict[str, list[Path]]:
    """Write plots of simulated and measured times into a folder; return their files by machine.

    A plot has at most MOST_CURVES runs, each in its own color.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: dict[str, list[Path]] = {}
    for machine, points in grouped(results.points, attrgetter("machine")).items():
        curves = [
            (run, [(p.size_bytes, p.measured_us, p.simulated_us) for p in some])
            for run, some in grouped(points, attrgetter("run")).items()
        ]
        parts = -(-len(curves) // MOST_CURVES)
        size = -(-len(curves) // parts)
        for number in range(parts):
            name = machine if parts == 1 else f"{machine}-{number + 1}"
            few = dict(curves[number * size : (number + 1) * size])
            made = plot_accuracy(few, folder / name, machine)
            written.setdefault(machine, []).append(made[0])
    return written


def report(results: accuracy.Accuracy) -> Iterator[str]:
    """Yield the tables of errors by run, machine and collective, first of healthy runs, then of
    runs with a problem.
    """
    for title, healthy in (("healthy runs", True), ("runs with a problem", False)):
        points = [point for point in results.points if point.healthy is healthy]
        if not points:
            continue
        yield f"# {title}: median error in %, [90th percentile], bias"
        yield f"# {'run':<{NAME}}{''.join(f'{band:>21}' for band in (*BANDS, ALL))}  points"
        for name, run_points in grouped(points, lambda point: point.run).items():
            yield _line(name, run_points)
        yield "#"
        for key in ("machine", "collective"):
            for name, run_points in sorted(grouped(points, attrgetter(key)).items()):
                yield _line(f"{key} {name}", run_points)
            yield "#"
        yield _line("all " + title, points)
        left = [point for point in results.left_out if point.healthy is healthy]
        if left:
            yield "#"
            yield f"# {title}, each without what was fitted to its own system"
            for key in ("machine", "system"):
                for name, run_points in sorted(grouped(left, attrgetter(key)).items()):
                    yield _line(f"{key} {name}", run_points)
            yield _line("all " + title, left)
        yield "#"


def noise_report(results: accuracy.Accuracy, entries: Sequence[IndexEntry]) -> Iterator[str]:
    """Yield a table of the errors of healthy runs and the noise of their measurements, in %.

    Yields nothing if no measurement was repeated. The noise floor is the median error of a
    simulation that predicts the mean of all repeats.
    """
    noise = noise_by_band(repeated_times(entries))
    parts = {"in sample": results.points, "left out": results.left_out}
    healthy = {name: [point for point in points if point.healthy] for name, points in parts.items()}
    healthy = {name: points for name, points in healthy.items() if points}
    if not noise or not healthy:
        return
    yield "# healthy runs, errors and the noise of measurements in % (docs/measured.md)"
    yield f"# {'':<{NAME}}{''.join(f'{band:>21}' for band in (*BANDS, ALL))}"
    for name, cells in noise_table(healthy, noise).items():
        shown = "".join(f"{cell or NO_FIGURE:>21}" for cell in cells)
        yield f"  {name:<{NAME}}{shown}"
    yield "#"


def _line(name: str, points: Sequence[ComparedPoint]) -> str:
    """A line of a table: the errors of some points in each size band, and the number of points."""
    errors = by_band(points)
    cells = (str(errors.get(band, "-")).replace("%", "") for band in (*BANDS, ALL))
    return f"  {name:<{NAME}}{''.join(f'{cell:>21}' for cell in cells)}{len(points):>8}"


def _changes(now: Sequence[ComparedPoint], before: Sequence[ComparedPoint]) -> Iterator[str]:
    """Yield how median errors changed from an earlier result to this one; nothing without an
    earlier result.

    `now` and `before` have the points of both. Errors are compared by size band, then by run.
    """
    if not before:
        return
    both = accuracy.compared(now, before)
    if not both:
        yield "# the earlier result has none of these runs"
        return
    runs = {run for run, _, _ in both}
    for healthy, title in ((True, "healthy"), (False, "with a problem")):
        pairs = [
            [p for p in points if p.run in runs and p.healthy is healthy]
            for points in (before, now)
        ]
        for band in BANDS:
            cut = [[p for p in points if band_of(p.size_bytes) == band] for points in pairs]
            if all(cut):
                was, became = (by_band(points)[ALL].median for points in cut)
                yield f"# {title}, {band}: {was:.1%} -> {became:.1%}"
    moved = [one for one in both if abs(one[2] - one[1]) > 5e-4]
    better = sum(became < was for _, was, became in moved)
    yield f"# {better} runs better, {len(moved) - better} worse, {len(both) - len(moved)} as before"
    for run, was, became in moved[:MOST_CHANGES]:
        word = "better" if became < was else "worse"
        yield f"  {run:<{NAME}}{was:>8.1%} -> {became:<8.1%}{word}"


def _asides(results: accuracy.Accuracy, quiet: bool) -> Iterator[str]:
    """Yield messages: what was assumed for each run (not if `quiet`), and which runs could not be
    simulated.
    """
    if not quiet:
        for run, notes in results.notes.items():
            for note in notes:
                yield f"assumed: {run}: {note}"
    for failure in results.failed:
        size = "" if failure.size_bytes is None else f" at {failure.size_bytes} B"
        yield f"not simulated: {failure.run}{size}: {failure.reason}"
