"""What comparisons of logs and of traces have in common: the summary by size band, and
the files.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from math import inf
from pathlib import Path
from typing import Any

from netsim.base.files import write_text
from netsim.measured import compare
from netsim.measured.verdict import BandVerdict, Verdict
from netsim.results.row import BANDS
from netsim.results.workspace import OutputFolder

COMPARISON = "comparison.json"


def summary(
    bands: Mapping[str, compare.Error], counted: str = "sizes", verdict: Verdict | None = None
) -> Iterator[str]:
    """Yield a line with the error of each size band; with a verdict, also the allowed errors.

    `counted` is the noun for the points of a band, such as "sizes".
    """
    judged = {}
    if verdict is not None:
        judged = {band.band: band for band in verdict.bands}
    for band in (*BANDS, compare.ALL):
        if band in bands:
            error = bands[band]
            allowed = f"; {allowed_text(judged[band])}" if band in judged else ""
            yield (
                f"# {band:>12}: median error {error.median:6.1%}, 90th percentile "
                f"{error.p90:6.1%}, bias {error.bias:+.1%} ({error.points} {counted}){allowed}"
            )


def allowed_text(band: BandVerdict) -> str:
    """The errors that are allowed for a band, and whether its error is within them, as text."""
    verdict = "within" if not band.fails else "FAILS"
    return f"allowed {allowed_errors(band)}: {verdict}"


def allowed_errors(band: BandVerdict) -> str:
    """The errors that are allowed for a band, as text; a gate has only a lower limit (too slow)."""
    if band.highest == inf:
        return f"{band.lowest:+.0%} and above"
    return f"{band.lowest:+.0%} to {band.highest:+.0%}"


def write_comparison(
    values: list[dict[str, Any]],
    json_file: Path | None,
    output: OutputFolder | None,
    name: str,
    table: str,
    plot: Callable[[Path, Path], list[Path]],
    *,
    is_whole: bool,
) -> list[Path]:
    """Write a comparison as JSON to `json_file`, and as JSON, table and pictures to the folder
    `output`.

    Returns the files in the folder. If not `is_whole` (the command was interrupted), nothing that
    exists is replaced.

    Args:
        values: the comparison as plain values
        name: file name of the table in the folder
        table: text of the table
        plot: draws the table at the first path into the folder at the second; returns the pictures
    """
    text = json.dumps(values, indent=1) + "\n"
    if json_file is not None and (is_whole or not json_file.is_file()):
        write_text(json_file, text)
    if output is None or not (is_whole or not output.has_results()):
        return []

    def write(place: Path) -> list[Path]:
        written = write_text(place / name, table)
        return [written, write_text(place / COMPARISON, text), *plot(written, place)]

    return output.write(write)
