"""The look of all pictures: colors, markers, tick labels, and files that are the same each time.

Pictures are made with the object interface of matplotlib, so that no global state is changed. The
settings below hold only while a picture is drawn.
"""

import csv
import io
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import log2
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from netsim.base.errors import InputError, shown, suggest
from netsim.base.files import csv_value, made_folder, replacing, table_beside, table_text, text_of
from netsim.base.units import format_size

# The colors of Okabe and Ito (2008), which people with common color blindness can distinguish.
HUES = {
    "blue": "#0072B2", "orange": "#D55E00", "green": "#009E73", "pink": "#CC79A7",
    "amber": "#E69F00", "sky": "#56B4E9", "black": "#000000", "yellow": "#F0E442",
    "grey": "#555555", "pale": "#d9d9d9",
}  # fmt: skip
BLUE, ORANGE, GREEN, PINK, AMBER, SKY, BLACK, YELLOW, GREY, PALE = HUES.values()
PALETTE = (BLUE, ORANGE, GREEN, PINK, AMBER, SKY, BLACK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*", "h", "p")
FORMATS = ("svg", "png")
TIMES = (("s", 1e6), ("ms", 1e3), ("µs", 1.0), ("ns", 1e-3))  # units and their microseconds

Color = str | tuple[float, float, float]

# Dots per inch of pictures. The width of text depends on it, so layouts are computed with it as
# well.
_DPI = 150
_NOTEBOOK_DPI = 80  # of figures in notebooks, which are then as wide as a column of text
_SETTINGS = Path(__file__).with_name("netsim.mplstyle")


@contextmanager
def drawing() -> Iterator[None]:
    """Use the settings of all pictures within the `with` block; missing glyphs cause no warning."""
    with mpl.rc_context(fname=_SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")
        yield


def wrapped(title: str, inches: float) -> str:
    """A title in lines that fit a figure with a width of `inches` inches."""
    return "\n".join(wrap(title, int(11.5 * inches)))


class NotebookFigure(Figure):
    """A figure that a Jupyter notebook shows as a picture when it is the value of a cell.

    Notebooks show figures of `matplotlib.pyplot` only, which netsim does not use.
    """

    def _repr_png_(self) -> bytes:
        """The picture as a PNG file, which IPython shows."""
        picture = io.BytesIO()
        with drawing():
            self.savefig(picture, format="png", dpi=_NOTEBOOK_DPI, metadata={"Software": "netsim"})
        return picture.getvalue()


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of a size in inches, with a layout that makes room for legends outside its
    axes."""
    return NotebookFigure(figsize=(width, height), dpi=_DPI, layout="constrained")


def one_panel(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure with one pair of axes that fills it."""
    figure = new_figure(width, height)
    return figure, figure.subplots()


def save(figure: Figure, stem: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write a figure as `stem` with the suffix of each format; return the files.

    The same figure gives the same bytes.
    """
    engine = figure.get_layout_engine()
    if engine is not None:  # once for all formats, since the layout takes longer than drawing
        engine.execute(figure)
        figure.set_layout_engine(None)
    made_by = {"svg": {"Date": None, "Creator": "netsim"}, "png": {"Software": "netsim"}}
    paths = []
    for kind in formats:
        path = stem.parent / f"{stem.name}.{kind}"
        with replacing(path) as stream:
            figure.savefig(stream, format=kind, dpi=_DPI, facecolor="white", metadata=made_by[kind])
        paths.append(path)
    return paths


def drawn(folder: Path, figures: Mapping[str, Callable[[], Figure | None]]) -> list[Path]:
    """Draw the figures and write each to a folder under its name; return the paths of the files.

    A function of `figures` that returns None has nothing to draw.
    """
    made_folder(folder)
    paths = []
    with drawing():
        for name, draw in figures.items():
            figure = draw()
            if figure is not None:
                paths += save(figure, folder / name)
    return paths


def size_axis(axes: Axes, smallest: float, largest: float) -> None:
    """Make the x axis a logarithmic axis of message sizes, with round sizes as ticks."""
    axes.set_xscale("log", base=2)
    low = int(log2(smallest) // 1)
    high = int(-(-log2(largest) // 1))
    step = next((doublings for doublings in (1, 2, 3, 5, 10) if (high - low) / doublings <= 11), 10)
    first = low + (-low + 3) % step if step == 3 else low  # 8 B, 64 B, 512 B, 4 KiB, …
    axes.xaxis.set_major_locator(FixedLocator([2.0**k for k in range(first, high + 1, step)]))
    axes.xaxis.set_minor_locator(FixedLocator([2.0**k for k in range(low, high + 1)]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: format_size(round(size))))
    axes.xaxis.set_minor_formatter(NullFormatter())
    pad = max(0.02 * (log2(largest) - log2(smallest)), 0.3)
    axes.set_xlim(2 ** (log2(smallest) - pad), 2 ** (log2(largest) + pad))


def time_axis(axes: Axes, smallest: float, largest: float) -> None:
    """Make the y axis a logarithmic axis of times (µs), with the unit at each tick."""
    axes.set_yscale("log")
    decades = [10.0**k for k in range(-4, 13)]
    inside = [d for d in decades if smallest / 10 < d < largest * 10]
    if largest / smallest < 30:  # with one or two decades, some of their parts are labeled too
        parts = (1, 2, 5) if largest / smallest > 5 else (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
        inside = [d * k for d in inside for k in parts]
    axes.yaxis.set_major_locator(FixedLocator(inside))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda time, _: time_text(time)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(smallest / 1.4, largest * 1.4)


def time_text(microseconds: float) -> str:
    """A time with its unit: `20 µs`, `1.5 ms`, `500 ns`."""
    unit, factor = time_unit(microseconds)
    return f"{microseconds / factor:.4g} {unit}"


def time_unit(microseconds: float) -> tuple[str, float]:
    """The name of the unit that suits a time in microseconds, and how many microseconds it has."""
    return next((pair for pair in TIMES if microseconds >= pair[1] * (1 - 1e-9)), TIMES[-1])


def tint(color: Color, strength: float) -> tuple[float, float, float]:
    """A color mixed with white, as (red, green, blue): strength 1 is the color itself,
    0 is white.
    """
    red, green, blue = mpl.colors.to_rgb(color)
    return (1 - (1 - red) * strength, 1 - (1 - green) * strength, 1 - (1 - blue) * strength)


class Shade(NamedTuple):
    """An entry of a legend: its words, and its color as a hue and the strength of the
    hue (0 to 1).
    """

    words: str
    hue: str
    strength: float

    @property
    def color(self) -> tuple[float, float, float]:
        """The hue, mixed with white by its strength, as (red, green, blue)."""
        return tint(self.hue, self.strength)


def looks(of: str) -> dict[str, Shade]:
    """By name, the words and the color of each thing of one kind, in the order of the table
    `looks.csv`.

    `of` is the kind: "cause", "link", "phase" and others.
    """
    return {
        row["name"]: Shade(
            row["words"], HUES.get(row["color"], row["color"]), float(row["strength"])
        )
        for row in table_beside(__file__, "looks.csv")
        if row["of"] == of
    }


# Reading the CSV files that pictures are drawn from. Every error names the file, the line and the
# column, and what was expected there.

RESULTS = ("scenario", "cell", "size_bytes", "time_us", "busbw_GBps")
TRACE = ("row", "kind", "channel", "step", "stream", "src", "dst", "start_us", "end_us")
LINKS = ("link", "kind", "capacity_GBps", "utilisation")
LOAD = ("link", "t_us", "GBps", "utilisation")


_FIGURE = re.compile(r"(?!error).*(_(us|pct|GB|usd|w|per_s)|GBps|bytes|utilisation)|p[0-9.]+|by:.*")


def read_table(path: Path, columns: Sequence[str], description: str) -> pd.DataFrame:
    """All cells of a CSV file as text, indexed by the line of each row in the file.

    An InputError is raised if the file lacks one of `columns`; `description` says in it which file
    is expected.
    """
    try:
        header, rows, lines = _read(path, description, columns)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file", hint=f"expected {description}") from None
    except IsADirectoryError:
        raise InputError(f"{path}: a directory, expected {description}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error):
        text_of(path)  # it says where it is not UTF-8
        raise InputError(f"{path}: not a text file, expected {description}") from None
    return pd.DataFrame(rows, index=lines, columns=header, dtype=str)


def read_long_table(
    path: Path, columns: Sequence[str], description: str, only: Collection[str]
) -> pd.DataFrame:
    """The cells of a large CSV file as text, like those of `read_table`; only the columns in
    `only`.

    Each different text is stored once (as a category), to save memory.
    """
    with suppress(OSError, ValueError):
        if (table := _read_at_once(path, columns, only)) is not None:
            return table
    return read_table(path, columns, description).astype("category")  # its errors name the row


def _read_at_once(path: Path, columns: Sequence[str], only: Collection[str]) -> pd.DataFrame | None:
    """Columns of a CSV file as pandas reads them; None if a column is missing or rows differ in
    length.

    None tells the caller to read the file line by line, for a precise error.
    """
    header = pd.read_csv(path, nrows=0, encoding="utf-8-sig").columns
    if not set(columns) <= {*header}:
        return None
    table = pd.read_csv(
        path,
        usecols=[column for column in header if column in only or column == header[-1]],
        dtype=str,
        na_filter=False,
        skip_blank_lines=False,
        encoding="utf-8-sig",
    )
    if not isinstance(table.index, pd.RangeIndex) or (table[header[-1]] == "").any():
        return None
    table.index += 2  # lines of the file, after the header
    table = table.astype("category")
    for column in table.columns:
        texts = table[column].cat.categories
        plain = [csv_value(text) for text in texts]
        if plain != [*texts]:
            table[column] = table[column].map(csv_value).astype("category")
    return table


def _read(
    path: Path, description: str, columns: Sequence[str]
) -> tuple[list[str], list[list[str]], list[int]]:
    """(header, rows, line number at which each row ends) of a CSV file, as text.

    An InputError names the line if the file is not a table with the columns `columns`.
    """
    with table_text(path) as file:
        reader = csv.reader(file)
        header = next(reader, None)
        if header is None:
            raise InputError(f"{path}: empty, expected {description}")
        for number, name in enumerate(header):
            if name in header[:number]:
                raise InputError(f"{path}:1: column {name} is there twice")
        for column in columns:  # checked before any row, as another file may be large
            if column not in header:
                near = suggest(column, header)
                raise InputError(
                    f"{path}:1: column {column} is missing, expected {description}{near}"
                )
        rows = []
        lines = []
        for row in reader:
            if len(row) != len(header):
                text = f"expected {len(header)} fields as in the header, got {len(row)}"
                raise InputError(f"{path}:{reader.line_num}: {text}")
            rows.append([csv_value(cell) for cell in row])
            lines.append(reader.line_num)
    return header, rows, lines


def read_values(path: Path, columns: Sequence[str], description: str) -> pd.DataFrame:
    """The table of a CSV file, as `read_table` gives it, with numeric columns as numbers.

    Columns of figures must have numbers; any other column becomes numeric if all its values are
    numbers.
    """
    table = read_table(path, columns, description)
    figures = [str(column) for column in table.columns if _FIGURE.fullmatch(str(column))]
    table = with_numbers(path, table, figures).reset_index(drop=True)
    for column in table.columns.difference(figures):
        values = pd.to_numeric(table[column].where(table[column] != "", None), errors="coerce")
        if not (values.isna() & (table[column] != "")).any():
            table[column] = values
    return table


def numbers(path: Path, table: pd.DataFrame, column: str) -> pd.Series:
    """A column as numbers of at least 0; NaN for an empty cell."""
    cells = pd.Categorical(table[column])  # so that a text of many cells is converted once
    text = pd.Series(cells.categories, dtype=str).str.strip()
    values = pd.to_numeric(text.where(text != "", None), errors="coerce").astype(float)
    none = np.flatnonzero((values.isna() & (text != "")).to_numpy()[cells.codes])
    if len(none):
        line = int(table.index[none[0]])
        got = shown(str(text[cells.codes[none[0]]]))
        raise InputError(f"{path}:{line}: {column}: expected a number, got {got}")
    parsed = pd.Series(values.to_numpy()[cells.codes], table.index)
    wrong = parsed[(parsed < 0) | (parsed == np.inf)]
    refuse(path, wrong, column, "expected a finite number from 0 on")
    return parsed


def refuse(path: Path, wrong: pd.Series, column: str, why: str) -> None:
    """Raise an InputError for the first value in `wrong`; nothing happens if it is empty.

    - `path`: the file.
    - `wrong`: values of the column `column` that no run writes, indexed by the lines of the file.
    - `why`: what was expected instead.
    """
    if len(wrong):
        place = f"{path}:{wrong.index[0]}: {column}: {why}, got {wrong.iloc[0]:.10g}"
        hint = "no run writes this, so the file was changed; run it again, or undo the change"
        raise InputError(place, hint=hint)


def with_numbers(path: Path, table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The table with the named columns as numbers; columns that the table lacks are skipped."""
    present = [column for column in columns if column in table.columns]
    return table.assign(**{column: numbers(path, table, column) for column in present})


def filled(path: Path, table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The table with the named columns as numbers; an empty cell in one of them raises an
    InputError.
    """
    table = with_numbers(path, table, columns)
    for column in columns:
        missing = table.index[table[column].isna()]
        if len(missing):
            raise InputError(f"{path}:{int(missing[0])}: {column}: expected a number, got nothing")
    return table
