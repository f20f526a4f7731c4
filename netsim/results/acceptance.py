"""The smallest bandwidth by size that a healthy machine should reach: part of what is simulated.

The table has the columns of measured runs, with the longest times that pass as their times.
"""

import csv
from collections.abc import Sequence
from io import StringIO

from netsim.results.nccl_tests import IN_PLACE, OUT_OF_PLACE, average_busbw, half, redop_of, root_of
from netsim.results.row import Row

PASSES = 0.9  # of NCCL_TESTS_MIN_BW is enough for nccl-tests (nccl-model.md §6)
COLUMNS = (
    *("size_bytes", "count", "dtype", "redop", "root"),
    *("oop_time_us", "oop_algbw_gbps", "oop_busbw_gbps"),
    *("ip_time_us", "ip_algbw_gbps", "ip_busbw_gbps"),
)


def acceptance_csv(rows: Sequence[Row], part: float, root: int = 0) -> str:
    """A line a size that could be simulated; `part` is what must be reached of its bandwidth."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        if row.status == "ok" and row.size_bytes:
            figures = [*_least(row, OUT_OF_PLACE, part), *_least(row, IN_PLACE, part)]
            fixed = [row.size_bytes, row.count, row.dtype, redop_of(row.collective)]
            writer.writerow([*fixed, root_of(row.collective, root), *figures])
    return text.getvalue()


def min_bandwidth(rows: Sequence[Row], part: float) -> float:
    """What to set NCCL_TESTS_MIN_BW to for the same test on the average of these sizes."""
    return part * average_busbw(rows) / PASSES


def _least(row: Row, which: str, part: float) -> list[str]:
    time, algbw, busbw = half(row, which)
    return [f"{time / part:.6g}", f"{algbw * part:.6g}", f"{busbw * part:.6g}"]
