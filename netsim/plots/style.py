"""How all pictures look: colours, markers, tick labels, and files that come out the same each time.

Pictures are made with the object interface of matplotlib, so that no global state is touched; the
settings below hold only while one is drawn."""

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

# Okabe and Ito (2008): distinguishable with any common color blindness.
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

Colour = str | tuple[float, float, float]

_DPI = 150  # of pictures; text is not as wide at all, so room for it is found at the same
_NOTEBOOK_DPI = 80  # of figures in notebooks: as wide as a column of text
_SETTINGS = Path(__file__).with_name("netsim.mplstyle")


@contextmanager
def drawing() -> Iterator[None]:
    """The settings of all pictures while one is drawn; what their font lacks is a box."""
    with mpl.rc_context(fname=_SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")
        yield


def wrapped(title: str, inches: float) -> str:
    """A title in lines that fit a figure of `inches` inches."""
    return "\n".join(wrap(title, int(11.5 * inches)))


class NotebookFigure(Figure):
    """A figure that a Jupyter notebook shows as a picture when it is the value of a cell.

    Notebooks show figures of `matplotlib.pyplot` only, which netsim does not use.
    """

    def _repr_png_(self) -> bytes:
        """The picture as a PNG file, as IPython asks for it."""
        picture = io.BytesIO()
        with drawing():
            self.savefig(picture, format="png", dpi=_NOTEBOOK_DPI, metadata={"Software": "netsim"})
        return picture.getvalue()


def new_figure(width: float, height: float) -> Figure:
    """An empty figure (inches) that makes room for what lies outside its axes."""
    return NotebookFigure(figsize=(width, height), dpi=_DPI, layout="constrained")


def one_panel(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure with axes that fill it."""
    figure = new_figure(width, height)
    return figure, figure.subplots()


def save(figure: Figure, stem: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write a figure as `stem` with each suffix; the same figure gives the same bytes."""
    engine = figure.get_layout_engine()
    if engine is not None:  # once for all formats: finding room takes longer than drawing
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
    """Draw figures, and write those that there are by name to a folder, which is made."""
    made_folder(folder)
    with drawing():
        made = ((name, draw()) for name, draw in figures.items())
        return [path for name, one in made if one is not None for path in save(one, folder / name)]


def size_axis(axes: Axes, smallest: float, largest: float) -> None:
    """A logarithmic axis of message sizes, with round sizes in bytes, KiB, MiB and GiB as ticks."""
    axes.set_xscale("log", base=2)
    low, high = int(log2(smallest) // 1), int(-(-log2(largest) // 1))
    step = next((s for s in (1, 2, 3, 5, 10) if (high - low) / s <= 11), 10)
    first = low + (-low + 3) % step if step == 3 else low  # 8 B, 64 B, 512 B, 4 KiB, …
    axes.xaxis.set_major_locator(FixedLocator([2.0**k for k in range(first, high + 1, step)]))
    axes.xaxis.set_minor_locator(FixedLocator([2.0**k for k in range(low, high + 1)]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: format_size(round(size))))
    axes.xaxis.set_minor_formatter(NullFormatter())
    pad = max(0.02 * (log2(largest) - log2(smallest)), 0.3)
    axes.set_xlim(2 ** (log2(smallest) - pad), 2 ** (log2(largest) + pad))


def time_axis(axes: Axes, smallest: float, largest: float) -> None:
    """A logarithmic y axis of times (µs), each tick with its unit."""
    axes.set_yscale("log")
    decades = [10.0**k for k in range(-4, 13)]
    inside = [d for d in decades if smallest / 10 < d < largest * 10]
    if largest / smallest < 30:  # a decade or less: label some of its parts as well
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
    """The unit that suits a time, and how many µs it has."""
    return next((pair for pair in TIMES if microseconds >= pair[1] * (1 - 1e-9)), TIMES[-1])


def tint(colour: Colour, strength: float) -> tuple[float, float, float]:
    """A colour mixed with white: 1 leaves it as it is, 0 is white."""
    red, green, blue = mpl.colors.to_rgb(colour)
    return (1 - (1 - red) * strength, 1 - (1 - green) * strength, 1 - (1 - blue) * strength)


class Shade(NamedTuple):
    """What a legend calls something, and its colour: a hue, and how strong it is."""

    words: str
    hue: str
    strength: float

    @property
    def colour(self) -> tuple[float, float, float]:
        """What it is drawn in."""
        return tint(self.hue, self.strength)


def looks(of: str) -> dict[str, Shade]:
    """The looks of causes, links, phases, …, as `looks.csv` has them and in its order."""
    return {
        row["name"]: Shade(
            row["words"], HUES.get(row["colour"], row["colour"]), float(row["strength"])
        )
        for row in table_beside(__file__, "looks.csv")
        if row["of"] == of
    }


# Reading the CSV files that pictures are drawn from, refusing what is something else.
# Every refusal names the file, the line and the column, and what was expected there.

RESULTS = ("scenario", "cell", "size_bytes", "time_us", "busbw_GBps")
TRACE = ("row", "kind", "channel", "step", "stream", "src", "dst", "start_us", "end_us")
LINKS = ("link", "kind", "capacity_GBps", "utilisation")
LOAD = ("link", "t_us", "GBps", "utilisation")


_FIGURE = re.compile(r"(?!error).*(_(us|pct|GB|usd|w|per_s)|GBps|bytes|utilisation)|p[0-9.]+|by:.*")


def read_table(path: Path, columns: Sequence[str], what: str) -> pd.DataFrame:
    """All cells of a CSV file as text, having the given columns; `what` names such files. The index
    holds the lines of the file."""
    try:
        header, rows, lines = _read(path, what, columns)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file", hint=f"expected {what}") from None
    except IsADirectoryError:
        raise InputError(f"{path}: a directory, expected {what}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error):
        text_of(path)  # it says where it is not UTF-8
        raise InputError(f"{path}: not a text file, expected {what}") from None
    return pd.DataFrame(rows, index=lines, columns=header, dtype=str)


def read_long_table(
    path: Path, columns: Sequence[str], what: str, only: Collection[str]
) -> pd.DataFrame:
    """As `read_table`, but of many rows only some columns, if there are such; a text that cells
    have in common is held once, as a category."""
    with suppress(OSError, ValueError):
        if (table := _read_at_once(path, columns, only)) is not None:
            return table
    return read_table(path, columns, what).astype("category")  # a mistake is named with its row


def _read_at_once(path: Path, columns: Sequence[str], only: Collection[str]) -> pd.DataFrame | None:
    """Columns of a file as pandas reads them; None where one is missing, or rows differ."""
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
    path: Path, what: str, columns: Sequence[str]
) -> tuple[list[str], list[list[str]], list[int]]:
    """Header, rows, and the line in which each of these ends."""
    with table_text(path) as file:
        reader = csv.reader(file)
        header = next(reader, None)
        if header is None:
            raise InputError(f"{path}: empty, expected {what}")
        for number, name in enumerate(header):
            if name in header[:number]:
                raise InputError(f"{path}:1: column {name} is there twice")
        for column in columns:  # before any row: the file may be large, and something else
            if column not in header:
                near = suggest(column, header)
                raise InputError(f"{path}:1: column {column} is missing, expected {what}{near}")
        rows, lines = [], []
        for row in reader:
            if len(row) != len(header):
                text = f"expected {len(header)} fields as in the header, got {len(row)}"
                raise InputError(f"{path}:{reader.line_num}: {text}")
            rows.append([csv_value(cell) for cell in row])
            lines.append(reader.line_num)
    return header, rows, lines


def read_values(path: Path, columns: Sequence[str], what: str) -> pd.DataFrame:
    """As `read_table`, with figures and other columns of nothing but numbers as such."""
    table = read_table(path, columns, what)
    figures = [str(column) for column in table.columns if _FIGURE.fullmatch(str(column))]
    table = with_numbers(path, table, figures).reset_index(drop=True)
    for column in table.columns.difference(figures):
        values = pd.to_numeric(table[column].where(table[column] != "", None), errors="coerce")
        if not (values.isna() & (table[column] != "")).any():
            table[column] = values
    return table


def numbers(path: Path, table: pd.DataFrame, column: str) -> pd.Series:
    """A column as numbers that a run may write, NaN where a cell is empty."""
    cells = pd.Categorical(table[column])  # a text that many cells have is read once
    text = pd.Series(cells.categories, dtype=str).str.strip()
    values = pd.to_numeric(text.where(text != "", None), errors="coerce").astype(float)
    none = np.flatnonzero((values.isna() & (text != "")).to_numpy()[cells.codes])
    if len(none):
        line, got = int(table.index[none[0]]), shown(str(text[cells.codes[none[0]]]))
        raise InputError(f"{path}:{line}: {column}: expected a number, got {got}")
    parsed = pd.Series(values.to_numpy()[cells.codes], table.index)
    wrong = parsed[(parsed < 0) | (parsed == np.inf)]
    refuse(path, wrong, column, "expected a finite number from 0 on")
    return parsed


def refuse(path: Path, wrong: pd.Series, column: str, why: str) -> None:
    """Refuse figures that no run writes: runs ask theirs for as much."""
    if len(wrong):
        place = f"{path}:{wrong.index[0]}: {column}: {why}, got {wrong.iloc[0]:.10g}"
        hint = "no run writes this, so the file was changed; run it again, or undo the change"
        raise InputError(place, hint=hint)


def with_numbers(path: Path, table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The table with some of its columns as numbers; those it lacks are left out."""
    present = [column for column in columns if column in table.columns]
    return table.assign(**{column: numbers(path, table, column) for column in present})


def filled(path: Path, table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The table with columns as numbers, none of which may be empty."""
    table = with_numbers(path, table, columns)
    for column in columns:
        missing = table.index[table[column].isna()]
        if len(missing):
            raise InputError(f"{path}:{int(missing[0])}: {column}: expected a number, got nothing")
    return table
