"""`netsim calibrate`: fits a few physical parameters of a system to logs of it."""

import re
from collections.abc import Iterator, Mapping
from math import exp
from pathlib import Path

import typer

from netsim.base.errors import InputError, LostError
from netsim.base.files import SUFFIXES, find_preset, is_path, write_text
from netsim.base.units import format_bandwidth, format_time
from netsim.cli.log_questions import Question, question_of, resolved_with_notes
from netsim.cli.output import check_outputs, print_lines, refuse_output_as_input, tell
from netsim.cli.questions import QuestionOptions
from netsim.cli.workers import memory_of
from netsim.measured.calibrate import Calibrated, calibrate
from netsim.measured.compare import ALL, Error
from netsim.measured.logs import read_log
from netsim.results.row import BANDS
from netsim.topology.load import FOLDER, load_machine
from netsim.topology.machine import Figure, Machine
from netsim.yamlio.read import parse_source, read_source
from netsim.yamlio.validate import validate

SECTION = re.compile(r"^calibration:.*?(?=^\S|\Z)", re.MULTILINE | re.DOTALL)


def machine_text(name: str) -> str:
    """The text of the topology file with the machine to calibrate, which `--topology` names.

    Raises an InputError if the file is of another program or has no machine.
    """
    if is_path(name) and Path(name).suffix not in SUFFIXES:
        raise InputError(f"--topology {name}: only a machine of a topology file can be calibrated")
    path = find_preset(FOLDER, name, "machine").path
    if "gpu" not in read_source(path).data:
        raise InputError(f"--topology {name}: this is no machine (with gpu), which is calibrated")
    load_machine(path)
    return path.read_text(encoding="utf-8")


def written_file(path: Path, text: str, figures: Mapping[str, Figure], logs: str) -> Path:
    """Write the machine file `text` to `path`, with `figures` as its section `calibration`; return
    the path.

    Figures of an earlier calibration that are not in `figures` are kept. `logs` names the logs that
    were fitted, for a comment.
    """
    before = parse_source(text, str(path)).data.get("calibration") or {}
    lines = [f"calibration:  # fitted by netsim calibrate to {logs}"]
    for name, line in before.items():
        if name not in figures:
            items = ", ".join(f"{key}: {value}" for key, value in line.items())
            lines.append(f"  {name}: {{{items}}}")
    for name, figure in figures.items():
        lines.append(
            f"  {name}: {{value: {figure.value}, stamp: {figure.stamp}, low: {figure.low}, "
            f"high: {figure.high}}}"
        )
    bare = SECTION.sub("", text).rstrip() + "\n"
    complete_text = bare + ("\n".join(lines) + "\n" if len(lines) > 1 else "")
    validate(Machine, parse_source(complete_text, str(path)))
    return write_text(path, complete_text)


def calibrate_machine(
    logs: list[Path],
    topology: str,
    options: QuestionOptions,
    *,
    output: Path | None = None,
    collective: str | None = None,
    memory: str | None = None,
    jobs: int | None = None,
) -> None:
    """Fit launch cost, latencies and rates of a machine to logs, print them, and write a topology
    file to `output`.
    """
    text = machine_text(topology)
    check_outputs({"-o": output})
    refuse_output_as_input(output, logs)
    pairs = []
    for run in (run for path in logs for run in read_log(path, collective)):
        if not run.rows:
            raise InputError(f"{run.file}: {run.problems[0] if run.problems else 'no rows'}")
        source, notes = question_of(Question(topology, None, options), run)
        resolved_with_notes(source, notes, run)
        pairs.append((source, run))
    calibrated = calibrate(pairs, jobs, memory=memory_of(memory), tell=tell)
    print_lines(report(calibrated))
    if output is not None:
        names = ", ".join(dict.fromkeys(Path(run.file).name for _, run in pairs))
        written_file(output, text, calibrated.figures, names)
        typer.echo(f"wrote {output}", err=True)
    if calibrated.lost:
        raise LostError("\n".join(f"left out: {text}" for text in calibrated.lost))


def report(calibrated: Calibrated) -> Iterator[str]:
    """Yield the fitted parameters with 90 % intervals, those left unchanged with the reason, and
    the errors before and after.
    """
    yield "# fitted: factor on the usual value, 90 % interval"
    if all(fit.left for fit in calibrated.fitted):
        yield "  nothing"
    for fit in calibrated.fitted:
        if not fit.left:
            values = ", ".join(
                f"{name} {_shown(name, value)}"
                for name, value in fit.parameter.figures(fit.x).items()
            )
            span = f"[{exp(fit.low):.2f}, {exp(fit.high):.2f}]"
            edge = " (at the edge of what is physical)" if fit.at_edge else ""
            yield f"  {fit.parameter.name:<36} x {exp(fit.x):.2f} {span}   {values}{edge}"
    yield from _alternative_lines(calibrated)
    yield "# left at their usual values"
    for fit in calibrated.fitted:
        if fit.left:
            yield f"  {fit.parameter.name:<36} {fit.left}"
    yield from _errors("sizes that were fitted", calibrated.before, calibrated.after)
    title = "every fitted size where only the others are fitted (taken as linear)"
    yield from _errors(title, calibrated.before, calibrated.forecast)
    if calibrated.held:
        yield from _errors(
            "sizes held back from every fit", calibrated.held_before, calibrated.held
        )


def _alternative_lines(calibrated: Calibrated) -> Iterator[str]:
    """Yield the sets of parameters that the logs cannot tell apart: each line alone would explain
    the same points.
    """
    if not calibrated.alternatives:
        return
    if len(calibrated.alternatives) == 1:
        yield "# explains the points, but too few of them show it to be sure: left alone"
    else:
        yield "# not separated by these logs: each line explains the same points; all left alone"
    for alternative in calibrated.alternatives:
        named = (
            f"{parameter.name} x {exp(x):.2f}"
            for parameter, x in zip(alternative.parameters, alternative.x, strict=True)
        )
        yield f"  {' and '.join(named)}"
    yield "# (logs of more sizes or of other collectives may separate them)"


def _errors(title: str, before: dict[str, Error], after: dict[str, Error]) -> Iterator[str]:
    """Yield the median error by size band, before and after the fit, below a title."""
    yield f"# {title}: median error, before -> after"
    for band in (*BANDS, ALL):
        if band in after:
            points = f"({after[band].points} sizes)"
            yield f"  {band:>12}: {before[band].median:6.1%} -> {after[band].median:6.1%} {points}"


def _shown(name: str, value: float) -> str:
    """The value of a parameter as text with its unit; the unit follows from the
    parameter's name.
    """
    if "rate" in name or "bandwidth" in name:
        return format_bandwidth(value)
    return f"{value:.3g}" if value > 1e-2 else format_time(value)
