"""The validation page: what `netsim accuracy` found, as Markdown, with a picture a machine."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple
from pathlib import Path

from netsim.measured.accuracy import Accuracy
from netsim.measured.bands import ALL, BANDS, Error, band_of, by_band, error_of, grouped
from netsim.measured.index import Entry
from netsim.measured.mapping import nics_gbps
from netsim.measured.points import Point
from netsim.validated import Joined, joined
from netsim.version import MODEL_VERSION

INTRO = """# Validation

Every run of the corpus (`scenarios/measured/`) beside its simulation with default parameters: no
figure was fitted to the run's own system unless a comment in `topologies/` or
`netsim doctor --constants` says that it was. This page is written by

```sh
netsim accuracy scenarios/measured/index.yaml --page docs/validation.md
```

The error of a point is simulated ÷ measured − 1. Tables show, by size band, the median of the
|log ratio| as a percentage, in brackets its 90th percentile, then the signed median (negative: the
simulation is too fast). Versions and launches that a source does not name are assumed as
`netsim accuracy` says; runs that their posters or we judge to have a problem are kept apart.
"""


def classes_of(points: Sequence[Point], entries: Sequence[Entry]) -> str:
    """The error of every class of healthy runs, as the file that `netsim.validated` reads."""
    where = {
        entry.id: joined(entry.machine, entry.transport, nics_gbps(entry)) for entry in entries
    }
    found = grouped(
        (point for point in points if point.healthy),
        lambda p: (astuple(where[p.run]), p.collective, band_of(p.size_bytes)),
    )
    values = []
    for (machines, collective, band), some in sorted(found.items()):
        error = error_of(some)
        values.append(
            {
                **asdict(Joined(*machines)), "collective": collective, "band": band,
                "median": round(error.median, 4), "runs": error.runs,
            }
        )  # fmt: skip
    return json.dumps(values, indent=1) + "\n"


def page_text(
    found: Accuracy, entries: Sequence[Entry], pictures: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """The lines of the page; `pictures` are the files by machine, relative to the page."""
    yield INTRO
    healthy = [point for point in found.points if point.healthy]
    yield from _headline(found, healthy, [entry for entry in entries if not entry.healthy])
    yield "\n## By machine\n"
    yield from _table("machine", _by(healthy, "machine"))
    yield "\n## By collective\n"
    yield from _table("collective", _by(healthy, "collective"))
    sources = {entry.id: entry.text("source") for entry in entries}
    for machine, points in sorted(grouped(found.points, lambda p: p.machine).items()):
        yield f"\n## {machine}\n"
        for picture in pictures.get(machine, ()):
            yield f"![Measured and simulated times on {machine}]({picture})\n"
        marked = {
            name + ("" if some[0].healthy else " (problem)"): some
            for name, some in grouped(points, lambda p: p.run).items()
        }
        yield from _table("run", marked)
        links = sorted({sources[p.run] for p in points if sources[p.run].startswith("http")})
        if links:
            yield "\nSources: " + ", ".join(f"<{link}>" for link in links)
    yield from _assumed(found)
    if found.failed:
        yield "\n## Not simulated\n"
        for one in found.failed:
            size = "" if one.size_bytes is None else f" at {one.size_bytes} B"
            yield f"- {one.run}{size}: {one.reason}"


def _headline(found: Accuracy, healthy: Sequence[Point], ill: Sequence[Entry]) -> Iterator[str]:
    """The figures of all healthy runs, and under which conditions they hold."""
    runs = len({point.run for point in healthy})
    machines = len({point.machine for point in healthy})
    where = f"{_count(runs, 'healthy run')} on {_count(machines, 'kind')} of machine"
    where += "s" * (machines != 1)
    yield f"Model {MODEL_VERSION}, {where}, {_count(len(healthy), 'point')}.\n"
    problems = [point for point in found.points if not point.healthy]
    parts = {"all healthy runs": healthy, "runs with a problem": problems}
    yield from _table("", {name: some for name, some in parts.items() if some})
    yield "\nConditions:\n"
    yield (
        "- The constants of execution, launches and transports were fitted to some of these runs "
        "(`netsim doctor --constants` names them), so this is how well one set of constants for "
        "each generation describes all of them, not a forecast for machines that are not among "
        "them."
    )
    yield "- Every point counts alike, so runs with many sizes count more than those with few."
    yield "- A column `validated` quotes the median of its class here, however few its runs are."
    if ill:
        names = ", ".join(f"{entry.id} ({entry.text('healthy')})" for entry in ill)
        yield f"- Kept apart as having a problem: {names}."
    if found.notes:
        yield f"- Something was assumed for {_count(len(found.notes), 'run')}, as listed below."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _assumed(found: Accuracy) -> Iterator[str]:
    """What entries of the index left open."""
    if found.notes:
        yield "\n## Assumed\n"
        for run, notes in sorted(found.notes.items()):
            yield f"- {run}: {'; '.join(notes)}"


def _by(points: Sequence[Point], key: str) -> dict[str, list[Point]]:
    return dict(sorted(grouped(points, lambda point: str(getattr(point, key))).items()))


def _table(title: str, parts: Mapping[str, Sequence[Point]]) -> Iterator[str]:
    yield f"| {title} | " + " | ".join((*BANDS, ALL)) + " | points |"
    yield "|---|" + "---|" * (len(BANDS) + 2)
    for name, points in parts.items():
        errors = by_band(points)
        cells = " | ".join(_cell(errors.get(band)) for band in (*BANDS, ALL))
        yield f"| {name} | {cells} | {len(points)} |"


def _cell(error: Error | None) -> str:
    if error is None:
        return ""
    return f"{error.median:.1%} [{error.p90:.0%}] {error.bias:+.0%}"


def results_path(index: Path) -> Path:
    """Where the classes of an index are stored: beside it."""
    return index.parent / "validated.json"
