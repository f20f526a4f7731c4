"""Cells that differ in their seed alone, as one: the median of each size, and percentiles."""

import pandas as pd

SEED = "axis:seed"
PERCENTILES = (5, 25, 75, 95)  # of those in bands.csv; the median takes the place of the time
BAND_NAMES = ("25 to 75 %", "5 to 95 %")
_TIMES = ("time_us", "step_time_us")


def over_seeds(table: pd.DataFrame) -> pd.DataFrame:
    """A row for all seeds of a cell and size, with how many there are in `seeds`, for each time its
    median, and its percentiles as `time_us_p5`; the table as it is, where seeds do not differ.
    """
    if SEED not in table.columns or table[SEED].nunique() < 2:
        return table
    axes = [str(c) for c in table.columns if str(c).startswith("axis:") and c != SEED]
    keys = [c for c in ("file", "scenario", *axes) if c in table.columns]
    cells = table.groupby(keys, sort=False, dropna=False).ngroup()
    table = table.assign(cell=table.groupby(cells)["cell"].transform("first"))
    groups = table.groupby(
        table.groupby([cells, "size_bytes"], sort=False, dropna=False).ngroup(), sort=False
    )
    rows: pd.DataFrame = groups.head(1).set_axis(pd.RangeIndex(groups.ngroups))
    for column in rows.select_dtypes("number").columns.difference(["size_bytes"]):
        if column in _TIMES:
            bands = {f"{column}_p{p}": groups[column].quantile(p / 100) for p in PERCENTILES}
            rows = rows.assign(**bands)
        rows = rows.assign(**{column: groups[column].median()})
    return rows.assign(seeds=groups.size()).drop(columns=[SEED, "seed"], errors="ignore")


def has_bands(table: pd.DataFrame, time: str = "time_us") -> bool:
    """Whether times are medians over seeds that made a difference."""
    low, high = (f"{time}_p{p}" for p in (PERCENTILES[0], PERCENTILES[-1]))
    return low in table.columns and bool((table[low] < table[high]).any())
