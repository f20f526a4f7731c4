"""From a folder of results to report.html: the table, the pictures, and the page around them."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader
from markupsafe import Markup
from matplotlib.figure import Figure

from netsim.base.files import write_text
from netsim.base.values import dataclass
from netsim.plots.explanation import breakdown_figure, timeline_figure, tornado_figure
from netsim.plots.results import axes_figure, heat_figure, pareto_figure, short, shown_size
from netsim.plots.sizes import AXIS, lines_of, sizes_figure, thinned
from netsim.plots.style import drawing, save
from netsim.report.words import Summary, at_base, blank, summary_of

# Column of results.csv, title, kind.
COLUMNS = (
    ("size_bytes", "size", "size"),
    ("algorithm", "algorithm", "text"),
    ("protocol", "protocol", "text"),
    ("time_us", "time", "time"),
    ("step_time_us", "step time", "time"),
    ("busbw_GBps", "bus bandwidth (GB/s)", "number"),
    ("speedup", "against base", "ratio"),
    ("cost_usd", "cost (USD)", "money"),
    ("power_w", "power (W)", "money"),
    ("error_pct", "error (%)", "number"),
    ("bound_by", "bound by", "text"),
    ("status", "status", "text"),
)
DIGITS = 6


def sheet_of(table: pd.DataFrame, axes: Sequence[str]) -> dict[str, Any]:
    """Columns that say anything: axes first."""
    columns = []
    for axis in axes:
        if AXIS + axis in table.columns:
            title = short(axis)
            columns.append(_column(table[AXIS + axis].tolist(), title, "text"))
    for name, title, kind in COLUMNS:
        if name in table.columns and not _told(table, name, axes):
            values = table[name].tolist()
            if _says_something(values, kind):
                columns.append(_column(values, title, kind))
    return {"rows": len(table), "columns": columns}


def _told(table: pd.DataFrame, name: str, axes: Sequence[str]) -> bool:
    same = [AXIS + axis for axis in axes if axis.rpartition(".")[2] == name]
    return any(
        one in table.columns and table[one].astype(str).equals(table[name].astype(str))
        for one in same
    )


def _says_something(values: Sequence[Any], kind: str) -> bool:
    known = {value for value in values if not blank(value)}
    return len(known) > (1 if kind == "text" else 0)


def _column(values: Sequence[Any], title: str, kind: str) -> dict[str, Any]:
    if kind == "text":
        texts = ["" if blank(value) else str(value) for value in values]
        known = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        return {"title": title, "kind": kind, "texts": list(known),
                "values": [known[text] for text in texts]}  # fmt: skip
    digits = 17 if kind == "size" else DIGITS  # a rounded 1 GiB would be shown as 1024 MiB
    numbers = [None if blank(v) else float(f"{float(v):.{digits}g}") for v in values]
    plain = [int(v) if v is not None and v == int(v) else v for v in numbers]
    return {"title": title, "kind": kind, "values": plain}


def page_json(values: Mapping[str, Any]) -> str:
    """JSON that can stand in a script element of a page, whatever it contains."""
    text = json.dumps(values, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


REPORT = "report.html"
PICTURES = "pictures"
MOST_LINES = 6  # cells drawn against size, beside the base: each has a colour of its own
LARGEST_PICTURE = 400_000  # bytes of an SVG; larger ones are shown as PNG


@dataclass(frozen=True)
class Picture:
    """A picture of the page: its heading, what it shows in words, and the file as a data URI."""

    title: str
    text: str
    uri: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class Extra:
    """What simulations tell: explanations by name, and the drawing of the best cell's topology."""

    explanations: Mapping[str, Mapping[str, Any]]
    topology: Path | None = None
    costs: pd.DataFrame | None = None


def write_report(folder: Path, manifest: Mapping[str, Any], table: pd.DataFrame, extra: Extra
                 ) -> Path:  # fmt: skip
    """Write the report of a folder, and its pictures as SVG and PNG."""
    table = _with_more(table, manifest, extra)
    good = table[table["status"].isin(["", "ok"])]
    summary = summary_of(table, good, manifest)
    pictures = _pictures(folder, good, manifest, extra, summary)
    environment = Environment(loader=PackageLoader("netsim.report", "page"), autoescape=True)
    script = _part("report.js")
    page = environment.get_template("report.html").render(
        name=manifest["scenario"],
        summary=summary,
        groups=pictures,
        sheet=Markup(page_json(sheet_of(table, manifest.get("axes", [])))),
        style=Markup(_part("report.css")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        manifest=manifest,
        explanations=extra.explanations,
        command=_command(manifest),
    )
    return write_text(folder / REPORT, page)


def _part(name: str) -> str:
    return (Path(__file__).parent / "page" / name).read_text(encoding="utf-8")


def _with_more(table: pd.DataFrame, manifest: Mapping[str, Any], extra: Extra) -> pd.DataFrame:
    """The rows with how they compare to the base line, and what their cells cost."""
    if extra.costs is not None:
        table = table.merge(extra.costs[["cell", "cost_usd", "power_w"]], on="cell", how="left")
    base = manifest.get("base") or {}
    if base:
        others = [c for c in table.columns if c.startswith(AXIS) and c[len(AXIS) :] not in base]
        keys = [*others, "size_bytes"]
        chosen = at_base(table, base)
        known = {tuple(map(str, row[:-1])): row[-1] for row in chosen[[*keys, "time_us"]].values}
        compared = [
            known.get(tuple(map(str, row[:-1])), nan) / row[-1] if row[-1] else nan
            for row in table[[*keys, "time_us"]].values
        ]
        table = table.assign(speedup=np.array(compared, np.float64))
    return table


def _command(manifest: Mapping[str, Any]) -> str:
    settings = "".join(f" --set '{text}'" for text in manifest.get("settings", []))
    return f"netsim run {manifest.get('file', manifest['scenario'])}{settings}"


def _pictures(
    folder: Path, good: pd.DataFrame, manifest: Mapping[str, Any], extra: Extra, summary: Summary
) -> dict[str, list[Picture]]:
    place = folder / PICTURES
    place.mkdir(exist_ok=True)
    size = shown_size(good) if len(good) else ""
    at = f" at {size}" if size else ""
    found = extra.explanations
    best = found.get("best") or next(iter(found.values()), None)
    what = best.get("title", "") if best else ""
    plans: list[tuple[str, str, str, str, Any]] = [
        ("results", "sizes", "Against message size", _shown(good),
         lambda: _sizes(good, manifest, summary)),
        ("results", "axes", f"What every axis does{at}",
         "The time of every cell at each value of an axis; the line is the median",
         lambda: axes_figure(good)),
        ("results", "heat", f"Two axes together{at}", "Median time for each pair of values",
         lambda: heat_figure(good)),
        ("results", "cost", f"Time against cost{at}", "Cells that none beats in both are marked",
         lambda: pareto_figure(good, "cost_usd", "cost (USD)")),
        ("results", "power", f"Time against power{at}", "Cells that none beats in both are marked",
         lambda: pareto_figure(good, "power_w", "power (W)")),
        ("why", "breakdown", "Where the time goes",
         f"The critical path of one {_operation(what)}, by cause",
         lambda: breakdown_figure(found) if found else None),
        ("why", "tornado", "What would change it",
         "The time with each parameter 10 % worse and better",
         lambda: tornado_figure(best, what) if best else None),
        ("why", "timeline", "The critical path", "All GPUs over time, the critical path in colour",
         lambda: timeline_figure(best, what) if best else None),
    ]  # fmt: skip
    groups: dict[str, list[Picture]] = {"results": [], "why": [], "topology": []}
    with drawing():
        for group, name, title, text, make in plans:
            figure = make() if len(good) else None
            if figure is not None:
                groups[group].append(_saved(figure, place / name, title, text))
    if extra.topology is not None:
        text = "Links of the best cell's topology, coloured by how much they are used"
        files = (extra.topology.name, extra.topology.with_suffix(".png").name)
        groups["topology"].append(Picture("Topology", text, _uri(extra.topology), files))
    return groups


def _shown(good: pd.DataFrame) -> str:
    """What the picture against size shows of so many cells."""
    count = good["cell"].nunique()
    if count <= MOST_LINES:
        return "Bus bandwidth and time of every cell"
    return f"{count} cells; some from one end to the other, and the base line, if any, have names"


def _operation(title: str) -> str:
    return title.rpartition(" on ")[0] or "operation"


def _saved(figure: Figure, stem: Path, title: str, text: str) -> Picture:
    files = save(figure, stem)
    return Picture(title, text, _uri(files[0]), tuple(file.name for file in files))


def _uri(svg: Path) -> str:
    """A picture as a data URI; in one, no script runs."""
    png = svg.with_suffix(".png")
    if svg.stat().st_size > LARGEST_PICTURE and png.exists():
        return f"data:image/png;base64,{base64.b64encode(png.read_bytes()).decode()}"
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.read_bytes()).decode()}"


def _sizes(good: pd.DataFrame, manifest: Mapping[str, Any], summary: Summary) -> Figure | None:
    """Cells against size: of many, some from the fastest to the slowest and the base are named."""
    if good["size_bytes"].nunique() < 2:
        return None
    lines = thinned(lines_of(good.assign(file="")), MOST_LINES, always=summary.base_cells[:1])
    return sizes_figure(lines, "", manifest.get("line_rate"))
