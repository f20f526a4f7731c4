"""Rows as text: the columns that nccl-tests users know, with what netsim adds."""

from collections.abc import Sequence

from netsim.results import Row
from netsim.results.nccl_tests import IN_PLACE, OUT_OF_PLACE, average_busbw, half, microseconds
from netsim.validated import NOT_VALIDATED

_WIDTH = 16  # of the column of an axis
SURE = 14  # characters of how a case is validated; the whole text is in the CSV


def header(axes: Sequence[str] = (), *, validated: bool = False) -> str:
    """The lines above the rows."""
    sure = f"  {'validated':<{SURE}}" if validated else ""
    names = "".join(f"  {_short(axis):<{_WIDTH}}" for axis in axes)
    part = f"  {'time':>7}  {'algbw':>6}  {'busbw':>6}"
    units = f"  {'(us)':>7}  {'(GB/s)':>6}  {'(GB/s)':>6}"
    return "\n".join(
        [
            f"#{'out-of-place':>61}{'in-place':>25}",
            f"# {'size':>10}  {'count':>12}  {'type':>8}{part}{part}{names}{sure}  bound by",
            f"# {'(B)':>10}  {'(elements)':>12}  {'':>8}{units}{units}",
        ]
    )


def line(row: Row, axes: Sequence[str] = (), *, validated: bool = False) -> str:
    """One row in the columns of the header."""
    values = "".join(f"  {row.axes.get(axis)!s:<{_WIDTH}}" for axis in axes)
    if row.status != "ok":
        return f"# {row.size_bytes} B{values}: {row.error}"
    fixed = f"{row.size_bytes:>12}  {row.count:>12}  {row.dtype:>8}"
    shown = f"  {sure(row.validated):<{SURE}}" if validated else ""
    return f"{fixed}{halves(row)}{values}{shown}  {row.bound_by}"


def sure(validated: str) -> str:
    """How a case is validated, in few characters: the error and from how many runs, or not."""
    end = " (" if validated.startswith(NOT_VALIDATED) else ")"
    return validated.split(end, maxsplit=1)[0] + (")" if end == ")" and validated else "")


def footer(rows: Sequence[Row]) -> str:
    """The mean of every bus bandwidth, as nccl-tests closes."""
    return f"# Avg bus bandwidth    : {average_busbw(rows):g}\n#"


def halves(row: Row) -> str:
    """The figures out of place and in place; N/A for what was not simulated."""
    return _half(row, OUT_OF_PLACE) + _half(row, IN_PLACE)


def _half(row: Row, which: str) -> str:
    if getattr(row, which) is None or row.algbw_GBps is None:
        return f"  {'N/A':>7}  {'N/A':>6}  {'N/A':>6}"
    time, algbw, busbw = half(row, which)
    return f"  {microseconds(time):>7}  {algbw:>6.2f}  {busbw:>6.2f}"


def _short(axis: str) -> str:
    """The last part of a dotted key, by which the title of a column is read."""
    return axis.rpartition(".")[2]
