"""Pictures of results.csv: against size where there are sizes, side by side where there is one."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from netsim.plots.bars import bars_figure
from netsim.plots.lines import AXIS, Line, Lines, label_of, lines_of, read_results, thinned
from netsim.plots.sizes import sizes_figure
from netsim.plots.style import FORMATS, drawing, save
from netsim.units import format_size

MOST_LINES = 12  # in one figure; more become figures by a column that tells them apart
FEW_LINES = 7  # with names, where the others are drawn pale
MOST_FIGURES = 6  # beside the one of all


def plot_results(
    paths: Sequence[Path],
    out_dir: Path,
    formats: Sequence[str] = FORMATS,
    *,
    line_rate: float | None = None,
) -> list[Path]:
    """Draw one or several results.csv; the files written, none if there is nothing to draw.

    `line_rate` (GB/s) is drawn as a guide. More lines than a figure can show are pale behind some
    of them, and are spread over several figures, by the column with the fewest values.
    """
    table = read_results(paths)
    steps = table.get("step_time_us", pd.Series(dtype=float)).notna().reindex(table.index)
    parts = [
        *_parts("busbw", table[table["size_bytes"] > 0]),
        *_parts("step_time", table[~(table["size_bytes"] > 0) & steps.fillna(False)]),
    ]
    written: list[Path] = []
    out_dir.mkdir(parents=True, exist_ok=True)
    with drawing():
        for name, title, lines in parts:
            written += save(_figure(lines, title, line_rate), out_dir / name, formats)
    return written


def _figure(lines: Lines, title: str, line_rate: float | None) -> Figure:
    sizes = {size for line in lines.lines for size in line.table["size_bytes"].dropna()}
    if len(sizes) > 1:
        return sizes_figure(lines, title, line_rate)
    size = f" at {format_size(int(sizes.pop()))}" if sizes else ""
    return bars_figure(lines, title + size)


def _parts(name: str, table: pd.DataFrame) -> list[tuple[str, str, Lines]]:
    """File name, title and lines of each figure."""
    if table.empty:
        return []
    lines = lines_of(table)
    title = _title(table)
    if len(lines.lines) <= MOST_LINES or table["size_bytes"].nunique() < 2:
        return [(name, title, lines)]
    if len(lines.columns) < 2:
        return [(name, title, thinned(lines, FEW_LINES))]
    place = _splitting(lines)
    values = list(dict.fromkeys(line.values[place] for line in lines.lines))
    column = lines.columns[place].removeprefix(AXIS)
    drawn, told = values, ""
    if len(values) > MOST_FIGURES:
        steps = (round(k * (len(values) - 1) / (MOST_FIGURES - 1)) for k in range(MOST_FIGURES))
        drawn = [values[k] for k in steps]
        told = f"\n{MOST_FIGURES} of {len(values)} values of {column} have a picture each"
    return [
        (name, title + told, thinned(lines, FEW_LINES)),
        *(
            (f"{name}-{_plain(column)}-{_plain(value)}", f"{title}, {column} = {value}", part)
            for value in drawn
            for part in [thinned(_only(lines, place, value), FEW_LINES, MOST_LINES)]
        ),
    ]


def _splitting(lines: Lines) -> int:
    """The naming column with the fewest values, which makes the fewest figures."""
    counts = [len({line.values[k] for line in lines.lines}) for k in range(len(lines.columns))]
    return min(range(len(counts)), key=lambda k: (counts[k], k))


def _only(lines: Lines, place: int, value: str) -> Lines:
    """The lines that have a value in a column, named by the columns in which they still differ."""
    found = [line for line in lines.lines if line.values[place] == value]
    left = [k for k in range(len(lines.columns)) if len({line.values[k] for line in found}) > 1]
    columns = tuple(lines.columns[k] for k in left)
    named = (([line.values[k] for k in left], line.table) for line in found)
    return Lines(columns, tuple(Line(label_of(columns, v, t), tuple(v), t) for v, t in named))


def _title(table: pd.DataFrame) -> str:
    """What all rows have in common: `all_reduce on 4 x dgx-h100`."""
    collective, topology, hosts, ranks = (
        str(table[column].iloc[0])
        if column in table.columns and table[column].nunique() == 1
        else ""
        for column in ("collective", "topology", "nodes", "ranks")
    )
    many = topology and " x " not in topology and hosts not in ("", "1")
    where = f"{hosts} x {topology}" if many else topology or (f"{ranks} GPUs" if ranks else "")
    return " on ".join(filter(None, (collective, where)))


def _plain(text: str) -> str:
    """Text that can be part of a file name."""
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in text.rpartition(".")[2] or text)
