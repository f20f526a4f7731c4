"""Files of a sweep beside its results: comparison.csv and bands.csv."""

from collections.abc import Sequence
from pathlib import Path

from netsim.files import write_text
from netsim.results import Row
from netsim.scenario.axes import SEED
from netsim.scenario.cells import Expansion
from netsim.sweep.tables import bands_csv, comparison_csv


def write_tables(expansion: Expansion, rows: Sequence[Row], folder: Path) -> list[str]:
    """Write what the sweep asks for; the files."""
    axes, files = list(expansion.sweep.names), []
    if expansion.sweep.base:
        text = comparison_csv(rows, axes, expansion.sweep.base)
        files.append(write_text(folder / "comparison.csv", text))
    if SEED in axes and len({str(row.axes.get(SEED)) for row in rows}) > 1:
        files.append(write_text(folder / "bands.csv", bands_csv(rows, axes)))
    return [str(file) for file in files]
