"""Write report.html from a folder of results: the table, the pictures, and the page around them."""

import base64
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure

from netsim.base import startup
from netsim.base.files import table_beside, write_text
from netsim.base.values import dataclass, evenly_spaced
from netsim.plots import results
from netsim.plots.explanation import (
    answers,
    breakdown_figure,
    step_breakdown_figure,
    timeline_figure,
    tornado_figure,
)
from netsim.plots.sizes import AXIS, SEED, lines_of, sizes_figure, thinned
from netsim.plots.style import drawing, save
from netsim.report.words import Summary, blank, doubtful, pages, summary_of

DIGITS = 6
SECONDS_AN_HOUR = 3600
OF_COSTS = ("cost_usd", "power_w", "usd_per_hour")  # columns of costs.csv that the page shows
OF_STEPS = ("mfu_pct", "tokens_per_s")  # columns of breakdown.csv that the page shows


def sheet_of(table: pd.DataFrame, axes: Sequence[str]) -> dict[str, Any]:
    """The columns of the page's table: the axes, then the columns that differ between rows."""
    columns = []
    for axis in axes:
        if AXIS + axis in table.columns:
            title = results.short(axis)
            columns.append(_column(table[AXIS + axis].tolist(), title, "text"))
    for name, title, kind in (row.values() for row in table_beside(__file__, "page/columns.csv")):
        if name in table.columns and not _is_shown_by_axis(table, name, axes):
            values = table[name].tolist()
            distinct_values = {value for value in values if not blank(value)}
            if len(distinct_values) > (1 if kind == "text" else 0):
                columns.append(_column(values, title, kind))
    doubtful_rows = np.flatnonzero(doubtful(table)).tolist()
    return {"rows": len(table), "columns": columns, "doubtful": doubtful_rows}


def _is_shown_by_axis(table: pd.DataFrame, name: str, axes: Sequence[str]) -> bool:
    """Whether the column of an axis already has the values of a column."""
    columns = [AXIS + axis for axis in axes if axis.rpartition(".")[2] == name]
    return any(
        column in table.columns and table[column].astype(str).equals(table[name].astype(str))
        for column in columns
    )


def _column(values: Sequence[Any], title: str, kind: str) -> dict[str, Any]:
    """Return a column of the page's table as plain values: `title`, `kind` and `values`, one for
    each row.

    In a column of kind "text", `texts` has the different texts, and `values` their numbers in it.
    In other columns `values` are numbers, None for an empty cell.
    """
    if kind == "text":
        texts = ["" if blank(value) else str(value) for value in values]
        place_of = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        return {
            "title": title,
            "kind": kind,
            "texts": list(place_of),
            "values": [place_of[text] for text in texts],
        }
    digits = 17 if kind == "size" else DIGITS  # a rounded 1 GiB would be shown as 1024 MiB
    numbers = [None if blank(value) else float(f"{float(value):.{digits}g}") for value in values]
    plain = [
        int(number) if number is not None and number == int(number) else number
        for number in numbers
    ]
    return {"title": title, "kind": kind, "values": plain}


def page_json(values: Mapping[str, Any]) -> str:
    """JSON that is safe within a script element of a page, whatever it contains."""
    text = json.dumps(values, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


REPORT = "report.html"
PICTURES = "pictures"
MOST_LINES = 6  # most cells that are drawn by size, beside the base line: each has its own color
LARGEST_PICTURE = 400_000  # bytes of an SVG; larger ones are shown as PNG


@dataclass(frozen=True)
class ReportPicture:
    """A picture of the page: its heading, a description, the picture as a data URI, and its
    files."""

    title: str
    text: str
    uri: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class ReportExtra:
    """What was simulated or computed beside the rows: explanations by name, the topology of the
    best cell, costs by cell, and the breakdown of training steps."""

    explanations: Mapping[str, Mapping[str, Any]]
    topology: Path | None = None
    costs: pd.DataFrame | None = None
    steps: pd.DataFrame | None = None


def write_report(
    folder: Path, target: Path, manifest: Mapping[str, Any], table: pd.DataFrame, extra: ReportExtra
) -> Path:
    """Write the report of a folder, and its pictures as SVG and PNG, to the folder `target`."""
    table = _with_more(table, manifest, extra)
    good = table[table["status"].isin(["", "ok"])]
    summary = summary_of(table, good, manifest)
    script = page_part("report.js")
    comment = takewhile(lambda line: line.startswith("#"), manifest.get("text", "").splitlines())
    template = pages().get_template("report.html")
    page = template.render(
        name=manifest["scenario"],
        question=" ".join(line.lstrip("# ").strip() for line in comment),
        sum=summary,
        rows=len(table),
        cells=table["cell"].nunique(),
        failed=table["cell"].nunique() - good["cell"].nunique(),
        groups=_pictures(folder, target, good, manifest, extra, summary),
        sheet=Markup(page_json(sheet_of(table, manifest.get("axes", [])))),
        style=Markup(page_part("report.css")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        manifest=manifest,
        explanations=extra.explanations,
    )
    return write_text(target / REPORT, page)


def page_part(name: str) -> str:
    """The text of a file of the page: its style or its script."""
    return (Path(__file__).parent / "page" / name).read_text(encoding="utf-8")


def _with_more(
    table: pd.DataFrame, manifest: Mapping[str, Any], extra: ReportExtra
) -> pd.DataFrame:
    """The rows with figures of training steps, costs, and the speedup over the base line."""
    if extra.steps is not None:
        figures = [name for name in OF_STEPS if name in extra.steps]
        table = table.merge(extra.steps[["cell", *figures]], on="cell", how="left")
    if extra.costs is not None:
        priced = [name for name in OF_COSTS if name in extra.costs]
        table = _with_running_costs(
            table.merge(extra.costs[["cell", *priced]], on="cell", how="left")
        )
    good = table[table["status"].isin(["", "ok"])]
    question = results.question_of(good, manifest)
    if question.base and len(good):
        if SEED in table.columns:
            question = replace(question, choices=(*question.choices, SEED))
        pairs = results.against(results.compared(good, question), question)
        table = table.assign(speedup=1 / pairs["ratio"])
    return table


def _with_running_costs(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of training steps with the costs of a step and of a million tokens, in US
    dollars."""
    if not {"usd_per_hour", "step_time_us"} <= {*table.columns}:
        return table
    hours = pd.to_numeric(table["step_time_us"], errors="coerce") / 1e6 / SECONDS_AN_HOUR
    if hours.isna().all():
        return table
    table = table.assign(usd_per_step=table["usd_per_hour"] * hours)
    if "tokens_per_s" in table:
        tokens_an_hour = pd.to_numeric(table["tokens_per_s"], errors="coerce") * SECONDS_AN_HOUR
        table = table.assign(usd_per_million_tokens=table["usd_per_hour"] / tokens_an_hour * 1e6)
    return table


def _is_step(explanation: Mapping[str, Any]) -> bool:
    """Whether an explanation is of a training step, and not of a collective."""
    return "gpus_us" in explanation


def _other_of(explanations: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the explanation of a training step that is not labeled "best", to be shown beside the
    best one; empty if there is none.
    """
    others = [
        explanation
        for label, explanation in explanations.items()
        if label != "best" and _is_step(explanation)
    ]
    return others[0] if others and "best" in explanations else {}


def _pictures(
    folder: Path,
    target: Path,
    good: pd.DataFrame,
    manifest: Mapping[str, Any],
    extra: ReportExtra,
    summary: Summary,
) -> dict[str, list[ReportPicture]]:
    """Draw the pictures of a report into `target`; return them by their group on the page."""
    place = target / PICTURES
    place.mkdir(exist_ok=True)
    groups: dict[str, list[ReportPicture]] = {"results": [], "why": [], "topology": []}
    if not summary.answers:  # no row has a time
        return groups
    rows = summary.rows
    question = summary.question
    explanations = extra.explanations
    name = results.title_of(good) + summary.at
    front = rows[rows["shown"]]
    front = front[front["question"] == summary.answers[-1][0]]
    best = (
        explanations.get("chosen")
        or explanations.get("best")
        or next(iter(explanations.values()), {})
    )
    step = bool(best) and _is_step(best)
    second = _other_of(explanations)
    if second is best:
        second = explanations["best"]
    subject = best.get("title", "")
    front_of = ", ".join(filter(None, (name, summary.answers[-1][0])))
    figures: dict[str, Callable[[], Figure | None]] = {
        "sizes": lambda: _sizes(good, manifest, summary),
        "axes": lambda: results.axes_figure(rows, question, name),
        "heat": lambda: results.heat_figure(rows, question, name),
        "interference": lambda: results.interference_figure(folder / "interference.csv"),
        "cost": lambda: results.pareto_figure(front, "cost_usd", "cost (USD)", front_of),
        "power": lambda: results.pareto_figure(front, "power_w", "power (W)", front_of),
        "breakdown": lambda: breakdown_figure(explanations) if best else None,
        "tornado": lambda: tornado_figure(best, subject) if best else None,
        "timeline": lambda: timeline_figure(best, subject) if best else None,
        "step": lambda: step_breakdown_figure(best),
        "step-other": lambda: step_breakdown_figure(second) if second else None,
        "what-if": lambda: _answers_figure(best),
    }
    numbers = {
        "lines": MOST_LINES,
        "panels": results.MOST_PANELS,
        "questions": results.MOST_QUESTIONS,
    }
    plans = (
        pages()
        .get_template("pictures.txt")
        .render(sum=summary, what=subject, step=step, other=second.get("title", ""), **numbers)
    )
    with drawing():
        for number, line in enumerate(filter(None, plans.splitlines())):
            group, stem, title, text = line.split("|")
            startup.at(title, number, len(figures))
            figure = figures[stem]()
            if figure is not None:
                svg, *_ = written = save(figure, place / stem)
                names = tuple(file.name for file in written)
                groups[group].append(ReportPicture(title, text, picture_uri(svg), names))
    if extra.topology is not None:
        cell = "cell with the costliest part at fault" if summary.compares_parts else "best cell"
        text = f"Links of the {cell}, colored by how much they are used"
        files = (extra.topology.name, extra.topology.with_suffix(".png").name)
        groups["topology"].append(
            ReportPicture("Topology", text, picture_uri(extra.topology), files)
        )
    return groups


def _answers_figure(explanation: Mapping[str, Any]) -> Figure | None:
    """Return the picture that shows how long a step takes if one part of it is faster or takes no
    time; None if no such change was simulated.
    """
    for answer in explanation["answers"]:
        if answer["faster_10pct_us"] is not None or answer["free_us"] is not None:
            return answers(explanation)
    return None


def picture_uri(svg: Path) -> str:
    """The picture as a data URI, in which no script can run; large pictures are PNG."""
    png = svg.with_suffix(".png")
    if svg.stat().st_size > LARGEST_PICTURE and png.exists():
        return f"data:image/png;base64,{base64.b64encode(png.read_bytes()).decode()}"
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.read_bytes()).decode()}"


def _sizes(good: pd.DataFrame, manifest: Mapping[str, Any], summary: Summary) -> Figure | None:
    """Return a figure of lines over sizes, or None if there are fewer than two sizes.

    If there are many cells, the legend names the base line and evenly spaced ones of the others.
    """
    if summary.rows["size"].nunique() < 2:
        return None
    rate = manifest.get("line_rate")
    title = results.title_of(good)
    if len(summary.answers) > 1:
        names = [choice.name for choice in summary.choices]
        few = [names[k] for k in evenly_spaced(len(names), MOST_LINES)]
        return results.facets_figure(summary.rows, few, rate, title)
    lines = thinned(
        lines_of(good.assign(file="")), MOST_LINES, always=[summary.base_line.get("cell", "")]
    )
    return sizes_figure(lines, title, rate)
