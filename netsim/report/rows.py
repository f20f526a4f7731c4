"""The function `run` of the Python API: the rows of a scenario as a list with a table and a
picture."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from netsim.base.errors import InputError, StalledError, shown
from netsim.results.row import Row, csv_text
from netsim.scenario.cells import Cell, Expansion, with_settings
from netsim.sweep.run import invalid_row
from netsim.tasks.answer import answer, checked, find_scenario, load_source, resolve_any
from netsim.tasks.row import untimed
from netsim.yamlio.read import Source

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

OF_PYTHON = "the scenario given to netsim.run"
ScenarioLike: TypeAlias = "str | Path | Mapping[str, Any]"


class Rows(list[Row]):
    """The rows of a run, in the order of results.csv: a list with a table and a picture.

    >>> import netsim
    >>> rows = netsim.run({"cluster": {"machine": "dgx-h100"},
    ...                    "workload": {"collective": "all_reduce", "sizes": ["1MiB", "1GiB"]}})
    >>> len(rows), rows[0].collective
    (2, 'all_reduce')
    >>> rows.to_frame()["size_bytes"].tolist()
    [1048576, 1073741824]
    """

    def to_frame(self) -> pd.DataFrame:
        """The rows as a pandas DataFrame with the columns of results.csv.

        A column `axis:NAME` for each axis of a sweep follows; an empty number is NaN and an empty
        text the empty string, as in a file that is read again."""
        from netsim.plots.sizes import frame_of

        return frame_of(io.StringIO(csv_text(self, self._axes())))

    def plot(self) -> Figure:
        """A matplotlib figure of the rows: bus bandwidth and time by size, or bars.

        If there is one size, each cell has a bar; training steps have bars of their times. If some
        rows have a size and some have none, those with a size are drawn. Raises an InputError if no
        row has a time. `figure.savefig("rows.png")` writes the figure."""
        from netsim.plots.results import figure_of_table

        return figure_of_table(self.to_frame())

    def _axes(self) -> list[str]:
        """The names of the axes of the sweep."""
        return list(dict.fromkeys(axis for row in self for axis in row.axes))


def run(scenario: ScenarioLike, settings: Sequence[str] = (), *, engine: str = "auto") -> Rows:
    """Simulate a scenario and return its rows: all cells at all sizes. No file is written.

    - `scenario`: a path, the name of a scenario that comes with netsim, or a mapping with the keys
      of a scenario file.
    - `settings`: texts `KEY=VALUE` that replace single values, as `netsim run --set` does.
    - `engine`: auto, compiled or simpy.

    An invalid cell raises an InputError before the first cell is simulated. In a sweep over failing
    parts (`faults: each nic`), a part that the job cannot lose is a row with its `error` and
    without a time.

    >>> rows = run("quickstart", ["sweep={}", "workload.algorithm=ring", "workload.sizes=64MiB"])
    >>> len(rows), rows[0].algorithm, f"{rows[0].time_us:.0f} us"
    (1, 'ring', '322 us')
    """
    settings = [settings] if isinstance(settings, str) else settings
    expansion = checked(_source_of(scenario, settings))
    expansion.refuse_invalid()
    rows = Rows()
    for point in expansion.points:
        if isinstance(point, Cell):
            rows += _rows_of_cell(point, expansion, engine)
        else:
            rows.append(invalid_row(point, expansion.cells[0].scenario.name or ""))
    return rows


def _rows_of_cell(cell: Cell, expansion: Expansion, engine: str) -> list[Row]:
    """The rows of a cell, one for each size."""
    resolved = resolve_any(cell)
    rows = []
    for size in cell.scenario.workload.size_list():
        try:
            row = answer(resolved, size, engine=engine)
        except StalledError as error:
            if expansion.is_healthy(cell):
                raise
            row = replace(untimed(cell), size_bytes=size or None, status="error", error=str(error))
        rows.append(row)
    return rows


def _source_of(scenario: ScenarioLike, settings: Sequence[str]) -> Source:
    """The scenario with its settings, from a file or from a mapping."""
    if not isinstance(scenario, Mapping):
        return load_source(find_scenario(str(scenario)).path, settings)
    data = {"name": "scenario", **_plain_mapping(scenario, ())}
    return with_settings(Source(OF_PYTHON, data), settings)


def _plain(value: object, path: tuple[str, ...]) -> Any:
    """A value as it would be read from a file; numbers of NumPy and paths are converted."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return _plain_mapping(value, path)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_plain(entry, (*path, str(place))) for place, entry in enumerate(value)]
    raise InputError(
        f"{'.'.join(path)}: expected what a scenario file may hold, got {shown(value)}",
        hint="texts, numbers, True, False, None, lists and mappings of these",
    )


def _plain_mapping(values: Mapping[Any, Any], path: tuple[str, ...]) -> dict[Any, Any]:
    """The mapping with plain values; its keys are not changed."""
    return {key: _plain(value, (*path, str(key))) for key, value in values.items()}
